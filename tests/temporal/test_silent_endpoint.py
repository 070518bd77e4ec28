"""A backend that says nothing over a real connection: the run ends when it shall, and hangs up."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from orchestral_temporal.protocol.delivery import LimitReached
from orchestral_temporal.protocol.limits import RunLimitKind, RunLimits
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from tests.contracts.openai_endpoint import adapter_at
from tests.contracts.sse_server import Endpoint
from tests.temporal.world import PATIENCE, World, events_of, plan, until

LATE_MS: Final = 2_000
"""Milliseconds that a run may take to end after its cancel, or after its deadline."""


class Silence:
    """An endpoint that takes requests and never answers; `left` are the connections that the client has closed."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = 0

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[Endpoint]:
        """Listen until left."""
        async with await asyncio.start_server(self._hear, "127.0.0.1", 0) as server:
            yield Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        await reader.read()  # the body, and then only the end of the connection
        self.left += 1
        writer.close()


@pytest.mark.parametrize("world", [True], ids=["cached"], indirect=True)
async def test_a_silent_backend_holds_no_run(world: World) -> None:
    """A cancel and a deadline each end a run within two seconds, and its connection is closed (F086)."""
    silence = Silence()
    async with silence.serving() as endpoint, adapter_at(endpoint) as model, world.serving(plan(model)):
        deadline = round((time.time() + 2) * 1_000)
        limits = RunLimits(deadline_unix_ms=deadline)
        bounded = await world.runs.start("work", run_id=world.id("bounded"), limits=limits)
        cancelled = await world.runs.start("work", run_id=world.id("cancelled"))
        await until(lambda: silence.asked == 2, "both requests are there")
        await cancelled.cancel("enough")
        async with asyncio.timeout(PATIENCE):
            ends = [await run.wait() for run in (cancelled, bounded)]
        await until(lambda: silence.left == 2, "both connections are closed")

    assert [turn.status for turn in ends] == [AgentRunStatus.CANCELLED, AgentRunStatus.INCOMPLETE]
    assert ends[1].result["reason"] == dump(LimitReached(limit=RunLimitKind.DEADLINE))
    assert silence.asked == 2
    told = await world.history(cancelled.run_id)
    (command,) = events_of(told, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
    assert ended_at(told) - command.event_time.ToMilliseconds() < LATE_MS
    assert 0 <= ended_at(await world.history(bounded.run_id)) - deadline < LATE_MS


def ended_at(history: WorkflowHistory) -> int:
    """When the run ended by the server's clock, in milliseconds since 1970."""
    return history.events[-1].event_time.ToMilliseconds()
