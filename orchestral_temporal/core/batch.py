"""The calls of one turn: groups side by side, results in call order, the end of the turn (`spec/agent-loop.md` §9)."""

from typing import assert_never

from orchestral_temporal.core import attempts, calls, context, ending, invocations, questions
from orchestral_temporal.core.effect_notes import settle_command
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.inputs import ToolBroken, ToolLost, ToolObserved
from orchestral_temporal.core.items import assistant_item
from orchestral_temporal.core.state import (
    CallAt,
    CancelToolCall,
    OpenCall,
    RunState,
    StopTimer,
    ToolsOpen,
    WakeAfter,
)
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import (
    Fence,
    ModelResult,
    ResultItem,
    ToolObservation,
)
from orchestral_temporal.protocol.commands import AgentCommandEnvelope
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelObservation
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.tools import (
    ToolConcurrency,
    UnknownEffect,
)


def open_calls(work: Work, observation: ModelObservation, result: ModelResult) -> None:
    """P12, then the calls of the turn."""
    state = work.state
    reached = calls.last_step(state)
    if reached is not None:
        ending.limit(work, reached, observation.response)
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
    if phase.calls[phase.index].name == questions.NAME:
        call = phase.calls[phase.index]
        work.set(phase=phase.model_copy(update={"end": phase.index + 1}))
        questions.open_request(work, invocations.put(work, call, at=CallAt.ASKING))
        return
    ceiling = calls.ceiling(work.state, RunLimitKind.TOOL_CALLS)
    left = len(phase.calls) if ceiling is None else ceiling - work.state.tool_calls
    if left <= 0:
        ending.limit(work, RunLimitKind.TOOL_CALLS, work.state.last_response)
        return
    end = min(_group_end(work, phase), phase.index + left)
    work.set(tool_calls=work.state.tool_calls + end - phase.index, phase=phase.model_copy(update={"end": end}))
    for call in phase.calls[phase.index : end]:
        if call.refusal is None:
            invocations.invoke(work, call)
        else:
            # What the run itself refuses needs no worker.
            invocations.put(work, call, at=CallAt.SETTLED, observation=ToolObservation(outcome=call.refusal))
    _proceed(work)


def _group_end(work: Work, phase: ToolsOpen) -> int:
    def safe(call: OpenCall) -> bool:
        if call.name == questions.NAME:
            return False
        if call.refusal is not None:
            return True
        return invocations.tool_of(work, call).descriptor.concurrency is ToolConcurrency.PARALLEL_SAFE

    end = phase.index + 1
    while safe(phase.calls[end - 1]) and end < len(phase.calls) and safe(phase.calls[end]):
        end += 1
    return end


def ended(work: Work, phase: ToolsOpen, given: ToolObserved | ToolLost | ToolBroken) -> None:
    """Bring the end of one attempt of one call."""
    call = invocations.call_at_work(phase, given.invocation_id)
    if call is None or (call.attempt, call.at) != (given.attempt, CallAt.OPEN):
        return
    match given:
        case ToolObserved(observation=observation):
            invocations.observed(work, call, observation)
        case ToolLost():
            invocations.lost(work, call, given)
        case ToolBroken():
            invocations.broken(work, call, given)
        case _:
            assert_never(given)
    _proceed(work)


def grace_over(work: Work, phase: ToolsOpen, timer: str) -> None:
    """Nobody has reported what became of an uncertain call."""
    for call in phase.calls:
        if call.at is CallAt.UNCERTAIN and timer == invocations.grace_timer(call):
            if invocations.runs_once(work, call):
                invocations.ask_or_give_up(work, call, call.reason)
            else:
                invocations.once_more(work, call, call.reason)
            _proceed(work)
            return


def outcome_arrived(work: Work, phase: ToolsOpen, fence: Fence) -> bool:
    """A worker reports on an attempt that the server has given up; false if it is none of this turn.

    The signal may come before the loss it answers: then it is kept until the loss is known.
    """
    call = invocations.call_at_work(phase, fence.invocation_id)
    if call is None or exact_digest(call.arguments) != fence.arguments_digest:
        return False
    if call.at is CallAt.OPEN:
        return _kept(work, call, fence)
    if fence.attempt != call.fenced:
        return False
    if fence.told:
        work.want(StopTimer(invocations.grace_timer(call)))
        invocations.take(work, call, fence)
        _proceed(work)
    else:
        work.want(WakeAfter(invocations.grace_timer(call), invocations.grace_ms(work, fence)))
    return True


def _kept(work: Work, call: OpenCall, fence: Fence) -> bool:
    """A report that comes while an attempt is open counts when that one ends: it is of itself, or the one asked about.

    In the second case the question is in vain and is stopped. But its attempt may be past it, and behind a fence of its
    own, so that only its end tells whether the report is the whole truth.
    """
    its_own, nothing = fence.attempt == call.attempt, invocations.nothing_ran(fence)
    asked_about = call.reconcile and call.recorded is None and fence.attempt == call.fenced
    if not (its_own or asked_about):
        return False
    known = call.late
    if known is not None and known.attempt == fence.attempt and known.told:
        return True
    if known is not None and known.attempt != fence.attempt and (its_own or nothing):
        return False
    invocations.put(work, call, late=fence)
    if not (its_own or nothing):
        work.want(CancelToolCall(call.invocation_id))
    return True


def answered(work: Work, phase: ToolsOpen, command: AgentCommandEnvelope, answer: InputResolution) -> None:
    """A person has answered the question of a call: the turn goes on (D1)."""
    call, observation = questions.resolve(work, phase, command, answer)
    invocations.put(work, call, at=CallAt.SETTLED, observation=observation)
    _proceed(work)


def yield_wanted(state: RunState, invocation_id: str) -> bool:
    """Whether a call had better return what it has: a plain steer waits for the end of its turn (C4, §11)."""
    phase = state.phase
    its_turn = isinstance(phase, ToolsOpen) and any(each.invocation_id == invocation_id for each in phase.calls)
    return its_turn and not all(each.deferred for each in state.queue)


def stop(work: Work, phase: ToolsOpen, command_id: str) -> None:
    """A cancel: open calls are waited for, since only their workers know what they did (C5, F016)."""
    _wind_down(work, phase.model_copy(update={"stopping": command_id}))


def expire(work: Work, phase: ToolsOpen) -> None:
    """The deadline is reached: the calls at work are told, and heard before the run ends (F2)."""
    _wind_down(work, phase.model_copy(update={"expired": True}))


def fail_when_settled(work: Work, phase: ToolsOpen, message: str) -> None:
    """The session is lost: the calls at work are told, and heard before the run fails."""
    _wind_down(work, phase.model_copy(update={"failing": message}))


def _wind_down(work: Work, phase: ToolsOpen) -> None:
    work.set(phase=phase)
    for call in phase.calls:
        if call.at is CallAt.OPEN and call.recorded is None:  # else an outcome is only read
            work.want(CancelToolCall(call.invocation_id))
        elif call.at is CallAt.ASKING:
            invocations.put(work, call, at=CallAt.WAITING)  # nobody need answer any more
        elif call.at is CallAt.UNCERTAIN:
            work.want(StopTimer(invocations.grace_timer(call)))
            invocations.give_up(work, call, call.reason)
    _proceed(work)


def _proceed(work: Work) -> None:
    """Commit what is settled in call order; when nothing of the group is at work, go on or end."""
    phase = invocations.turn_of(work)
    while phase.index < phase.end and phase.calls[phase.index].at is CallAt.SETTLED:
        phase = _commit(work, phase)
    if any(call.at in (*invocations.AT_WORK, CallAt.ASKING) for call in phase.calls):
        return
    unknown = [call for call in phase.calls if call.at is CallAt.UNKNOWN]
    for call in unknown:
        ending.remember_unknown(work, call, call.reason)
    if phase.stopping is not None:
        ending.cancelled(work, phase.stopping)
    elif phase.expired:
        ending.deadline(work)
    elif unknown:
        first = unknown[0]
        remedy = f"ask its service, then tell the session with `{settle_command(first.invocation_id)}`"
        said = f"Nobody can say whether {first.name!r} took effect; {remedy}. {first.reason}"
        ending.fail(work, "tool_unknown_effect", said)
    elif phase.failing is not None:
        ending.session_lost(work, phase.failing)
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
    if call.name != questions.NAME:  # a question has no effect
        invocations.note(work, call, "committed", outcome.status)
    settled = invocations.turn_of(work).model_copy(
        update={"index": phase.index + 1, "results": (*phase.results, digest_of)}
    )
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
    attempts.next_round(work)
