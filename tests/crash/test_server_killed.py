"""SIGKILL of the server, which comes back on its database file; who waits or watches need not notice."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.service import RetryConfig

from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.settings import TemporalSettings
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal.client import AgentClient, Turn
from orchestral_temporal.temporal.converter import DATA_CONVERTER
from tests.crash.scene import Scene, its_end, now, open_scene
from tests.crash.story import CALM, LOST, ROUNDS, TASK, after
from tests.crash.test_fence import KEY, rounds
from tests.crash.worker_process import LEDGER
from tests.temporal.world import open_world, until


@dataclass
class Mortal:
    """A server with a database file that may be killed and started again."""

    settings: TemporalSettings
    _life: AsyncExitStack = field(default_factory=AsyncExitStack)
    _pid: int | None = None

    async def start(self) -> float:
        """Start it; returns when the start began."""
        when = now()
        self._pid = (await self._life.enter_async_context(dev_server(self.settings))).pid
        return when

    async def kill(self) -> None:
        """SIGKILL, and see that it is gone."""
        assert self._pid is not None
        os.kill(self._pid, signal.SIGKILL)
        await self.close()

    async def close(self) -> None:
        """End what runs."""
        await self._life.aclose()


@pytest_asyncio.fixture
async def mortal(temporal_settings: TemporalSettings, tmp_path: Path, free_port: int) -> AsyncGenerator[Mortal]:
    """A server of the test's own, as `temporal-dev.yaml` wants it."""
    server = temporal_settings.server.model_copy(update={"db": tmp_path / "runs.db"})
    mortal = Mortal(temporal_settings.model_copy(update={"address": f"127.0.0.1:{free_port}", "server": server}))
    await mortal.start()
    yield mortal
    await mortal.close()


@pytest_asyncio.fixture(params=[True, False], ids=["cached", "uncached"])
async def scene(
    mortal: Mortal,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> AsyncGenerator[Scene]:
    """A scene on that server."""
    settings = mortal.settings
    async with open_world(settings.address, settings.namespace, cached=request.param) as world:
        with open_scene(world, tmp_path, request.node) as opened:
            yield opened


async def reading(scene: Scene, run_id: str) -> asyncio.Future[tuple[Turn, list[str], list[str]]]:
    """From now on wait for a run, watch it and follow its events; the events by type, at its end.

    Their client does not hide an outage, as others do for 10 s.
    """
    client = await Client.connect(
        scene.world.address,
        data_converter=DATA_CONVERTER,
        retry_config=RetryConfig(max_elapsed_time_millis=100, max_retries=1),
    )
    run = AgentClient(client).run(run_id)

    async def watched() -> list[str]:
        return [each.event.event.payload.type async for each in run.watch() if each.event is not None]

    async def followed() -> list[str]:
        return [each.event.payload.type async for each in run.events(more=True)]

    return asyncio.gather(run.wait(), watched(), followed())


@pytest.mark.parametrize("place", ["dispatch-3", "tool-v2", "model-3"])
async def test_an_outage_shorter_than_the_heartbeat_time_out_costs_nothing(
    scene: Scene, mortal: Mortal, place: str
) -> None:
    """Between rounds or with a call at work: each step happens once, within 5 s of the restart (I1)."""
    scene.signs.hold(place)
    await scene.worker(rounds=ROUNDS, heartbeat_ms=10_000)
    run = await scene.world.runs.start(TASK, run_id=scene.world.id("outage"))
    readers = await reading(scene, run.run_id)
    await until(lambda: bool(scene.signs.arrivals(place)), f"the worker comes to {place}")
    await mortal.kill()
    restarted = await mortal.start()
    scene.signs.release(place)
    ended, watched, followed = await its_end(readers)
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    assert await scene.steps(run.run_id) == CALM
    assert all(len(attempts) == 1 for attempts in scene.requests(run.run_id).values())
    assert watched == followed == [step for step in CALM if "_" in step]
    await scene.check_recovery(run, restarted)


async def test_a_machine_that_dies_with_all_on_it(scene: Scene, mortal: Mortal) -> None:
    """Server and worker killed at once: the open attempt is lost, said so, and made again (I1, I4)."""
    scene.signs.hold("model-3")
    worker = await scene.worker(rounds=ROUNDS)
    run = await scene.world.runs.start(TASK, run_id=scene.world.id("machine"))
    readers = await reading(scene, run.run_id)
    await until(lambda: bool(scene.signs.arrivals("model-3")), "the third attempt is at work")
    scene.kill(worker)
    await mortal.kill()
    scene.signs.release("model-3")
    await mortal.start()
    restarted = await scene.worker(rounds=ROUNDS)
    ended, watched, followed = await its_end(readers)
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    steps = after("model 3.1", *LOST, "model 3.2")
    assert await scene.steps(run.run_id) == steps
    assert scene.signs.arrivals("model-3") == [worker.pid, restarted.pid]
    assert watched == followed == [step for step in steps if "_" in step]
    await scene.check_recovery(run, restarted)


OUTAGES: Final = (5, 12, *((25,) if os.environ.get("WHOLE_MATRIX") else ()))
"""Seconds that a server is away: shorter than the SDK's patience with a result, just above it, and far above it."""


@pytest.mark.parametrize("seconds", OUTAGES)
async def test_a_call_that_ends_while_the_server_is_away_keeps_its_outcome(
    scene: Scene, mortal: Mortal, seconds: int
) -> None:
    """Delivered with what the tool returned, one effect, and nothing unknown, however long the outage was (E4)."""
    signs, place = scene.signs, f"before-{KEY}"
    signs.hold(place)
    await scene.worker(rounds=rounds("once"), fenced_heartbeat_ms=5_000, uncertainty_grace_ms=10_000)
    run = await scene.world.runs.start("Leave a line.", run_id=scene.world.id("outage"))
    await until(lambda: bool(signs.arrivals(place)), "the tool is at work")
    await mortal.kill()
    signs.release(place)
    await until(lambda: bool(signs.notes(LEDGER)), "the effect has happened")
    await asyncio.sleep(seconds)
    await mortal.start()
    ended = await its_end(run.wait())
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    assert signs.notes(LEDGER) == [f"{run.run_id}/m1/c1"]
    records = await scene.world.records(run.run_id)
    (exchange,) = [each["payload"] for each in records if "exchange" in str(each["payload"]["type"])]
    assert f"line {KEY}" in str(exchange["tool"])
