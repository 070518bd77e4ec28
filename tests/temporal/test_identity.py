"""One run id is one run: started again while it goes on, after its end, by us and by strangers."""

import asyncio
import json

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.errors import AgentRejectionCode
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, json_payload, payload, plan, says

TASK = {"input": "go", "agent": "default"}


async def test_open_run_started_again_is_the_same_run(world: World) -> None:
    """The same id and spec again is the same run, another spec is refused, by client and raw, while it goes on (I6)."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await go_on.wait()
        return None

    model = ScriptedModel([calls(("wait", {})), says("once")])
    tool = RecordingTool("wait", wait)
    run_id = world.id("r")
    async with world.serving(plan(model, tool)):
        first = await world.runs.start("go", run_id=run_id)
        await at_work.wait()
        again = [await world.runs.start("go", run_id=run_id) for _ in range(3)]
        with pytest.raises(StartRefused) as other:
            await world.runs.start("go elsewhere", run_id=run_id)
        with pytest.raises(RPCError, match="already"):
            await world.start_payloads(run_id, payload('{"input": "go elsewhere"}'))
        go_on.set()
        turns = [await each.wait() for each in (first, *again)]

    assert other.value.rejection.code is AgentRejectionCode.RUN_ID_CONFLICT
    assert [turn.result for turn in turns] == [turns[0].result] * 4
    assert turns[0].text == "once"
    assert (len(model.requests), len(tool.calls)) == (2, 1)


async def test_finished_run_started_again_is_the_same_run(world: World) -> None:
    """After its end the same id and spec is the old result, raw too; another spec is refused, raw too (I6)."""
    model = ScriptedModel([says("once")])
    run_id = world.id("r")
    async with world.serving(plan(model)):
        first = await world.runs.run_text("go", run_id=run_id)
        again = await world.runs.run_text("go", run_id=run_id)
        with pytest.raises(StartRefused) as other:
            await world.runs.start("go elsewhere", run_id=run_id)
        raw = await (await world.start_payloads(run_id, payload('{"input": "go"}'))).wait()
        raw_status = await world.closed(run_id)
        stranger = await start_by_cli(world, run_id, {"input": "go elsewhere"})
        stranger_status = await world.closed(run_id)
        last = await world.client.get_workflow_handle(run_id).describe()
        history = await world.history(run_id, last.run_id)
        records = await world.records(run_id)

    assert other.value.rejection.code is AgentRejectionCode.RUN_ID_CONFLICT
    assert again.result == first.result
    assert raw.result == first.result
    assert raw_status is WorkflowExecutionStatus.COMPLETED
    assert (stranger, stranger_status) == (0, WorkflowExecutionStatus.FAILED)
    failure = history.events[-1].workflow_execution_failed_event_attributes.failure
    assert failure.application_failure_info.type == "run_id_conflict"
    assert len(model.requests) == 1
    assert [record["payload"]["type"] for record in records] == ["run_input_committed", "run_output_committed"]


async def start_by_cli(world: World, run_id: str, value: JsonObject) -> int:
    """Start a run with the Temporal CLI, and say how that went."""
    world.started.add((run_id, None))
    command = ("workflow", "start", "--type", "AgentRun", "--task-queue", world.queue, "--workflow-id", run_id)
    return (await world.cli(*command, "--input", json.dumps(value))).code


async def test_failed_run_started_again_is_the_same_failure(world: World) -> None:
    """A raw start of a run that failed ends with the old result and asks no model (I6)."""
    model = ScriptedModel([[{"error": {"code": "authentication", "message": "no key"}}]])
    run_id = world.id("r")
    async with world.serving(plan(model)):
        first = await world.runs.run_text("go", run_id=run_id)
        raw = await (await world.start_payloads(run_id, payload('{"input": "go"}'))).wait()

    assert raw.result == first.result
    assert len(model.requests) == 1


async def test_start_whose_answer_was_lost_is_repeated_safely(world: World) -> None:
    """A start whose answer was lost, sent again five times, is one run, one input; another spec is refused (F128)."""
    model = ScriptedModel([says("once")])
    run_id = world.id("r")
    async with world.serving(plan(model)):
        await world.start_payloads(run_id, json_payload({"input": "go", "agent": "default", "session_id": run_id}))
        runs = await asyncio.gather(*(world.runs.start("go", run_id=run_id) for _ in range(5)))
        with pytest.raises(StartRefused) as other:
            await world.runs.start("go elsewhere", run_id=run_id)
        turns = await asyncio.gather(*(run.wait() for run in runs))
        records = await world.records(run_id)

    assert other.value.rejection.code is AgentRejectionCode.RUN_ID_CONFLICT
    assert {turn.text for turn in turns} == {"once"}
    assert len(model.requests) == 1
    assert [record["payload"]["type"] for record in records].count("run_input_committed") == 1


async def test_id_that_an_unreadable_start_has_taken_is_refused(world: World) -> None:
    """A run id that a stranger's unreadable start has used up is in use for another spec."""
    async with world.serving(plan(ScriptedModel([says("never")]))):
        await (await world.start_payloads(world.id("r"), payload("not JSON"))).wait()
        with pytest.raises(StartRefused) as other:
            await world.runs.start("go", run_id=world.id("r"))

    assert other.value.rejection.code is AgentRejectionCode.RUN_ID_CONFLICT
