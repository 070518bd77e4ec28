"""The session: one active run, a journal in order, and nobody who can lock or break it from outside."""

import asyncio
import json

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError, WorkflowUpdateFailedError

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.session import AgentSessionRecord
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import parse_value
from orchestral_temporal.runtime.session_records import next_head
from orchestral_temporal.temporal import names
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, payload, plan, says, until


async def test_two_runs_are_read_back_in_order(world: World) -> None:
    """Two runs, one after another, stand in the session's journal without a gap, under a chain of digests."""
    session = world.id("s")
    first = ScriptedModel([calls(("echo", {"value": 1})), says("one")])
    second = ScriptedModel([says("two")])
    async with world.serving(plan(first, RecordingTool("echo"), name="first"), plan(second, name="second")):
        for name in ("first", "second"):
            await (await world.runs.start("go", run_id=world.id(name), session_id=session, agent=name)).wait()
        answer = await world.session(session)
        records = [parse_value(AgentSessionRecord, each) for each in await world.records(session)]

    for record in records:
        validate(record)
    assert [each.session_seq for each in records] == [1, 2, 3, 4, 5]
    assert [each.payload.type for each in records] == [
        "run_input_committed",
        "tool_exchange_committed",
        "run_output_committed",
        "run_input_committed",
        "run_output_committed",
    ]
    assert [each.run_id for each in records] == [world.id("first")] * 3 + [world.id("second")] * 2
    assert answer["head"] == next_head(None, records)
    assert (answer["active"], answer["last_seq"]) == (None, 5)


async def test_busy_session_refuses_a_second_run(world: World) -> None:
    """A second run, by client or raw, fails as session_conflict with no journal, and leaves the first one alone."""
    session = world.id("s")
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await go_on.wait()
        return None

    model = ScriptedModel([calls(("wait", {})), says("mine")])
    async with world.serving(plan(model, RecordingTool("wait", wait))):
        holder = await world.runs.start("go", run_id=world.id("holder"), session_id=session)
        await at_work.wait()
        by_client = await (await world.runs.start("go", run_id=world.id("second"), session_id=session)).wait()
        value = json.dumps({"input": "go", "session_id": session})
        by_raw = await (await world.start_payloads(world.id("raw"), payload(value))).wait()
        how = await world.closed(world.id("raw"))
        go_on.set()
        turn = await holder.wait()
        next_turn = await (await world.runs.start("go", run_id=world.id("next"), session_id=session)).wait()
        records = await world.records(session)

    for refused in (by_client, by_raw):
        assert refused.failure is not None
        assert refused.failure["code"] == "session_conflict"
        assert (refused.result["journal"], refused.view) == (None, None)
    assert how is WorkflowExecutionStatus.FAILED
    assert turn.text == "mine"
    assert next_turn.status is AgentRunStatus.DELIVERED
    assert {record["run_id"] for record in records} == {world.id("holder"), world.id("next")}


async def test_refused_start_locks_nothing(world: World) -> None:
    """A run that was refused for its agent gives the session back, and the next run gets it."""
    session = world.id("s")
    async with world.serving(plan(ScriptedModel([says("done")]))):
        refused = await world.runs.start("go", run_id=world.id("r1"), session_id=session, agent="nobody")
        failure = (await refused.wait()).failure
        turn = await (await world.runs.start("go", run_id=world.id("r2"), session_id=session)).wait()
        answer = await world.session(session)

    assert failure is not None
    assert failure["code"] == "invalid_spec"
    assert turn.text == "done"
    assert answer["active"] is None


async def test_failed_run_frees_its_session(world: World) -> None:
    """A run that failed leaves its input in the journal, and the session free."""
    session = world.id("s")
    async with world.serving(plan(ScriptedModel([[{"error": {"code": "authentication", "message": "no key"}}]]))):
        turn = await (await world.runs.start("go", run_id=world.id("r"), session_id=session)).wait()
        answer = await world.session(session)
        records = await world.records(session)

    assert turn.failure is not None
    assert turn.failure["code"] == "model_authentication"
    assert await world.closed(world.id("r")) is WorkflowExecutionStatus.FAILED
    assert answer["active"] is None
    assert [record["payload"]["type"] for record in records] == ["run_input_committed"]


async def test_strangers_cannot_break_a_session(world: World) -> None:
    """Malformed signals, updates and queries to the session itself are refused, and its next run is served."""
    session = world.id("s")
    forged = {"run_id": "nobody", "number": 1, "expected_head": None, "head": None, "first_seq": 1, "last_seq": 0}
    said = {"call": f"{world.id('r1')}/m1/c1", "happened": None, "by": "nobody"}
    async with world.serving(plan(ScriptedModel([says("done")]))):
        await (await world.runs.start("go", run_id=world.id("r1"), session_id=session)).wait()
        handle = world.client.get_workflow_handle(names.session_workflow_id(session))
        await handle.signal("anything", {"a": 1})
        await handle.signal("append", args=[1, 2])
        wrong = [
            ("open", []),
            ("open", [{}]),
            ("append", [forged]),
            ("append", [1]),
            ("settle", [said]),
            ("other", [{}]),
        ]
        for name, args in wrong:
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update(name, args=args)
        for name, value in (("read", {"after": "x"}), ("other", {})):
            with pytest.raises(WorkflowQueryFailedError):
                await handle.query(name, value)
        turn = await (await world.runs.start("go", run_id=world.id("r2"), session_id=session)).wait()
        answer = await world.session(session)

    assert turn.text == "done"
    assert (answer["last_seq"], answer["active"]) == (4, None)


async def test_records_that_are_too_large_for_the_entity_go_to_the_store(world: World) -> None:
    """A batch above 32 KB is a segment by digest: the entity's history keeps none of its text."""
    session, text = world.id("s"), "tea " * 20_000
    model = ScriptedModel([says(text)])
    async with world.serving(plan(model)):
        await (await world.runs.start("go", run_id=world.id("r"), session_id=session)).wait()
        answer = await world.session(session)
        history = await world.history(names.session_workflow_id(session))

    (batch,) = answer["batches"]  # type: ignore[misc] -- JSON of ours
    assert batch["records"] == []
    segment = json.loads(await world.artifacts.get(batch["segment"]))
    assert [record["payload"]["type"] for record in segment] == ["run_input_committed", "run_output_committed"]
    assert segment[1]["payload"]["message"]["content"] == [{"type": "text", "text": text}]
    assert "tea tea" not in history.to_json()
    assert answer["head"] == next_head(None, [parse_value(AgentSessionRecord, each) for each in segment])


async def test_session_that_was_ended_is_an_error_and_not_a_new_session(world: World) -> None:
    """A terminated session entity is never replaced in silence: the next run fails and says what happened."""
    session = world.id("s")
    async with world.serving(plan(ScriptedModel([says("done")]))):
        await (await world.runs.start("go", run_id=world.id("r1"), session_id=session)).wait()
        entity = world.client.get_workflow_handle(names.session_workflow_id(session))
        await entity.terminate()
        await until(lambda: _over(world, session), "the entity is gone")
        failure = (await (await world.runs.start("go", run_id=world.id("r2"), session_id=session)).wait()).failure

    assert failure is not None
    message = failure["message"]
    assert isinstance(message, str)
    assert "closed from outside" in message


async def _over(world: World, session: str) -> bool:
    described = await world.client.get_workflow_handle(names.session_workflow_id(session)).describe()
    return described.status is WorkflowExecutionStatus.TERMINATED
