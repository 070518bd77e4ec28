"""A run asks a person, waits, and goes on with the answer: seen in lists, details and views, answered by every road."""

import json
from collections.abc import Awaitable, Callable

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from orchestral_temporal.protocol.commands import ResolveRequest, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.model import ToolResultPart
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.test_signals import send
from tests.temporal.world import World, calls, payload, plan, says, until

ASK = ("orchestral_request_input", {"prompt": "Which customer?"})

Road = Callable[[World, RunHandle, str], Awaitable[None]]


async def by_signal(world: World, run: RunHandle, request_id: str) -> None:
    """The short signal, by the Temporal CLI."""
    value = json.dumps({"command_id": "c1", "request_id": request_id, "answer": "Number 7."})
    printed = await world.cli("workflow", "signal", "-w", run.run_id, "--name", "resolve_request", "--input", value)
    assert printed.code == 0


async def by_update(world: World, run: RunHandle, request_id: str) -> None:
    """The full envelope by the update `submit`."""
    answer = ResolveRequest(response=InputResolution(content=(text_content("Number 7."),)))
    command = seal_command("c1", run.run_id, answer, request_id=request_id)
    handle = world.client.get_workflow_handle(run.run_id)
    ack = await handle.execute_update(names.UPDATE_SUBMIT, dump(command), result_type=dict)
    assert ack["state"]["state"] == "applied"


async def waiting(world: World) -> list[str]:
    """The runs of this world that wait for a person, by the one list query."""
    query = f"TaskQueue = '{world.queue}' AND OrchestralWaiting = 'input' AND ExecutionStatus = 'Running'"
    return [each.id async for each in world.client.list_workflows(query)]


async def pending(run: RunHandle) -> list[str]:
    """The ids of what the run asks people."""
    view = (await run.look())["view"]
    assert isinstance(view, dict)
    requests = view["pending_requests"]
    assert isinstance(requests, list)
    return [str(each["request_id"]) for each in requests if isinstance(each, dict)]


@pytest.mark.parametrize("road", [by_signal, by_update])
async def test_a_person_answers_the_question_of_a_run(world: World, road: Road) -> None:
    """The run waits in the list until the answer comes by any road; then it goes on as the same run (D1)."""
    model = ScriptedModel([calls(ASK), says("For number 7.")])
    async with world.serving(plan(model, input_requests=True)):
        run = await world.runs.start("bill", run_id=world.id("r"))
        await until(lambda: _listed(world, [run.run_id]), "the run is listed as waiting")
        (request_id,) = await pending(run)
        handle = world.client.get_workflow_handle(run.run_id)
        metadata: WorkflowMetadata = await handle.query("__temporal_workflow_metadata")
        await road(world, run, request_id)
        turn = await run.wait()
        await until(lambda: _listed(world, []), "nothing waits any more")

    assert f"orchestral answer {run.run_id} {request_id} TEXT" in metadata.current_details
    assert "Which customer?" in metadata.current_details
    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "For number 7.")
    parts = [part for message in model.requests[-1].messages for part in message.content]
    told = [part for part in parts if isinstance(part, ToolResultPart)]
    assert [part.result for part in told] == [{"content": [dump(text_content("Number 7."))]}]
    assert len(model.requests) == 2


async def _listed(world: World, expected: list[str]) -> bool:
    return await waiting(world) == expected


async def test_an_unattended_run_is_offered_no_question(world: World) -> None:
    """Neither tool nor capability; a model that asks all the same ends the run, and no request is opened (D2, D3)."""
    model = ScriptedModel([calls(ASK), says("never")])
    async with world.serving(plan(model)):
        run = await world.runs.start("bill", run_id=world.id("r"))
        turn = await run.wait()

    assert turn.result["failure"]["code"] == "input_requests_disabled"  # type: ignore[index, call-overload] -- JSON of ours
    assert [tool.name for tool in model.requests[0].tools] == []


async def test_answers_that_are_none_are_on_record(world: World) -> None:
    """No question, no text, no id, unknown fields: each is refused on record, and the run waits on (divergence 11)."""
    model = ScriptedModel([calls(ASK), says("done")])
    bad = (
        '{"request_id": "input:another", "answer": "x"}',
        '{"request_id": "input:another", "answer": " "}',
        '{"request_id": "input:another"}',
        '{"request_id": 7, "answer": "x"}',
        '{"answer": "x"}',
        '{"request_id": "r", "answer": "x", "more": 1}',
        "[]",
    )
    async with world.serving(plan(model, input_requests=True)):
        run = await world.runs.start("bill", run_id=world.id("r"))
        await until(lambda: _listed(world, [run.run_id]), "the run is listed as waiting")
        for value in bad:
            await send(world, run.run_id, names.SIGNAL_RESOLVE_REQUEST, [payload(value)])
        await until(lambda: _refused(run, len(bad)), "all of them are shown as refused")
        (request_id,) = await pending(run)
        await by_update(world, run, request_id)
        turn = await run.wait()

    assert turn.status is AgentRunStatus.DELIVERED


async def _refused(run: RunHandle, wanted: int) -> bool:
    refused = (await run.look())["refused"]
    return isinstance(refused, list) and len(refused) == wanted
