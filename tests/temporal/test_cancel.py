"""Ending a run from outside: a cancel by every road and at every instant, and a terminate."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import RequestCancelWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.activities import Queues, Role
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import Cancel, CommandAck, seal_command
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolConcurrency
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.temporal import client, names
from orchestral_temporal.temporal.client import ContinuityUnknown, RunHandle, Turn
from orchestral_temporal.temporal.worker import build_workers
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.held import HeldModel
from tests.temporal.world import PATIENCE, RecordingTool, World, calls, json_payload, plan, says, until

CANCELLED = [
    "run_accepted",
    "run_started",
    "command_received",
    "command_disposition_recorded",
    "stop_requested",
    "run_cancelled",
]

NOT_BEGUN = [each for each in CANCELLED if each != "run_started"]

PROMPT = 1.0
"""Seconds from the command to the end of the run, on the server's clock."""

SENT = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
)
"""How a cancel stands in a history."""

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
    """By any road within a second: cancelled, and on record and in a replay the command before the stop (C1, C5)."""
    model = ScriptedModel([[{"text": "Let me think"}, {"hang": True}]])
    async with world.serving(plan(model)):
        run = await world.runs.start("think", run_id=world.id("r"))
        await until(lambda: bool(model.requests), "the model is asked")
        await road(world, run)
        turn = await ended(run)
        replayed = await world.read(run.run_id)

    await check_cancelled(world, run, turn.result)
    events = (await world.history(run.run_id)).events
    asked = next(each for each in events if each.event_type in SENT)
    assert (events[-1].event_time.ToNanoseconds() - asked.event_time.ToNanoseconds()) / 1e9 < PROMPT
    assert [dump(each) for each in replayed.journal] == turn.result["journal"]
    assert [each.payload.type for each in replayed.wal[-3:]] == [
        "command_committed",
        "provider_events_committed",
        "provider_events_committed",
    ]


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
        await until(at_work.is_set, "the tool is at work")
        await road(world, run)
        turn = await run.wait()
        await told.wait()

    await check_cancelled(world, run, turn.result)
    assert len(tool.calls) == 1
    assert len(model.requests) == 1


async def ended(run: RunHandle) -> Turn:
    """The end of a run that must not take long."""
    async with asyncio.timeout(PATIENCE):
        return await run.wait()


async def check_cancelled(world: World, run: RunHandle, result: JsonObject, kinds: list[str] = CANCELLED) -> None:
    """The run was cancelled by exactly one command, and delivered nothing."""
    assert (result["status"], result["reason"], result["text"]) == (AgentRunStatus.CANCELLED, "enough", None)
    assert await world.closed(run.run_id) is WorkflowExecutionStatus.COMPLETED
    journal = result["journal"]
    assert isinstance(journal, list)
    assert [record["event"]["payload"]["type"] for record in journal] == kinds
    (ack,) = [parse_value(CommandAck, each) for each in result["acks"]]
    assert ack.state.state == "applied"
    causes = [record["event"]["causation_id"] for record in journal]
    assert causes == [*[None] * (len(kinds) - 4), *[ack.command_id] * 3, None]


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


@asynccontextmanager
async def apart(world: World, *roles: Role, agents: tuple[AgentPlan, ...]) -> AsyncGenerator[None]:
    """A worker for some roles; calls have a queue of their own, so that runs can stand still while calls end."""
    queues = Queues(runs=world.queue, models=f"{world.queue}-calls", tools=f"{world.queue}-calls")
    hosted = {each.name: host(each, world.client.namespace, roles) for each in agents}
    settings = replace(world.settings(), queues=queues)
    (worker,) = build_workers(world.client, hosted, settings=settings, artifacts=world.artifacts, roles=roles)
    async with worker:
        yield


async def answered(world: World, run_id: str, name: str, count: int) -> bool:
    """Whether so many activities of a name have ended, as the run's history says."""
    events = (await world.history(run_id)).events
    asked = {
        each.event_id for each in events if each.activity_task_scheduled_event_attributes.activity_type.name == name
    }
    ends = [
        each.activity_task_completed_event_attributes.scheduled_event_id
        or each.activity_task_failed_event_attributes.scheduled_event_id
        for each in events
    ]
    return sum(each in asked for each in ends) == count


async def test_a_cancel_before_the_first_attempt_starts_no_model(world: World) -> None:
    """With the start, accepted and not begun (K0), bound and not dispatched (K1): the model is never asked (F017)."""
    model = ScriptedModel([says("never")])
    with_start, at_k0, at_k1 = (world.runs.run(world.id(name)) for name in ("a", "k0", "k1"))
    cancel: JsonObject = {"command_id": "c1", "reason": "enough"}
    await world.client.start_workflow(
        names.AGENT_RUN,
        {"input": "go"},
        id=with_start.run_id,
        task_queue=world.queue,
        start_signal=names.SIGNAL_CANCEL,
        start_signal_args=[cancel],
    )
    agents = (plan(model),)
    async with apart(world, Role.RUN, agents=agents):
        for run in (at_k0, at_k1):
            await world.runs.start("go", run_id=run.run_id)
            await until(lambda run=run: accepted(run), "the run is accepted")
        turns = [await ended(with_start)]
        await by_client(world, at_k0)
        turns.append(await ended(at_k0))
    async with apart(world, Role.MODEL, Role.TOOLS, agents=agents):
        await until(lambda: answered(world, at_k1.run_id, names.BIND, 3), "all is bound")
        await world.client.get_workflow_handle(at_k1.run_id).signal(names.SIGNAL_CANCEL, cancel)
        async with apart(world, Role.RUN, agents=agents):
            turns.append(await ended(at_k1))

    assert model.requests == []
    for turn in turns:
        await check_cancelled(world, world.runs.run(turn.run_id), turn.result, NOT_BEGUN)


async def accepted(run: RunHandle) -> bool:
    """Whether the run answers."""
    try:
        await run.look()
    except ContinuityUnknown:
        return False
    return True


READY: dict[str, tuple[list[Json], Road]] = {
    "an error": ([{"error": {"code": "authentication", "message": "no key"}}], by_signal),
    "an end of the stream": ([{"text": "So"}], by_signal),
    "an answer": (says("never"), by_envelope),
    "another answer": (says("never"), by_temporal),
}
"""What a model comes to, and how the cancel comes."""


async def test_a_cancel_wins_over_what_is_ready_in_the_same_instant(world: World) -> None:
    """The model has ended, then the cancel comes, then the run looks: it is cancelled all the same (C6)."""
    models = {name: HeldModel(script) for name, (script, _) in READY.items()}
    agents = tuple(plan(model, name=name) for name, model in models.items())
    runs = {name: world.runs.run(world.id(name.replace(" ", "-"))) for name in READY}
    async with apart(world, Role.MODEL, Role.TOOLS, agents=agents):
        async with apart(world, Role.RUN, agents=agents):
            for name, run in runs.items():
                await world.runs.start("go", run_id=run.run_id, agent=name)
                await models[name].holds(run.run_id)
        for name, run in runs.items():
            models[name].let_go(run.run_id)
            await until(lambda run=run: answered(world, run.run_id, names.CALL_MODEL, 1), "the model has ended")
            await READY[name][1](world, run)
        async with apart(world, Role.RUN, agents=agents):
            turns = [await ended(run) for run in runs.values()]

    for turn in turns:
        await check_cancelled(world, world.runs.run(turn.run_id), turn.result)


async def test_a_model_that_is_cancelled_without_a_cancel_fails_the_run(world: World) -> None:
    """Nobody asked the run to stop, so that is a failure (C6)."""
    model = ScriptedModel([[{"text": "So"}, {"error": {"code": "cancelled", "message": "the backend gave up"}}]])
    async with world.serving(plan(model)):
        turn = await world.runs.run_text("go", run_id=world.id("r"))

    assert turn.failure is not None
    assert (turn.failure["code"], turn.text) == ("model_cancelled", None)


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
