"""Steering a run from outside: by every road, in a burst, at every instant; and input that waits (C3, C7, B7)."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.commands import INPUT_QUEUE, AgentCommandEnvelope, Steer, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.model import ModelRequest, ModelRole, TextPart
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.test_signals import Gate
from tests.temporal.world import World, calls, plan, says, until

STEERED = [
    "run_accepted",
    "run_started",
    "command_received",
    "command_disposition_recorded",
    "input_committed",
    "output_committed",
    "delivery_committed",
]

Road = Callable[[World, RunHandle, str], Awaitable[None]]


def envelope(run: RunHandle, command_id: str, text: str, extensions: JsonObject | None = None) -> AgentCommandEnvelope:
    """A steer in its full form."""
    content = (text_content(text),)
    return seal_command(command_id, run.run_id, Steer(content=content), extensions=extensions)


async def by_signal(world: World, run: RunHandle, text: str) -> None:
    """The short signal, by the Temporal CLI."""
    value = json.dumps({"command_id": "c1", "text": text})
    printed = await world.cli("workflow", "signal", "-w", run.run_id, "--name", "steer", "--input", value)
    assert printed.code == 0


async def by_envelope(world: World, run: RunHandle, text: str) -> None:
    """The full wire envelope by the signal `command`."""
    handle = world.client.get_workflow_handle(run.run_id)
    await handle.signal(names.SIGNAL_COMMAND, dump(envelope(run, "c1", text)))


async def by_update(world: World, run: RunHandle, text: str) -> None:
    """The update `submit`, which answers with the acknowledgement."""
    ack = await submit(world, run, envelope(run, "c1", text))
    assert ack["state"]["state"] in ("accepted", "applied")  # type: ignore[index, call-overload] -- JSON of ours


async def submit(world: World, run: RunHandle, command: AgentCommandEnvelope) -> JsonObject:
    """Send a command as an update."""
    handle = world.client.get_workflow_handle(run.run_id)
    return await handle.execute_update(names.UPDATE_SUBMIT, dump(command), result_type=dict)


def heard(request: ModelRequest) -> list[str]:
    """What people have said, as a model request holds it."""
    return [
        part.text
        for message in request.messages
        if message.role is ModelRole.USER
        for part in message.content
        if isinstance(part, TextPart)
    ]


@pytest.mark.parametrize("road", [by_signal, by_envelope, by_update])
async def test_steer_interrupts_a_model_by_every_road(world: World, road: Road) -> None:
    """The open attempt is void, the next round hears the steer, the journal is that of the sheet (C1, C2, C3)."""
    model = ScriptedModel([[{"text": "Let me think"}, {"hang": True}], says("On staging.")])
    async with world.serving(plan(model)):
        run = await world.runs.start("deploy", run_id=world.id("r"))
        await until(lambda: bool(model.requests), "the model is asked")
        await road(world, run, "use the staging database")
        turn = await run.wait()
        ack = await run.ack("c1")
        kinds = [record["payload"]["type"] for record in await world.records(run.run_id)]

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "On staging.")
    assert [heard(each) for each in model.requests] == [["deploy"], ["deploy", "use the staging database"]]
    assert ack.state.state == "applied"
    journal = turn.result["journal"]
    assert isinstance(journal, list)
    assert [record["event"]["payload"]["type"] for record in journal] == STEERED
    assert kinds == ["run_input_committed", "run_input_committed", "run_output_committed"]


async def test_burst_of_steers_reaches_the_model_in_order(world: World) -> None:
    """A hundred signals at once: each is applied once, in the order sent, within one run and one terminal (C3, B7)."""
    model = ScriptedModel([[{"hang": True}], *[[*says("done")] for _ in range(120)]])
    async with world.serving(plan(model)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(lambda: bool(model.requests), "the model is asked")
        handle = world.client.get_workflow_handle(run.run_id)
        for number in range(100):
            await handle.signal(names.SIGNAL_STEER, {"command_id": f"s{number}", "text": f"step {number}"})
        turn = await run.wait()

    assert turn.status is AgentRunStatus.DELIVERED
    steps = [f"step {number}" for number in range(100)]
    taken = [ack["command_id"] for ack in turn.result["acks"] if ack["state"]["state"] == "applied"]  # type: ignore[union-attr, index, call-overload] -- JSON of ours
    assert heard(model.requests[-1]) == ["go", *steps[: len(taken)]]
    assert taken == [f"s{number}" for number in range(len(taken))]


async def test_queued_input_waits_and_can_be_taken_back(world: World) -> None:
    """It disturbs no tool and no attempt, is replaced and withdrawn while it waits, and is final once read (C7)."""
    gate = Gate()
    model = ScriptedModel([calls(("gate", {})), says("done")])
    async with world.serving(plan(model, gate.tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await gate.reached.wait()
        acks = [
            await submit(world, run, envelope(run, name, text, {INPUT_QUEUE: operation}))
            for name, text, operation in (
                ("q1", "one", {"operation": "enqueue"}),
                ("q2", "two", {"operation": "enqueue"}),
                ("r1", "ONE", {"operation": "replace", "target": "q1"}),
                ("w1", "-", {"operation": "withdraw", "target": "q2"}),
                ("r2", "no", {"operation": "replace", "target": "q2"}),
            )
        ]
        gate.open.set()
        turn = await run.wait()

    states = [ack["state"]["state"] for ack in acks]  # type: ignore[index, call-overload] -- JSON of ours
    assert states == ["accepted"] * 4 + ["rejected"]
    assert turn.status is AgentRunStatus.DELIVERED
    assert [heard(each) for each in model.requests] == [["go"], ["go", "ONE"]]


async def test_steer_before_a_worker_is_there_begins_with_the_run(world: World) -> None:
    """What waits with the start is heard by the first request: no attempt is spent on less."""
    model = ScriptedModel([says("done")])
    run = await world.runs.start("go", run_id=world.id("r"))
    handle = world.client.get_workflow_handle(run.run_id)
    await asyncio.gather(*(handle.signal(names.SIGNAL_STEER, {"text": "and quickly"}) for _ in range(2)))
    async with world.serving(plan(model)):
        turn = await run.wait()

    assert [heard(each) for each in model.requests] == [["go", "and quickly", "and quickly"]]
    acks = turn.result["acks"]
    assert isinstance(acks, list)
    assert [ack["command_id"] for ack in acks] == ["steer-1", "steer-2"]  # type: ignore[index, call-overload] -- JSON of ours
