"""Limits of a run: they end it exactly where they say."""

import asyncio
import time

import pytest

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.delivery import LimitReached
from orchestral_temporal.protocol.limits import MoneyAmount, RunLimitKind, RunLimits
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.wal import ModelAttemptStarted as Attempt
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, plan, says

CHEAP = ModelCostPolicy(
    currency="USD", input_microunits_per_million_tokens=1_000_000, output_microunits_per_million_tokens=1_000_000
)
"""A millionth of a dollar for each token."""

WHERE = pytest.mark.parametrize("where", ["run", "agent's default", "ceiling"])


async def limited(world: World, model: ScriptedModel, tool: RecordingTool, limits: RunLimits, where: str) -> Turn:
    """A run under limits of its own, of its agent's default, or of the host."""
    own = limits if where == "run" else None
    options = {"agent's default": {"run_limits": limits}, "ceiling": {"ceilings": limits}}.get(where, {})
    async with world.serving(plan(model, tool, **options)):
        return await (await world.runs.start("work", run_id=world.id("r"), limits=own)).wait()


def kinds(turn: Turn) -> list[str]:
    """The events of the run journal."""
    journal = turn.result["journal"]
    assert isinstance(journal, list)
    return [record["event"]["payload"]["type"] for record in journal]  # type: ignore[index, call-overload] -- JSON of ours


def tool_calls(turn: Turn) -> object:
    """The calls that the usage counts."""
    usage = turn.result["usage"]
    assert isinstance(usage, dict)
    return usage["tool_calls"]


@WHERE
async def test_model_steps_end_the_run_at_the_boundary(world: World, where: str) -> None:
    """Three model steps allow exactly three rounds and two calls; the third round's calls do not run (F4)."""
    tool, model = RecordingTool("echo"), ScriptedModel([calls(("echo", {"value": n})) for n in range(9)])
    turn = await limited(world, model, tool, RunLimits(max_model_steps=3), where)

    assert turn.status is AgentRunStatus.INCOMPLETE
    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.MODEL_STEPS))
    assert (len(model.requests), len(tool.calls), tool_calls(turn)) == (3, 2, 2)


@WHERE
async def test_tool_calls_end_the_run_at_the_boundary(world: World, where: str) -> None:
    """Three tool calls allow exactly three calls and four rounds; the fourth call does not run (F5)."""
    tool, model = RecordingTool("echo"), ScriptedModel([calls(("echo", {"value": n})) for n in range(9)])
    turn = await limited(world, model, tool, RunLimits(max_tool_calls=3), where)

    assert turn.status is AgentRunStatus.INCOMPLETE
    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.TOOL_CALLS))
    assert (len(model.requests), len(tool.calls), tool_calls(turn)) == (4, 3, 3)


@pytest.mark.parametrize("where", ["run", "agent's default"])
async def test_an_output_budget_caps_each_request(world: World, where: str) -> None:
    """A request asks for no more than is left; a spent budget ends the run before its tool (F3)."""
    spends: list[Json] = [{"type": "usage", "usage": {"input_tokens": 5, "output_tokens": 60}}]
    model = ScriptedModel([[*spends, *calls(("echo", {"value": n}))] for n in range(9)])
    tool = RecordingTool("echo")
    turn = await limited(world, model, tool, RunLimits(max_output_tokens=120), where)

    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.OUTPUT_TOKENS))
    assert [each.max_output_tokens for each in model.requests] == [120, 60]
    assert len(tool.calls) == 1


async def test_exact_budgets_pay_for_one_request_and_no_tool(world: World) -> None:
    """Input, output and cost fit one request: one token of output, no tool, one terminal, named for the input (F3)."""
    tool = RecordingTool("echo")
    free = await limited(world, ScriptedModel([says("so much it is")]), tool, RunLimits(), "run")
    (attempt,) = [each.payload for each in (await world.read(free.run_id)).wal if isinstance(each.payload, Attempt)]
    count = attempt.context.used_input_tokens
    used: Json = {"type": "usage", "usage": {"input_tokens": count, "output_tokens": 1}}
    model = ScriptedModel([[used, *calls(("echo", {"value": 1}))], says("never")])
    cost = MoneyAmount(currency="USD", microunits=count + 1)
    limits = RunLimits(max_input_tokens=count, max_output_tokens=1, max_cost=cost)
    async with world.serving(plan(model, tool, price=CHEAP)):
        turn = await (await world.runs.start("work", run_id=world.id("exact"), limits=limits)).wait()

    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.INPUT_TOKENS))
    assert [each.max_output_tokens for each in model.requests] == [1]
    assert tool.calls == []
    assert kinds(turn) == ["run_accepted", "run_started", "run_incomplete"]
    usage = turn.result["usage"]
    assert isinstance(usage, dict)
    assert usage["cost"] == dump(cost)


async def test_only_declared_limits_are_accepted(world: World) -> None:
    """Without tools no tool calls, without a price no cost, and no cost in another currency: refused by name (F6)."""
    dollars, euros = (RunLimits(max_cost=MoneyAmount(currency=each, microunits=9_000_000)) for each in ("USD", "EUR"))
    spends: list[Json] = [{"type": "usage", "usage": {"input_tokens": 5, "output_tokens": 6}}, *says("done")]
    bare, priced = ScriptedModel([says("done")]), ScriptedModel([spends])
    asked = {
        "calls": ("bare", RunLimits(max_tool_calls=3)),
        "unpriced": ("bare", dollars),
        "euros": ("priced", euros),
        "dollars": ("priced", dollars),
    }
    async with world.serving(plan(bare, name="bare"), plan(priced, RecordingTool("echo"), name="priced", price=CHEAP)):
        runs = [
            await world.runs.start("work", run_id=world.id(name), agent=agent, limits=limits)
            for name, (agent, limits) in asked.items()
        ]
        *refused, kept = await asyncio.gather(*(run.wait() for run in runs))

    said = [str((turn.failure or {})["message"]) for turn in refused]
    assert [(turn.failure or {})["code"] for turn in refused] == ["unsupported_capability"] * 3
    assert [word in each for word, each in zip(("tool_calls", "cost", "EUR"), said, strict=True)] == [True] * 3
    assert kept.status is AgentRunStatus.DELIVERED


async def test_a_deadline_ends_a_silent_model(world: World) -> None:
    """It is cancelled there, on the server's clock less than a second late, and nothing is delivered (F2)."""
    model = ScriptedModel([[{"text": "Let me think"}, {"hang": True}]])
    deadline = round((time.time() + 2) * 1_000)
    turn = await limited(world, model, RecordingTool("echo"), RunLimits(deadline_unix_ms=deadline), "run")

    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.DEADLINE))
    assert turn.text is None
    last = (await world.history(turn.run_id)).events[-1]
    assert 0 <= last.event_time.ToMilliseconds() - deadline < 1_000
    assert len(model.requests) == 1


async def test_a_deadline_ends_a_working_tool(world: World) -> None:
    """The tool is told and heard; nothing is begun after it (F2)."""
    told = asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
        return "never"

    model = ScriptedModel([calls(("wait", {})), says("never")])
    tool = RecordingTool("wait", wait, timeout_ms=None)
    limits = RunLimits(deadline_unix_ms=round((time.time() + 2) * 1_000))
    turn = await limited(world, model, tool, limits, "run")

    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.DEADLINE))
    assert told.is_set()
    assert len(model.requests) == 1


async def test_a_deadline_that_is_past_starts_no_model(world: World) -> None:
    """The input is committed, the run is on record as started, and its model is never asked (F1)."""
    model = ScriptedModel([says("never")])
    turn = await limited(world, model, RecordingTool("echo"), RunLimits(deadline_unix_ms=1), "run")

    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.DEADLINE))
    assert model.requests == []
    assert kinds(turn) == ["run_accepted", "run_started", "run_incomplete"]


async def test_limit_keeps_what_was_said(world: World) -> None:
    """A run that reaches a limit hands over what its model had said as a partial delivery."""
    said = [{"text": "So far: three cups."}, *calls(("echo", {"value": 1}))]
    model = ScriptedModel([said, says("never")])
    turn = await limited(world, model, RecordingTool("echo"), RunLimits(max_model_steps=1), "run")

    assert (turn.status, turn.text) == (AgentRunStatus.INCOMPLETE, "So far: three cups.")
    assert turn.result["partial_delivery"] is not None
    assert turn.result["delivery"] is None
