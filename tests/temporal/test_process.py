"""A process of ours that is told to stop: it ends, and soon, whatever it hangs in."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Self

import pytest

from orchestral_temporal.hosting.process import STOP_SECONDS
from orchestral_temporal.hosting.running import held
from tests.temporal.shell import DEAF, ROOT

PROGRAM = """
import asyncio, signal, sys, threading, time
from orchestral_temporal.hosting.process import conclude, stop_signals

async def busy():
    while True:
        pass

async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def tell_a_thread():
    def tell():
        while sys._current_frames()[main].f_code.co_name != "select":
            time.sleep(0.01)
        time.sleep(0.1)  # from Python into the system call itself, which nothing shows
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    main = threading.get_ident()
    threading.Thread(target=tell, daemon=True).start()
    await asyncio.Event().wait()

async def wind_up():
    with stop_signals() as stop:
        await stop.wait()
    print("wound up", file=sys.stderr, flush=True)
    return 7

async def take_the_first():
    with stop_signals():
        await busy()

async def work():
    print("at work", file=sys.stderr, flush=True)
    return await WORK

conclude(work())
"""

WORKS = {
    "a wait": "asyncio.Event().wait()",
    "work that goes on": "busy()",
    "work that takes no cancel": "stubborn()",
    "a thread that does not end": "asyncio.to_thread(threading.Event().wait)",
    "a write that nobody reads": "asyncio.sleep(0, sys.stdout.write('x' * 1_000_000))",
}


def told(work: str, numbers: Iterator[signal.Signals], *, before: tuple[str, ...] = ()) -> tuple[int, float, str]:
    """Exit code, seconds and last words of a process that is at work when it begins to hear these signals."""
    ours, theirs = os.pipe()  # nobody reads what it answers
    command = [*before, sys.executable, "-c", PROGRAM.replace("WORK", work)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == "at work\n"
            began = time.monotonic()
            while process.poll() is None and time.monotonic() < began + 20:
                number = next(numbers, None)
                if number is not None:
                    process.send_signal(number)
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
            assert process.returncode is not None, "it goes on"
            return process.returncode, time.monotonic() - began, process.stderr.read()
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_one_signal_is_enough(work: str) -> None:
    """A process that is told once to stop ends by itself, with the exit code that a shell gives to that."""
    code, seconds, _ = told(work, iter([signal.SIGINT]))

    assert code == 130
    assert seconds < STOP_SECONDS + 3


def test_a_service_manager_is_heard_as_well() -> None:
    """SIGTERM is the same, with its own exit code."""
    assert told(WORKS["a wait"], iter([signal.SIGTERM]))[0] == 143


def test_a_background_process_of_a_script_hears_too() -> None:
    """A script gives its background processes an ignored SIGINT; whoever sends one means it."""
    assert told(WORKS["a wait"], iter([signal.SIGINT]), before=DEAF)[0] == 130


def test_a_loop_that_waits_is_woken() -> None:
    """A signal that reaches a thread of the SDK does not interrupt the wait of the main thread, and is heard."""
    code, _, _ = told("tell_a_thread()", iter(()))

    assert code == 130


def test_work_may_take_the_first_signal_for_itself() -> None:
    """What has to wind up gets the signal as an event, and all the time that it needs."""
    code, _, said = told("wind_up()", iter([signal.SIGINT]))

    assert (code, said) == (7, "wound up\n")


def test_the_second_signal_ends_even_such_work() -> None:
    """It need not come back to the loop for that."""
    assert told("take_the_first()", iter([signal.SIGINT] * 100))[0] == 130


class Broken:
    """A worker that breaks, as the SDK's say it: by a cancel of the task that entered it."""

    def __init__(self) -> None:
        self.breaks = asyncio.Event()
        self.task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.current_task()
        self.watch = asyncio.create_task(self._break())
        return self

    async def _break(self) -> None:
        await self.breaks.wait()
        assert self.task is not None
        self.task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is asyncio.CancelledError:
            raise RuntimeError("the queue is gone")
        self.breaks.set()
        await asyncio.Event().wait()


async def test_a_worker_that_breaks_while_it_stops_stops_nothing_else() -> None:
    """What comes after the block goes on, with its own exit code."""
    async with held([Broken()]):
        pass

    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_worker_that_breaks_ends_what_needs_it() -> None:
    """The block is cancelled, and the error of the worker comes out of it."""
    worker = Broken()

    async def needs_it() -> None:
        async with held([worker]):
            worker.breaks.set()
            await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="the queue is gone"):
        await needs_it()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
