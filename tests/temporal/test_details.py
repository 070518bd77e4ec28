"""The current details of a run: what a person reads in the Temporal UI while it goes on, and when it has failed."""

from orchestral_temporal.core.inputs import TimeReached, ToolObserved
from orchestral_temporal.protocol.activities import ToolObservation
from orchestral_temporal.protocol.model import ModelUsage
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.tools import ToolConcurrency, ToolIdempotency, UnknownEffect
from orchestral_temporal.temporal.visibility import details
from tests.core.loop_world import (
    RUN,
    World,
    answered,
    binding,
    called,
    run_part,
    said,
    start,
    tool,
    tool_lost,
    tools_part,
    world,
)


def at_work(*named: str) -> World:
    """A run with calls of a tool at work, side by side, that must not run twice."""
    once = tool("once", ToolIdempotency.NON_IDEMPOTENT, concurrency=ToolConcurrency.PARALLEL_SAFE)
    made = world(start(), binding(tools=tools_part(once)))
    made.bring(called(*[(name, "{}") for name in named]))
    return made


def lines(made: World) -> list[str]:
    """The details, line by line, after the first."""
    return details(made.state).splitlines()[1:]


def test_what_was_used_has_a_line() -> None:
    """Tokens, and what they cost where the model has a price."""
    price = ModelCostPolicy(
        currency="USD", input_microunits_per_million_tokens=3_000_000, output_microunits_per_million_tokens=15_000_000
    )
    for priced, money in ((None, ""), (price, ", 0.003150 USD")):
        made = world(start(), binding(run=run_part(price=priced)))
        made.bring(said("done", usage=ModelUsage(input_tokens=1_000, output_tokens=10)))
        assert lines(made) == [f"- tokens: 1000 in, 10 out{money}"]


def test_each_call_at_work_has_a_line() -> None:
    """Running, uncertain and unknown calls are told apart; what is unknown names the command that settles it."""
    made = at_work("once", "once", "once")
    made.bring(ToolObserved(f"{RUN}/m1/c2", 1, ToolObservation(outcome=UnknownEffect(message="who knows"))))
    made.bring(tool_lost(abandoned=False))
    remedy = f"when the run has ended, `orchestral effects settle {RUN} m1/c2` tells the session"
    assert lines(made)[:3] == [
        f"- `once` (`{RUN}/m1/c1`) was lost; its outcome is waited for up to 30 s",
        f"- `once` (`{RUN}/m1/c2`): nobody can say whether it took effect; {remedy}",
        f"- running `once` (`{RUN}/m1/c3`)",
    ]
    made.bring(TimeReached(f"grace/{RUN}/m1/c1/1"))
    made.bring(ToolObserved(f"{RUN}/m1/c3", 1, answered("x").observation))
    assert made.status == "failed"
    assert "Nobody can say whether 'once' took effect" in lines(made)[0]
