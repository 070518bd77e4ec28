"""What happened outside of any workflow, on disk: effects, model calls, and the places where a worker is killed.

All of it stands in the working directory, which belongs to one run. A place is armed by a file that whoever comes by
takes away before it kills its own process with SIGKILL, so that the next one passes. Nobody ever comes by `NOWHERE`.
"""

import os
import signal
from pathlib import Path
from typing import Final

TOOL: Final = "pay"
TASK: Final = "Pay the bill."
INSTRUCTIONS: Final = "Pay what you are asked to pay, once."
RECEIPT: Final = "The bill is paid."
ANSWER: Final = "Paid."

QUEUE_OF_RUN: Final = "kill-{}"
"""The task queue of one run, by its id: no worker serves two."""

WORKFLOW: Final = "Pay"
"""The type of every workflow here but ours; started with how often the tool may be tried, 0 for no limit."""

NOWHERE: Final = "nowhere"
ARRIVAL: Final = "before the tool"
BEFORE: Final = "before the effect"
AFTER: Final = "after the effect"
MODEL: Final = "in the next model call"

_EFFECTS: Final = "effects"
_MODEL_CALLS: Final = "model-calls"


def pay() -> str:
    """The tool: one more line in the ledger each time, which is on disk before anybody hears of it."""
    _meet(BEFORE)
    _record(_EFFECTS)
    _meet(AFTER)
    return RECEIPT


def arrived() -> None:
    """A call of the tool is in this process; nothing of the tool has run."""
    _meet(ARRIVAL)


def asked(*, again: bool) -> None:
    """The model is asked; `again` if the tool has answered before."""
    _record(_MODEL_CALLS)
    if again:
        _meet(MODEL)


def arm(folder: Path, place: str) -> None:
    """Let the first process die that comes to this place."""
    _trap(folder, place).touch()


def ready() -> None:
    """Say that this process can serve."""
    _readiness(Path(), os.getpid()).touch()


def is_ready(folder: Path, pid: int) -> bool:
    """Whether that process has said so."""
    return _readiness(folder, pid).exists()


def effects(folder: Path) -> int:
    """How often the tool had its effect."""
    return _lines(folder / _EFFECTS)


def model_calls(folder: Path) -> int:
    """How often the model was asked."""
    return _lines(folder / _MODEL_CALLS)


def _meet(place: str) -> None:
    try:
        _trap(Path(), place).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _trap(folder: Path, place: str) -> Path:
    return folder / f"kill {place}"


def _readiness(folder: Path, pid: int) -> Path:
    return folder / f"ready {pid}"


def _record(name: str) -> None:
    with Path(name).open("ab") as file:
        file.write(b"once\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(file: Path) -> int:
    return len(file.read_bytes().splitlines()) if file.exists() else 0
