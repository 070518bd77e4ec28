"""When a blocking piece of work has to stop."""

import threading
import time
from datetime import timedelta

from orchestral_temporal.ports import ToolCall, ToolFailed

_SHARE = 0.9
"""Part of the call's time that the work may use, so that its partial answer comes before the guard gives up."""


class Abandoned(Exception):  # noqa: N818 -- nobody waits for the work any more: no error of anybody
    """The call was cancelled: whoever did the work may drop it."""


class Watch:
    """Asked often by work in a thread; `abandon` is called from the event loop."""

    def __init__(self, call: ToolCall, limit: timedelta) -> None:
        allowed = limit if call.timeout is None else min(limit, call.timeout * _SHARE)
        self._deadline = time.monotonic() + allowed.total_seconds()
        self._should_yield = call.should_yield
        self._abandoned = threading.Event()

    def abandon(self) -> None:
        """Let the work end at its next look."""
        self._abandoned.set()

    def look(self) -> None:
        """Raise `Abandoned` if nobody waits for the result."""
        if self._abandoned.is_set():
            raise Abandoned

    def check(self) -> None:
        """Let work with effects go on towards its effect, which nobody can ask it to return without.

        Raises:
            Abandoned: nobody waits for the result.
            ToolFailed: the time is up (`timeout`).
        """
        self.look()
        if time.monotonic() >= self._deadline:
            raise ToolFailed("timeout", "The time was up before anything was changed.")

    def expired(self) -> bool:
        """Whether to return what there is: the time is up, or somebody asked for it.

        Raises:
            Abandoned: nobody waits for the result.
        """
        self.look()
        return time.monotonic() >= self._deadline or self._should_yield()
