"""Budgets of tokens and money: reserved before the call, settled after it (F3, F6; agent-loop sheet §7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestral_temporal.core.inputs import CommandsRead, ModelFailed, TimeReached
from orchestral_temporal.core.result import result
from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.core.state import CallModel, InvokeTool, ModelOpen, ModelWaiting, WakeAfter
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.limits import MoneyAmount, RunLimitKind, RunLimits
from orchestral_temporal.protocol.model import ModelErrorCode, ModelUsage
from orchestral_temporal.protocol.price import ModelCostPolicy, output_within, quote
from orchestral_temporal.protocol.retry import ModelRetryPolicy
from orchestral_temporal.protocol.run import seal_descriptor
from tests.core.loop_world import (
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
from tests.core.test_input_queue import queued, steer
from tests.core.test_loop import ECHO, failure

ALL = tuple(RunLimitKind)
RATE = st.integers(0, 9) | st.integers(0, 10**7)
RETRIES = ModelRetryPolicy(max_retries=2, base_delay_ms=1, max_delay_ms=2)


def price(given: int = 1_000_000, answer: int = 1_000_000, currency: str = "USD") -> ModelCostPolicy:
    """A price; unless said otherwise a token costs a millionth of a dollar, read or written."""
    return ModelCostPolicy(
        currency=currency, input_microunits_per_million_tokens=given, output_microunits_per_million_tokens=answer
    )


def dollars(microunits: int) -> Json:
    """A cost limit as a start says it."""
    return {"currency": "USD", "microunits": microunits}


def budgeted(
    limits: JsonObject | None = None,
    *,
    default: RunLimits | None = None,
    task: str = "the task",
    window: int = 100_000,
    costs: ModelCostPolicy | None = None,
    declared: tuple[RunLimitKind, ...] = ALL,
    retry: ModelRetryPolicy = RETRIES,
) -> World:
    """A run with budgets, its own or its agent's default, and a model of that window and price."""
    part = run_part(price=costs, run_limits=default or RunLimits())
    plain = part.descriptor.descriptor
    capabilities = plain.capabilities.model_copy(update={"supported_limits": declared})
    descriptor = seal_descriptor(plain.model_copy(update={"capabilities": capabilities}))
    part = part.model_copy(update={"descriptor": descriptor})
    model = model_part(max_context_tokens=window, retry=retry)
    return world(start(task, limits=limits or {}), binding(run=part, model=model))


def hard_count(made: World) -> int:
    """What the open request may cost in input at the most."""
    assert isinstance(made.state.phase, ModelOpen)
    return made.state.phase.bound


REQUEST = hard_count(budgeted())
"""The hard count of the first request of every run here that has the usual task."""


def used(made: World) -> JsonObject:
    """What the run's result says that it used."""
    usage = result(made.state)["usage"]
    assert isinstance(usage, dict)
    return usage


def caps(made: World) -> list[int]:
    """The output cap of each attempt."""
    return [effect.attempt.max_output_tokens for effect in made.effects if isinstance(effect, CallModel)]


def reached(made: World) -> object:
    """The limit that ended the run."""
    assert made.status == "incomplete"
    reason = result(made.state)["reason"]
    assert isinstance(reason, dict)
    return reason["limit"]


def test_a_request_asks_for_no_more_than_is_left() -> None:
    """The output cap of each dispatch is what the budget leaves, below what the model would be given (F3)."""
    made = budgeted({"max_output_tokens": 1_300})
    made.bring(called(ECHO, usage=ModelUsage(output_tokens=900)))
    made.bring(answered("x"))
    assert caps(made) == [1_000, 400]
    made.bring(said("done", usage=ModelUsage(output_tokens=400)))
    assert made.status == "delivered"


@pytest.mark.parametrize("kind", ["input_tokens", "output_tokens"])
def test_a_spent_budget_forbids_the_work_after_it(kind: str) -> None:
    """One model start, no tool, one terminal: what a turn asks for is not done if nothing is left for its answer."""
    spent = REQUEST if kind == "input_tokens" else 600
    made = budgeted({f"max_{kind}": spent})
    made.bring(called(ECHO, text="let me see", usage=ModelUsage.model_validate({kind: spent})))
    assert reached(made) == kind
    assert not any(isinstance(effect, InvokeTool) for effect in made.effects)
    assert len(caps(made)) == 1
    assert made.events[-1] == "run_incomplete"


def test_a_request_that_may_pass_the_budget_is_not_sent() -> None:
    """Its hard count is above what is left: the run ends before the dispatch (P5)."""
    made = budgeted({"max_input_tokens": 10})
    assert reached(made) == "input_tokens"
    assert caps(made) == []


def test_the_tighter_of_window_and_budget_ends_the_run() -> None:
    """A context that fits neither ends by its budget where that is the smaller one (§6)."""
    text = "x" * 6_000
    for left, ended in ((600, "incomplete"), (6_100, "failed")):
        made = budgeted({"max_input_tokens": left}, task=text, window=2_500)
        assert made.status == ended


def test_an_agents_default_budget_is_kept_too() -> None:
    """A run without limits of its own takes its agent's (`answers.md` 12)."""
    made = budgeted(default=RunLimits(max_input_tokens=100_000, max_output_tokens=700))
    assert caps(made) == [700]
    made.bring(said("done"))
    assert failure(made) == ("model_usage_missing", False)


@pytest.mark.parametrize(
    ("limits", "usage", "code"),
    [
        ({"max_input_tokens": 9_999}, None, "model_usage_missing"),
        ({"max_input_tokens": 9_999}, ModelUsage(output_tokens=1), "model_input_usage_missing"),
        ({"max_output_tokens": 9_999}, ModelUsage(input_tokens=1), "model_output_usage_missing"),
        ({"max_input_tokens": 9_999}, ModelUsage(input_tokens=9_000), "model_input_usage_exceeded_reservation"),
        ({}, ModelUsage(output_tokens=1_001), "model_output_usage_exceeded_reservation"),
        ({}, ModelUsage(input_tokens=9_000), None),
        ({}, None, None),
    ],
)
def test_usage_that_cannot_be_settled_ends_the_run(
    limits: JsonObject, usage: ModelUsage | None, code: str | None
) -> None:
    """Missing where a budget needs it, or above what was reserved; hidden input only under a budget (§7, P10)."""
    made = budgeted(limits)
    made.bring(said("done", usage=usage))
    assert made.status == ("delivered" if code is None else "failed")
    assert code is None or failure(made) == (code, False)


def test_lost_and_steered_attempts_use_up_a_budget() -> None:
    """Each is charged all that was reserved for it, so that nobody steers past a budget (divergence 8)."""
    made = budgeted({"max_output_tokens": 2_500})
    made.bring(model_lost(abandoned=True))
    made.bring(steer("s1", "faster"))
    made.bring(CommandsRead())
    assert caps(made) == [1_000, 1_000, 500]
    made.bring(steer("s2", "faster still"))
    made.bring(CommandsRead())
    assert reached(made) == "output_tokens"


def test_input_that_waits_is_not_read_on_a_spent_budget() -> None:
    """An answer in hand is kept as partial, as at the last step (P12)."""
    made = budgeted({"max_output_tokens": 1_000})
    made.bring(queued("q1", "and more"))
    made.bring(said("Half of it.", usage=ModelUsage(output_tokens=1_000)))
    assert reached(made) == "output_tokens"


def test_three_budgets_cap_one_dispatch_and_block_its_tail() -> None:
    """Input, output and cost fit one request exactly: one token of output, no tool, one terminal (F3).

    The transcript `run_token_and_cost_budgets_cap_dispatch_and_block_tail_work`, with our hard count for its 10.
    """
    made = budgeted(
        {
            "max_input_tokens": REQUEST,
            "max_output_tokens": 1,
            "max_cost": dollars(REQUEST + 1),
            "max_model_steps": 2,
        },
        costs=price(),
    )
    usage = ModelUsage(input_tokens=REQUEST, output_tokens=1)
    made.bring(called(("must_not_run", '{"value":"forbidden tail effect"}'), usage=usage))
    assert caps(made) == [1]
    assert reached(made) == "input_tokens"
    assert not any(isinstance(effect, InvokeTool) for effect in made.effects)
    assert made.events == ["run_accepted", "run_started", "run_incomplete"]
    assert made.wal == [
        "loop_boundary_committed",
        "provider_events_committed",
        "model_attempt_started",
        "model_attempt_observed",
        "provider_events_committed",
    ]
    assert used(made)["cost"] == dollars(REQUEST + 1)


@pytest.mark.parametrize(
    ("costs", "limit", "cap"),
    [
        (price(), REQUEST + 600, 600),
        (price(), REQUEST + 5_000, 1_000),
        (price(0, 2_000_000), 601, 300),
        (price(2_000_000, 0), 2 * REQUEST, 1_000),
        (price(1, 1), 1, 1_000),
    ],
)
def test_a_request_asks_for_no_more_than_can_be_paid(costs: ModelCostPolicy, limit: int, cap: int) -> None:
    """Beside the hard count of its input, at their prices; output that costs nothing is not cut (P5)."""
    assert caps(budgeted({"max_cost": dollars(limit)}, costs=costs)) == [cap]


@pytest.mark.parametrize(
    ("costs", "limit"), [(price(), REQUEST - 1), (price(), REQUEST), (price(2_000_000, 0), REQUEST), (price(), 0)]
)
def test_a_request_that_cannot_be_paid_is_not_sent(costs: ModelCostPolicy, limit: int) -> None:
    """Its input alone would cost more, or nothing is left for one token of an answer (P5)."""
    made = budgeted({"max_cost": dollars(limit)}, costs=costs)
    assert reached(made) == "cost"
    assert caps(made) == []


@given(rates=st.tuples(RATE, RATE), ceiling=RATE, read=RATE, written=RATE)
def test_the_output_within_a_limit_is_the_largest(
    rates: tuple[int, int], ceiling: int, read: int, written: int
) -> None:
    """One token more would be quoted above it, whatever the prices are."""
    policy = price(*rates)

    def within(more: int) -> bool:
        return quote(policy, read, written + more).microunits <= ceiling

    most = output_within(policy, ceiling, read, written)
    if most is None:
        assert rates[1] == 0
        assert within(0)
    else:
        assert most < 0 or within(most)
        assert not within(most + 1)


def test_what_a_turn_cost_is_no_longer_there_for_the_next() -> None:
    """The quote is that of the sums, and what is left of the limit caps the next request (F3)."""
    made = budgeted({"max_cost": dollars(1_500)}, costs=price(0))
    made.bring(called(ECHO, usage=ModelUsage(output_tokens=900)))
    made.bring(answered("x"))
    assert caps(made) == [1_000, 600]
    made.bring(called(ECHO, text="So far.", usage=ModelUsage(output_tokens=600)))
    assert reached(made) == "cost"
    partial = result(made.state)["partial_delivery"]
    assert isinstance(partial, dict)
    assert partial["usage"] == {"input_tokens": None, "output_tokens": 1_500, "tool_calls": 1, "cost": dollars(1_500)}


def test_an_agents_default_limit_of_cost_is_kept_too() -> None:
    """A run without one of its own takes its agent's (`answers.md` 12)."""
    default = RunLimits(max_cost=MoneyAmount(currency="USD", microunits=500))
    assert caps(budgeted(default=default, costs=price(0))) == [500]
    assert caps(budgeted({"max_cost": dollars(700)}, default=default, costs=price(0))) == [700]


def test_lost_and_steered_attempts_cost_their_reservation() -> None:
    """Nobody steers past a limit of money either (divergence 8)."""
    made = budgeted({"max_cost": dollars(2_500)}, costs=price(0))
    made.bring(model_lost(abandoned=True))
    made.bring(steer("s1", "faster"))
    made.bring(CommandsRead())
    assert caps(made) == [1_000, 1_000, 500]
    made.bring(steer("s2", "faster still"))
    made.bring(CommandsRead())
    assert reached(made) == "cost"
    assert used(made)["cost"] == dollars(2_500)


@pytest.mark.parametrize(
    ("costs", "usage", "code"),
    [
        (price(), None, "model_usage_missing"),
        (price(), ModelUsage(output_tokens=1), "model_input_usage_missing"),
        (price(), ModelUsage(input_tokens=1), "model_output_usage_missing"),
        (price(0), ModelUsage(output_tokens=1), None),
        (price(1, 0), ModelUsage(input_tokens=1), None),
        (price(), ModelUsage(input_tokens=REQUEST + 1, output_tokens=1), "model_input_usage_exceeded_reservation"),
        (price(0), ModelUsage(input_tokens=REQUEST + 1, output_tokens=1), None),
    ],
)
def test_a_limit_of_cost_needs_the_usage_that_has_a_price(
    costs: ModelCostPolicy, usage: ModelUsage | None, code: str | None
) -> None:
    """Input where input costs something, output likewise (P10)."""
    made = budgeted({"max_cost": dollars(9_000)}, costs=costs)
    made.bring(said("done", usage=usage))
    assert made.status == ("delivered" if code is None else "failed")
    assert code is None or failure(made) == (code, False)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_input_tokens": REQUEST + 5}, "model_input_limit_violated"),
        ({"max_output_tokens": 400}, "model_output_limit_violated"),
        ({"max_cost": dollars(REQUEST + 400)}, "model_cost_limit_violated"),
    ],
)
def test_a_sum_above_a_limit_is_seen_whatever_was_reserved(limits: JsonObject, code: str) -> None:
    """No reservation lets this happen, so one that was too large is made up here (P10)."""
    made = budgeted(limits, costs=price())
    assert isinstance(made.state.phase, ModelOpen)
    wide = made.state.phase.model_copy(update={"bound": 100_000, "cap": 100_000})
    made.state = made.state.model_copy(update={"phase": wide})
    made.bring(said("done", usage=ModelUsage(input_tokens=REQUEST + 6, output_tokens=500)))
    assert failure(made) == (code, False)


def test_a_turn_that_ends_the_run_by_its_usage_is_counted() -> None:
    """It was paid for, so the result says it, though the wire's failure has no place for it (P10)."""
    made = budgeted({"max_output_tokens": 400}, costs=price())
    made.bring(said("done", usage=ModelUsage(input_tokens=5, output_tokens=401)))
    assert failure(made) == ("model_output_usage_exceeded_reservation", False)
    assert used(made) == {"input_tokens": 5, "output_tokens": 401, "tool_calls": None, "cost": dollars(406)}


def test_a_price_is_told_without_a_limit() -> None:
    """Every report has the cost of what is known; a run that knows no token knows no cost (§7)."""
    made = budgeted(costs=price(3_000_000, 15_000_000))
    made.bring(called(ECHO))
    made.bring(answered("x"))
    assert used(made) == {"input_tokens": None, "output_tokens": None, "tool_calls": 1, "cost": None}
    made.bring(said("done", usage=ModelUsage(input_tokens=1_000, output_tokens=10)))
    delivery = result(made.state)["delivery"]
    assert isinstance(delivery, dict)
    assert delivery["usage"] == used(made)
    assert used(made)["cost"] == dollars(3_150)
    assert str(MoneyAmount(currency="USD", microunits=1_003_150)) == "1.003150 USD"


def test_no_sum_is_above_what_the_wire_can_hold() -> None:
    """A provider that reports nonsense fills the counter, and the run goes on (§7)."""
    made = budgeted(costs=price())
    for _ in range(2):
        made.bring(called(ECHO, usage=ModelUsage(input_tokens=2**64 - 1)))
        made.bring(answered("x"))
    made.bring(said("done"))
    assert used(made)["input_tokens"] == 2**64 - 1
    assert made.status == "delivered"


@pytest.mark.parametrize("kind", ALL)
def test_a_start_that_asks_for_an_undeclared_limit_is_refused_by_name(kind: RunLimitKind) -> None:
    """Whichever it is, with the code of the wire (F6)."""
    limits: dict[RunLimitKind, JsonObject] = {
        RunLimitKind.DEADLINE: {"deadline_unix_ms": 1},
        RunLimitKind.COST: {"max_cost": dollars(9)},
    }
    with pytest.raises(StartRefused, match=f" {kind} limit") as refused:
        budgeted(limits.get(kind, {f"max_{kind}": 9}), declared=tuple(each for each in ALL if each is not kind))
    assert refused.value.rejection.code == "unsupported_capability"


@pytest.mark.parametrize(("costs", "known"), [(price(currency="EUR"), "EUR"), (None, "no currency")])
def test_a_limit_in_another_currency_is_refused(costs: ModelCostPolicy | None, known: str) -> None:
    """Nobody changes money here (agent-loop sheet §3, row 3)."""
    with pytest.raises(StartRefused, match=f"`?limits.max_cost'? is in USD.* priced in {known}") as refused:
        budgeted({"max_cost": dollars(9)}, costs=costs)
    assert refused.value.rejection.code == "unsupported_capability"


def refusal(code: ModelErrorCode, *, usage: bool) -> ModelFailed:
    """A failure of the retry transcripts, before any output, with their usage or with none."""
    return model_failed(code, usage=ModelUsage(input_tokens=4, output_tokens=5) if usage else None)


LIMITED: JsonObject = {"max_input_tokens": 100_000}


@pytest.mark.parametrize(
    ("limits", "retries", "given", "attempts"),
    [
        ({}, 0, refusal(ModelErrorCode.UNAVAILABLE, usage=True), 1),
        ({}, 2, refusal(ModelErrorCode.UNAVAILABLE, usage=True), 3),
        ({}, 2, refusal(ModelErrorCode.AUTHENTICATION, usage=True), 1),
        (LIMITED, 2, refusal(ModelErrorCode.UNAVAILABLE, usage=True), 1),
        (LIMITED, 2, refusal(ModelErrorCode.RATE_LIMITED, usage=True), 1),
        (LIMITED, 2, refusal(ModelErrorCode.UNAVAILABLE, usage=False), 1),
        (LIMITED, 2, refusal(ModelErrorCode.RATE_LIMITED, usage=False), 3),
        ({"max_output_tokens": 5_000}, 2, refusal(ModelErrorCode.UNAVAILABLE, usage=False), 1),
        ({"max_cost": dollars(90_000)}, 2, refusal(ModelErrorCode.UNAVAILABLE, usage=False), 1),
        ({"max_cost": dollars(90_000)}, 2, refusal(ModelErrorCode.RATE_LIMITED, usage=False), 3),
    ],
)
def test_a_budget_decides_what_is_asked_again(
    limits: JsonObject, retries: int, given: ModelFailed, attempts: int
) -> None:
    """Under a budget only a rate limit that used nothing is retried, and what failed attempts used is counted (§4).

    The first seven are the runs of the transcripts `usage_only_failures_respect_retry_limits_and_strict_usage_ceilings`
    and `usage_ceiling_prevents_reissuing_an_unaccounted_request_but_allows_rate_limit_retry`.
    """
    made = budgeted(limits, costs=price(), retry=RETRIES.model_copy(update={"max_retries": retries}))
    made.bring(given)
    while isinstance(made.state.phase, ModelWaiting):
        assert isinstance(made.last, WakeAfter)
        made.bring(TimeReached(made.last.timer))
        made.bring(given)
    assert failure(made) == (given.code, True)
    assert len(caps(made)) == attempts
    assert made.wal.count("model_retry_scheduled") == attempts - 1
    if given.usage is not None:
        assert (used(made)["input_tokens"], used(made)["output_tokens"]) == (4 * attempts, 5 * attempts)


def test_a_rate_limit_is_waited_out_under_a_budget() -> None:
    """The second run of that transcript: one retry, then the answer, whose usage is all there is (§4)."""
    made = budgeted(LIMITED)
    made.bring(refusal(ModelErrorCode.RATE_LIMITED, usage=False))
    assert isinstance(made.last, WakeAfter)
    made.bring(TimeReached(made.last.timer))
    made.bring(said("done", usage=ModelUsage(input_tokens=2, output_tokens=3)))
    assert made.status == "delivered"
    assert used(made) == {"input_tokens": 2, "output_tokens": 3, "tool_calls": None, "cost": None}
