"""Ending a run from outside: a cancel by every road, and a terminate."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import RequestCancelWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import Cancel, CommandAck, seal_command
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolConcurrency
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal import client, names
from orchestral_temporal.temporal.client import ContinuityUnknown, RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, json_payload, plan, says, until

CANCELLED = [
    "run_accepted",
    "run_started",
    "command_received",
    "command_disposition_recorded",
    "stop_requested",
    "run_cancelled",
]

Road = Callable[[World, RunHandle], Awaitable[None]]


async def by_client(_world: World, run: RunHandle) -> None:
    """The client's own command, an update."""
    ack = await run.cancel("enough", command_id="c1")
    assert ack.state.state in ("accepted", "applied")


async def by_signal(world: World, run: RunHandle) -> None:
    """The short signal, by the Temporal CLI."""
    value = json.dumps({"command_id": "c1", "reason": "enough"})
    printed = await world.cli("workflow", "signal", "-w", run.run_id, "--name", "cancel", "--input", value)
    assert printed.code == 0


async def by_envelope(world: World, run: RunHandle) -> None:
    """The full wire envelope by the signal `command`."""
    command = seal_command("c1", run.run_id, Cancel(reason="enough"))
    await world.client.get_workflow_handle(run.run_id).signal(names.SIGNAL_COMMAND, dump(command))


async def by_temporal(world: World, run: RunHandle) -> None:
    """Temporal's own cancel, twice: by a service that gives a reason, and by the Temporal CLI."""
    await world.client.workflow_service.request_cancel_workflow_execution(
        RequestCancelWorkflowExecutionRequest(
            namespace=world.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.run_id),
            reason="enough",
        )
    )
    printed = await world.cli("workflow", "cancel", "-w", run.run_id)
    assert printed.code == 0


ROADS = pytest.mark.parametrize("road", [by_client, by_signal, by_envelope, by_temporal])


@ROADS
async def test_cancel_ends_a_waiting_model(world: World, road: Road) -> None:
    """A cancel by any road ends a run whose model is silent: cancelled, workflow completed, the command on record."""
    model = ScriptedModel([[{"text": "Let me think"}, {"hang": True}]])
    async with world.serving(plan(model)):
        run = await world.runs.start("think", run_id=world.id("r"))
        await until(lambda: bool(model.requests), "the model is asked")
        await road(world, run)
        turn = await run.wait()

    await check_cancelled(world, run, turn.result)


@ROADS
async def test_cancel_ends_a_working_tool(world: World, road: Road) -> None:
    """A cancel by any road ends a run whose tool works; the call is told, and its answer is not waited for."""
    at_work, told = asyncio.Event(), asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
        return "never"

    model = ScriptedModel([calls(("wait", {}), ("wait", {})), says("never")])
    tool = RecordingTool("wait", wait, concurrency=ToolConcurrency.PER_RUN_SERIAL)
    async with world.serving(plan(model, tool)):
        run = await world.runs.start("wait", run_id=world.id("r"))
        await at_work.wait()
        await road(world, run)
        turn = await run.wait()
        await told.wait()

    await check_cancelled(world, run, turn.result)
    assert len(tool.calls) == 1
    assert len(model.requests) == 1


async def check_cancelled(world: World, run: RunHandle, result: JsonObject) -> None:
    """The run was cancelled by exactly one command, and delivered nothing."""
    assert (result["status"], result["reason"], result["text"]) == (AgentRunStatus.CANCELLED, "enough", None)
    assert await world.closed(run.run_id) is WorkflowExecutionStatus.COMPLETED
    journal = result["journal"]
    assert isinstance(journal, list)
    assert [record["event"]["payload"]["type"] for record in journal] == CANCELLED
    (ack,) = [parse_value(CommandAck, each) for each in result["acks"]]
    assert ack.state.state == "applied"
    causes = [record["event"]["causation_id"] for record in journal]
    assert causes == [None, None, ack.command_id, ack.command_id, ack.command_id, None]


async def test_cancel_is_one_command_however_often_it_is_sent(world: World) -> None:
    """The same command id again is the same command, while the run goes on and after it has ended."""
    model = ScriptedModel([[{"hang": True}]])
    async with world.serving(plan(model)):
        run = await world.runs.start("think", run_id=world.id("r"))
        await until(lambda: bool(model.requests), "the model is asked")
        handle = world.client.get_workflow_handle(run.run_id)
        for _ in range(3):
            await handle.signal(names.SIGNAL_CANCEL, {"command_id": "c1", "reason": "enough"})
        turn = await run.wait()
        again = await run.ack("c1")
        with pytest.raises(ProtocolError) as late:
            await run.cancel("too late")

    assert again.state.state == "applied"
    assert late.value.error.code is AgentProtocolErrorCode.TERMINAL_RUN
    await check_cancelled(world, run, turn.result)


async def test_cancel_before_a_worker_is_there(world: World) -> None:
    """A cancel that waits with the start is kept until a worker comes; then the model never starts."""
    model = ScriptedModel([says("never")])
    run = await world.start_payloads(world.id("r"), json_payload({"input": "go"}))
    await world.client.get_workflow_handle(run.run_id).signal(names.SIGNAL_CANCEL, {"command_id": "c1"})
    async with world.serving(plan(model)):
        turn = await run.wait()
        ack = await run.ack("c1")

    assert turn.status is AgentRunStatus.CANCELLED
    assert ack.state.state == "applied"
    assert model.requests == []


async def test_cancel_that_no_worker_takes_is_on_its_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a worker the client says that nobody has taken the cancel yet; the run is cancelled when one comes."""
    monkeypatch.setattr(client, "RPC_TIMEOUT", timedelta(seconds=1))
    run = await world.start_payloads(world.id("r"), json_payload({"input": "go"}))
    with pytest.raises(client.ContinuityUnknown, match="on its way"):
        await run.cancel("enough", command_id="c1")
    async with world.serving(plan(ScriptedModel([says("never")]))):
        turn = await run.wait()

    assert turn.status is AgentRunStatus.CANCELLED
    assert [ack["command_id"] for ack in turn.result["acks"]] == ["c1"]  # type: ignore[union-attr] -- JSON of ours


async def test_terminated_run_is_unknown_and_frees_its_session(world: World) -> None:
    """Terminate leaves no last word: the reader says continuity unknown, and the next run gets the session."""
    model = ScriptedModel([[{"hang": True}]])
    other = ScriptedModel([says("next")])
    async with world.serving(plan(model), plan(other, name="other")):
        run = await world.runs.start("think", run_id=world.id("r1"), session_id=world.id("s"))
        await until(lambda: bool(model.requests), "the model is asked")
        await world.client.get_workflow_handle(run.run_id).terminate("pulled the plug")
        with pytest.raises(ContinuityUnknown, match="terminated"):
            await run.wait()
        with pytest.raises(ContinuityUnknown, match="terminated"):
            await run.inspect()
        next_run = await world.runs.start("go", run_id=world.id("r2"), session_id=world.id("s"), agent="other")
        turn = await next_run.wait()

    assert turn.text == "next"
