"""Steering a run from outside: by every road, in a burst, before a worker is there."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Steer, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.events import InputCommitted
from orchestral_temporal.protocol.model import ModelRequest, ModelRole, ModelStreamEvent, TextPart
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.wal import CommandCommitted, GenericCheckpointRecord, ProviderEventsCommitted
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle, Turn
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.test_delivery import types
from tests.temporal.wal_fold import TERMINALS, fold
from tests.temporal.world import PATIENCE, World, plan, says, until

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


class Listener(ScriptedModel):
    """Answers once it has heard so much, and else says nothing."""

    def __init__(self, wanted: int) -> None:
        super().__init__([says("done")] * (wanted + 1))
        self._wanted = wanted

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """Look what it has heard."""
        if len(heard(request)) <= self._wanted:
            self.requests.append(request)
            await asyncio.Event().wait()
        async for event in super().stream(request):
            yield event


async def test_burst_of_steers_reaches_the_model_in_order(world: World) -> None:
    """A hundred at once: on record in the order sent, then committed one for one, in one run with one end (C3, B7)."""
    model = Listener(100)
    async with world.serving(plan(model)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(lambda: bool(model.requests), "the model is asked")
        handle = world.client.get_workflow_handle(run.run_id)
        for number in range(100):
            await handle.signal(names.SIGNAL_STEER, {"command_id": f"s{number}", "text": f"step {number}"})
        async with asyncio.timeout(PATIENCE):
            turn = await run.wait()
        history = await world.read(run.run_id)

    steers = [(f"step {number}", f"s{number}") for number in range(100)]
    assert heard(model.requests[-1]) == ["go", *(text for text, _ in steers)]
    assert inputs(turn) == steers
    assert [each for each in types(turn.result["journal"]) if each in TERMINALS] == ["delivery_committed"]
    written = [name for record in history.wal for name in commands_of(record)]
    for _, command_id in steers:
        assert written.count(command_id) == 2
    assert list(dict.fromkeys(written)) == [command_id for _, command_id in steers]
    assert fold(history.wal) == "terminal"


def inputs(turn: Turn) -> list[tuple[str, str]]:
    """The committed inputs of a run: the text of each, and the command behind it."""
    journal = turn.result["journal"]
    assert isinstance(journal, list)
    events = [record["event"] for record in journal]  # type: ignore[index, call-overload] -- JSON of ours
    committed = [each for each in events if each["payload"]["type"] == "input_committed"]  # type: ignore[index, call-overload] -- JSON of ours
    return [(each["payload"]["content"][0]["body"]["value"], each["causation_id"]) for each in committed]  # type: ignore[index, call-overload] -- JSON of ours


def commands_of(record: GenericCheckpointRecord) -> list[str]:
    """The command that a record of the log brings, or whose inputs it commits."""
    match record.payload:
        case CommandCommitted(command=command):
            return [command.command_id]
        case ProviderEventsCommitted(events=events):
            return [str(each.causation_id) for each in events if isinstance(each.payload, InputCommitted)]
        case _:
            return []


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
