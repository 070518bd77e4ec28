"""The calls of one turn: groups side by side, results in call order, and what a lost call means (§9, decision 16)."""

from typing import Final, assert_never

from orchestral_temporal.core import attempts, calls, context, ending
from orchestral_temporal.core.effect_notes import settle_command
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.inputs import ToolBroken, ToolLost, ToolObserved
from orchestral_temporal.core.items import assistant_item
from orchestral_temporal.core.limits import ATTEMPTS_PER_CALL
from orchestral_temporal.core.state import (
    CallAt,
    CancelToolCall,
    EffectAt,
    EffectNote,
    InvokeTool,
    OpenCall,
    StopTimer,
    ToolsOpen,
    WakeAfter,
)
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import (
    BoundTool,
    Fence,
    ModelResult,
    ResultItem,
    ToolObservation,
    ToolRequest,
)
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelObservation
from orchestral_temporal.protocol.tools import (
    FENCED,
    Cancelled,
    Completed,
    Failed,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    ToolOutcome,
    UnknownEffect,
)

AT_WORK: Final = (CallAt.OPEN, CallAt.UNCERTAIN)
"""A call that the group still waits for."""


def open_calls(work: Work, observation: ModelObservation, result: ModelResult) -> None:
    """P12, then the calls of the turn."""
    state = work.state
    ceiling = calls.ceiling(state, RunLimitKind.MODEL_STEPS)
    if ceiling is not None and state.round >= ceiling:
        ending.limit(work, RunLimitKind.MODEL_STEPS, observation.response)
        return
    opened = calls.read(state, observation)
    if isinstance(opened, calls.Fatal):
        ending.fail(work, opened.code, opened.message)
        return
    item = assistant_item(observation, [each.arguments for each in opened.calls])
    assert item is not None, "a turn with calls has an item"
    context.add_item(work, item, result.item)
    phase = ToolsOpen(calls=opened.calls, usage=observation.usage)
    work.set(unreadable_turns=state.unreadable_turns + 1 if opened.unreadable else 0, phase=phase)
    _open_group(work, phase)


def _open_group(work: Work, phase: ToolsOpen) -> None:
    """Start the next calls: neighbours that are parallel-safe together, any other alone (E7, divergence 4).

    The call limit is reserved before the group starts, so a group may be cut to what is left of it.
    """
    ceiling = calls.ceiling(work.state, RunLimitKind.TOOL_CALLS)
    left = len(phase.calls) if ceiling is None else ceiling - work.state.tool_calls
    if left <= 0:
        ending.limit(work, RunLimitKind.TOOL_CALLS, work.state.last_response)
        return
    end = min(_group_end(work, phase), phase.index + left)
    work.set(tool_calls=work.state.tool_calls + end - phase.index, phase=phase.model_copy(update={"end": end}))
    for call in phase.calls[phase.index : end]:
        if call.refusal is None:
            _invoke(work, call)
        else:
            # What the run itself refuses needs no worker.
            _put(work, call, at=CallAt.SETTLED, observation=ToolObservation(outcome=call.refusal))
    _proceed(work)


def _group_end(work: Work, phase: ToolsOpen) -> int:
    def safe(call: OpenCall) -> bool:
        if call.refusal is not None:
            return True
        return _tool(work, call).descriptor.concurrency is ToolConcurrency.PARALLEL_SAFE

    end = phase.index + 1
    while safe(phase.calls[end - 1]) and end < len(phase.calls) and safe(phase.calls[end]):
        end += 1
    return end


def _tool(work: Work, call: OpenCall) -> BoundTool:
    part = work.state.tools_part
    assert part is not None, "a call is open only under a complete authority"
    return calls.bound_tool(part, call.tool_id)


def _phase(work: Work) -> ToolsOpen:
    phase = work.state.phase
    assert isinstance(phase, ToolsOpen), "calls are settled only while their turn is open"
    return phase


def _put(work: Work, call: OpenCall, **changes: object) -> OpenCall:
    """Replace a call by one that has changed."""
    changed = call.model_copy(update=changes)
    phase = _phase(work)
    placed = tuple(changed if each.invocation_id == call.invocation_id else each for each in phase.calls)
    work.set(phase=phase.model_copy(update={"calls": placed}))
    return changed


def _invoke(work: Work, call: OpenCall, **changes: object) -> None:
    call = _put(work, call, at=CallAt.OPEN, **changes)
    state = work.state
    descriptor = _tool(work, call).descriptor
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
    _note(work, call, "prepared")
    work.want(InvokeTool(request, state.round, call.name, timeout_ms, descriptor.idempotency))


def _note(work: Work, call: OpenCall, at: EffectAt, said: str = "") -> None:
    work.note(
        EffectNote(
            invocation_id=call.invocation_id,
            attempt=call.attempt,
            tool=call.name,
            idempotency=_tool(work, call).descriptor.idempotency if call.refusal is None else None,
            at=at,
            said=said,
        )
    )


def _open_call(phase: ToolsOpen, invocation_id: str, attempt: int) -> OpenCall | None:
    """The call that an answer is for; null for one that comes late or twice."""
    return next(
        (
            each
            for each in phase.calls
            if each.invocation_id == invocation_id and each.attempt == attempt and each.at in AT_WORK
        ),
        None,
    )


def ended(work: Work, phase: ToolsOpen, given: ToolObserved | ToolLost | ToolBroken) -> None:
    """Bring the end of one attempt of one call."""
    call = _open_call(phase, given.invocation_id, given.attempt)
    if call is None or call.at is not CallAt.OPEN:
        return
    match given:
        case ToolObserved(observation=observation):
            _settle(work, call, observation)
        case ToolLost():
            _lost(work, call, given)
        case ToolBroken():
            _broken(work, call, given)
        case _:
            assert_never(given)
    _proceed(work)


def _settle(work: Work, call: OpenCall, observation: ToolObservation) -> None:
    outcome = observation.outcome
    if isinstance(outcome, Completed | Failed | UnknownEffect):
        _note(work, call, "invoked")
    if isinstance(outcome, UnknownEffect):
        _unknown(work, call, outcome.message)
        return
    _note(work, call, "observed", outcome.status)
    _put(work, call, at=CallAt.SETTLED, observation=observation)


def _unknown(work: Work, call: OpenCall, message: str) -> None:
    _note(work, call, "unknown_effect", message)
    _put(work, call, at=CallAt.UNKNOWN, reason=message)


def _lost(work: Work, call: OpenCall, given: ToolLost) -> None:
    """A lost call runs again where that cannot double an effect; elsewhere the truth is waited for (decision 16)."""
    if given.fenced:
        call = _put(work, call, fenced=True)
        _note(work, call, "invoked")
    _note(work, call, "lost", given.reason)
    if call.late is not None:
        _take(work, call, call.late)
    elif given.stored is not None:
        _again(work, call, recorded=given.stored)
    elif call.recorded is not None or not given.fenced or not _once(work, call):
        _rerun(work, call, given)
    elif given.abandoned or _phase(work).stopping is not None:
        # The worker itself gave the call up: it has nothing more to say.
        _ask_or_give_up(work, call, given.reason)
    else:
        _put(work, call, at=CallAt.UNCERTAIN, reason=given.reason)
        work.want(WakeAfter(_grace_timer(call), work.state.uncertainty_grace_ms))


def _once(work: Work, call: OpenCall) -> bool:
    return _tool(work, call).descriptor.idempotency is ToolIdempotency.NON_IDEMPOTENT


def _rerun(work: Work, call: OpenCall, given: ToolLost) -> None:
    idempotency = _tool(work, call).descriptor.idempotency
    if _phase(work).stopping is not None:
        _settle(work, call, ToolObservation(outcome=Cancelled()))
    elif call.attempt >= ATTEMPTS_PER_CALL:
        _settle(work, call, ToolObservation(outcome=_worn_out(call, idempotency, given)))
    else:
        if not given.abandoned:
            ending.lose_and_restore(work, given.reason)
        _again(work, call)


def _worn_out(call: OpenCall, idempotency: ToolIdempotency, given: ToolLost) -> ToolOutcome:
    message = f"Its worker was lost {ATTEMPTS_PER_CALL} times, the last time so: {given.reason}"
    if call.fenced and idempotency in FENCED:
        return UnknownEffect(message=message)
    return Failed(code="worker_lost", message=message, retryable=False)


def _again(work: Work, call: OpenCall, **changes: object) -> None:
    _invoke(work, call, attempt=call.attempt + 1, late=None, **changes)


def _broken(work: Work, call: OpenCall, given: ToolBroken) -> None:
    """The worker itself failed around a call: the model is told, or, where an effect is possible, nobody guesses."""
    message = f"The worker failed: {given.reason}"
    possible = given.fenced or call.fenced
    if _tool(work, call).descriptor.idempotency not in FENCED or not possible:
        _settle(work, call, ToolObservation(outcome=Failed(code="tool_internal", message=message, retryable=False)))
    else:
        _ask_or_give_up(work, call, message)


def _ask_or_give_up(work: Work, call: OpenCall, reason: str) -> None:
    """Ask a tool that can tell what became of its effect, once an attempt; else the effect is unknown for ever."""
    stopping = _phase(work).stopping is not None
    if _tool(work, call).reconciles and not stopping and call.attempt < ATTEMPTS_PER_CALL:
        _again(work, call, reconcile=True)
        return
    _unknown(work, call, f"The call was lost: {reason}")


def _grace_timer(call: OpenCall) -> str:
    return f"grace/{call.invocation_id}/{call.attempt}"


def grace_over(work: Work, phase: ToolsOpen, timer: str) -> None:
    """Nobody has reported what became of an uncertain call."""
    for call in phase.calls:
        if call.at is CallAt.UNCERTAIN and timer == _grace_timer(call):
            if _once(work, call):
                _ask_or_give_up(work, call, call.reason)
            else:
                _again(work, call)
            _proceed(work)
            return


def outcome_arrived(work: Work, phase: ToolsOpen, fence: Fence) -> bool:
    """A worker reports on an attempt that the server has given up; false if it is none of this turn.

    The signal may come before the loss it answers: then it is kept until the loss is known.
    """
    call = _open_call(phase, fence.invocation_id, fence.attempt)
    if call is None or exact_digest(call.arguments) != fence.arguments_digest:
        return False
    told = fence.outcome is not None or fence.stored is not None
    if call.at is CallAt.OPEN:
        _put(work, call, late=fence if told or call.late is None else call.late)
    elif told:
        work.want(StopTimer(_grace_timer(call)))
        _take(work, call, fence)
        _proceed(work)
    else:
        work.want(WakeAfter(_grace_timer(call), work.state.uncertainty_grace_ms))
    return True


def unmeasured(observation: ToolObservation) -> ToolObservation:
    """An observation that came by fence: no activity result holds its text."""
    return observation.model_copy(update={"item": None})


def _take(work: Work, call: OpenCall, fence: Fence) -> None:
    """Use what a worker reported late."""
    if fence.outcome is not None:
        nothing_ran = isinstance(fence.outcome.outcome, Rejected)
        if nothing_ran and call.fenced and not _once(work, call):
            _again(work, call)  # true of that attempt, and of a keyed call it says nothing about the ones before
        else:
            _settle(work, call, unmeasured(fence.outcome))
    elif fence.stored is not None:
        _again(work, call, recorded=fence.stored)
    else:
        _put(work, call, at=CallAt.UNCERTAIN, reason="it is still at work")
        work.want(WakeAfter(_grace_timer(call), work.state.uncertainty_grace_ms))


def stop(work: Work, phase: ToolsOpen, command_id: str) -> None:
    """A cancel: open calls are waited for, since only their workers know what they did (C5, F016)."""
    work.set(phase=phase.model_copy(update={"stopping": command_id}))
    for call in phase.calls:
        if call.at is CallAt.OPEN:
            work.want(CancelToolCall(call.invocation_id))
        elif call.at is CallAt.UNCERTAIN:
            work.want(StopTimer(_grace_timer(call)))
            _unknown(work, call, f"The call was lost: {call.reason}")
    _proceed(work)


def _proceed(work: Work) -> None:
    """Commit what is settled in call order; when nothing of the group is at work, go on or end."""
    phase = _phase(work)
    while phase.index < phase.end and phase.calls[phase.index].at is CallAt.SETTLED:
        phase = _commit(work, phase)
    if any(call.at in AT_WORK for call in phase.calls):
        return
    unknown = [call for call in phase.calls if call.at is CallAt.UNKNOWN]
    for call in unknown:
        ending.remember_unknown(work, call, call.reason)
    if phase.stopping is not None:
        ending.cancelled(work, phase.stopping)
    elif unknown:
        first = unknown[0]
        remedy = f"ask its service, then tell the session with `{settle_command(first.invocation_id)}`"
        said = f"Nobody can say whether {first.name!r} took effect; {remedy}. {first.reason}"
        ending.fail(work, "tool_unknown_effect", said)
    elif phase.index < len(phase.calls):
        _open_group(work, phase)
    else:
        _close_turn(work, phase)


def _commit(work: Work, phase: ToolsOpen) -> ToolsOpen:
    call = phase.calls[phase.index]
    observation = call.observation
    assert observation is not None, "a settled call has an observation"
    outcome = observation.outcome
    assert not isinstance(outcome, UnknownEffect), "an unknown effect is never settled"
    item = ResultItem(part=tool_result(call.call_id, outcome))
    # What no worker measured stands in no activity result either: the next attempt carries its text.
    digest_of = context.add_item(work, item, observation.item, ours=observation.item is None)
    _note(work, call, "committed", outcome.status)
    settled = _phase(work).model_copy(update={"index": phase.index + 1, "results": (*phase.results, digest_of)})
    work.set(phase=settled)
    return settled


def _close_turn(work: Work, phase: ToolsOpen) -> None:
    """P14: the exchange, the boundary, the next round."""
    state = work.state
    assistant = state.headers[-len(phase.calls) - 1].digest
    ending.remember(
        work,
        event_id=ids.session_exchange_id(work.run_id, state.round),
        kind="tool_exchange_committed",
        items=(assistant, *phase.results),
        request_id=ids.model_request_id(work.run_id, state.round),
        usage=phase.usage,
    )
    attempts.commit_boundary(work, state.round + 1)
    attempts.open_round(work)
