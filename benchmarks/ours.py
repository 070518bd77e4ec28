"""This project, as a user would host it."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker
from workload import ANSWER, INSTRUCTIONS, TOOL, Load, page, read_task

from orchestral_temporal.adapters.tools.functions import function_tool
from orchestral_temporal.api import tool
from orchestral_temporal.protocol.model import (
    Finish,
    ModelCapabilities,
    ModelDescriptor,
    ModelEvent,
    ModelFinishReason,
    ModelRequest,
    ModelRole,
    ModelStreamEvent,
    ModelUsage,
    TextDelta,
    TextPart,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSnapshot,
)
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import AgentClient
from orchestral_temporal.temporal.worker import WorkerSettings, build_workers
from orchestral_temporal.testing.artifacts import MemoryArtifacts

WINDOW: Final = 8_000_000
"""Tokens of the stub model: no run here is to end for want of room."""


class StubModel:
    """Calls the tool until the task is done; it answers at once."""

    descriptor = ModelDescriptor(
        backend_id="stub",
        capabilities=ModelCapabilities(
            streaming=True,
            tool_calls=True,
            parallel_tool_calls=False,
            structured_output=False,
            max_context_tokens=WINDOW,
        ),
    )
    redispatchable = True

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelStreamEvent]:
        """One turn: the next call, or the answer."""
        for sequence, payload in enumerate(_turn(request), start=1):
            yield ModelStreamEvent(
                request_id=request.request_id, event_id=f"event-{sequence}", sequence=sequence, payload=payload
            )


def _turn(request: ModelRequest) -> list[ModelEvent]:
    task = next(each for each in request.messages if each.role is ModelRole.USER).content[0]
    assert isinstance(task, TextPart)
    load = read_task(task.text)
    usage = UsageSnapshot(usage=ModelUsage(input_tokens=100, output_tokens=10))
    done = sum(each.role is ModelRole.ASSISTANT for each in request.messages)
    if done == load.rounds:
        return [TextDelta(delta=ANSWER), usage, Finish(reason=ModelFinishReason.STOP)]
    call_id, arguments = f"call-{done + 1}", json.dumps({"number": done + 1, "size": load.size})
    return [
        ToolCallStart(call_id=call_id, name=TOOL),
        ToolCallArgumentsDelta(call_id=call_id, delta=arguments),
        ToolCallEnd(call_id=call_id),
        usage,
        Finish(reason=ModelFinishReason.TOOL_CALLS),
    ]


@tool(name=TOOL, idempotency="pure", concurrency="parallel_safe", timeout=timedelta(seconds=60))
async def _lookup(number: int, size: int) -> str:
    """Look up a page by its number."""
    return page(number, size)


@tool(name=TOOL, idempotency="non_idempotent", concurrency="parallel_safe", timeout=timedelta(seconds=60))
async def _fenced_lookup(number: int, size: int) -> str:
    """Look up a page by its number, as if that changed something."""
    return page(number, size)


AGENTS: Final = {"default": _lookup, "fenced": _fenced_lookup}
"""The agents by name, and the tool of each: one that may run again, one that must not run twice."""


class Ours:
    """Runs of `AgentRun`, each in a session of its own."""

    name = "orchestral_temporal"
    model_activity = names.CALL_MODEL
    agent = "default"

    def __init__(self, client: Client) -> None:
        self._client = client
        self._agents = AgentClient(client)

    def workers(self) -> Sequence[Worker]:
        """The workers, of both agents; plugins of the client ride along."""
        plans = [
            AgentPlan(
                name=name,
                backend=StubModel(),
                tools=(function_tool(lookup),),
                instructions=INSTRUCTIONS,
                context_tokens=WINDOW,
            )
            for name, lookup in AGENTS.items()
        ]
        agents = {plan.name: host(plan, self._client.namespace) for plan in plans}
        return build_workers(self._client, agents, settings=WorkerSettings(), artifacts=MemoryArtifacts())

    async def start(self, load: Load, run_id: str) -> WorkflowHandle[Any, Any]:
        """Start a run."""
        await self._agents.start(load.task, run_id=f"{run_id}-{self.agent}", agent=self.agent)
        return self._client.get_workflow_handle(f"{run_id}-{self.agent}")


class Fenced(Ours):
    """The same, with a tool whose every call goes behind the effect fence."""

    name = "orchestral_temporal, fenced"
    agent = "fenced"
