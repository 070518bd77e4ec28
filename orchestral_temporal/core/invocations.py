"""One call of a turn on its way: started, settled, lost, asked for, unknown (decisions 15 and 16, divergence 3)."""

from typing import Final

from orchestral_temporal.core import calls, ending
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.inputs import ToolBroken, ToolLost
from orchestral_temporal.core.limits import ATTEMPTS_PER_CALL, REPORT_PAUSE_MS
from orchestral_temporal.core.state import (
    CallAt,
    EffectAt,
    EffectNote,
    InvokeTool,
    OpenCall,
    ToolsOpen,
    WakeAfter,
)
from orchestral_temporal.protocol.activities import (
    BoundTool,
    Fence,
    ToolObservation,
    ToolRequest,
)
from orchestral_temporal.protocol.tools import (
    FENCED,
    Cancelled,
    Completed,
    Failed,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    UnknownEffect,
)

AT_WORK: Final = (CallAt.OPEN, CallAt.UNCERTAIN)
"""A call that a worker may still report on."""


def tool_of(work: Work, call: OpenCall) -> BoundTool:
    """The bound tool of a call that `calls.read` has resolved."""
    part = work.state.tools_part
    assert part is not None, "a call is open only under a complete authority"
    return calls.bound_tool(part, call.tool_id)


def turn_of(work: Work) -> ToolsOpen:
    """The turn whose calls are open."""
    phase = work.state.phase
    assert isinstance(phase, ToolsOpen), "calls are settled only while their turn is open"
    return phase


def put(work: Work, call: OpenCall, **changes: object) -> OpenCall:
    """Replace a call by one that has changed."""
    changed = call.model_copy(update=changes)
    phase = turn_of(work)
    placed = tuple(changed if each.invocation_id == call.invocation_id else each for each in phase.calls)
    work.set(phase=phase.model_copy(update={"calls": placed}))
    return changed


def invoke(work: Work, call: OpenCall, **changes: object) -> None:
    """Start the next attempt of a call."""
    call = put(work, call, at=CallAt.OPEN, **changes)
    state = work.state
    descriptor = tool_of(work, call).descriptor
    request = ToolRequest(
        run_id=work.run_id,
        session_id=state.start.session_id,
        agent=state.start.options.agent,
        invocation_id=call.invocation_id,
        attempt=call.attempt,
        call_id=call.call_id,
        tool_id=call.tool_id,
        arguments=call.arguments,
        part_digest=state.tools_digest,
        workspaces=state.workspaces,
        reconcile=call.reconcile,
        recorded=call.recorded,
    )
    # Calls of a globally serial tool wait for one another inside the worker; their own time begins only after that.
    waits = descriptor.concurrency is ToolConcurrency.GLOBAL_SERIAL
    timeout_ms = None if waits else descriptor.restriction.bounds.max_timeout_ms
    note(work, call, "prepared")
    work.want(InvokeTool(request, state.round, call.name, timeout_ms, descriptor.idempotency))


def note(work: Work, call: OpenCall, at: EffectAt, said: str = "") -> None:
    """Say how far a call is."""
    work.note(
        EffectNote(
            invocation_id=call.invocation_id,
            attempt=call.attempt,
            tool=call.name,
            idempotency=tool_of(work, call).descriptor.idempotency if call.refusal is None else None,
            at=at,
            said=said,
        )
    )


def call_at_work(phase: ToolsOpen, invocation_id: str) -> OpenCall | None:
    """The call of that id, if the turn still waits for it."""
    return next((each for each in phase.calls if each.invocation_id == invocation_id and each.at in AT_WORK), None)


def observed(work: Work, call: OpenCall, observation: ToolObservation) -> None:
    """A worker says how an attempt ended."""
    ran = not (observation.reconciled or isinstance(observation.outcome, Rejected | Cancelled))
    if not _told_before(work, call, ran=ran, certain=isinstance(observation.outcome, Completed)):
        settle(work, call, observation)


def _told_before(work: Work, call: OpenCall, *, ran: bool, certain: bool = False) -> bool:
    """Use what the attempt that this one asked about has said of itself; false if it has said nothing of use.

    `ran`: this attempt may have let the tool loose. `certain`: it knows that there is an effect.
    """
    late = call.late
    if late is None or late.attempt == call.attempt:
        return False
    if (certain and not ran and not late.told) or (nothing_ran(late) and (ran or certain)):
        return False
    if ran and runs_once(work, call):
        unknown(work, call, "Its tool said that nothing had happened, ran again, and was found at work the first time.")
    else:
        take(work, put(work, call, late=None), late)
    return True


def nothing_ran(fence: Fence) -> bool:
    """Whether a worker says that its attempt did not begin."""
    return fence.outcome is not None and isinstance(fence.outcome.outcome, Rejected)


def settle(work: Work, call: OpenCall, observation: ToolObservation) -> None:
    """Keep how a call ended until its place in the turn has come."""
    outcome = observation.outcome
    if isinstance(outcome, Cancelled) and call.fenced and runs_once(work, call):
        # True of an attempt that was only to ask or to read; of the one that was lost it says nothing.
        unknown(work, call, f"The call was lost, and cancelled before anybody knew more: {call.reason}")
        return
    if isinstance(outcome, Completed | Failed | UnknownEffect):
        note(work, call, "invoked")
    if isinstance(outcome, UnknownEffect):
        unknown(work, call, outcome.message)
        return
    note(work, call, "observed", outcome.status)
    put(work, call, at=CallAt.SETTLED, observation=observation)


def unknown(work: Work, call: OpenCall, message: str) -> None:
    """Nobody can say whether the call took effect."""
    note(work, call, "unknown_effect", message)
    put(work, call, at=CallAt.UNKNOWN, reason=message)


def lost(work: Work, call: OpenCall, given: ToolLost) -> None:
    """A lost call runs again where that cannot double an effect; elsewhere the truth is waited for (decision 16)."""
    if given.fenced:
        call = put(work, call, fenced=call.attempt, reason=given.reason)
        note(work, call, "invoked")
    note(work, call, "lost", given.reason)
    if not given.abandoned:
        ending.lose_and_restore(work, given.reason)
    if _told_before(work, call, ran=given.fenced):
        return
    own = call.late if call.late is not None and call.late.attempt == call.attempt else None
    if own is not None and (given.stored is None or own.told):
        take(work, call, own)
    elif given.stored is not None:
        once_more(work, call, given.reason, recorded=given.stored)
    elif call.recorded is not None or not given.fenced or not runs_once(work, call):
        once_more(work, call, given.reason)
    elif given.abandoned:
        _ask_later(work, call, given.reason)
    else:
        _wait(work, call, given.reason)


def runs_once(work: Work, call: OpenCall) -> bool:
    """Whether a second execution of the call is never right."""
    return tool_of(work, call).descriptor.idempotency is ToolIdempotency.NON_IDEMPOTENT


def once_more(work: Work, call: OpenCall, reason: str, **changes: object) -> None:
    """Start another attempt under the same key, unless the run is ending or there were too many."""
    reading = changes.get("recorded", call.recorded) is not None  # nothing runs: an outcome is read, also at the end
    if (turn_of(work).closing and not reading) or call.attempt >= ATTEMPTS_PER_CALL:
        give_up(work, call, reason)
    else:
        invoke(work, call, attempt=call.attempt + 1, late=None, **changes)


def give_up(work: Work, call: OpenCall, reason: str) -> None:
    """There is no other attempt: what was behind a fence is unknown, but for a keyed call of a run that is ending."""
    closing = turn_of(work).closing
    possible = call.fenced and tool_of(work, call).descriptor.idempotency in FENCED
    if possible and (runs_once(work, call) or not closing):
        unknown(work, call, f"The call was lost: {reason}")
    elif closing:
        settle(work, call, ToolObservation(outcome=Cancelled()))
    else:
        message = f"Its worker was lost {call.attempt} times, the last time so: {reason}"
        settle(work, call, ToolObservation(outcome=Failed(code="worker_lost", message=message, retryable=False)))


def _wait(work: Work, call: OpenCall, reason: str, at_work: Fence | None = None) -> None:
    """Wait for what its worker may still report; a run that is ending does not."""
    if turn_of(work).closing:
        give_up(work, call, reason)
        return
    put(work, call, at=CallAt.UNCERTAIN, reason=reason)
    work.want(WakeAfter(grace_timer(call), grace_ms(work, at_work)))


def grace_ms(work: Work, at_work: Fence | None) -> int:
    """How long a lost call is waited for: its worker may have said when its next word comes, and one may be lost."""
    pause = 0 if at_work is None or at_work.next_ms is None else min(at_work.next_ms, REPORT_PAUSE_MS)
    return max(work.state.uncertainty_grace_ms, 2 * pause)


def broken(work: Work, call: OpenCall, given: ToolBroken) -> None:
    """The worker itself failed around a call: the model is told, or, where an effect is possible, nobody guesses."""
    message = f"The worker failed: {given.reason}"
    call = put(work, call, fenced=call.attempt if given.fenced else call.fenced, reason=given.reason)
    if _told_before(work, call, ran=given.fenced):
        return
    if tool_of(work, call).descriptor.idempotency not in FENCED or not call.fenced:
        settle(work, call, ToolObservation(outcome=Failed(code="tool_internal", message=message, retryable=False)))
    elif given.fenced:
        _ask_later(work, call, message)
    else:
        ask_or_give_up(work, call, message)


def _ask_later(work: Work, call: OpenCall, reason: str) -> None:
    """Its worker has given the call up and says no more, but its tool may still be at work there for some time.

    Asked at once, the tool could say that nothing has happened, and then it would.
    """
    if tool_of(work, call).reconciles and runs_once(work, call):
        _wait(work, call, reason)
    else:
        ask_or_give_up(work, call, reason)


def ask_or_give_up(work: Work, call: OpenCall, reason: str) -> None:
    """Ask a tool that can tell what became of its effect; else the effect is unknown for ever."""
    if tool_of(work, call).reconciles:
        once_more(work, call, reason, reconcile=True)
    else:
        unknown(work, call, f"The call was lost: {reason}")


def grace_timer(call: OpenCall) -> str:
    """The timer after which an uncertain attempt is not waited for any more."""
    return f"grace/{call.invocation_id}/{call.attempt}"


def unmeasured(observation: ToolObservation) -> ToolObservation:
    """An observation that came by fence: no activity result holds its text."""
    return observation.model_copy(update={"item": None})


def take(work: Work, call: OpenCall, fence: Fence) -> None:
    """Use what a worker reported late."""
    if fence.outcome is not None:
        if nothing_ran(fence) and call.fenced and not runs_once(work, call):
            # True of that attempt; of a keyed call it says nothing about the ones before.
            once_more(work, call, "its worker was frozen before the tool began")
        else:
            settle(work, call, unmeasured(fence.outcome))
    elif fence.stored is not None:
        once_more(work, put(work, call, fenced=fence.attempt), "its outcome is stored", recorded=fence.stored)
    else:
        waiting = put(work, call, fenced=fence.attempt)
        _wait(work, waiting, "its worker was silent for too long, and is still at work", fence)
