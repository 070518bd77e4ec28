"""What is measured, read from the server's own words: histories and descriptions."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median_low
from time import perf_counter, process_time
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError
from workload import Contender, Load

LONGEST: Final = 300.0
"""Seconds that one run may take before it counts as stuck."""


class RunDied(Exception):  # noqa: N818 -- a result, not an error of ours
    """A run did not deliver; the message says how it ended."""


@dataclass(frozen=True)
class PayloadSizes:
    """Median bytes of what an activity is given and what it answers."""

    given: int
    answered: int


@dataclass(frozen=True)
class Pace:
    """Milliseconds of a round.

    `ms` is the server's time from the first model activity to the last one, for each round between them; `cpu_ms` the
    processor time of the worker process for the whole run, for each round.
    """

    ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Weight:
    """What a finished run left in the history: bytes by the server's own count, and events."""

    rounds: int
    size: int
    events: int


async def wait(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait for a run's end.

    Raises:
        RunDied: it failed, the server ended it, or it takes for ever.
    """
    try:
        async with asyncio.timeout(LONGEST):
            await handle.result()
    except WorkflowFailureError as fault:
        cause = getattr(fault.cause, "message", None) or str(fault.cause)
        raise RunDied(cause.splitlines()[0]) from None
    except TimeoutError:
        with suppress(RPCError):
            await handle.terminate("the benchmark waited long enough")
        message = f"not done after {LONGEST:.0f} s"
        raise RunDied(message) from None


def payload_sizes(history: WorkflowHistory) -> dict[str, PayloadSizes]:
    """Payload sizes by activity type."""
    kinds: dict[int, str] = {}
    given: defaultdict[str, list[int]] = defaultdict(list)
    answered: defaultdict[str, list[int]] = defaultdict(list)
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            asked = event.activity_task_scheduled_event_attributes
            kinds[event.event_id] = asked.activity_type.name
            given[asked.activity_type.name].append(sum(len(each.data) for each in asked.input.payloads))
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            done = event.activity_task_completed_event_attributes
            answered[kinds[done.scheduled_event_id]].append(sum(len(each.data) for each in done.result.payloads))
    return {kind: PayloadSizes(median_low(given[kind]), median_low(sizes)) for kind, sizes in answered.items()}


async def pace(contender: Contender, load: Load, run_id: str) -> Pace:
    """Run once and see how long its rounds take.

    Raises:
        RunDied: the run did not get to its end, or not in the rounds it was given.
    """
    busy = process_time()
    handle = await contender.start(load, run_id)
    await wait(handle)
    busy = process_time() - busy
    asked = [
        event.event_time.ToNanoseconds()
        for event in (await handle.fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        and contender.model_activity in event.activity_task_scheduled_event_attributes.activity_type.name
    ]
    if len(asked) != load.rounds + 1:
        message = f"{len(asked)} model activities in {load.rounds} rounds"
        raise RunDied(message)
    return Pace((asked[-1] - asked[0]) / load.rounds / 1e6, busy / load.rounds * 1e3)


async def weight(contender: Contender, load: Load, run_id: str) -> Weight:
    """Run once and look what the server keeps of it.

    Raises:
        RunDied: the run did not get to its end; the message says at which size.
    """
    handle = await contender.start(load, run_id)
    try:
        await wait(handle)
    except RunDied as died:
        left = (await handle.describe()).raw_description.workflow_execution_info
        message = f"{died} ({left.history_size_bytes / 1e6:.0f} MB)"
        raise RunDied(message) from None
    described = await handle.describe()
    assert described.status is WorkflowExecutionStatus.COMPLETED
    info = described.raw_description.workflow_execution_info
    return Weight(load.rounds, info.history_size_bytes, info.history_length)


async def runs_per_second(contender: Contender, load: Load, run_ids: Sequence[str]) -> float:
    """Start all runs at once and wait for the last one."""
    began = perf_counter()

    async def one(run_id: str) -> None:
        await wait(await contender.start(load, run_id))

    async with asyncio.TaskGroup() as group:
        for run_id in run_ids:
            group.create_task(one(run_id))
    return len(run_ids) / (perf_counter() - began)
