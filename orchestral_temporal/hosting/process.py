"""How a process of ours begins, is asked to stop, and ends: exit codes, one sentence for each error, no loose ends."""

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Coroutine, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.hosting.connection import ConnectionFailed
from orchestral_temporal.hosting.signals import hearing, listen
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.protocol.errors import AgentRejectionCode, ProtocolError
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal.client import ContinuityUnknown
from orchestral_temporal.temporal.failures import StartRefused
from orchestral_temporal.temporal.watch import OUTAGES

T = TypeVar("T")

GOOD: Final = 0
NOT_READY: Final = 1
"""`doctor` found something to mend."""
INCOMPLETE: Final = 2
CANCELLED: Final = 3
FAILED: Final = 4
UNKNOWN: Final = 5
USAGE: Final = 64
FAULT: Final = 70
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""As a shell says it of a program whose reader went away."""

STOP_SECONDS: Final = 1.5
"""How long work that a signal has cancelled may wind up: it closes a screen, or a file that is being written."""

ENDINGS: Final = {
    AgentRunStatus.DELIVERED: GOOD,
    AgentRunStatus.INCOMPLETE: INCOMPLETE,
    AgentRunStatus.CANCELLED: CANCELLED,
    AgentRunStatus.FAILED: FAILED,
}
"""The exit code of a command that waited for a run."""

LATER: Final = {AgentRejectionCode.SESSION_CONFLICT, AgentRejectionCode.PROVIDER_UNAVAILABLE}
"""Refusals of a start that was right and may succeed another time; all others are a matter of its words."""

_REFUSALS: Final = {
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.INVALID_ARGUMENT,
}


@dataclass(frozen=True)
class Complaint:
    """What a person reads of an error: the sentence, perhaps what to do, and the exit code."""

    code: int
    sentence: str
    hint: str | None = None


def refused_code(rejection: str) -> int:
    """The exit code of a refused start."""
    return FAILED if rejection in LATER else USAGE


def complaint(error: BaseException) -> Complaint:  # noqa: PLR0911 -- a table: an error a row
    """An error in the words of the person who meets it."""
    match error:
        case SettingsError():
            return Complaint(USAGE, str(error))
        case ConnectionFailed():
            return Complaint(USAGE, str(error), error.hint)
        case StartRefused():
            return Complaint(refused_code(error.rejection.code), error.rejection.message)
        case ProtocolError():
            return Complaint(USAGE, error.message)
        case ContinuityUnknown():
            return Complaint(UNKNOWN, str(error), "Ask again with `orchestral inspect`, or see `orchestral doctor`.")
        case RPCError() if error.status in OUTAGES:
            return Complaint(UNKNOWN, "The server does not answer any more.", "Runs go on when it is back.")
        case RPCError() if error.status is RPCStatusCode.NOT_FOUND:
            return Complaint(USAGE, "There is no such run.", "`orchestral list` shows the runs there are.")
        case RPCError() if error.status in _REFUSALS:
            hint = "`orchestral doctor` says what is missing; `orchestral setup` registers search attributes."
            return Complaint(USAGE, f"The server refuses: {error.message.rstrip('.')}.", hint)
        case _:
            said = str(error).partition("\n")[0]
            sentence = f"Something went wrong inside: {type(error).__name__}{f': {said}' if said else ''}."
            return Complaint(FAULT, sentence, "The same command with --debug shows where; please report it.")


def complain(told: Complaint) -> None:
    """Write a complaint to standard error."""
    with suppress(OSError):
        print(f"Error: {told.sentence}", file=sys.stderr)  # noqa: T201 -- the face of the program
        if told.hint is not None:
            print(f"Hint: {told.hint}", file=sys.stderr)  # noqa: T201 -- as above


def leave(code: int) -> NoReturn:
    """Flush and end the process at once: the SDK's threads can crash an interpreter that ends in peace (fact 9.10)."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or BROKEN_PIPE
    os._exit(code)


def conclude(work: Coroutine[None, None, int], *, debug: bool = False) -> NoReturn:
    """Carry out the work of a process and leave with its exit code; an error becomes a complaint.

    The first SIGINT or SIGTERM cancels the work, which is over within `STOP_SECONDS` then, whatever it hangs in; the
    second one ends it at once. Work that has other plans takes the first one for itself (`stop_signals`).

    Args:
        work: Returns the exit code. Whatever it opened is closed when the process ends.
        debug: Whether to show an error's traceback as well.
    """
    listen()
    try:
        code = asyncio.run(_heeding(work))
    except asyncio.CancelledError:
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 -- the last resort before a person would see a traceback
        if debug:
            traceback.print_exc()
        told = complaint(error)
        complain(told)
        code = told.code
    leave(code)


async def _heeding(work: Coroutine[None, None, int]) -> int:
    """Work that a signal cancels."""
    loop, here = asyncio.get_running_loop(), asyncio.current_task()
    assert here is not None
    told: list[int] = []

    def cancel(number: int) -> None:
        told.append(number)
        loop.call_soon_threadsafe(here.cancel)

    with hearing(cancel, seconds=STOP_SECONDS):
        try:
            return await work
        except asyncio.CancelledError:
            if not told:
                raise
            return 128 + told[0]


async def first_of(*works: Awaitable[T]) -> T:
    """The result of what is done first; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class Stop(asyncio.Event):
    """Set when the process was asked to stop; `number` is the signal that did."""

    number: int = 0

    def hear(self, number: int) -> None:
        """This signal came."""
        self.number = number
        self.set()


@contextmanager
def stop_signals() -> Generator[Stop]:
    """An event that the first SIGINT or SIGTERM sets; the second one ends the process where it stands.

    Even then nothing of ours is left: the watchdog ends the server, and runs are Temporal's.
    """
    loop, asked = asyncio.get_running_loop(), Stop()
    with hearing(lambda number: loop.call_soon_threadsafe(asked.hear, number)):
        yield asked
