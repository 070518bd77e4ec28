"""Runs one command and ends it when the process that asked for it is gone, however that process went.

Run as a script, with the standard library only, so that it starts in milliseconds and needs nothing importable:
`python -I -S watchdog.py GRACE LOCKS COMMAND…`. Standard input is a pipe whose write end the parent alone holds: its
end, by a close or by any kind of death, means SIGTERM for the command and, GRACE seconds later, SIGKILL. A signal to
this process means the same. The first line on standard output is the command's process id; its own output goes to our
standard error. LOCKS are descriptors of locked files, with commas: the command inherits them, so that the locks last
exactly as long as it lives, and they are emptied when it goes or has to, so that nobody counts on it any more.
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


def _wipe(locks: list[int]) -> None:
    for lock in locks:
        os.ftruncate(lock, 0)


def _end(over: threading.Event, process: subprocess.Popen[bytes], grace: float, locks: list[int]) -> None:
    over.wait()
    _wipe(locks)
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()


def main(grace: float, locks: list[int], command: list[str]) -> int:
    """Run the command to its end and return its exit code, negative for a signal."""
    over = threading.Event()

    def finish(_number: int, _frame: FrameType | None) -> None:
        over.set()

    for number in _ASKED:
        signal.signal(number, finish)
    threading.Thread(target=_await_parent, args=(over,), daemon=True).start()
    process = subprocess.Popen(  # noqa: S603 -- the parent chose the command
        command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, pass_fds=locks
    )
    threading.Thread(target=_end, args=(over, process, grace, locks), daemon=True).start()
    with suppress(BrokenPipeError):  # the parent may be gone by now, which the pipe has told us already
        os.write(1, b"%d\n" % process.pid)
    code = process.wait()
    _wipe(locks)
    return code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), [int(each) for each in sys.argv[2].split(",")], sys.argv[3:]))
