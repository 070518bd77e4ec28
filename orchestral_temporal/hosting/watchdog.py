"""Runs one command and ends it when the process that asked for it is gone, however that process went.

Run as a script, with the standard library only, so that it starts in milliseconds and needs nothing importable:
`python -I -S watchdog.py GRACE COMMAND…`. Standard input is a pipe whose write end the parent alone holds: its end, by
a close or by any kind of death, means SIGTERM for the command and, GRACE seconds later, SIGKILL. A signal to this
process means the same. The first line on standard output is the command's process id; its own output goes to our
standard error. It inherits every descriptor that we were passed, so a file lock lasts exactly as long as the command.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Final

_ASKED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _await_parent(over: threading.Event) -> None:
    while os.read(0, 1):
        pass
    over.set()


def _end(over: threading.Event, process: subprocess.Popen[bytes], grace: float) -> None:
    over.wait()
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()


def main(grace: float, command: list[str]) -> int:
    """Run the command to its end and return its exit code, negative for a signal."""
    over = threading.Event()

    def finish(_number: int, _frame: FrameType | None) -> None:
        over.set()

    for number in _ASKED:
        signal.signal(number, finish)
    threading.Thread(target=_await_parent, args=(over,), daemon=True).start()
    # The parent chose the command, and no descriptor is closed so that its locks pass on.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, close_fds=False)  # noqa: S603
    threading.Thread(target=_end, args=(over, process, grace), daemon=True).start()
    with suppress(BrokenPipeError):  # the parent may be gone by now, which the pipe has told us already
        os.write(1, b"%d\n" % process.pid)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
