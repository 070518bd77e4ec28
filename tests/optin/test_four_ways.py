"""Each command sent by every road, with one outcome: our client, our command line, the Temporal CLI, and TypeScript.

    npm ci --prefix tests/optin/typescript && python -m pytest tests/optin/test_four_ways.py

Every road has a server of its own, so that all can use the same ids: what they leave must then be the same to the last
digest, with nothing to be left out of the comparison.
"""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal import names
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.optin.ways import ByClient, ByCommandLine, ByTemporalCli, ByTypeScript, Said, Way
from tests.temporal.conftest import a_server_of_its_own
from tests.temporal.shell import ROOT, Shell
from tests.temporal.test_steering import heard
from tests.temporal.world import World, calls, open_world, plan, says, until

SETTINGS: Final = """
temporal: {{address: {address}}}
queues: {{runs: {queue}, models: {queue}, tools: {queue}}}
agents: {{default: {{model: {{adapter: offline}}}}}}
"""

WORDS: Final = 'Grüße \u2028 \U0001f600 "quoted" \\ </b> é e\u0301 \t'
"""What one language writes into JSON otherwise than another, though all of them mean the same."""

TALK: Final = (
    Said("enqueue", "q1", "later"),
    Said("enqueue", "q2", "never"),
    Said("replace", "q3", WORDS, target="q1"),
    Said("withdraw", "q4", "withdrawn", target="q2"),
    Said("withdraw", "q5", "withdrawn", target="q2"),
    Said("steer", "s1", "use the staging database"),
)
"""What is said while the model thinks; the last one interrupts it, the one before is refused."""

STATES: Final = ["accepted", "accepted", "applied", "accepted", "rejected", "applied", "applied"]
"""How it stands with them, and with the answer, in the end."""

Road = Callable[[World, Shell], Way]

ROADS: Final[dict[str, Road]] = {
    # First, since `orchestral cancel` chooses the id of its command itself; the others take the same.
    "our command line": lambda _, shell: ByCommandLine(shell),
    "our client": lambda world, _: ByClient(world),
    "temporal workflow signal": lambda world, _: ByTemporalCli(world, "signal"),
    "temporal workflow update": lambda world, _: ByTemporalCli(world, "submit"),
    "TypeScript, signals": lambda world, _: ByTypeScript(world, "signal"),
    "TypeScript, updates": lambda world, _: ByTypeScript(world, "submit"),
}


@dataclass(frozen=True)
class Left:
    """What one road has left: the results, acknowledgements and journal inside, and what the model was asked."""

    results: list[Json]
    requests: list[list[str]]


@dataclass(frozen=True)
class Met:
    """What was met on one road: acknowledgements that came with the commands, those asked for later, what is left."""

    acks: list[Json]
    later: list[Json]
    left: Left


@pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")
async def test_every_command_by_every_road_has_one_outcome(tmp_path: Path, alone: Path) -> None:
    """Journal, acknowledgements, result and the model's requests are equal to the last digest (A3, C1, C2, C7, D1)."""
    met: dict[str, Met] = {}
    for name, road in ROADS.items():
        folder = tmp_path / str(len(met))
        folder.mkdir()
        cancel = str(met["our command line"].acks[-1]["command_id"]) if met else "of its own"  # type: ignore[index, call-overload] -- JSON
        async with new_world() as world:
            met[name] = await talked(world, road(world, typed_in(folder, world, alone)), cancel)

    first = met["our client"]
    states = [ack["state"]["state"] for ack in first.left.results[0]["acks"]]  # type: ignore[index, call-overload, union-attr] -- JSON
    assert states == STATES
    assert [each["status"] for each in first.left.results] == [AgentRunStatus.DELIVERED, AgentRunStatus.CANCELLED]  # type: ignore[index, call-overload] -- JSON
    steered = ["deploy", WORDS, "use the staging database"]
    assert first.left.requests == [["deploy"], steered, steered, ["wait"]]
    for name, each in met.items():
        assert each.left == first.left, name
        assert each.acks in (first.acks, [None] * len(first.acks)), name
        assert each.later in (first.later, [None] * len(first.later)), name


async def talked(world: World, way: Way, cancel: str) -> Met:
    """Start a run and say everything to it; start another one and cancel it."""
    thinks: list[Json] = [{"text": "Let me think"}, {"hang": True}]
    asks = calls(("orchestral_request_input", {"prompt": "Which customer?"}))
    model = ScriptedModel([thinks, asks, says("Done.")])
    world.started.update((each, None) for name in ("r1", "r2") for each in (name, names.session_workflow_id(name)))
    async with world.serving(plan(model, input_requests=True)):
        await way.start("r1", "deploy")
        await until(lambda: len(model.requests) == 1, "the model is asked")
        acks = [await way.say("r1", each) for each in TALK]
        answer = Said("answer", "a1", "Number 7", request_id=await question(world))
        await way.say("r1", TALK[-1])  # again, which changes nothing
        later = [await way.ack("r1", each) for each in TALK]
        acks.append(await way.say("r1", answer))
        delivered = await way.result("r1")
        await way.start("r2", "wait")
        await until(lambda: len(model.requests) == 4, "the model is asked about the other run")
        acks.append(await way.say("r2", Said("cancel", cancel, "wrong customer")))
        cancelled = await way.result("r2")
    return Met(acks, later, Left([delivered, cancelled], [heard(each) for each in model.requests]))


async def question(world: World) -> str:
    """The id of what the run asks, once it does."""
    run = world.runs.run("r1")

    async def waits() -> bool:
        return bool((await run.inspect()).pending_requests)

    await until(waits, "the run asks")
    (request,) = (await run.inspect()).pending_requests
    return request.request_id


@asynccontextmanager
async def new_world() -> AsyncGenerator[World]:
    """A world on a server of its own."""
    settings = a_server_of_its_own()
    async with (
        dev_server(settings) as server,
        open_world(server.address, settings.namespace, cached=True) as world,
    ):
        yield world


def typed_in(folder: Path, world: World, alone: Path) -> Shell:
    """A folder whose settings name this world's server and queue."""
    (folder / "temporal-dev.yaml").write_text(SETTINGS.format(address=world.address, queue=world.queue))
    return Shell(folder, {**os.environ, "TMPDIR": str(alone), "PYTHONPATH": str(ROOT)})
