"""A namespace that `setup` has just prepared can be used at once."""

import asyncio
import uuid
from datetime import timedelta
from typing import Final

import pytest

from orchestral_temporal.hosting.namespace import setup
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import World, open_world, plan, says

FRESH: Final = 4
"""Namespaces here; the whole case is 20 servers."""


@pytest.mark.parametrize("world", [True], ids=["cached"], indirect=True)
async def test_a_run_starts_in_the_second_of_the_setup(world: World) -> None:
    """Worker and run, without a pause behind `setup`, in namespaces that were not there before (F095)."""

    async def first_run(namespace: str) -> AgentRunStatus:
        report = await setup(world.client, namespace, timedelta(days=1))
        assert report.created
        async with open_world(world.address, namespace, cached=True) as fresh:
            run = await fresh.runs.start("go", run_id="r1")
            async with fresh.serving(plan(ScriptedModel([says("done")]))):
                return (await run.wait()).status

    names = [f"fresh-{uuid.uuid4().hex[:8]}" for _ in range(FRESH)]
    assert await asyncio.gather(*map(first_run, names)) == [AgentRunStatus.DELIVERED] * FRESH
