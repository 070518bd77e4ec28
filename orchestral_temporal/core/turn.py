"""One round: open an attempt, judge what came back, run its calls, go on (`spec/agent-loop.md` §5, §7–§9)."""

from orchestral_temporal.core import calls, context, ending
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.items import assistant_item
from orchestral_temporal.core.limits import ATTEMPTS_PER_ROUND
from orchestral_temporal.core.state import (
    CallModel,
    InvokeTool,
    ModelOpen,
    OpenCall,
    ToolsOpen,
)
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import ModelResult, ResultItem, ToolObservation, ToolRequest
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelFinishReason, ModelObservation, ModelUsage
from orchestral_temporal.protocol.tools import Failed, ToolConcurrency, ToolIdempotency, UnknownEffect
from orchestral_temporal.protocol.wal import LoopBoundaryCommitted, ModelAttemptObserved, ModelAttemptStarted

RERUNNABLE = (ToolIdempotency.PURE, ToolIdempotency.IDEMPOTENT, ToolIdempotency.IDEMPOTENT_WITH_KEY)
"""A lost call of these classes runs again, the keyed one with the same key (decision 16)."""


def commit_boundary(work: Work, next_round: int) -> None:
    """Record the place where the loop may be entered again."""
    state = work.state
    boundary = LoopBoundaryCommitted(
        next_model_round=next_round,
        usage=state.usage,
        tool_call_count=state.tool_calls,
        last_response=state.last_response,
        supporting_event_ids=state.supporting,
    )
    work.record(ids.wal_boundary_id(work.run_id, next_round), boundary)
    work.set(round=next_round)


def open_round(work: Work) -> None:
    """Start the model, unless a limit or the window forbids it (P0, P4)."""
    state = work.state
    ceiling = calls.ceiling(state, RunLimitKind.MODEL_STEPS)
    if ceiling is not None and state.round > ceiling:
        ending.limit(work, RunLimitKind.MODEL_STEPS, state.last_response)
        return
    _dispatch(work, 1)


def _dispatch(work: Work, number: int) -> None:
    state = work.state
    part = state.model_part
    assert part is not None, "a round opens only under a complete authority"
    planned = context.plan(state, part)
    if planned.overflows:
        ending.fail(
            work,
            "context_overflow",
            f"The context needs about {planned.estimate} tokens and {planned.budget} are free; shorten the task or "
            "choose a model with a larger window.",
            details={"used": planned.estimate, "budget": planned.budget},
        )
        return
    attempt = context.attempt(state, part, planned, number)
    work.record(
        ids.wal_attempt_id(work.run_id, state.round, number),
        ModelAttemptStarted(
            round=state.round,
            request_id=attempt.request_id,
            request_digest=attempt.context,
            max_output_tokens=attempt.max_output_tokens,
            context=attempt.trace,
        ),
    )
    work.set(phase=ModelOpen(attempt=number), base=attempt.context, sent=len(state.headers), recent=())
    work.want(CallModel(attempt, part.descriptor.backend_id))


def model_lost(work: Work, number: int, *, abandoned: bool, reason: str) -> None:
    """Dispatch again on record if the backend allows it, else end the run as interrupted (decision 18)."""
    part = work.state.model_part
    allowed = abandoned or (part is not None and part.redispatchable)
    if allowed and number < ATTEMPTS_PER_ROUND:
        if not abandoned:
            ending.lose_and_restore(work, reason)
        _dispatch(work, number + 1)
        return
    ending.interrupted(work, reason)


def observe(work: Work, result: ModelResult) -> None:
    """Commit the observation, count its usage, act on its finish reason (P9–P11)."""
    state = work.state
    observation = result.observation
    request_id = ids.model_request_id(work.run_id, state.round)
    work.record(
        ids.wal_observed_id(work.run_id, state.round),
        ModelAttemptObserved(round=state.round, request_id=request_id, observation=observation),
    )
    part = state.model_part
    assert part is not None, "an attempt is open only under a complete authority"
    reported = observation.usage or ModelUsage()
    if reported.output_tokens is not None and reported.output_tokens > part.reserved_output_tokens:
        ending.fail(
            work,
            "model_output_usage_exceeded_reservation",
            f"The model reports {reported.output_tokens} output tokens; {part.reserved_output_tokens} were reserved.",
        )
        return
    work.set(usage=_add(state.usage, reported))
    if observation.response:
        work.set(last_response=observation.response)
    _act(work, observation, result)


def _add(total: ModelUsage, more: ModelUsage) -> ModelUsage:
    def plus(left: int | None, right: int | None) -> int | None:
        return right if left is None else left + (right or 0)

    return ModelUsage(
        input_tokens=plus(total.input_tokens, more.input_tokens),
        output_tokens=plus(total.output_tokens, more.output_tokens),
    )


def _act(work: Work, observation: ModelObservation, result: ModelResult) -> None:
    """The table of `spec/agent-loop.md` §8."""
    match observation.finish_reason:
        case ModelFinishReason.STOP | ModelFinishReason.TOOL_CALLS if observation.tool_calls:
            _open_calls(work, observation, result)
        case ModelFinishReason.STOP if observation.response:
            _answer(work, observation, result)
        case ModelFinishReason.LENGTH:
            ending.limit(work, RunLimitKind.OUTPUT_TOKENS, observation.response)
        case ModelFinishReason.CANCELLED:
            ending.fail(
                work,
                "unexpected_model_cancellation",
                "The model ended its turn as cancelled, and nobody asked for that.",
                retryable=True,
            )
        case _:
            ending.fail(
                work,
                "model_incomplete",
                f"The model ended its turn ({observation.finish_reason}) without an answer to deliver.",
            )


def _answer(work: Work, observation: ModelObservation, result: ModelResult) -> None:
    item = assistant_item(observation, ())
    assert item is not None, "an answer has text"
    digest_of = context.add_item(work, item, result.item)
    ending.remember(
        work,
        event_id=ids.session_output_id(work.run_id, work.state.round),
        kind="run_output_committed",
        items=(digest_of,),
        request_id=ids.model_request_id(work.run_id, work.state.round),
        usage=observation.usage,
    )
    ending.deliver(work, observation.response)


def _open_calls(work: Work, observation: ModelObservation, result: ModelResult) -> None:
    """P12, then the calls of the turn, one after another."""
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
    _next_call(work, phase)


def _next_call(work: Work, phase: ToolsOpen) -> None:
    """Run the next call of the turn, or close the turn when there is none; what the run refused needs no worker."""
    while phase.index < len(phase.calls):
        ceiling = calls.ceiling(work.state, RunLimitKind.TOOL_CALLS)
        if ceiling is not None and work.state.tool_calls >= ceiling:
            ending.limit(work, RunLimitKind.TOOL_CALLS, work.state.last_response)
            return
        work.set(tool_calls=work.state.tool_calls + 1)
        call = phase.calls[phase.index]
        if call.refusal is None:
            _invoke(work, call)
            return
        item = ResultItem(part=tool_result(call.call_id, call.refusal))
        phase = _settle(work, phase, context.add_item(work, item, ours=True))
    _close_turn(work, phase)


def _settle(work: Work, phase: ToolsOpen, item: str) -> ToolsOpen:
    settled = phase.model_copy(update={"index": phase.index + 1, "results": (*phase.results, item)})
    work.set(phase=settled)
    return settled


def _invoke(work: Work, call: OpenCall) -> None:
    state = work.state
    part = state.tools_part
    assert part is not None, "a call is open only under a complete authority"
    descriptor = calls.descriptor(part, call.tool_id)
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
    )
    # Calls of a globally serial tool wait for one another inside the worker; their own time begins only after that.
    waits = descriptor.concurrency is ToolConcurrency.GLOBAL_SERIAL
    timeout_ms = None if waits else descriptor.restriction.bounds.max_timeout_ms
    work.want(InvokeTool(request, state.round, call.name, timeout_ms, descriptor.idempotency))


def tool_ended(work: Work, phase: ToolsOpen, observation: ToolObservation) -> None:
    """Commit a call's outcome for the model, or end the run if nobody knows what happened (`spec/tools.md` §16)."""
    call = phase.calls[phase.index]
    if isinstance(observation.outcome, UnknownEffect):
        _unknown(work, call, observation.outcome.message, stopping=phase.stopping)
        return
    if phase.stopping is not None:
        ending.cancelled(work, phase.stopping)
        return
    item = ResultItem(part=tool_result(call.call_id, observation.outcome))
    digest_of = context.add_item(work, item, observation.item)
    _next_call(work, _settle(work, phase, digest_of))


def tool_lost(work: Work, phase: ToolsOpen, *, abandoned: bool, reason: str) -> None:
    """A lost call runs again where that cannot double an effect, else its effect is unknown (decision 16)."""
    call = phase.calls[phase.index]
    if phase.stopping is not None and _may_rerun(work, call):
        ending.cancelled(work, phase.stopping)
        return
    if not _may_rerun(work, call):
        _unknown(work, call, f"The call was lost: {reason}", stopping=phase.stopping)
        return
    if not abandoned:
        ending.lose_and_restore(work, reason)
    again = call.model_copy(update={"attempt": call.attempt + 1})
    rest = phase.calls[phase.index + 1 :]
    work.set(phase=phase.model_copy(update={"calls": (*phase.calls[: phase.index], again, *rest)}))
    _invoke(work, again)


def tool_broken(work: Work, phase: ToolsOpen, reason: str) -> None:
    """The worker itself failed around a call: the model is told, or, where an effect is possible, nobody guesses."""
    call = phase.calls[phase.index]
    if _may_rerun(work, call):
        failed = Failed(code="tool_internal", message=f"The worker failed: {reason}", retryable=False)
        tool_ended(work, phase, ToolObservation(outcome=failed))
        return
    _unknown(work, call, f"The worker failed: {reason}", stopping=phase.stopping)


def _may_rerun(work: Work, call: OpenCall) -> bool:
    part = work.state.tools_part
    return part is not None and calls.descriptor(part, call.tool_id).idempotency in RERUNNABLE


def _unknown(work: Work, call: OpenCall, message: str, *, stopping: str | None) -> None:
    ending.remember_unknown(work, call, message)
    if stopping is not None:
        ending.cancelled(work, stopping)
        return
    ending.fail(work, "tool_unknown_effect", f"Nobody can say whether {call.name!r} took effect. {message}")


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
    commit_boundary(work, state.round + 1)
    open_round(work)
