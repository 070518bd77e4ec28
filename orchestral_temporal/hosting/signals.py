"""SIGINT and SIGTERM, heard whatever the process is busy with; loads nothing, since it is wanted before all else."""

import os
import select
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Final

STOPS: Final = (signal.SIGINT, signal.SIGTERM)
"""What tells a process to stop: Ctrl-C, and whoever keeps services."""


@dataclass
class _Hearer:
    first: Callable[[int], object]
    seconds: float | None
    told: bool = False


_hearers: Final[list[_Hearer]] = []


@cache  # once in a process
def listen() -> None:
    """From now on the first of the signals ends the process, with the exit code of a shell, unless somebody `hears`.

    A thread hears them, since the main thread may not: it is stuck in a write that nobody reads, or it waits and a
    thread of the SDK got the signal; the KeyboardInterrupt that Python would raise becomes another error in C code that
    loads a module, and is lost in clean-up code. And what a script starts in the background ignores SIGINT from birth,
    which is not what its sender wants.
    """
    ears, mouth = os.pipe()
    os.set_blocking(mouth, False)
    signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    for number in STOPS:
        signal.signal(number, _noted)  # Python writes to the pipe only where it has a handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    threading.Thread(target=_attend, args=(ears,), daemon=True).start()


@contextmanager
def hearing(first: Callable[[int], object], *, seconds: float | None = None) -> Generator[None]:
    """Take the first signal for oneself; the second one ends the process, or `seconds` after the first, where given.

    That end is at once and flushes nothing: whatever keeps the process could keep that as well.

    Args:
        first: Is called with the signal's number, in another thread.
        seconds: How long the process has left then.
    """
    hearer = _Hearer(first, seconds)
    _hearers.append(hearer)
    try:
        yield
    finally:
        _hearers.remove(hearer)


def _noted(_number: int, _frame: FrameType | None) -> None:
    pass


def _attend(ears: int) -> None:
    number, left = int(signal.SIGINT), None
    while select.select([ears], [], [], left)[0]:
        number = os.read(ears, 1)[0]
        hearer = _hearers[-1] if _hearers else None
        if hearer is None or hearer.told:
            break
        hearer.told, left = True, hearer.seconds
        try:
            hearer.first(number)
        except RuntimeError:  # its event loop has just closed
            break
    os._exit(128 + number)
