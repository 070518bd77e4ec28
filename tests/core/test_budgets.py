"""Token budgets: reserved before the call, settled after it (F3; agent-loop sheet §7, divergences 8 and 23)."""

import pytest

from orchestral_temporal.core.inputs import CommandsRead
from orchestral_temporal.core.result import result
from orchestral_temporal.core.state import CallModel, InvokeTool, ModelOpen
from orchestral_temporal.protocol.limits import RunLimitKind, RunLimits
from orchestral_temporal.protocol.model import ModelUsage
from orchestral_temporal.protocol.run import seal_descriptor
from tests.core.loop_world import World, answered, binding, called, model_lost, model_part, run_part, said, start, world
from tests.core.test_input_queue import queued, steer
from tests.core.test_loop import ECHO, failure


def budgeted(
    default: RunLimits | None = None, *, task: str = "the task", window: int = 100_000, **limits: int
) -> World:
    """A run with token budgets, its own or its agent's default, and a model of that window."""
    part = run_part() if default is None else run_part(run_limits=default)
    plain = part.descriptor.descriptor
    capabilities = plain.capabilities.model_copy(update={"supported_limits": tuple(RunLimitKind)})
    descriptor = seal_descriptor(plain.model_copy(update={"capabilities": capabilities}))
    part = part.model_copy(update={"descriptor": descriptor})
    return world(start(task, limits=dict(limits)), binding(run=part, model=model_part(max_context_tokens=window)))


def hard_count(made: World) -> int:
    """What the open request may cost in input at the most."""
    assert isinstance(made.state.phase, ModelOpen)
    return made.state.phase.bound


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
    made = budgeted(max_output_tokens=1_300)
    made.bring(called(ECHO, usage=ModelUsage(output_tokens=900)))
    made.bring(answered("x"))
    assert caps(made) == [1_000, 400]
    made.bring(said("done", usage=ModelUsage(output_tokens=400)))
    assert made.status == "delivered"


@pytest.mark.parametrize("used", ["input_tokens", "output_tokens"])
def test_a_spent_budget_forbids_the_work_after_it(used: str) -> None:
    """One model start, no tool, one terminal: what a turn asks for is not done if nothing is left for its answer."""
    spent = hard_count(budgeted(max_input_tokens=9_999)) if used == "input_tokens" else 600
    made = budgeted(**{f"max_{used}": spent})
    made.bring(called(ECHO, text="let me see", usage=ModelUsage.model_validate({used: spent})))
    assert reached(made) == used
    assert not any(isinstance(effect, InvokeTool) for effect in made.effects)
    assert len(caps(made)) == 1
    assert made.events[-1] == "run_incomplete"


def test_a_request_that_may_pass_the_budget_is_not_sent() -> None:
    """Its hard count is above what is left: the run ends before the dispatch (P5)."""
    made = budgeted(max_input_tokens=10)
    assert reached(made) == "input_tokens"
    assert caps(made) == []


def test_the_tighter_of_window_and_budget_ends_the_run() -> None:
    """A context that fits neither ends by its budget where that is the smaller one (§6)."""
    text = "x" * 6_000
    for left, ended in ((600, "incomplete"), (6_100, "failed")):
        made = budgeted(max_input_tokens=left, task=text, window=2_500)
        assert made.status == ended


def test_an_agents_default_budget_is_kept_too() -> None:
    """A run without limits of its own takes its agent's (`answers.md` 12)."""
    made = budgeted(RunLimits(max_input_tokens=100_000, max_output_tokens=700))
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
    limits: dict[str, int], usage: ModelUsage | None, code: str | None
) -> None:
    """Missing where a budget needs it, or above what was reserved; hidden input only under a budget (§7, P10)."""
    made = budgeted(**limits)
    made.bring(said("done", usage=usage))
    assert made.status == ("delivered" if code is None else "failed")
    assert code is None or failure(made) == (code, False)


def test_lost_and_steered_attempts_use_up_a_budget() -> None:
    """Each is charged all that was reserved for it, so that nobody steers past a budget (divergence 8)."""
    made = budgeted(max_output_tokens=2_500)
    made.bring(model_lost(abandoned=True))
    made.bring(steer("s1", "faster"))
    made.bring(CommandsRead())
    assert caps(made) == [1_000, 1_000, 500]
    made.bring(steer("s2", "faster still"))
    made.bring(CommandsRead())
    assert reached(made) == "output_tokens"


def test_input_that_waits_is_not_read_on_a_spent_budget() -> None:
    """An answer in hand is kept as partial, as at the last step (P12)."""
    made = budgeted(max_output_tokens=1_000)
    made.bring(queued("q1", "and more"))
    made.bring(said("Half of it.", usage=ModelUsage(output_tokens=1_000)))
    assert reached(made) == "output_tokens"
