"""A worker of its own process, with a model that says nothing; it says what time it believes it is, and works on.

`python -m tests.temporal.moved_worker ADDRESS QUEUE`; it ends with the process that holds its standard input.
"""

import asyncio
import json
import sys
import time

from temporalio.client import Client

from orchestral_temporal.protocol.activities import Queues
from orchestral_temporal.runtime.agents import host
from orchestral_temporal.temporal.converter import DATA_CONVERTER
from orchestral_temporal.temporal.worker import WorkerSettings, build_workers
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.crash.signs import end_with_parent
from tests.temporal.world import plan


async def main(address: str, queue: str) -> None:
    """Serve until the end."""
    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    agents = {"default": host(plan(ScriptedModel([[{"hang": True}]])), client.namespace)}
    settings = WorkerSettings(queues=Queues(runs=queue, models=queue, tools=queue))
    (worker,) = build_workers(client, agents, settings=settings, artifacts=MemoryArtifacts())
    async with worker:
        sys.stdout.write(json.dumps([time.time(), time.strftime("%z")]) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(*sys.argv[1:]))
