"""The agent loop: `advance(state, input) -> Step`, the one door through which a run changes (`spec/agent-loop.md` §5).

Total by construction: every input has an answer in every phase; what comes too late, or for an attempt that is no
longer open, changes nothing.
"""

from typing import Final, assert_never

from orchestral_temporal.core import attempts, batch, commands, context, ending, turn
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.inputs import (
    BatchAppended,
    BatchRefused,
    Bound,
    CommandArrived,
    CommandsRead,
    Input,
    ModelFailed,
    ModelFinished,
    ModelLost,
    MomentPast,
    OutcomeArrived,
    PayloadRefused,
    SessionReady,
    TimeReached,
    ToolBroken,
    ToolLost,
    ToolObserved,
)
from orchestral_temporal.core.items import measure, offered, system_item, tools_item, user_item
from orchestral_temporal.core.reducer import begin as begin_run
from orchestral_temporal.core.start import Start
from orchestral_temporal.core.state import (
    Ended,
    ModelOpen,
    ModelWaiting,
    Preparing,
    RunState,
    SessionCursor,
    Step,
    ToolsOpen,
    WakeAfter,
    WakeAt,
)
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import Binding, Fence, RunPart
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.events import ResourceBindingSkipped, RunAccepted, RunStarted
from orchestral_temporal.protocol.run import AgentStartRequest

DEADLINE: Final = "deadline"
"""The timer of the run's deadline."""

PAST_MS: Final = 10_000
"""How long a run whose deadline was past at its start may take to begin and say so."""


def begin(start: Start, part: RunPart, binding: Binding) -> Step:
    """Accept a run: `RunAccepted` is its first event.

    Raises:
        StartRefused: the agent cannot serve this spec; nothing is created.
    """
    request = AgentStartRequest(
        run=start.envelope,
        provider_binding=part.binding_ref,
        expected_descriptor_digest=part.descriptor.descriptor_digest,
    )
    admission = commands.admit_start(start, part)
    run = begin_run(request, part.descriptor, admission)
    timeouts = binding.timeouts
    work = Work(
        RunState(
            start=start,
            run=run,
            run_part=part,
            live_text_ms=timeouts.live_text_ms,
            uncertainty_grace_ms=timeouts.uncertainty_grace_ms,
        )
    )
    spec = start.envelope.spec
    work.host(
        ids.host_run_accepted_id(start.run_id),
        RunAccepted(session_id=spec.session_id, spec_digest=start.envelope.spec_digest),
    )
    for skip in admission.skipped_optional_bindings:
        work.host(ids.host_resource_skip_id(start.run_id, skip.binding_id), ResourceBindingSkipped(skip=skip))
    deadline = spec.limits.deadline_unix_ms
    if deadline is not None:
        work.want(WakeAt(DEADLINE, deadline))
    _bind(work, binding)
    return work.step()


def advance(state: RunState, given: Input) -> Step:  # noqa: C901, PLR0912 -- one case for each kind of input
    """The answer to one input."""
    work = Work(state)
    match given:
        case Bound(binding):
            if isinstance(state.phase, Preparing):
                _bind(work, binding)
        case SessionReady(opened) if state.session is None:
            cursor = SessionCursor(
                first_seq=opened.last_seq + 1,
                last_seq=opened.last_seq,
                appended_seq=opened.last_seq,
                head=opened.head,
            )
            work.set(session=cursor)
            _start_when_ready(work)
            ending.close_when_ended(work)
        case CommandArrived(command):
            work.set(received=state.received + 1)
            commands.arrive(work, command)
        case CommandsRead():
            attempts.interrupt(work)
        case PayloadRefused(name, reason):
            work.set(received=state.received + 1)
            commands.note_refusal(work, name, reason)
        case SessionReady():
            pass
        case BatchAppended(number, appended):
            ending.batch_appended(work, number, appended)
        case BatchRefused(number, reason):
            if ending.batch_refused(work, number):
                _session_lost(work, f"The session does not take this run's records: {reason}")
        case ModelFinished() | ModelFailed() | ModelLost():
            if isinstance(state.phase, ModelOpen):
                _model_ended(work, state.phase, given)
        case ToolObserved() | ToolLost() | ToolBroken():
            if isinstance(state.phase, ToolsOpen):
                batch.ended(work, state.phase, given)
        case OutcomeArrived(fence):
            _outcome_arrived(work, fence)
        case MomentPast():
            # The input is committed all the same, and the start is on record (F1); if no worker comes for that, not.
            work.set(expired=True)
            work.want(WakeAfter(DEADLINE, PAST_MS))
        case TimeReached(timer):
            _time_reached(work, timer)
        case _:
            assert_never(given)
    return work.step()


def _bind(work: Work, binding: Binding) -> None:
    if binding.model is not None:
        work.set(model_part=binding.model)
    if binding.tools is not None:
        work.set(tools_part=binding.tools, workspaces=binding.workspaces)
    _start_when_ready(work)


def _start_when_ready(work: Work) -> None:
    """Commit the input and open round 1 once authority and session are complete (`spec/agent-loop.md` §3)."""
    state = work.state
    model, tools = state.model_part, state.tools_part
    if not isinstance(state.phase, Preparing) or model is None or tools is None or state.session is None:
        return
    model_digest, tools_digest = digest(model), digest(tools)
    work.set(
        model_digest=model_digest,
        tools_digest=tools_digest,
        config_digest=digest([digest(state.run_part), model_digest, tools_digest]),
        tools_part=offered(tools, model),
        tools=measure(tools_item(offered(tools, model))),
    )
    system = system_item(state.run_part)
    if system is not None:
        context.add_item(work, system)
    given = user_item(state.start.envelope.spec.input)
    item = context.add_item(work, given)
    ending.remember(
        work,
        event_id=ids.session_input_id(work.run_id),
        kind="run_input_committed",
        items=(item,),
    )
    attempts.commit_boundary(work, 1)
    started = ids.generic_event_id(work.run_id, "started")
    work.provider((started, RunStarted(), None))
    work.set(supporting=(started,))
    if work.state.expired:
        ending.deadline(work)
    else:
        attempts.open_round(work)


def _model_ended(work: Work, phase: ModelOpen, given: ModelFinished | ModelFailed | ModelLost) -> None:
    if (given.round, given.attempt) != (work.state.round, phase.attempt):
        return
    match given:
        case ModelFinished(result=result):
            turn.observe(work, phase, result)
        case ModelFailed():
            attempts.failed(work, phase, given)
        case ModelLost():
            attempts.lost(work, phase, given)
        case _:
            assert_never(given)


def _session_lost(work: Work, message: str) -> None:
    """Fail the run, but hear first what the calls at work have done; one that has ended can only say it (K14)."""
    match work.state.phase:
        case Ended():
            commands.note_refusal(work, "session", message)
        case ToolsOpen() as tools:
            batch.fail_when_settled(work, tools, message)
        case _:
            attempts.drop(work)
            ending.session_lost(work, message)


def _time_reached(work: Work, timer: str) -> None:
    if timer == DEADLINE:
        _deadline_reached(work)
        return
    match work.state.phase:
        case ModelWaiting() as waiting:
            attempts.retry_due(work, waiting, timer)
        case ToolsOpen() as tools:
            batch.grace_over(work, tools, timer)
        case _:
            pass


def _deadline_reached(work: Work) -> None:
    """End the run, unless something has ended it before: the first of all stops wins (F1, F2, §12)."""
    match work.state.phase:
        case Preparing():
            ending.deadline(work)
        case ToolsOpen(closing=False) as tools:
            batch.expire(work, tools)
        case ModelOpen() | ModelWaiting():
            attempts.drop(work)
            ending.deadline(work)
        case _:
            pass


def _outcome_arrived(work: Work, fence: Fence) -> None:
    phase = work.state.phase
    if not isinstance(phase, ToolsOpen) or not batch.outcome_arrived(work, phase, fence):
        commands.note_refusal(work, "outcome", f"No open call waits for {fence.invocation_id!r}.")
