"""Whoever watches a run sees the end of all that began, whatever is cancelled and whatever cannot be decoded."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.tools import ToolConcurrency
from orchestral_temporal.temporal.client import AgentClient, ContinuityUnknown, RunHandle
from orchestral_temporal.temporal.watch import Frame, follow
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.locked import Locked
from tests.temporal.world import RecordingTool, World, calls, plan, says, until


async def never(_arguments: JsonObject, _call: ToolCall) -> Json:
    """Work that has no end."""
    await asyncio.Event().wait()
    return None


@asynccontextmanager
async def thinking(world: World) -> AsyncGenerator[RunHandle]:
    """A run whose model has said something and goes on."""
    model = ScriptedModel([[{"text": "Let me think"}, {"hang": True}]])
    timeouts = world.timeouts(heartbeat_ms=2_000).model_copy(update={"live_text_ms": 50})
    async with world.serving(plan(model), timeouts=timeouts):
        yield await world.runs.start("go", run_id=world.id("r"))


async def watch(run: RunHandle, frames: list[Frame]) -> None:
    """Watch a run to its end."""
    async for frame in run.watch():
        frames.append(frame)  # noqa: PERF401 -- what has come so far is looked at meanwhile


def kinds(frames: list[Frame], *wanted: str) -> list[tuple[str, str]]:
    """The frames of these kinds, with their texts."""
    return [(frame.kind, frame.text) for frame in frames if frame.kind in wanted]


async def test_the_text_of_a_cancelled_attempt_is_void(world: World) -> None:
    """Its live text is cleared, under the attempt's name."""
    frames: list[Frame] = []
    async with thinking(world) as run:
        watching = asyncio.create_task(watch(run, frames))
        await until(lambda: kinds(frames, "text") != [], "text is shown")
        await run.cancel("enough")
        await watching

    assert kinds(frames, "text", "clear", "turn") == [("text", "Let me think"), ("clear", "")]
    assert len({frame.attempt for frame in frames if frame.kind in ("text", "clear")}) == 1


@pytest.mark.parametrize("terminated", [False, True])
async def test_a_cancelled_call_ends_on_the_screen(world: World, *, terminated: bool) -> None:
    """Each call that began ends, once, and is not said to be lost; so do those of a run that is terminated."""
    frames: list[Frame] = []
    tool = RecordingTool("wait", never, concurrency=ToolConcurrency.PARALLEL_SAFE)
    async with world.serving(plan(ScriptedModel([calls(("wait", {}), ("wait", {}))]), tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        watching = asyncio.create_task(watch(run, frames))
        await until(lambda: len(tool.calls) == 2 and len(kinds(frames, "call")) == 2, "both calls are shown")
        if terminated:
            await world.client.get_workflow_handle(run.run_id).terminate()
            with pytest.raises(ContinuityUnknown, match="was terminated"):
                await watching
        else:
            await run.cancel("enough")
            await watching

    assert Counter(kinds(frames, "call_ended", "lost")) == {("call_ended", "round 1 · wait"): 2}


@pytest.mark.parametrize("later", [True, False])
async def test_a_beat_that_cannot_be_decoded_is_passed_over(world: World, *, later: bool) -> None:
    """The log says it once; text goes on as soon as the codec has its key again, and without it watching goes on."""
    codec = Locked(lambda data: b'"offset"' in data)
    frames: list[Frame] = []
    with capture_logs() as logs:
        async with thinking(world) as run:
            watching = asyncio.create_task(watch(AgentClient(codec.used_by(world.client)).run(run.run_id), frames))
            await until(lambda: codec.refused > 1, "two looks were in vain")
            if later:
                codec.locks = lambda _: False
                await until(lambda: kinds(frames, "text") == [("text", "Let me think")], "text is shown")
            await run.cancel("enough")
            await watching

    assert [each["event"] for each in logs if each["log_level"] == "warning"] == ["live text cannot be read"]
    assert kinds(frames, "clear") == [("clear", "")]
    assert [frame.event.event.payload.type for frame in frames if frame.event is not None][-1] == "run_cancelled"


async def test_an_answer_that_cannot_be_decoded_is_none(world: World) -> None:
    """Whatever a payload codec raises, a reader says that nobody answers, and not that we are at fault."""
    codec = Locked(lambda data: b'"view"' in data)
    async with thinking(world) as run:
        await until(lambda: answers(run), "the run answers")
        with pytest.raises(ContinuityUnknown, match="does not answer: the key is gone"):
            await AgentClient(codec.used_by(world.client)).run(run.run_id).look()
        await run.cancel("enough")


async def answers(run: RunHandle) -> bool:
    """Whether somebody answers for the run."""
    try:
        await run.look()
    except ContinuityUnknown:
        return False
    return True


async def test_a_watcher_can_be_cancelled_at_any_step(world: World) -> None:
    """A cancel that comes while the watching winds up ends the watcher, too."""
    run_id = world.id("r")
    async with world.serving(plan(ScriptedModel([says("done")]))):
        await world.runs.run_text("go", run_id=run_id)

    async def watcher(steps: int) -> None:
        task = asyncio.current_task()
        assert task is not None

        def step(left: int) -> None:
            if left:
                asyncio.get_running_loop().call_soon(step, left - 1)
            else:
                task.cancel()

        async for frame in follow(world.client, run_id):
            if frame.kind == "turn":
                step(steps)
        await asyncio.Event().wait()

    watchers = {asyncio.create_task(watcher(steps)) for steps in range(12)}
    done, _ = await asyncio.wait(watchers, timeout=5)
    assert done == watchers
    assert all(each.cancelled() for each in done)
