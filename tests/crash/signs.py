"""Files by which the processes of a crash test say where they are, and by which the test holds them there.

A place is a point of the work that has a name: `tool-v1`, `model-2`. Who comes by leaves a line, so the lines count how
often the work was started; who comes to a place that is held waits until the test releases it, or kills the process.
"""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

PAUSE: Final = 0.01


class Signs:
    """The signs in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, name: str, line: str) -> None:
        """Add a line; short ones of several processes do not mix."""
        with (self._folder / name).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def notes(self, name: str) -> list[str]:
        """The lines so far."""
        file = self._folder / name
        return file.read_text("utf-8").splitlines() if file.exists() else []

    def hold(self, place: str) -> None:
        """Let nobody pass any more."""
        self._held(place).touch()

    def release(self, place: str) -> None:
        """Let everybody pass again."""
        self._held(place).unlink(missing_ok=True)

    def arrivals(self, place: str) -> list[int]:
        """The processes that came by, by id, in order."""
        return [int(each) for each in self.notes(f"at-{place}")]

    async def passing(self, place: str) -> None:
        """Say that this process is here; wait as long as the place is held."""
        self.note(f"at-{place}", str(os.getpid()))
        while self._held(place).exists():  # noqa: ASYNC110 -- what another process does sets no event of ours
            await asyncio.sleep(PAUSE)

    def passing_here(self, place: str) -> str:
        """As `passing`, in a thread that may be held up."""
        self.note(f"at-{place}", str(os.getpid()))
        while self._held(place).exists():
            time.sleep(PAUSE)
        return place

    def _held(self, place: str) -> Path:
        return self._folder / f"held-{place}"


def end_with_parent() -> None:
    """End this process when the one that holds the other end of its standard input is gone."""

    def watch() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
