"""What an agent declares and binds: only what it can do, and what is wrong is said when it is made (F6)."""

from collections.abc import Sequence

import pytest

from orchestral_temporal.adapters.tools.functions import function_tool
from orchestral_temporal.core.items import offered
from orchestral_temporal.protocol.activities import Role, RunPart, ToolsPart
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.limits import MoneyAmount, RunLimitKind, RunLimits
from orchestral_temporal.protocol.model import ModelCapabilities, ModelDescriptor
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.run import AgentCapabilities, EffectMediation, PendingRequestKind
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.testing.scripted import ScriptedModel

PRICE = ModelCostPolicy(
    currency="USD", input_microunits_per_million_tokens=3_000_000, output_microunits_per_million_tokens=15_000_000
)
CALLS_NONE = ModelDescriptor(
    backend_id="plain",
    capabilities=ModelCapabilities(
        streaming=True, tool_calls=False, parallel_tool_calls=False, structured_output=False
    ),
)
WITHOUT = [RunLimitKind.DEADLINE, RunLimitKind.MODEL_STEPS, RunLimitKind.INPUT_TOKENS, RunLimitKind.OUTPUT_TOKENS]


def shout(text: str) -> str:
    """Say it loud."""
    return text.upper()


TOOL = function_tool(shout)


def parts(plan: AgentPlan, roles: Sequence[Role] = tuple(Role)) -> tuple[RunPart, ToolsPart]:
    """What the run's worker and the tools' bind."""
    hosted = host(plan, "default", roles)
    assert hosted.run is not None
    assert hosted.tools is not None
    return hosted.run, hosted.tools.part


def declared(plan: AgentPlan, roles: Sequence[Role] = tuple(Role)) -> AgentCapabilities:
    """What the agent says that it can do."""
    return parts(plan, roles)[0].descriptor.descriptor.capabilities


def test_an_agent_declares_the_limits_that_it_keeps() -> None:
    """Tool calls with tools only, cost with a price only, the other four always (F6)."""
    model = ScriptedModel([])
    assert list(declared(AgentPlan("a", model)).supported_limits) == WITHOUT
    assert set(declared(AgentPlan("a", model, [TOOL])).supported_limits) == {*WITHOUT, RunLimitKind.TOOL_CALLS}
    assert set(declared(AgentPlan("a", model, price=PRICE)).supported_limits) == {*WITHOUT, RunLimitKind.COST}
    assert declared(AgentPlan("a", model, [TOOL], price=PRICE)).supported_limits == tuple(RunLimitKind)


def test_a_price_is_part_of_what_a_run_binds() -> None:
    """It is in the run's part, so in the digest of its contract; without one both are as they always were."""
    plain, priced = (parts(AgentPlan("a", ScriptedModel([]), price=each))[0] for each in (None, PRICE))
    assert dump(priced)["price"] == dump(PRICE)
    assert "price" not in dump(plain)
    assert digest(plain) != digest(priced)


def test_a_model_that_calls_no_tools_cannot_ask() -> None:
    """Questions are not declared where the model is known; wherever it is served, they are not offered (§2)."""
    mute = AgentPlan("a", ScriptedModel([], descriptor=CALLS_NONE), input_requests=True)
    assert declared(mute).pending_request_kinds == ()
    elsewhere = AgentPlan("a", None, input_requests=True)
    assert declared(elsewhere, [Role.RUN, Role.TOOLS]).pending_request_kinds == (PendingRequestKind.INPUT,)
    model = host(mute, "default").model
    assert model is not None
    assert not offered(parts(elsewhere, [Role.RUN, Role.TOOLS])[1], model.part).input_requests


def test_an_agent_without_tools_may_ask() -> None:
    """A question is no effect: nothing is mediated, and there is no tool call to limit (agent-loop sheet §2)."""
    plan = AgentPlan("a", ScriptedModel([]), input_requests=True)
    assert parts(plan)[1].input_requests
    can = declared(plan)
    assert can.pending_request_kinds == (PendingRequestKind.INPUT,)
    assert can.effect_mediation is EffectMediation.NONE
    assert list(can.supported_limits) == WITHOUT


USD = MoneyAmount(currency="USD", microunits=9)
FREE = PRICE.model_copy(update={"input_microunits_per_million_tokens": 0, "output_microunits_per_million_tokens": 0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run_limits": RunLimits(max_cost=USD)}, "limits cost in USD and has no price in it"),
        ({"run_limits": RunLimits(max_cost=USD), "price": PRICE.model_copy(update={"currency": "EUR"})}, "in USD"),
        ({"run_limits": RunLimits(max_input_tokens=0)}, "max_input_tokens"),
        ({"run_limits": RunLimits(deadline_unix_ms=1)}, "sets the limit deadline in its run_limits"),
        ({"ceilings": RunLimits(max_cost=USD), "price": PRICE}, "sets the limit cost in its limits"),
        ({"price": FREE}, "Both prices are 0"),
        ({"price": PRICE.model_copy(update={"currency": "usd"})}, "`currency` is no ISO code"),
        ({"backend": ScriptedModel([], descriptor=CALLS_NONE), "tools": [TOOL]}, "has tools, and its model calls none"),
    ],
)
def test_what_an_agent_cannot_keep_is_refused_when_it_is_made(changes: JsonObject, said: str) -> None:
    """A budget that nobody watches is worse than none, and so is a tool that nobody can call."""
    with pytest.raises(WordError, match=said):
        host(AgentPlan(**{"name": "a", "backend": ScriptedModel([]), **changes}), "default")  # type: ignore[arg-type] -- fields by name
