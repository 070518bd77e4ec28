"""Commands and starts: what is admitted, and what an accepted command does (`spec/agent-loop.md` §3, §11)."""

from typing import assert_never

from orchestral_temporal.core import attempts, batch, ending, input_queue, questions
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.limits import COMMANDS_PER_RUN, COMMANDS_RESERVED, MESSAGE_CHARACTERS, REFUSALS_KEPT
from orchestral_temporal.core.reducer import admit
from orchestral_temporal.core.start import Start, StartRefused, start_refused
from orchestral_temporal.core.state import Refusal, RunState, ToolsOpen
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import RunPart
from orchestral_temporal.protocol.admission import AgentAdmission, Incompatible, check_compatibility
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    Cancel,
    CommandAccepted,
    CommandRejected,
    ProviderCommandOutcome,
    ResolveRequest,
    Steer,
)
from orchestral_temporal.protocol.errors import (
    AgentProtocolErrorCode,
    AgentRejectionCode,
    ProtocolError,
    require,
)
from orchestral_temporal.protocol.events import CommandDispositionRecorded, CommandReceived
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.wal import CommandCommitted


def admit_start(start: Start, part: RunPart) -> AgentAdmission:
    """Check a start against the agent's descriptor, in the order of `spec/agent-loop.md` §3.

    Raises:
        StartRefused: with the wire's rejection code.
    """
    mine = part.descriptor.descriptor_digest
    if start.provider_binding not in (None, part.binding_ref) or start.expected_descriptor_digest not in (None, mine):
        raise start_refused(
            "The start names another agent or another version of it; `orchestral agents` prints the current digests.",
            AgentRejectionCode.RUN_ID_CONFLICT,
        )
    try:
        found = check_compatibility(part.descriptor.descriptor, start.envelope)
    except Incompatible as fault:
        raise StartRefused(fault.rejection) from fault
    _check_currency(start, part)
    for content in start.envelope.spec.input:
        if not input_queue.is_text(content):
            raise start_refused("The field 'input' must hold non-empty inline text/plain contents in this version.")
    return AgentAdmission(skipped_optional_bindings=found.skipped_optional_bindings)


def _check_currency(start: Start, part: RunPart) -> None:
    """Row 3: a cost limit is counted in the currency of the agent's price, or not at all."""
    limit, price = start.envelope.spec.limits.max_cost, part.price
    known = price.currency if price is not None else "no currency"
    if limit is not None and limit.currency != known:
        raise start_refused(
            f"The field 'limits.max_cost' is in {limit.currency}, and the agent's model is priced in {known}; "
            "give the limit in that, or leave it out.",
            AgentRejectionCode.UNSUPPORTED_CAPABILITY,
        )


def check(state: RunState, command: AgentCommandEnvelope) -> None:
    """Whether a run receives a command at all; changes nothing.

    Raises:
        ProtocolError: as `reducer.admit`; invalid_transition, the run has taken all the commands that it takes.
    """
    admit(state.run, command)
    beyond = {"resolve_request": COMMANDS_RESERVED, "cancel": 2 * COMMANDS_RESERVED}.get(command.payload.type, 0)
    require(
        command.command_id in state.run.commands or state.commands < COMMANDS_PER_RUN + beyond,
        AgentProtocolErrorCode.INVALID_TRANSITION,
        f"A run takes at most {COMMANDS_PER_RUN} commands; it can still be answered and cancelled.",
    )


def arrive(work: Work, command: AgentCommandEnvelope) -> None:
    """Receive a command, decide, put both on record, then act (C1, C5)."""
    try:
        check(work.state, command)
    except ProtocolError as fault:
        note_refusal(work, command.payload.type, f"{fault.error.code}: {fault.error.message}")
        return
    if command.command_id in work.state.run.commands:
        return
    work.set(commands=work.state.commands + 1)
    cause = command.command_id
    outcome = _decide(work, command)
    work.host(ids.host_command_received_id(work.run_id, cause), CommandReceived(command=command), cause)
    work.record(
        ids.wal_command_id(work.run_id, cause),
        CommandCommitted(command=command, outcome=outcome, approval_capability=None),
    )
    work.disposition(
        ids.disposition_id(work.run_id, cause),
        CommandDispositionRecorded(command_id=cause, outcome=outcome),
        cause,
    )
    if isinstance(outcome, CommandAccepted):
        _act(work, command)


def _decide(work: Work, command: AgentCommandEnvelope) -> ProviderCommandOutcome:
    phase = work.state.phase
    if isinstance(phase, ToolsOpen) and (phase.stopping is not None or phase.expired):
        return CommandRejected(code=AgentProtocolErrorCode.INVALID_TRANSITION, message="The run is stopping already.")
    match command.payload:
        case Cancel():
            return CommandAccepted()
        case Steer() as steer:
            if work.state.expired:
                message = "The deadline is past, and the run ends as soon as it has begun."
                return CommandRejected(code=AgentProtocolErrorCode.INVALID_TRANSITION, message=message)
            return input_queue.decide(work.state, command, steer)
        case ResolveRequest() as answer:
            return questions.decide(phase, answer)
        case _:
            assert_never(command.payload)


def _act(work: Work, command: AgentCommandEnvelope) -> None:
    match command.payload:
        case Cancel():
            _stop(work, command.command_id)
        case Steer() as steer:
            input_queue.take(work, command, steer)
        case ResolveRequest(response=answer):
            phase = work.state.phase
            assert isinstance(phase, ToolsOpen), "a question is pending only while its turn is open"
            assert isinstance(answer, InputResolution), "only an input is accepted"
            batch.answered(work, phase, command, answer)
        case _:
            assert_never(command.payload)


def _stop(work: Work, command_id: str) -> None:
    """An open call is waited for, since only its worker knows what it did; all else ends at once."""
    phase = work.state.phase
    if isinstance(phase, ToolsOpen):
        batch.stop(work, phase, command_id)
        return
    attempts.drop(work)
    ending.cancelled(work, command_id)


def note_refusal(work: Work, name: str, reason: str) -> None:
    """Keep the newest refusals for the view; nothing else changes."""
    refusal = Refusal(name=name[:80], reason=reason[:MESSAGE_CHARACTERS])
    work.set(refusals=(*work.state.refusals, refusal)[-REFUSALS_KEPT:])
