"""A steer asks tools at work to return what they have; what they say meanwhile is seen but not kept (C4, A6)."""

import asyncio
from collections.abc import Callable

import pytest

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import INPUT_QUEUE
from orchestral_temporal.protocol.model import ModelErrorCode
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.temporal.client import Frame, RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.test_steering import STEERED, envelope, heard, submit
from tests.temporal.world import RecordingTool, World, calls, plan, says

PATIENCE = 400
"""Looks of a tool before it gives up waiting for a steer: some seconds."""


class Waiting:
    """A tool that works until it is asked to return what it has, and then says so."""

    def __init__(self, idempotency: ToolIdempotency) -> None:
        self.reached = asyncio.Event()
        self.tool = RecordingTool("wait", self._work, idempotency=idempotency, timeout_ms=None)

    async def _work(self, _arguments: JsonObject, call: ToolCall) -> Json:
        for _ in range(PATIENCE):
            if call.should_yield():
                return {"yielded": True}
            self.reached.set()
            await asyncio.sleep(0.02)
        return {"yielded": False}


@pytest.mark.parametrize("idempotency", [ToolIdempotency.NON_IDEMPOTENT, ToolIdempotency.PURE])
async def test_a_steer_asks_the_tool_at_work_to_yield(world: World, idempotency: ToolIdempotency) -> None:
    """Nothing is cancelled: the tool returns early, once, its observation is kept, and the steer follows it (C4)."""
    tool = Waiting(idempotency)
    model = ScriptedModel([calls(("wait", {})), says("done")])
    async with world.serving(plan(model, tool.tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await tool.reached.wait()
        await submit(world, run, envelope(run, "q1", "and then", {INPUT_QUEUE: {"operation": "enqueue"}}))
        await submit(world, run, envelope(run, "c1", "hurry"))
        turn = await run.wait()
        records = await world.records(run.run_id)

    assert turn.status is AgentRunStatus.DELIVERED
    assert len(tool.tool.calls) == 1
    (exchange,) = [each["payload"] for each in records if each["payload"]["type"] == "tool_exchange_committed"]  # type: ignore[index, call-overload] -- JSON of ours
    assert exchange["tool"]["content"][0]["result"] == {"yielded": True}  # type: ignore[index, call-overload] -- JSON of ours
    assert heard(model.requests[-1]) == ["go", "and then", "hurry"]
    assert "stop_requested" not in str(turn.result["journal"])


async def test_what_a_tool_says_of_its_progress_is_seen_and_not_kept(world: World) -> None:
    """Watchers hear the newest word with its share of the whole, and the journal is that of any run (A6)."""
    seen = asyncio.Event()

    async def work(_arguments: JsonObject, call: ToolCall) -> Json:
        call.report_progress("half\nof it", 0.5)
        call.report_progress("all of it", 1.0)
        await seen.wait()
        return {"result": "done"}

    tool = RecordingTool("work", work, idempotency=ToolIdempotency.NON_IDEMPOTENT)
    async with world.serving(plan(ScriptedModel([calls(("work", {})), says("done")]), tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        frames = await watched(run, lambda frame: frame.progress is not None and frame.progress.fraction == 1.0, seen)
        turn = await run.wait()

    told = [frame.progress.message for frame in frames if frame.progress is not None]
    assert told[-1] == "all of it"
    assert all(frame.text == "round 1 · work" for frame in frames if frame.kind == "progress")
    journal = turn.result["journal"]
    assert isinstance(journal, list)
    assert len(journal) == len(STEERED) - 3
    assert "all of it" not in str(turn.result)


async def test_that_the_model_is_asked_again_is_progress(world: World) -> None:
    """Watchers hear that an attempt has failed, why, and when the next one begins (A6)."""
    error: Json = {"error": {"code": ModelErrorCode.RATE_LIMITED, "message": "slow down", "retryable": True}}
    model = ScriptedModel([{"attempts": [[error], says("done")]}])
    async with world.serving(plan(model)):
        run = await world.runs.start("go", run_id=world.id("r"))
        frames = await watched(run, lambda _: False, asyncio.Event())

    (said,) = [frame.progress for frame in frames if frame.progress is not None]
    assert said.message.startswith("The model is asked again in ")
    assert said.message.endswith("slow down")


async def watched(run: RunHandle, enough: Callable[[Frame], bool], signal: asyncio.Event) -> list[Frame]:
    """What a watcher sees until the run ends; the signal is given once it has seen enough."""
    frames: list[Frame] = []
    async for frame in run.watch():
        frames.append(frame)
        if enough(frame):
            signal.set()
    return frames
