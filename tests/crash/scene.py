"""The scene of a crash: processes that a test may kill, the signs between them, and how the run's story reads then."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.worker import Replayer

from orchestral_temporal.core.state import AppendSession, CallModel, Effect, InvokeTool, WakeAfter
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.temporal.client import RunHandle
from orchestral_temporal.temporal.converter import DATA_CONVERTER
from orchestral_temporal.temporal.history import _Recorder
from orchestral_temporal.temporal.names import session_workflow_id
from orchestral_temporal.temporal.run_workflow import AgentRun
from tests.crash.signs import Signs
from tests.crash.worker_process import Setup
from tests.temporal.world import World, until

ROOT: Final = Path(__file__).parents[2]

LONGEST_RECOVERY: Final = 5.0
"""Seconds from the moment a restarted process is up to the run's next step."""

RECOVERY: Final = "recovery_seconds"
"""The property of a test's report that says how long it took."""

NO_STEP: Final = (
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
)
"""Events that the server alone can write, or that by themselves bring a run no further."""

LONGEST_RUN: Final = 60.0
"""Seconds after which a run that has not ended fails the test: several times what one takes on a busy machine."""

Process = subprocess.Popen[bytes]
Ending = TypeVar("Ending")


@dataclass
class Scene:
    """A world, and processes around it that end with the test."""

    world: World
    folder: Path
    test: pytest.Item
    _processes: list[Process] = field(default_factory=list)

    @property
    def signs(self) -> Signs:
        """What the processes say, and where they are held."""
        return Signs(self.folder)

    async def worker(self, **how: Any) -> Process:
        """A worker of this world's queue; `how` as `Setup` says. It is up when this returns."""
        world = self.world
        setup = Setup(world.address, world.queue, str(self.folder), 100 if world.cached else 0, **how)
        process = self._start("worker_process", setup.to_json())
        await self._said(process, lambda: self._ups().get(process.pid))
        return process

    async def model(self) -> str:
        """A model endpoint that outlives the workers; returns its base URL."""
        process = self._start("model_process", str(self.folder))
        await self._said(process, lambda: self.signs.notes("endpoint"))
        return self.signs.notes("endpoint")[0]

    def freeze(self, process: Process) -> None:
        """SIGSTOP: the process is there and does nothing."""
        process.send_signal(signal.SIGSTOP)

    def thaw(self, process: Process) -> None:
        """SIGCONT: the process goes on where it was."""
        process.send_signal(signal.SIGCONT)

    def kill(self, process: Process) -> None:
        """SIGKILL, and see that it is gone."""
        process.kill()
        process.wait()

    async def steps(self, run_id: str) -> list[str]:
        """The run as its history tells it: journal events by type, dispatched calls as `model 2.1`, `tool v2.1`.

        The number after the dot is the attempt. What one input brought stands in the order events, then calls.
        """
        recorder = _Recorder()
        replayer = Replayer(
            workflows=[AgentRun],
            data_converter=DATA_CONVERTER,
            interceptors=[recorder],
        )
        await replayer.replay_workflow(await self.world.history(run_id))
        return [
            said
            for step in recorder.steps
            for said in (*(each.event.payload.type for each in step.events), *map(_called, step.effects))
        ]

    async def repeated(self, run_id: str) -> list[str]:
        """The activities of a run that the server started again by itself."""
        names: dict[int, str] = {}
        found: list[str] = []
        for event in (await self.world.history(run_id)).events:
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
            started = event.activity_task_started_event_attributes
            found.extend([names[started.scheduled_event_id]] if started.attempt > 1 else [])
        return found

    def requests(self, run_id: str) -> dict[int, list[Json]]:
        """What the model was asked in each round of a run, attempt by attempt, without the request id."""
        found: dict[int, list[Json]] = {}
        for line in self.signs.notes("requests"):
            request = json.loads(line)
            owner, _, number = request.pop("request_id").removeprefix("model-").rpartition("-")
            if owner == run_id:
                found.setdefault(int(number), []).append(request)
        return found

    async def check_recovery(self, run: RunHandle, restarted: Process | float) -> None:
        """The run made its next step within `LONGEST_RECOVERY` of the moment at which the process was up."""
        since = restarted if isinstance(restarted, float) else self._ups()[restarted.pid]
        history = await self.world.history(run.run_id)
        times = [each.event_time.ToNanoseconds() / 1e9 for each in history.events if each.event_type not in NO_STEP]
        took = min(each for each in times if each > since) - since
        self.test.user_properties.append((RECOVERY, took))
        assert took < LONGEST_RECOVERY

    def _ups(self) -> dict[int, float]:
        return {int(pid): float(when) for pid, when in (each.split() for each in self.signs.notes("up"))}

    def _start(self, module: str, argument: str) -> Process:
        command = [sys.executable, "-m", f"tests.crash.{module}", argument]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    async def _said(self, process: Process, what: Callable[[], object]) -> None:
        await until(lambda: bool(what()) or process.poll() is not None, "a process comes up")
        assert process.poll() is None, self.log()

    def log(self) -> str:
        """What the processes said about themselves."""
        return (self.folder / "log").read_text("utf-8")

    def close(self) -> None:
        """Kill what still runs; from now on the histories of the sessions count as well."""
        self.world.started.update({(session_workflow_id(run_id), None) for run_id, _ in self.world.started})
        for process in self._processes:
            self.kill(process)
            assert process.stdin is not None
            process.stdin.close()


@contextmanager
def open_scene(world: World, folder: Path, test: pytest.Item) -> Generator[Scene]:
    """A scene in a world, for one test."""
    scene = Scene(world, folder, test)
    try:
        yield scene
    finally:
        scene.close()


async def its_end(ending: Awaitable[Ending]) -> Ending:
    """What a run ends with.

    Raises:
        TimeoutError: it does not end.
    """
    async with asyncio.timeout(LONGEST_RUN):
        return await ending


def now() -> float:
    """The wall clock, which server and workers share with us."""
    return time.time()


def _called(effect: Effect) -> str:
    match effect:
        case CallModel(attempt=attempt):
            return f"model {attempt.round}.{attempt.attempt}"
        case InvokeTool(request=request):
            return f"tool {request.arguments['key']}.{request.attempt}"
        case AppendSession():
            return "append"
        case WakeAfter(timer=timer):
            return f"wait for {timer.partition('/')[0]}"
        case _:
            return type(effect).__name__
