"""One try: a run, a worker that is killed at a place of it, another worker, and what is left of it all."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final, TypeVar

import ledger
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError

from orchestral_temporal import AgentClient

LONGEST: Final = 180.0
"""Seconds that anything here may take; three times the longest time-out of the systems."""

ENDS: Final = (EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED)

STEPS: Final = (
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
    *ENDS,
)
"""Events that bring a run further. Time-outs, timers, search attributes and workflow tasks by themselves do not."""

SCRIPT: Final = Path(__file__).with_name("kill_worker.py")
LOG: Final = "log"
LAST_LINES: Final = 20
PAUSE: Final = 0.05

Process = asyncio.subprocess.Process
Result = TypeVar("Result")


@dataclass(frozen=True)
class System:
    """A way to run the agent: its name here, its module, its distribution if it is a peer.

    The tool may be tried `attempts` times; 0 leaves that to the system.
    """

    name: str
    module: str
    distribution: str | None = None
    attempts: int = 0


OURS: Final = System("orchestral_temporal", "kill_ours")


@dataclass(frozen=True)
class Seen:
    """What was left: effects, model calls, the run's end in words, and seconds from the kill.

    `to_step` is the time to the first event of `STEPS`, `to_end` to the run's end; none without a kill, or if there was
    no such event.
    """

    effects: int
    model_calls: int
    end: str
    to_step: float | None
    to_end: float | None


class WorkerFailed(Exception):  # noqa: N818 -- it says what happened
    """A worker ended otherwise than by the kill, or was not killed; the message quotes its last lines."""


async def attempt(client: Client, system: System, place: str, folder: Path, boot: asyncio.Lock) -> Seen:
    """Run once in an empty folder, whose name is the run's id; workers get ready one at a time.

    Raises:
        WorkerFailed: as it says.
        TimeoutError: a worker is not ready within `LONGEST`.
    """
    run_id, killed = folder.name, None
    async with AsyncExitStack() as held:
        async with boot:
            first, second = [await held.enter_async_context(_worker(client, system, folder)) for _ in range(2)]
        ledger.arm(folder, place)
        _tell(first)
        await _start(client, system, run_id)
        process = first
        if place != ledger.NOWHERE:
            await _death(first, folder)
            killed = time.time()
            _tell(second)
            process = second
        try:
            end = await _served(process, folder, _end(client, system, run_id))
        except TimeoutError:
            end = f"not within {LONGEST:.0f} s"
            await client.get_workflow_handle(run_id).terminate("the benchmark waited long enough")
    to_step, to_end = (None, None) if killed is None else await _since(client, run_id, killed)
    return Seen(ledger.effects(folder), ledger.model_calls(folder), end, to_step, to_end)


@asynccontextmanager
async def _worker(client: Client, system: System, folder: Path) -> AsyncGenerator[Process]:
    """A worker process of a run, ready to serve, which ends with the block at the latest."""
    queue = ledger.QUEUE_OF_RUN.format(folder.name)
    arguments = [system.module, client.service_client.config.target_host, queue, str(folder)]
    with (folder / LOG).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), *arguments, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log
        )
    try:
        await _served(process, folder, _ready(process, folder))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _served(process: Process, folder: Path, what: Coroutine[Any, Any, Result]) -> Result:
    """What comes of it while the worker lives."""
    asked, dead = asyncio.create_task(what), asyncio.create_task(process.wait())
    try:
        async with asyncio.timeout(LONGEST):
            await asyncio.wait({asked, dead}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise _failed(folder)
        return asked.result()
    finally:
        for each in (asked, dead):
            each.cancel()


async def _ready(process: Process, folder: Path) -> None:
    while not ledger.is_ready(folder, process.pid):  # noqa: ASYNC110 -- what another process does sets no event of ours
        await asyncio.sleep(PAUSE)


def _tell(process: Process) -> None:
    """Let a worker serve."""
    assert process.stdin is not None
    process.stdin.write(b"serve\n")


async def _death(process: Process, folder: Path) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST):
            await process.wait()
    if process.returncode != -SIGKILL:
        raise _failed(folder)


def _failed(folder: Path) -> WorkerFailed:
    lines = (folder / LOG).read_text("utf-8", "replace").splitlines()
    return WorkerFailed("\n".join([f"The worker of {folder.name} did not do as it should:", *lines[-LAST_LINES:]]))


async def _start(client: Client, system: System, run_id: str) -> None:
    queue = ledger.QUEUE_OF_RUN.format(run_id)
    if system == OURS:
        await AgentClient(client, task_queue=queue).start(ledger.TASK, run_id=run_id)
    else:
        await client.start_workflow(ledger.WORKFLOW, system.attempts, id=run_id, task_queue=queue)


async def _end(client: Client, system: System, run_id: str) -> str:
    """The end of a run, in the words of the system."""
    if system == OURS:
        turn = await AgentClient(client).run(run_id).wait()
        said = turn.failure["code"] if turn.failure else turn.text
        return f"{turn.status.value}: {said}"
    try:
        answer = await client.get_workflow_handle(run_id, result_type=str).result()
    except WorkflowFailureError as fault:
        return f"failed: {_reason(fault)}"
    return f"completed: {answer}"


def _reason(fault: BaseException) -> str:
    """The innermost message of a failure."""
    while fault.__cause__ is not None:
        fault = fault.__cause__
    return str(fault).splitlines()[0]


async def _since(client: Client, run_id: str, killed: float) -> tuple[float | None, float | None]:
    """Seconds from the kill to the run's next step and to its last event."""
    history = await client.get_workflow_handle(run_id).fetch_history()
    timed = [(each.event_type, each.event_time.ToNanoseconds() / 1e9 - killed) for each in history.events]
    steps = [seconds for kind, seconds in timed if kind in STEPS and seconds > 0]
    closed = [seconds for kind, seconds in timed if kind in ENDS]
    return min(steps, default=None), min(closed, default=None)
