"""A whole deployment in one short script: connect, serve, run, print the answer. `test_processes` runs it strictly."""

import asyncio
import os
import sys

from temporalio.client import Client

from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.temporal.client import AgentClient
from orchestral_temporal.temporal.converter import DATA_CONVERTER
from orchestral_temporal.temporal.worker import WorkerSettings, build_workers
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, calls, says


async def main(address: str, run_id: str, cache: str) -> None:
    """One worker, one run with one tool call."""
    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    model = ScriptedModel([calls(("echo", {"value": 1})), says("delivered without a warning")])
    agents = {"default": host(AgentPlan("default", model, (RecordingTool("echo"),)), "default")}
    settings = WorkerSettings(max_cached_workflows=int(cache))
    (worker,) = build_workers(client, agents, settings=settings, artifacts=MemoryArtifacts())
    async with worker:
        turn = await AgentClient(client).run_text("go", run_id=run_id)
    sys.stdout.write(f"{turn.text}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    sys.stdout.flush()
    os._exit(0)  # the SDK's own threads may crash a short process at its very end (decision 32)
