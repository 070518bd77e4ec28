"""What an event makes of a run: its preconditions and its effect (`spec/reducer.md` §3.4, §3.5, §4.2)."""

from typing import assert_never

from orchestral_temporal.core.projection import CommandEntry, Run, command_of, disposition_of, request_of
from orchestral_temporal.core.table import CONFIRMED, UNKNOWN, Phase
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Cancel, CommandAccepted, ResolveRequest, Steer
from orchestral_temporal.protocol.content import Content
from orchestral_temporal.protocol.delivery import AgentDelivery, PartialDelivery
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse, require
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentEventEnvelope,
    AgentJournalRecord,
    CommandDispositionRecorded,
    CommandReceived,
    ContinuityLost,
    ContinuityRestored,
    DeliveryCommitted,
    InputCommitted,
    OutputCommitted,
    RequestClosed,
    RequestOpened,
    RequestResolved,
    ResourceBindingSkipped,
    RunAccepted,
    RunCancelled,
    RunFailed,
    RunIncomplete,
    RunStarted,
    StopRequested,
)
from orchestral_temporal.protocol.requests import PendingRequest, request_kind, resolution_kind
from orchestral_temporal.protocol.state import ContinuityConfirmed, ContinuityUnknown
from orchestral_temporal.protocol.words import same

Changes = dict[str, object]
"""Fields of a run that an event replaces."""

_ILLEGAL = AgentProtocolErrorCode.INVALID_TRANSITION


def applied(run: Run, record: AgentJournalRecord) -> Run:
    """The run after a sealed event.

    Raises:
        ProtocolError: the event does not follow from the run; the code says which rule it breaks.
    """
    event = record.event
    _check_support(run, event.payload)
    require(run.phase is not Phase.ENDED, AgentProtocolErrorCode.TERMINAL_RUN, "The run has ended; nothing follows.")
    table = CONFIRMED if isinstance(run.continuity, ContinuityConfirmed) else UNKNOWN
    phase = table.get(event.payload.type, {}).get(run.phase)
    require(phase is not None, _ILLEGAL, f"A {event.payload.type} event cannot come now.")
    changes: Changes = {"phase": phase, "continuity": ContinuityConfirmed(through_seq=event.run_seq)}
    changes.update(_changes(run, event))
    return _recorded(run, record, changes)


def quarantined(run: Run, record: AgentJournalRecord, reason: str) -> Run:
    """The run after an event that breaks a rule: it is on record, and continuity is unknown from here on."""
    known = run.continuity
    confirmed = known.through_seq if isinstance(known, ContinuityConfirmed) else known.last_confirmed_seq
    continuity = ContinuityUnknown(
        last_confirmed_seq=confirmed, loss_event_digest=record.event.event_digest, reason=reason
    )
    return _recorded(run, record, {"continuity": continuity})


def check_answer(run: Run, command: AgentCommandEnvelope) -> None:
    """Check that a command which answers a request answers a pending one, and in its kind.

    Raises:
        ProtocolError: request_not_found or request_type_mismatch.
    """
    if isinstance(command.payload, ResolveRequest):
        require(
            command.request_id in run.pending,
            AgentProtocolErrorCode.REQUEST_NOT_FOUND,
            "`request_id` names no pending request; look at the view for those that are.",
        )
        request = request_of(run, command.request_id or "")
        require(
            resolution_kind(command.payload.response) is request_kind(request),
            AgentProtocolErrorCode.REQUEST_TYPE_MISMATCH,
            f"The request wants an answer of kind {request_kind(request)}.",
        )


def _recorded(run: Run, record: AgentJournalRecord, changes: Changes) -> Run:
    """The run with a record at its end, found again by the event's id."""
    event = record.event
    seen = {**run.event_ids, event.event_id: event.run_seq}
    return run.model_copy(update={"records": (*run.records, record), "event_ids": seen, **changes})


def _changes(run: Run, event: AgentEventEnvelope) -> Changes:  # noqa: C901, PLR0911, PLR0912 -- one case a kind of event
    payload = event.payload
    match payload:
        case RunAccepted():
            return _accept(run, payload)
        case ResourceBindingSkipped():
            return _skip(run, payload)
        case RunStarted():
            return _start(run)
        case CommandReceived():
            return _receive(run, event, payload.command)
        case CommandDispositionRecorded():
            return _dispose(run, event, payload)
        case InputCommitted():
            return _commit_input(run, event, payload)
        case OutputCommitted():
            return _commit_output(run, payload)
        case RequestOpened():
            return _open(run, event, payload.request)
        case RequestResolved():
            return _resolve(run, event, payload)
        case RequestClosed():
            return _settle(run, payload.request_id)
        case StopRequested():
            return _stop(run, event, payload)
        case DeliveryCommitted():
            return _deliver(run, payload.delivery)
        case RunIncomplete():
            return _end_incomplete(run, payload.partial_delivery)
        case RunFailed() | RunCancelled():
            return {"pending": {}}
        case ContinuityLost():
            return _lose(run, event, payload)
        case ContinuityRestored():
            return _restore(run, payload)
        case _:
            assert_never(payload)


def _check_support(run: Run, payload: AgentEvent) -> None:
    """A delivery rests on events of the run; this is judged first, so its code stands even after the end (§3.4)."""
    delivery = None
    if isinstance(payload, DeliveryCommitted):
        delivery = payload.delivery
    elif isinstance(payload, RunIncomplete):
        delivery = payload.partial_delivery
    if delivery is not None:
        require(
            run.event_ids.keys() >= set(delivery.provenance.supporting_event_ids),
            _ILLEGAL,
            "`supporting_event_ids` names an event that the run does not have.",
        )


def _accept(run: Run, payload: RunAccepted) -> Changes:
    require(
        not run.records
        and (payload.session_id, payload.spec_digest) == (run.execution.session_id, run.execution.spec_digest),
        _ILLEGAL,
        "The acceptance is not the first event, or is of another session or spec.",
    )
    return {}


def _skip(run: Run, payload: ResourceBindingSkipped) -> Changes:
    require(
        payload.skip in run.admission.skipped_optional_bindings and payload.skip.binding_id not in run.reported,
        _ILLEGAL,
        "The skip is not one that the run was admitted with, or is reported already.",
    )
    return {"reported": (*run.reported, payload.skip.binding_id)}


def _start(run: Run) -> Changes:
    require(
        len(run.reported) == len(run.admission.skipped_optional_bindings),
        _ILLEGAL,
        "A skip that the run was admitted with is not reported yet.",
    )
    return {}


def _ledger(run: Run, command_id: str, entry: CommandEntry) -> Changes:
    """The ledger of commands with one entry new."""
    return {"commands": {**run.commands, command_id: entry}}


def _receive(run: Run, event: AgentEventEnvelope, command: AgentCommandEnvelope) -> Changes:
    require(
        command.run_id == run.execution.run_id and event.causation_id == command.command_id,
        _ILLEGAL,
        "The command is of another run, or the event is caused by another command.",
    )
    require(
        command.command_id not in run.commands,
        AgentProtocolErrorCode.DUPLICATE_CONFLICT,
        "The command is received already.",
    )
    check_answer(run, command)
    return _ledger(run, command.command_id, CommandEntry(received_seq=event.run_seq))


def _dispose(run: Run, event: AgentEventEnvelope, payload: CommandDispositionRecorded) -> Changes:
    entry = run.commands.get(payload.command_id)
    if entry is None or entry.disposition_seq is not None or event.causation_id != payload.command_id:
        refuse(_ILLEGAL, "The disposition is of no received command, is a second one, or is caused by another command.")
    return _ledger(run, payload.command_id, entry.model_copy(update={"disposition_seq": event.run_seq}))


def _cause(run: Run, event: AgentEventEnvelope) -> tuple[AgentCommandEnvelope, Changes]:
    """The accepted command behind an effect, and the ledger with the effect in it."""
    entry = run.commands.get(event.causation_id or "")
    found = disposition_of(entry, run) if entry is not None else None
    if (
        entry is None
        or found is None
        or not isinstance(found.outcome, CommandAccepted)
        or entry.applied_seq is not None
    ):
        refuse(_ILLEGAL, "The event is caused by no accepted command, or by one that has had its effect.")
    command = command_of(run, found.command_id)
    return command, _ledger(run, found.command_id, entry.model_copy(update={"applied_seq": event.run_seq}))


def _commit_input(run: Run, event: AgentEventEnvelope, payload: InputCommitted) -> Changes:
    command, changes = _cause(run, event)
    require(
        isinstance(command.payload, Steer) and _same_contents(command.payload.content, payload.content),
        _ILLEGAL,
        "The input is not the content of the steer behind it.",
    )
    return changes


def _same_contents(left: tuple[Content, ...], right: tuple[Content, ...]) -> bool:
    return len(left) == len(right) and all(map(same, left, right))


def _commit_output(run: Run, payload: OutputCommitted) -> Changes:
    require(payload.output_id not in run.outputs, _ILLEGAL, "The output is committed already.")
    return {"outputs": (*run.outputs, payload.output_id)}


def _open(run: Run, event: AgentEventEnvelope, request: PendingRequest) -> Changes:
    require(
        request_kind(request) in run.request_kinds
        and request.request_id not in run.pending
        and request.request_id not in run.settled,
        _ILLEGAL,
        "The agent does not declare this kind of request, or the request's id is used.",
    )
    return {"pending": {**run.pending, request.request_id: event.run_seq}}


def _settle(run: Run, request_id: str) -> Changes:
    """A pending request is pending no more, and its id is used up."""
    require(request_id in run.pending, _ILLEGAL, "The request is not pending.")
    remaining = {each: opened for each, opened in run.pending.items() if each != request_id}
    return {"pending": remaining, "settled": (*run.settled, request_id)}


def _resolve(run: Run, event: AgentEventEnvelope, payload: RequestResolved) -> Changes:
    changes = _settle(run, payload.request_id)
    require(
        resolution_kind(payload.resolution) is request_kind(request_of(run, payload.request_id)),
        AgentProtocolErrorCode.REQUEST_TYPE_MISMATCH,
        "The answer is not of the request's kind.",
    )
    command, ledger = _cause(run, event)
    require(
        isinstance(command.payload, ResolveRequest)
        and command.request_id == payload.request_id
        and same(command.payload.response, payload.resolution),
        _ILLEGAL,
        "The answer is not the one of the command behind it.",
    )
    return {**changes, **ledger}


def _stop(run: Run, event: AgentEventEnvelope, payload: StopRequested) -> Changes:
    command, changes = _cause(run, event)
    require(
        isinstance(command.payload, Cancel) and command.payload.reason == payload.reason,
        _ILLEGAL,
        "The stop is not the one that the cancel behind it asks for.",
    )
    return changes


def _check_binding(run: Run, delivery: AgentDelivery | PartialDelivery, response: Content | None) -> None:
    """A delivery, whole or partial, is of this run, spec and agent, and has the schema that was asked for."""
    execution, origin = run.execution, delivery.provenance
    require(
        (delivery.run_id, delivery.spec_digest, origin.provider_id, origin.agent_id)
        == (execution.run_id, execution.spec_digest, execution.provider_id, execution.agent_id),
        AgentProtocolErrorCode.INVALID_DIGEST,
        "The delivery is of another run, spec or agent.",
    )
    require(
        run.output_schema is None or response is None or response.schema_id == run.output_schema,
        AgentProtocolErrorCode.INVALID_DIGEST,
        "The response has not the schema that the run asked for.",
    )


def _deliver(run: Run, delivery: AgentDelivery) -> Changes:
    require(not run.pending, _ILLEGAL, "A request is pending; settle it before the delivery.")
    _check_binding(run, delivery, delivery.final_response)
    return {}


def _end_incomplete(run: Run, partial: PartialDelivery | None) -> Changes:
    if partial is not None:
        _check_binding(run, partial, partial.response)
    return {"pending": {}}


def _lose(run: Run, event: AgentEventEnvelope, payload: ContinuityLost) -> Changes:
    require(payload.last_confirmed_seq == run.last_run_seq, _ILLEGAL, "The loss does not begin at the last event.")
    return {
        "continuity": ContinuityUnknown(
            last_confirmed_seq=payload.last_confirmed_seq,
            loss_event_digest=event.event_digest,
            reason=payload.reason,
        )
    }


def _restore(run: Run, payload: ContinuityRestored) -> Changes:
    lost, proof = run.continuity, payload.proof
    require(
        isinstance(lost, ContinuityUnknown)
        and (proof.last_confirmed_seq, proof.loss_event_digest) == (lost.last_confirmed_seq, lost.loss_event_digest),
        _ILLEGAL,
        "The proof is for another loss.",
    )
    return {}
