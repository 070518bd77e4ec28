"""The attempts of one round: dispatch, and what follows when one fails or is lost (`spec/agent-loop.md` §4–§5)."""

from orchestral_temporal.core import budgets, calls, context, ending, input_queue
from orchestral_temporal.core.assembly import failure_code
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.inputs import ModelFailed, ModelLost
from orchestral_temporal.core.limits import ATTEMPTS_PER_ROUND
from orchestral_temporal.core.state import (
    CallModel,
    CancelModelCall,
    Capacity,
    ModelOpen,
    ModelWaiting,
    Sent,
    StopTimer,
    WakeAfter,
)
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import ModelPart
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelErrorCode, ModelUsage
from orchestral_temporal.protocol.retry import retry_delay_ms
from orchestral_temporal.protocol.wal import (
    LoopBoundaryCommitted,
    ModelAttemptStarted,
    ModelContextRejected,
    ModelRetryScheduled,
)

RETRY_AFTER = "retry_after_ms"
"""Where a model error's details carry how long the provider wants to be left alone (divergence 7)."""


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


def next_round(work: Work) -> None:
    """Go on to the round after this one."""
    commit_boundary(work, work.state.round + 1)
    open_round(work)


def open_round(work: Work) -> None:
    """Take the input that waits and start the model, unless a limit or the window forbids it (P0, P2, P4)."""
    state = work.state
    ceiling = calls.ceiling(state, RunLimitKind.MODEL_STEPS)
    if ceiling is not None and state.round > ceiling:
        ending.limit(work, RunLimitKind.MODEL_STEPS, state.last_response)
        return
    input_queue.drain(work)
    _dispatch(work, 1)


def drop(work: Work) -> None:
    """Stop what a round has under way: its attempt, or the pause before the next one."""
    match work.state.phase:
        case ModelOpen():
            work.want(CancelModelCall())
        case ModelWaiting() as phase:
            work.want(StopTimer(_retry_timer(work, phase.attempt)))
        case _:
            pass


def interrupt(work: Work) -> None:
    """Let plain steers be heard at once: the open attempt is void, and charged as if it had used all (divergence 8)."""
    state = work.state
    if all(each.deferred for each in state.queue):
        return
    phase = state.phase
    if not isinstance(phase, ModelOpen | ModelWaiting):
        return
    drop(work)
    if isinstance(phase, ModelOpen):
        charge(work, ModelUsage(input_tokens=phase.bound, output_tokens=phase.cap))
        # Opened and cancelled in one workflow task an attempt is never sent, and its texts stand nowhere.
        work.set(sent=phase.before)
    input_queue.drain(work)
    next_round(work)


def _dispatch(work: Work, number: int, retry: int = 0) -> None:
    """Send one attempt; a retry goes under the record of the attempt it repeats (`spec/wal-recovery.md` §13)."""
    state = work.state
    planned = _planned(work)
    if planned is None:
        return
    attempt = context.attempt(state, planned, number)
    if not retry:
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
    opened = ModelOpen(
        before=state.sent,
        attempt=number,
        retry=retry,
        bound=planned.bound,
        estimate=planned.estimate,
        budget=planned.budget,
        cap=planned.cap,
    )
    work.set(phase=opened, sent=Sent(base=attempt.context, items=len(state.headers)))
    work.want(CallModel(attempt, _part(work).descriptor.backend_id))


def _planned(work: Work) -> context.Plan | None:
    """The next request, with the output cap that the budgets leave it; none if one of them ends the run (P3 to P5)."""
    state = work.state
    over = budgets.spent(state)
    if over is not None:
        ending.limit(work, over, state.last_response)
        return None
    planned = context.plan(state, _part(work), budgets.output_left(state))
    left = budgets.input_left(state)
    if left is not None and planned.bound > left and not (planned.overflows and planned.budget < left):
        ending.limit(work, RunLimitKind.INPUT_TOKENS, state.last_response)
        return None
    if planned.overflows:
        ending.fail(
            work,
            "context_overflow",
            f"The context needs about {planned.estimate} tokens and {planned.budget} are free; shorten the task or "
            "choose a model with a larger window.",
            details={"used": planned.estimate, "budget": planned.budget},
        )
        return None
    cap = budgets.affordable(state, planned.bound, planned.cap)
    if cap == 0:
        ending.limit(work, RunLimitKind.COST, state.last_response)
        return None
    return planned.model_copy(update={"cap": cap})


def _part(work: Work) -> ModelPart:
    part = work.state.model_part
    assert part is not None, "a round opens only under a complete authority"
    return part


def lost(work: Work, phase: ModelOpen, given: ModelLost) -> None:
    """Dispatch again on record if the backend allows it, else end the run as interrupted (I2, decision 18).

    What the lost attempt may have used is charged (divergence 8).
    """
    charge(work, ModelUsage(input_tokens=phase.bound, output_tokens=phase.cap))
    if (given.abandoned or _part(work).redispatchable) and phase.attempt < ATTEMPTS_PER_ROUND:
        if not given.abandoned:
            ending.lose_and_restore(work, given.reason)
        # The attempt before it is void, and so are its retries: this one is on record by itself (divergence 29).
        _dispatch(work, phase.attempt + 1)
        return
    ending.interrupted(work, given.reason)


def failed(work: Work, phase: ModelOpen, given: ModelFailed) -> None:
    """Retry, give a context that is too long more room, or end the run with the backend's error."""
    charge(work, given.usage or ModelUsage())
    if not given.generated and (_scheduled(work, phase, given) or _capacity(work, phase, given)):
        return
    ending.fail(work, given.code, given.error.message, retryable=given.error.retryable, details=given.error.details)


def _scheduled(work: Work, phase: ModelOpen, given: ModelFailed) -> bool:
    """Schedule a retry if the error may heal: recorded before the timer that makes it durable."""
    part, retry = _part(work), phase.retry + 1
    delay = retry_delay_ms(part.retry, given.error, retry)
    if delay is None or given.code != failure_code(given.error.code) or not _repeatable(work, given):
        return False
    state = work.state
    wanted = _wanted(given.error.details)
    delay = delay if wanted is None else min(wanted, part.retry_after_cap_ms)
    work.record(
        ids.wal_retry_id(work.run_id, state.round, retry, phase.attempt - phase.retry),
        ModelRetryScheduled(
            round=state.round,
            request_id=ids.model_request_id(work.run_id, state.round),
            retry_number=retry,
            delay_ms=delay,
            error=given.error,
            observed_usage=given.usage,
        ),
    )
    work.set(phase=ModelWaiting(attempt=phase.attempt, retry=retry, reason=given.error.message))
    work.want(WakeAfter(_retry_timer(work, phase.attempt), delay))
    return True


def _repeatable(work: Work, given: ModelFailed) -> bool:
    """Whether the run's limits let a request that may have cost something go out again (§4)."""
    if not budgets.bound(work.state):
        return True
    return given.error.code is ModelErrorCode.RATE_LIMITED and given.usage is None


def _wanted(details: Json) -> int | None:
    """The milliseconds that a provider asked for; zero and nonsense mean nothing."""
    wanted = details.get(RETRY_AFTER) if isinstance(details, dict) else None
    return wanted if isinstance(wanted, int) and wanted > 0 else None


def _retry_timer(work: Work, attempt: int) -> str:
    return f"retry/{work.state.round}/{attempt}"


def retry_due(work: Work, phase: ModelWaiting, timer: str) -> None:
    """Repeat the attempt when its own timer fires."""
    if timer == _retry_timer(work, phase.attempt):
        _dispatch(work, phase.attempt + 1, phase.retry)


def _capacity(work: Work, phase: ModelOpen, given: ModelFailed) -> bool:
    """The backend finds the context too long: ask for a shorter output, then for a shorter input, in a new round."""
    code = ModelErrorCode.CONTEXT_LENGTH_EXCEEDED
    if given.error.code is not code or given.code != failure_code(code) or given.usage is not None:
        return False
    state, policy = work.state, _part(work).context_recovery
    learned = _room(state.capacity, phase, policy.minimum_output_tokens)
    if learned.retries > policy.max_retries or not learned.input_budget or learned.input_budget <= 0:
        return False
    work.record(
        ids.wal_context_rejected_id(work.run_id, state.round),
        ModelContextRejected(
            round=state.round,
            request_id=ids.model_request_id(work.run_id, state.round),
            retry_number=learned.retries,
            input_budget_tokens=learned.input_budget,
            output_budget_tokens=learned.output_cap,
            error=given.error,
        ),
    )
    work.set(capacity=learned, round=state.round + 1)
    open_round(work)
    return True


def _room(before: Capacity, phase: ModelOpen, floor: int | None) -> Capacity:
    if floor is not None and phase.cap > floor:
        return before.model_copy(
            update={
                "retries": before.retries + 1,
                "input_budget": phase.budget,
                "output_cap": max(phase.cap // 2, floor),
            }
        )
    rejected = min(phase.budget, phase.estimate)
    return before.model_copy(update={"retries": before.retries + 1, "input_budget": rejected - 1, "input_shrunk": True})


def charge(work: Work, more: ModelUsage) -> None:
    """Add to the run's usage."""
    work.set(usage=budgets.added(work.state.usage, more))
