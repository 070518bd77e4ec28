"""Deadlines by the clock of the server: those that are past or far, and workers whose own clock is wrong."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.protocol.delivery import LimitReached
from orchestral_temporal.protocol.limits import RunLimitKind, RunLimits
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import AgentClient, RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import PATIENCE, World, events_of, plan, says

ROOT: Final = Path(__file__).parents[2]

DEADLINE_REACHED: Final = dump(LimitReached(limit=RunLimitKind.DEADLINE))

LATE_MS: Final = 2_000
"""Milliseconds after its deadline that a run may take to end."""

MOVED: Final = {"ahead": 3_600, "behind": -3_600}
"""Seconds by which the clock of a worker is wrong."""

MOVED_CLOCK: Final = """
import runpy, sys, time
moved, clock, clock_ns = int(sys.argv.pop(1)), time.time, time.time_ns
time.time = lambda: clock() + moved
time.time_ns = lambda: clock_ns() + moved * 10**9
runpy.run_module("tests.temporal.moved_worker", run_name="__main__")
"""
"""A process whose `time.time` is moved before anything of ours or of the SDK is imported."""


async def test_a_deadline_is_past_or_far_or_refused(world: World) -> None:
    """Seconds for milliseconds are 1970, and no model starts; the last instant is far; 0 creates no run (F100)."""
    model = ScriptedModel([says("in time")])
    instants = {"seconds": 1_774_744_260, "year 9999": 253_402_300_799_000, "last": 2**63 - 1}
    async with world.serving(plan(model)):
        with pytest.raises(StartRefused, match="`deadline_unix_ms` is not positive"):
            await world.runs.start("work", run_id=world.id("last"), limits=RunLimits(deadline_unix_ms=0))
        runs = [
            await world.runs.start("work", run_id=world.id(name), limits=RunLimits(deadline_unix_ms=deadline))
            for name, deadline in instants.items()
        ]
        past, *far = await asyncio.gather(*(run.wait() for run in runs))

    assert past.result["reason"] == DEADLINE_REACHED
    assert [turn.text for turn in far] == ["in time", "in time"]
    assert {each.request_id for each in model.requests} == {f"model-{turn.run_id}-1" for turn in far}


@asynccontextmanager
async def worker_with_a_wrong_clock(world: World, queue: str, moved: int) -> AsyncGenerator[None]:
    """A worker in Kolkata, its clock moved by some seconds, once it works and has shown that it is wrong."""
    environment = {**os.environ, "TZ": "Asia/Kolkata", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MOVED_CLOCK, str(moved), world.address, queue]
    pipe = subprocess.PIPE
    process = await asyncio.to_thread(subprocess.Popen, command, stdin=pipe, stdout=pipe, cwd=ROOT, env=environment)
    with process:
        try:
            assert process.stdout is not None
            now, zone = json.loads(await asyncio.to_thread(process.stdout.readline))
            assert abs(now - time.time() - moved) < 60
            assert zone == "+0530"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("world", [True], ids=["cached"], indirect=True)
async def test_a_wrong_clock_of_a_worker_moves_no_deadline(world: World) -> None:
    """An hour ahead or behind, in Kolkata: the same ends, less than two seconds late; recorded times are UTC (F101)."""
    ahead, behind = (worker_with_a_wrong_clock(world, f"{world.queue}-{name}", by) for name, by in MOVED.items())
    began: list[tuple[RunHandle, int, int]] = []
    async with ahead, behind:
        for where in MOVED:
            client = AgentClient(world.client, task_queue=f"{world.queue}-{where}")
            for models, seconds in ((1, 2), (0, -60)):
                deadline = round((time.time() + seconds) * 1_000)
                limits = RunLimits(deadline_unix_ms=deadline)
                run = await client.start("work", run_id=world.id(f"{where}{models}"), limits=limits)
                began.append((run, deadline, models))
        async with asyncio.timeout(PATIENCE):
            turns = [await run.wait() for run, _, _ in began]

    assert [turn.result["reason"] for turn in turns] == [DEADLINE_REACHED] * 4
    for run, deadline, models in began:
        history = await world.history(run.run_id)
        assert models_started(history) == models
        first, *_, last = (event.event_time.ToMilliseconds() for event in history.events)
        assert 0 <= last - max(deadline, first) < LATE_MS
        assert abs(first / 1_000 - time.time()) < PATIENCE


def models_started(history: WorkflowHistory) -> int:
    """How often a run asked a model."""
    scheduled = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    types = [event.activity_task_scheduled_event_attributes.activity_type.name for event in scheduled]
    return types.count(names.CALL_MODEL)
