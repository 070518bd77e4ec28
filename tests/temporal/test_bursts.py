"""Commands that come faster than a run can read them: each is on record, and no workflow task takes too long (F034)."""

import asyncio

from orchestral_temporal.core.reducer import ack
from orchestral_temporal.protocol.model import ModelRequest
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.test_steering import heard
from tests.temporal.world import World, plan, says

BURST = 1_000
"""Signals that wait for a worker: four slices of the inbox."""

FEW = 300
"""The same where each task replays all that came before."""

AT_ONCE = 100
"""Signals on their way at a time."""


async def send(world: World, run: RunHandle, count: int) -> None:
    """Steers by signal, many at a time."""
    handle = world.client.get_workflow_handle(run.run_id)
    for first in range(0, count, AT_ONCE):
        await asyncio.gather(
            *(
                handle.signal(names.SIGNAL_STEER, {"command_id": f"s{number}", "text": f"step {number}"})
                for number in range(first, first + AT_ONCE)
            )
        )


async def states(world: World, run: RunHandle) -> dict[str, str]:
    """What has become of each command, in the order in which they were received."""
    state = (await world.read(run.run_id)).state
    assert state is not None
    return {name: ack(state.run, name).state.state for name in state.run.commands}


def told(requests: list[ModelRequest]) -> list[str]:
    """The steers that the last request holds, by their command ids."""
    return [text.replace("step ", "s") for text in heard(requests[-1])[1:]]


async def test_what_waits_for_a_worker_is_read_before_the_run_begins(world: World) -> None:
    """Of a thousand steers each is applied or refused on record; one request holds the applied in order (C3, F034)."""
    count = BURST if world.cached else FEW
    model = ScriptedModel([says("done")])
    run = await world.runs.start("go", run_id=world.id("r"))
    await send(world, run, count)
    async with world.serving(plan(model)):
        turn = await run.wait()
        became = await states(world, run)

    assert turn.status is AgentRunStatus.DELIVERED
    assert len(became) == count
    assert set(became.values()) == {"applied", "rejected"}
    assert told(model.requests) == [name for name, state in became.items() if state == "applied"]
    assert len(model.requests) == 1


async def test_a_cancel_behind_a_burst_is_answered_in_its_turn(world: World) -> None:
    """An update that arrives behind more steers than one task reads is acknowledged, and ends the run (C5)."""
    model = ScriptedModel([[{"hang": True}]])
    run = await world.runs.start("go", run_id=world.id("r"))
    await send(world, run, FEW)
    cancelling = asyncio.create_task(run.cancel("enough"))
    async with world.serving(plan(model)):
        cancelled = await cancelling
        turn = await run.wait()

    assert cancelled.state.state == "applied"
    assert turn.status is AgentRunStatus.CANCELLED
    assert model.requests == []
