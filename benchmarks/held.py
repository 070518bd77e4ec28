"""Runs of ours that go on until they are told: one whose model does not answer, and one whose tool does not end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from threading import Event
from typing import Final

from measures import LONGEST
from ours import WINDOW, StubModel
from temporalio.client import Client
from temporalio.worker import Worker

from orchestral_temporal.adapters.tools.functions import function_tool
from orchestral_temporal.api import tool
from orchestral_temporal.protocol.model import (
    Finish,
    ModelEvent,
    ModelFinishReason,
    ModelRequest,
    ModelRole,
    ModelStreamEvent,
    TextDelta,
    TextPart,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.temporal.client import AgentClient, RunHandle
from orchestral_temporal.temporal.worker import WorkerSettings, build_workers
from orchestral_temporal.testing.artifacts import MemoryArtifacts

LAST: Final = "That is all."
"""What the model that does not answer waits for."""

THINKS, WORKS = "thinks", "works"
"""The agents: its model does not answer before it has heard `LAST`; its tool does not end before it is let go."""


class Held:
    """The runs, and how far they are."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._agents = AgentClient(client)
        self._reached: dict[str, Event] = {}
        self._open: dict[str, Event] = {}
        self._asked: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    def workers(self) -> Sequence[Worker]:
        """The workers, of both agents; plugins of the client ride along."""

        @tool(name="work", idempotency="pure", concurrency="parallel_safe", timeout=timedelta(seconds=600))
        def work(task: str) -> str:
            """Work on a task, in a thread of its own."""
            self._reached[task].set()
            self._open[task].wait()
            return "done"

        thinks = AgentPlan(name=THINKS, backend=_Model(self, None), tools=(), context_tokens=WINDOW)
        works = AgentPlan(name=WORKS, backend=_Model(self, "work"), tools=(function_tool(work),), context_tokens=WINDOW)
        agents = {plan.name: host(plan, self._client.namespace) for plan in (thinks, works)}
        return build_workers(self._client, agents, settings=WorkerSettings(), artifacts=MemoryArtifacts())

    async def start(self, agent: str, run_id: str) -> RunHandle:
        """Start a run, and wait until its model thinks or its tool works."""
        self._reached[run_id], self._open[run_id] = Event(), Event()
        run = await self._agents.start(run_id, run_id=run_id, agent=agent)
        async with asyncio.timeout(LONGEST):
            if agent == WORKS:
                await asyncio.to_thread(self._reached[run_id].wait, LONGEST)
            else:
                await self.asked(run_id, 1)
        return run

    async def asked(self, run_id: str, times: int) -> None:
        """Wait until the model was asked so often for a run."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._asked[run_id] >= times)

    def let_go(self, run_id: str) -> None:
        """The tool ends."""
        self._open[run_id].set()

    async def note(self, run_id: str) -> None:
        """The model is asked."""
        async with self._changed:
            self._asked[run_id] += 1
            self._changed.notify_all()


class _Model:
    """Calls its tool once and then answers; without a tool it thinks until it has heard `LAST`."""

    descriptor = StubModel.descriptor
    redispatchable = True

    def __init__(self, held: Held, tool_name: str | None) -> None:
        self._held, self._tool = held, tool_name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelStreamEvent]:
        """One turn."""
        heard = said(request)
        await self._held.note(heard[0])
        answered = any(each.role is ModelRole.ASSISTANT for each in request.messages)
        if self._tool is None and heard[-1] != LAST:
            await asyncio.Event().wait()
        turn = _answer() if self._tool is None or answered else _call(self._tool, heard[0])
        for sequence, payload in enumerate(turn, start=1):
            yield ModelStreamEvent(
                request_id=request.request_id, event_id=f"event-{sequence}", sequence=sequence, payload=payload
            )


def said(request: ModelRequest) -> list[str]:
    """What people have said, as a request of the model holds it; the first is the task, which is the run's id here."""
    return [
        part.text
        for message in request.messages
        if message.role is ModelRole.USER
        for part in message.content
        if isinstance(part, TextPart)
    ]


def _answer() -> list[ModelEvent]:
    return [TextDelta(delta="As you say."), Finish(reason=ModelFinishReason.STOP)]


def _call(name: str, task: str) -> list[ModelEvent]:
    return [
        ToolCallStart(call_id="call-1", name=name),
        ToolCallArgumentsDelta(call_id="call-1", delta=f'{{"task": "{task}"}}'),
        ToolCallEnd(call_id="call-1"),
        Finish(reason=ModelFinishReason.TOOL_CALLS),
    ]
