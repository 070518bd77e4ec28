"""Record golden histories: `python -m tests.replay.record FOLDER` writes one file a story.

Histories only grow: a file that was once committed stays, and today's code must still replay it. Record anew only to
add stories.
"""

import asyncio
import gzip
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from orchestral_temporal.core.questions import NAME as REQUEST_INPUT
from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.loading import PACKAGED, load_settings
from orchestral_temporal.ports import ToolFailed
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.retry import ModelRetryPolicy
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.temporal.client import ContinuityUnknown, RunHandle
from orchestral_temporal.temporal.inbox import SLICE
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.conftest import _free_port
from tests.temporal.test_tools import freeze_until_lost
from tests.temporal.world import RecordingTool, World, calls, open_world, plan, says, until

Story = Callable[[World], Awaitable[None]]


async def broken(_arguments: JsonObject, _call: object) -> Json:
    """A tool that fails."""
    raise ToolFailed("no_luck", "It did not work.")


async def text(world: World) -> None:
    """A plain answer."""
    async with world.serving(plan(ScriptedModel([says("Hello")]))):
        await world.runs.run_text("Say hello", run_id="golden-text", session_id="golden")


async def tools(world: World) -> None:
    """Several calls, an unknown tool, unreadable arguments, a failing tool, then a limit's partial answer."""
    script = [
        calls(("echo", {"value": "x"}), ("nobody", {}), ("echo", "{")),
        calls(("broken", {})),
        says("done"),
    ]
    async with world.serving(plan(ScriptedModel(script), RecordingTool("echo"), RecordingTool("broken", broken))):
        await world.runs.run_text("Use the tools", run_id="golden-tools", session_id="golden")


async def cancelled(world: World) -> None:
    """A malformed signal, then a cancel while the model hangs."""
    async with world.serving(plan(ScriptedModel([[{"hang": True}]]))):
        run = await world.runs.start("Wait", run_id="golden-cancelled", session_id="golden")
        await world.client.get_workflow_handle("golden-cancelled").signal("cancel", {"reson": "typo"})
        await run.cancel("enough", command_id="c1")
        await run.wait()


async def groups(world: World) -> None:
    """Two safe calls side by side with a refused one between them, then one behind the fence."""
    script = [
        calls(("echo", {"value": 1}), ("nobody", {}), ("echo", {"value": 2})),
        calls(("once", {"value": 3})),
        says("done"),
    ]
    tools = (RecordingTool("echo"), RecordingTool("once", idempotency=ToolIdempotency.NON_IDEMPOTENT))
    async with world.serving(plan(ScriptedModel(script), *tools)):
        await world.runs.run_text("Do both", run_id="golden-groups", session_id="golden-2")


async def retried(world: World) -> None:
    """A busy model is asked again, one that finds the context too long gets a smaller cap."""
    busy: list[Json] = [{"error": {"code": "rate_limited", "message": "busy", "retryable": True}}]
    long: list[Json] = [{"error": {"code": "context_length_exceeded", "message": "too long"}}]
    soon = ModelRetryPolicy(max_retries=2, base_delay_ms=20, max_delay_ms=20)
    async with world.serving(plan(ScriptedModel([busy, long, says("done")]), retry=soon)):
        await world.runs.run_text("Try", run_id="golden-retried", session_id="golden-2")


async def heard_late(world: World) -> None:
    """A call whose worker was silent for too long reports its outcome by signal."""

    async def freeze(_arguments: JsonObject, _call: object) -> Json:
        freeze_until_lost(world, "golden-heard-late")
        return "thawed"

    tool = RecordingTool("freeze", freeze, idempotency=ToolIdempotency.NON_IDEMPOTENT)
    model = ScriptedModel([calls(("freeze", {})), says("went on")])
    async with world.serving(plan(model, tool), timeouts=world.timeouts(heartbeat_ms=500)):
        await world.runs.run_text("Freeze", run_id="golden-heard-late", session_id="golden-2")


async def unknown(world: World) -> None:
    """An effect that nobody knows, which an operator then settles."""

    async def hang(_arguments: JsonObject, _call: object) -> Json:
        await asyncio.Event().wait()
        return "never"

    tool = RecordingTool("hang", hang, idempotency=ToolIdempotency.NON_IDEMPOTENT, timeout_ms=200)
    async with world.serving(plan(ScriptedModel([calls(("hang", {}))]), tool)):
        run = await world.runs.start("Hang", run_id="golden-unknown", session_id="golden-2")
        await run.wait()
        await run.settle("m1/c1", did_not=True, by="recorder")


async def steered(world: World) -> None:
    """Steers that wait for the run, one that voids an attempt, queued input that is replaced and withdrawn."""
    model = ScriptedModel([[{"hang": True}], says("done")])
    run = await world.runs.start("Go", run_id="golden-steered", session_id="golden-3")
    handle = world.client.get_workflow_handle(run.run_id)
    for text in ("quickly", "and well"):
        await handle.signal("steer", {"text": text})
    async with world.serving(plan(model)):
        await until(lambda: bool(model.requests), "the model is asked")
        first, second = await run.enqueue("one", command_id="q1"), await run.enqueue("two", command_id="q2")
        await first.replace("ONE", command_id="q3")
        await second.withdraw(command_id="q4")
        await run.steer("now", command_id="s1")
        await run.wait()


async def asked(world: World) -> None:
    """A question, a wrong answer and the right one, under a budget and a deadline that nobody reaches."""
    limits = RunLimits(max_output_tokens=1_000, deadline_unix_ms=4_102_444_800_000)
    script = [calls((REQUEST_INPUT, {"prompt": "Which one?"})), says("done")]
    usage: list[Json] = [{"type": "usage", "usage": {"input_tokens": 9, "output_tokens": 3}}]
    async with world.serving(plan(ScriptedModel([usage + each for each in script]), input_requests=True)):
        run = await world.runs.start("Ask", run_id="golden-asked", session_id="golden-3", limits=limits)
        await until(lambda: asks(run), "the run waits for a person")
        (request,) = (await run.inspect()).pending_requests
        await world.client.get_workflow_handle(run.run_id).signal("resolve_request", {"request_id": "other"})
        await run.answer(request.request_id, "the left one", command_id="a1")
        await run.wait()


async def asks(run: RunHandle) -> bool:
    """Whether a run waits for a person; before it is accepted it does not answer."""
    with suppress(ContinuityUnknown):
        return bool((await run.inspect()).pending_requests)
    return False


async def expired(world: World) -> None:
    """A deadline ends a model that hangs."""
    limits = RunLimits(deadline_unix_ms=int(time.time() * 1000) + 1_000)
    async with world.serving(plan(ScriptedModel([[{"hang": True}]]))):
        await (await world.runs.start("Wait", run_id="golden-expired", session_id="golden-3", limits=limits)).wait()


async def burst(world: World) -> None:
    """More steers than one task reads wait for the run."""
    run = await world.runs.start("Go", run_id="golden-burst", session_id="golden-3")
    handle = world.client.get_workflow_handle(run.run_id)
    for number in range(SLICE + 10):
        await handle.signal("steer", {"command_id": f"s{number}", "text": "more"})
    async with world.serving(plan(ScriptedModel([says("done")]))):
        await run.wait()


STORIES: tuple[tuple[str, Story], ...] = (
    ("golden-text", text),
    ("golden-tools", tools),
    ("golden-cancelled", cancelled),
    ("golden-groups", groups),
    ("golden-retried", retried),
    ("golden-heard-late", heard_late),
    ("golden-unknown", unknown),
    ("golden-steered", steered),
    ("golden-asked", asked),
    ("golden-expired", expired),
    ("golden-burst", burst),
)


async def main(folder: Path) -> None:
    """Record every story, and the session they share."""
    temporal = load_settings(PACKAGED).temporal
    server = temporal.server.model_copy(update={"db": None, "ui_port": None})
    settings = temporal.model_copy(update={"address": f"127.0.0.1:{_free_port()}", "server": server})
    async with (
        dev_server(settings) as running,
        open_world(running.address, settings.namespace, cached=True) as world,
    ):
        for _, story in STORIES:
            await story(world)
        for name in (*(name for name, _ in STORIES), "session/golden", "session/golden-2", "session/golden-3"):
            history = await world.history(name)
            value = json.loads(history.to_json())
            plain = re.sub(r'("identity": )"[^"]*"', r'\1"recorder"', json.dumps(value, sort_keys=True))
            target = folder / f"{name.replace('/', '-')}.json.gz"
            target.write_bytes(gzip.compress(plain.encode(), mtime=0))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
