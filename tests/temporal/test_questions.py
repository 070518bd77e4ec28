"""A run asks a person, waits, and goes on with the answer: seen in lists, details and views, answered by every road."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata

from orchestral_temporal.protocol.commands import ResolveRequest, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.model import ToolResultPart
from orchestral_temporal.protocol.requests import ApprovalDecision, ApprovalResolution, InputResolution
from orchestral_temporal.protocol.run import PendingRequestKind
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.held import HeldModel
from tests.temporal.test_delivery import PLAIN, types
from tests.temporal.test_signals import send
from tests.temporal.world import PATIENCE, World, calls, json_payload, payload, plan, says, until

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
    """The ids of what the run asks people, and waits for."""
    view = await run.inspect()
    assert view.state.state == "waiting"
    assert [each.payload.type for each in view.pending_requests] == ["input"]
    return [each.request_id for each in view.pending_requests]


@pytest.mark.parametrize("road", [by_signal, by_update])
async def test_a_person_answers_the_question_of_a_run(world: World, road: Road) -> None:
    """The run waits in the list until the answer comes by any road; then it goes on as the same run (D1)."""
    model = ScriptedModel([calls(ASK), says("For number 7.")])
    async with world.serving(plan(model, input_requests=True)):
        run = await world.runs.start("bill", run_id=world.id("r"))
        await until(lambda: listed(world, [run.run_id]), "the run is listed as waiting")
        (request_id,) = await pending(run)
        handle = world.client.get_workflow_handle(run.run_id)
        metadata: WorkflowMetadata = await handle.query("__temporal_workflow_metadata")
        await road(world, run, request_id)
        turn = await run.wait()
        await until(lambda: listed(world, []), "nothing waits any more")

    assert f"orchestral answer {run.run_id} {request_id} TEXT" in metadata.current_details
    assert "Which customer?" in metadata.current_details
    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "For number 7.")
    parts = [part for message in model.requests[-1].messages for part in message.content]
    told = [part for part in parts if isinstance(part, ToolResultPart)]
    assert [part.result for part in told] == [{"content": [dump(text_content("Number 7."))]}]
    assert len(model.requests) == 2
    assert types(turn.result["journal"]) == [
        *PLAIN[:2],
        "request_opened",
        "command_received",
        "command_disposition_recorded",
        "request_resolved",
        *PLAIN[2:],
    ]


async def listed(world: World, expected: list[str]) -> bool:
    """Whether these runs are listed as waiting, and no other."""
    return await waiting(world) == expected


def kinds(agent: AgentPlan) -> tuple[PendingRequestKind, ...]:
    """The requests that an agent's descriptor declares."""
    hosted = host(agent, "default").run
    assert hosted is not None
    return hosted.descriptor.descriptor.capabilities.pending_request_kinds


async def test_an_unattended_run_is_offered_no_question(world: World) -> None:
    """Neither tool nor capability, which an attended one has; and it is delivered without waiting (D2)."""
    model = ScriptedModel([says("Number 7, I suppose.")])
    alone, attended = plan(model), plan(model, name="attended", input_requests=True)
    async with world.serving(alone, attended):
        for agent in (alone, attended):
            run = await world.runs.start("bill", run_id=world.id(agent.name), agent=agent.name)
            turn = await run.wait()
            assert types(turn.result["journal"]) == PLAIN

    assert [[tool.name for tool in request.tools] for request in model.requests] == [[], [ASK[0]]]
    assert (kinds(alone), kinds(attended)) == ((), (PendingRequestKind.INPUT,))


async def test_an_unattended_run_whose_model_asks_fails(world: World) -> None:
    """The model asks all the same: that ends the run, and no request is ever opened (D3)."""
    model = ScriptedModel([calls(ASK), says("never")])
    async with world.serving(plan(model)):
        run = await world.runs.start("bill", run_id=world.id("r"))
        async with asyncio.timeout(PATIENCE):
            turn = await run.wait()

    assert turn.failure is not None
    assert turn.failure["code"] == "input_requests_disabled"
    assert types(turn.result["journal"]) == ["run_accepted", "run_started", "run_failed"]


def no_answers(run: RunHandle, request_id: str) -> list[tuple[str, Payload, str]]:
    """What is sent as an answer and is none: signal, payload, and what the refusal says."""
    deny = ResolveRequest(response=ApprovalResolution(decision=ApprovalDecision.DENY))
    wrong_kind = json_payload(dump(seal_command("a0", run.run_id, deny, request_id=request_id)))
    short = (
        ('{"request_id": "input:another", "answer": "x"}', "request_not_found"),
        (json.dumps({"request_id": "x" * 10_000, "answer": "x"}), "request_not_found"),
        ('{"request_id": "", "answer": "x"}', "'request_id'"),
        ('{"request_id": "input:another", "answer": " "}', "'answer'"),
        ('{"request_id": "input:another"}', "'answer'"),
        ('{"request_id": 7, "answer": "x"}', "'request_id'"),
        ('{"answer": "x"}', "'request_id'"),
        ('{"request_id": "r", "answer": "x", "more": 1}', "'more'"),
        ("[]", "list"),
    )
    return [
        (names.SIGNAL_COMMAND, wrong_kind, "request_type_mismatch"),
        *((names.SIGNAL_RESOLVE_REQUEST, payload(value), said) for value, said in short),
    ]


async def test_answers_that_are_none_are_on_record(world: World) -> None:
    """Each is refused on record and the run waits on; an answer counts once, whoever sends it again (divergence 11)."""
    model = HeldModel(calls(ASK), says("done"))
    async with world.serving(plan(model, input_requests=True)):
        run = await world.runs.start("bill", run_id=world.id("r"))
        model.let_go(run.run_id)
        await until(lambda: listed(world, [run.run_id]), "the run is listed as waiting")
        (request_id,) = await pending(run)
        bad = no_answers(run, request_id)
        for name, value, _ in bad:
            await send(world, run.run_id, name, [value])
        await until(lambda: _refused(run, len(bad)), "all of them are shown as refused")
        refused = (await run.look())["refused"]
        first = await run.answer(request_id, "Number 7.", command_id="a1")
        again = await run.answer(request_id, "Number 7.", command_id="a1")
        with pytest.raises(ProtocolError) as other:
            await run.answer(request_id, "Number 8.", command_id="a1")
        with pytest.raises(ProtocolError) as late:
            await run.answer(request_id, "Number 7.", command_id="a2")
        model.let_go(run.run_id, 2)
        turn = await run.wait()

    assert isinstance(refused, list)
    for shown, (_, _, said) in zip(refused, bad, strict=True):
        assert said in shown["reason"]  # type: ignore[index, call-overload, operator] -- JSON of ours
    assert (first.duplicate, again.duplicate, first.state) == (False, True, again.state)
    assert other.value.error.code is AgentProtocolErrorCode.DUPLICATE_CONFLICT
    assert late.value.error.code is AgentProtocolErrorCode.REQUEST_NOT_FOUND
    assert turn.status is AgentRunStatus.DELIVERED
    assert types(turn.result["journal"]).count("request_resolved") == 1


async def _refused(run: RunHandle, wanted: int) -> bool:
    refused = (await run.look())["refused"]
    return isinstance(refused, list) and len(refused) == wanted
