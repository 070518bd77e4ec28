"""Limits of a run: they end it exactly where they say."""

import asyncio
import time

import pytest

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.delivery import LimitReached
from orchestral_temporal.protocol.limits import RunLimitKind, RunLimits
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, plan, says

WHERE = pytest.mark.parametrize("where", ["run", "agent's default", "ceiling"])


async def limited(world: World, model: ScriptedModel, tool: RecordingTool, limits: RunLimits, where: str) -> Turn:
    """A run under limits of its own, of its agent's default, or of the host."""
    own = limits if where == "run" else None
    options = {"agent's default": {"run_limits": limits}, "ceiling": {"ceilings": limits}}.get(where, {})
    async with world.serving(plan(model, tool, **options)):
        return await (await world.runs.start("work", run_id=world.id("r"), limits=own)).wait()


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


async def test_a_deadline_ends_a_silent_model(world: World) -> None:
    """It is cancelled there, less than two seconds late, and what it had said is not delivered (F2)."""
    model = ScriptedModel([[{"text": "Let me think"}, {"hang": True}]])
    deadline = round((time.time() + 2) * 1_000)
    turn = await limited(world, model, RecordingTool("echo"), RunLimits(deadline_unix_ms=deadline), "run")

    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.DEADLINE))
    assert turn.text is None
    assert 0 <= time.time() - deadline / 1_000 < 2
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
    journal = turn.result["journal"]
    assert isinstance(journal, list)
    kinds = [record["event"]["payload"]["type"] for record in journal]  # type: ignore[index, call-overload] -- JSON of ours
    assert kinds == ["run_accepted", "run_started", "run_incomplete"]


async def test_limit_keeps_what_was_said(world: World) -> None:
    """A run that reaches a limit hands over what its model had said as a partial delivery."""
    said = [{"text": "So far: three cups."}, *calls(("echo", {"value": 1}))]
    model = ScriptedModel([said, says("never")])
    turn = await limited(world, model, RecordingTool("echo"), RunLimits(max_model_steps=1), "run")

    assert (turn.status, turn.text) == (AgentRunStatus.INCOMPLETE, "So far: three cups.")
    assert turn.result["partial_delivery"] is not None
    assert turn.result["delivery"] is None
