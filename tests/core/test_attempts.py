"""Failed and lost model attempts: durable retry, capacity recovery, what they cost (`spec/agent-loop.md` §4)."""

from dataclasses import replace

import pytest

from orchestral_temporal.core.inputs import ModelFailed, TimeReached
from orchestral_temporal.core.result import result
from orchestral_temporal.core.state import CallModel, ModelWaiting, WakeAfter
from orchestral_temporal.protocol.limits import RunLimitKind, RunLimits
from orchestral_temporal.protocol.model import ModelError, ModelErrorCode, ModelUsage
from orchestral_temporal.protocol.retry import ContextRecoveryPolicy, ModelRetryPolicy
from orchestral_temporal.protocol.run import seal_descriptor
from orchestral_temporal.protocol.wal import ModelContextRejected, ModelRetryScheduled
from tests.core.loop_world import (
    NOW,
    World,
    answered,
    binding,
    called,
    model_failed,
    model_lost,
    model_part,
    run_part,
    said,
    start,
    world,
)

ECHO = ("echo", '{"value":"x"}')


def ours(failure: str, error: ModelErrorCode) -> ModelFailed:
    """A failure that our own worker found, under an error code that a backend might have."""
    said_so = ModelError(code=error, message="x", retryable=True)
    return ModelFailed(*NOW, failure, said_so, generated=False)


def code(made: World) -> object:
    """The failure code of a run, null while it has none."""
    failure = result(made.state)["failure"]
    return failure["code"] if isinstance(failure, dict) else None


def timer(made: World) -> WakeAfter:
    """The timer that was set last."""
    return [effect for effect in made.effects if isinstance(effect, WakeAfter)][-1]


def attempts(made: World) -> list[CallModel]:
    """Every attempt so far."""
    return [effect for effect in made.effects if isinstance(effect, CallModel)]


def test_a_transient_error_is_retried_after_a_durable_pause() -> None:
    """Retries come after 500, 1000 and 2000 ms under the same request id, each on record before its timer (§4)."""
    made = world()
    for pause in (500, 1_000, 2_000):
        made.bring(model_failed(ModelErrorCode.RATE_LIMITED))
        assert made.wal[-1] == "model_retry_scheduled"
        assert timer(made).ms == pause
        assert isinstance(made.state.phase, ModelWaiting)
        made.bring(TimeReached(timer(made).timer))
    sent = attempts(made)
    assert [each.attempt.attempt for each in sent] == [1, 2, 3, 4]
    assert len({each.attempt.request_id for each in sent}) == len({each.attempt.context for each in sent}) == 1
    assert made.wal.count("model_attempt_started") == 1
    made.bring(model_failed(ModelErrorCode.RATE_LIMITED))
    assert code(made) == "model_ratelimited"


def test_the_count_of_retries_starts_anew_with_each_round() -> None:
    """A round that needed a retry leaves the next one all of its own (§4)."""
    made = world()
    made.bring(model_failed(ModelErrorCode.UNAVAILABLE))
    made.bring(TimeReached(timer(made).timer))
    made.bring(called(ECHO))
    made.bring(answered("x"))
    made.bring(model_failed(ModelErrorCode.UNAVAILABLE))
    assert timer(made) == WakeAfter("retry/2/1", 500)


@pytest.mark.parametrize(
    "given",
    [
        model_failed(ModelErrorCode.RATE_LIMITED, retryable=False),
        model_failed(ModelErrorCode.RATE_LIMITED, generated=True),
        model_failed(ModelErrorCode.INTERNAL),
        model_failed(ModelErrorCode.AUTHENTICATION),
        model_failed(ModelErrorCode.PROTOCOL),
        ours("session_context", ModelErrorCode.UNAVAILABLE),
    ],
)
def test_what_a_retry_cannot_heal_ends_the_run(given: ModelFailed) -> None:
    """Only rate limits and outages that call themselves retryable are, and nothing after the first output (F068)."""
    made = world()
    made.bring(given)
    assert code(made) == given.code
    assert len(attempts(made)) == 1


@pytest.mark.parametrize(
    ("wanted", "pause"), [(2_000, 2_000), (250, 250), (90_000, 60_000), (0, 500), ("soon", 500), (None, 500)]
)
def test_a_provider_that_asks_for_a_pause_gets_it_up_to_the_cap(wanted: int | str | None, pause: int) -> None:
    """Retry-after rules over the own back-off, is cut to the cap, and nonsense means nothing (F064, divergence 7)."""
    made = world()
    made.bring(model_failed(ModelErrorCode.RATE_LIMITED, details={"retry_after_ms": wanted}))
    assert timer(made).ms == pause


def test_another_timer_does_not_wake_an_attempt() -> None:
    """A timer of another round or retry changes nothing."""
    made = world()
    made.bring(model_failed(ModelErrorCode.RATE_LIMITED))
    made.bring(TimeReached("retry/1/2"))
    assert len(attempts(made)) == 1


def test_usage_of_repeated_attempts_is_added_up() -> None:
    """The last snapshot of each attempt counts once, also that of one which ends the run (F118)."""
    made = world()
    made.bring(model_failed(ModelErrorCode.UNAVAILABLE, usage=ModelUsage(input_tokens=700, output_tokens=50)))
    made.bring(TimeReached(timer(made).timer))
    made.bring(called(ECHO, usage=ModelUsage(input_tokens=710, output_tokens=60)))
    made.bring(answered("x"))
    made.bring(said("done", usage=ModelUsage(input_tokens=800, output_tokens=20)))
    usage = result(made.state)["usage"]
    assert usage == {"input_tokens": 2_210, "output_tokens": 130, "tool_calls": 1, "cost": None}
    record = next(d.payload for s in made.steps for d in s.wal if isinstance(d.payload, ModelRetryScheduled))
    assert record.observed_usage == ModelUsage(input_tokens=700, output_tokens=50)


def limited() -> World:
    """A run that may use 100,000 input tokens, of an agent that says it watches them."""
    part = run_part()
    descriptor = part.descriptor.descriptor
    capabilities = descriptor.capabilities.model_copy(update={"supported_limits": tuple(RunLimitKind)})
    sealed = seal_descriptor(descriptor.model_copy(update={"capabilities": capabilities}))
    given = start(limits={"max_input_tokens": 100_000})
    assert given.envelope.spec.limits == RunLimits(max_input_tokens=100_000)
    return world(given, binding(run=part.model_copy(update={"descriptor": sealed})))


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (model_failed(ModelErrorCode.RATE_LIMITED), True),
        (model_failed(ModelErrorCode.UNAVAILABLE), False),
        (model_failed(ModelErrorCode.RATE_LIMITED, usage=ModelUsage(input_tokens=1)), False),
    ],
)
def test_a_run_with_a_budget_repeats_only_what_cost_nothing(given: ModelFailed, again: bool) -> None:
    """With a token limit only a clean rate limit is retried: anything else may have been used already (§4, F118)."""
    made = limited()
    made.bring(given)
    assert isinstance(made.state.phase, ModelWaiting) is again


@pytest.mark.parametrize("abandoned", [True, False])
def test_a_lost_attempt_is_charged_its_reservation(abandoned: bool) -> None:
    """What a lost attempt may have used counts, so that losing attempts never passes a budget (divergence 8, I2)."""
    made = world()
    trace = attempts(made)[0].attempt.trace
    made.bring(model_lost(abandoned=abandoned))
    made.bring(said("done", usage=ModelUsage(input_tokens=5, output_tokens=2)))
    usage = result(made.state)["usage"]
    assert isinstance(usage, dict)
    assert (usage["input_tokens"], usage["output_tokens"]) == (trace.used_input_tokens + 5, 1_000 + 2)


def test_a_loss_after_a_retry_opens_an_attempt_of_its_own() -> None:
    """The second kind of repetition is on record by itself, and its retries count from one again (divergence 29)."""
    made = world()
    made.bring(model_failed(ModelErrorCode.RATE_LIMITED))
    made.bring(TimeReached(timer(made).timer))
    made.bring(model_lost(abandoned=True))
    assert [each.attempt.attempt for each in attempts(made)] == [1, 2, 3]
    started = [d.event_id for s in made.steps for d in s.wal if d.payload.type == "model_attempt_started"]
    assert started == ["generic-run-1-model-attempt-1", "generic-run-1-model-attempt-1-a3"]
    made.bring(model_failed(ModelErrorCode.RATE_LIMITED))
    assert timer(made).ms == 500
    retries = [d.event_id for s in made.steps for d in s.wal if d.payload.type == "model_retry_scheduled"]
    assert retries == ["generic-run-1-model-retry-1-1", "generic-run-1-model-retry-1-1-a3"]


def test_a_backend_that_finds_the_context_too_long_gets_a_smaller_one() -> None:
    """Window 2200, reserve 1000, floor 500: budgets 1200, 1200, 1700 and caps 1000, 500, 500 (§4, G7)."""
    recovery = ContextRecoveryPolicy(max_retries=2, minimum_output_tokens=500)
    part = model_part(max_context_tokens=2_200, reserved_output_tokens=1_000, context_recovery=recovery)
    made = world(None, binding(model=part))
    made.bring(model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, retryable=False))
    assert made.wal[-2:] == ["model_context_rejected", "model_attempt_started"]
    made.bring(called(ECHO))
    made.bring(answered("x"))
    sent = [each.attempt for each in attempts(made)]
    assert [each.trace.input_budget_tokens for each in sent] == [1_200, 1_200, 1_700]
    assert [each.max_output_tokens for each in sent] == [1_000, 500, 500]
    assert [each.round for each in sent] == [1, 2, 3]


def test_an_output_that_cannot_shrink_leaves_the_input() -> None:
    """Once the cap is at its floor the input has to shrink, and that ceiling stays; without compaction it overflows."""
    part = model_part(context_recovery=ContextRecoveryPolicy(max_retries=3, minimum_output_tokens=None))
    made = world(start("x" * 3_000), binding(model=part))
    planned = made.state.phase
    made.bring(model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, retryable=False))
    record = next(d.payload for s in made.steps for d in s.wal if isinstance(d.payload, ModelContextRejected))
    assert planned.at == "model"
    assert (record.input_budget_tokens, record.output_budget_tokens) == (planned.estimate - 1, None)
    assert code(made) == "context_overflow"
    assert made.state.capacity.input_shrunk


def test_a_context_that_stays_too_long_fails_after_the_bounded_number() -> None:
    """The number of such rounds is bounded, and the failure is the backend's (§4)."""
    made = world(None, binding(model=model_part(reserved_output_tokens=8_192)))
    made.bring(model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, retryable=False))
    assert attempts(made)[-1].attempt.max_output_tokens == 4_096
    made.bring(model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, retryable=False))
    assert code(made) == "model_contextlengthexceeded"


@pytest.mark.parametrize(
    "given",
    [
        model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, usage=ModelUsage(input_tokens=1)),
        model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, generated=True),
        ours("context_overflow", ModelErrorCode.CONTEXT_LENGTH_EXCEEDED),
    ],
)
def test_a_refusal_after_the_fact_is_a_plain_failure(given: ModelFailed) -> None:
    """After usage or output, or from our own meter, it is no reason to try a smaller context (F067)."""
    made = world()
    made.bring(given)
    assert code(made) == given.code


def test_a_window_too_small_to_shrink_fails() -> None:
    """A ceiling of nothing is no context."""
    recovery = ContextRecoveryPolicy(minimum_output_tokens=None)
    made = world(None, binding(model=model_part(context_recovery=recovery)))
    phase = made.state.phase
    made.state = made.state.model_copy(update={"phase": phase.model_copy(update={"estimate": 1})})
    made.bring(model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED))
    assert code(made) == "model_contextlengthexceeded"


def test_a_retry_policy_comes_with_the_models_part() -> None:
    """The numbers are the agent's own (decision 30)."""
    policy = ModelRetryPolicy(max_retries=1, base_delay_ms=40, max_delay_ms=40)
    made = world(None, binding(model=model_part(retry=policy, retry_after_cap_ms=30)))
    made.bring(model_failed(ModelErrorCode.UNAVAILABLE))
    assert timer(made).ms == 40


def test_an_answer_of_another_attempt_changes_nothing() -> None:
    """What comes twice, or after its attempt was given up, is not taken for the open one."""
    made = world()
    made.bring(model_lost(abandoned=True))
    before = made.state
    turn = said("late")
    made.bring(replace(turn, round=1, attempt=1))
    made.bring(replace(turn, round=2, attempt=2))
    assert made.state == before
