"""The work that every contender does: so many rounds of one model call and one tool call, then an answer."""

import re
from dataclasses import dataclass
from typing import Any, Final, Protocol

from temporalio.client import WorkflowHandle

INSTRUCTIONS: Final = "Look up the pages that you are asked for, one after another, and then say that you are done."

TOOL: Final = "lookup"

ANSWER: Final = "All pages are looked up."

_TASK: Final = re.compile(r"Look up (\d+) pages of (\d+) bytes\.")


@dataclass(frozen=True)
class Load:
    """`rounds` of a model call and a tool call, whose result has `size` bytes."""

    rounds: int
    size: int

    @property
    def task(self) -> str:
        """The task as a person would give it; the stub models read it back."""
        return f"Look up {self.rounds} pages of {self.size} bytes."


def read_task(text: str) -> Load:
    """The load that a task asks for.

    Raises:
        ValueError: the text is no task of ours.
    """
    found = _TASK.search(text)
    if found is None:
        message = f"{text[:80]!r} is no task of this benchmark."
        raise ValueError(message)
    return Load(int(found[1]), int(found[2]))


def page(number: int, size: int) -> str:
    """What the tool answers: `size` bytes of text, other ones for each number."""
    line = f"Page {number}, and this line is on it again and again. "
    return (line * (size // len(line) + 1))[:size]


class Contender(Protocol):
    """One way to run the work on a Temporal server."""

    name: str
    model_activity: str
    """Part of the name of the activity type that calls the model, once a round."""

    async def start(self, load: Load, run_id: str) -> WorkflowHandle[Any, Any]:
        """Start a run and return its handle at once."""
        ...
