"""Nothing but Temporal: a workflow that runs two activities a round, with payloads as large as ours.

It rides as a client plugin in our own worker: the same process, queue, caches and pollers.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.plugin import SimplePlugin

with workflow.unsafe.imports_passed_through():
    from workload import Load

PATIENCE: Final = timedelta(seconds=60)

QUOTES: Final = 2
"""Bytes around a text in JSON."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of the payloads of one round: what each activity is given and what it answers."""

    model_input: int
    model_result: int
    tool_input: int
    tool_result: int


@dataclass(frozen=True)
class RawStart:
    """What `RawRounds` is started with."""

    rounds: int
    sizes: Sizes


def text(size: int, head: str = "") -> str:
    """A text whose JSON has `size` bytes, or as many as its head needs."""
    return head.ljust(size - QUOTES, ".")


@activity.defn(name="raw_model")
async def _raw_model(given: str) -> str:
    return text(int(given.partition(" ")[0]))


@activity.defn(name="raw_tool")
async def _raw_tool(given: str) -> str:
    return text(int(given.partition(" ")[0]))


@workflow.defn(name="RawRounds")
class RawRounds:
    """Rounds of a model activity and a tool activity, then one more model activity."""

    @workflow.run
    async def run(self, start: RawStart) -> str:
        """Run them one after another."""
        sizes = start.sizes
        answer = ""
        for number in range(start.rounds + 1):
            if number:
                question = text(sizes.tool_input, f"{sizes.tool_result} ")
                await workflow.execute_activity(_raw_tool, question, start_to_close_timeout=PATIENCE)
            question = text(sizes.model_input, f"{sizes.model_result} ")
            answer = await workflow.execute_activity(_raw_model, question, start_to_close_timeout=PATIENCE)
        return answer


PLUGIN: Final = SimplePlugin("raw-rounds", workflows=[RawRounds], activities=[_raw_model, _raw_tool])


class Raw:
    """Runs of `RawRounds`; `sizes` says for each size of a result what our own payloads have."""

    name = "raw activities"
    model_activity = "raw_model"

    def __init__(self, client: Client, queue: str, sizes: dict[int, Sizes]) -> None:
        self._client, self._queue, self._sizes = client, queue, sizes

    async def start(self, load: Load, run_id: str) -> WorkflowHandle[Any, Any]:
        """Start a run."""
        start = RawStart(load.rounds, self._sizes[load.size])
        return await self._client.start_workflow(RawRounds.run, start, id=run_id, task_queue=self._queue)
