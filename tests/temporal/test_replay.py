"""The history is the journal: whoever reads it later, and with whichever worker, reads the same."""

import asyncio

import pytest
from temporalio.client import WorkflowHistory

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle
from orchestral_temporal.temporal.history import replay
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, plan, says, until


async def read(run: RunHandle, after: int = 0, *, more: bool = False) -> list[int]:
    """The sequence numbers that a reader gets."""
    return [each.event.run_seq async for each in run.events(after, more=more)]


async def test_finished_run_replays_on_a_new_worker_with_identical_events(world: World) -> None:
    """A new worker, the stored history and an exported one yield the records of the result; no model starts (I1)."""
    model, idle = ScriptedModel([calls(("echo", {"value": "a"})), says("done")]), ScriptedModel([says("never")])
    run_id = world.id("r")
    async with world.serving(plan(model, RecordingTool("echo"))):
        turn = await world.runs.run_text("work", run_id=run_id)
    async with world.serving(plan(idle, RecordingTool("echo"))):
        handle = world.client.get_workflow_handle(run_id)
        answer = await handle.query(names.QUERY_EVENTS, {}, result_type=dict)
        wal = await handle.query(names.QUERY_WAL, {"limit": 500}, result_type=dict)
    stored = await world.read(run_id)
    exported = await replay(WorkflowHistory.from_json(run_id, (await world.history(run_id)).to_json()))

    journal = turn.result["journal"]
    assert answer == {"records": journal, "last": 4, "more": False}
    assert [dump(each) for each in stored.journal] == journal
    assert exported == stored
    assert wal["records"] == [{"event_id": each.event_id, "type": each.payload.type} for each in stored.wal]
    assert stored.state is not None
    for record in (*stored.journal, *stored.wal):
        validate(record)
    assert idle.requests == []


async def test_readers_get_every_event_once(world: World) -> None:
    """Readers from 0, 3, n, n + 10, two at a time, one resumed, and after a restart: 1 to n, each once (F014)."""
    model = ScriptedModel([calls(("echo", {"value": 1})), says("done")])
    async with world.serving(plan(model, RecordingTool("echo"))):
        run = await world.runs.start("work", run_id=world.id("r"))
        await run.wait()
        await check_readers(run)
    async with world.serving(plan(model, RecordingTool("echo"))):
        await check_readers(run)
        handle = world.client.get_workflow_handle(run.run_id)
        for after, expected in ((0, [1, 2, 3, 4]), (3, [4]), (4, []), (14, [])):
            answer = await handle.query(names.QUERY_EVENTS, {"after": after}, result_type=dict)
            assert [each["event"]["run_seq"] for each in answer["records"]] == expected
            assert (answer["last"], answer["more"]) == (4, False)


async def check_readers(run: RunHandle) -> None:
    """Every way of reading a finished run of four events."""
    for more in (False, True):
        assert await read(run, more=more) == [1, 2, 3, 4]
        assert await read(run, 3, more=more) == [4]
        assert await read(run, 4, more=more) == []
        assert await read(run, 14, more=more) == []
    assert await asyncio.gather(read(run), read(run)) == [[1, 2, 3, 4]] * 2
    seen: list[int] = []
    async for each in run.events():
        seen.append(each.event.run_seq)
        if each.event.run_seq == 3:
            break
    assert seen + await read(run, seen[-1]) == [1, 2, 3, 4]


async def test_readers_follow_an_open_run_to_its_end(world: World) -> None:
    """Readers that follow see what is committed at once and the rest when it comes; a pager gets it in pages (F014)."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await go_on.wait()
        return None

    model = ScriptedModel([calls(("wait", {})), says("done")])
    async with world.serving(plan(model, RecordingTool("wait", wait))):
        run = await world.runs.start("work", run_id=world.id("r"))
        await at_work.wait()
        now = await read(run)
        handle = world.client.get_workflow_handle(run.run_id)
        page = await handle.query(names.QUERY_EVENTS, {"after": 0, "limit": 1}, result_type=dict)
        seen: list[AgentJournalRecord] = []

        async def follow() -> None:
            seen.extend([each async for each in run.events(more=True)])

        late: list[int] = []

        async def follow_late() -> None:
            async for each in run.events(1, more=True):
                late.append(each.event.run_seq)  # noqa: PERF401 -- it is looked at while it grows

        readers = asyncio.gather(follow(), follow_late())
        await until(lambda: late == [2], "the late reader has caught up")
        go_on.set()
        await run.wait()
        await readers

    assert now == [1, 2]
    assert ([each["event"]["run_seq"] for each in page["records"]], page["last"], page["more"]) == ([1], 1, True)
    assert [each.event.run_seq for each in seen] == [1, 2, 3, 4]
    assert late == [2, 3, 4]


@pytest.mark.parametrize("size", [200_000, 300_000])
async def test_history_may_be_read_while_the_cache_of_items_is_cold(world: World, size: int) -> None:
    """A worker that knows nothing of a run rebuilds its context from the run's own history, byte for byte."""
    at_work = asyncio.Event()

    async def large(_arguments: JsonObject, _call: ToolCall) -> Json:
        return "tea " * (size // 4)

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await asyncio.Event().wait()
        return None

    tools = (RecordingTool("large", large), RecordingTool("wait", wait))
    rounds = [calls(("large", {})), calls(("wait", {})), says("rebuilt")]
    before, after = ScriptedModel(rounds), ScriptedModel(rounds)
    async with world.serving(plan(before, *tools)):
        run = await world.runs.start("work", run_id=world.id("r"))
        await at_work.wait()
    ready = (RecordingTool("large", large), RecordingTool("wait"))
    async with world.serving(plan(after, *ready)):
        turn = await run.wait()

    assert turn.text == "rebuilt"
    assert len(after.requests) == 1
    assert after.requests[0].messages[: len(before.requests[1].messages)] == before.requests[1].messages
