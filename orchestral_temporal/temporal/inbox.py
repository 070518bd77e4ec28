"""What has arrived for a run and waits to be read: in order, a slice in each workflow task (C3, F034).

A worker may find thousands of signals in one workflow task, and a task that computes for two seconds is taken for a
deadlock. So what a task brings beyond a slice is only kept, and waits for a task of its own.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from temporalio.common import RawValue

from orchestral_temporal.protocol.commands import AgentCommandEnvelope

SLICE: Final = 250
"""Commands read in one workflow task: half a second at the end of a run of ten thousand."""

PAUSE: Final = 0.001
"""Seconds of the timer that asks for the next task."""

Arrived = AgentCommandEnvelope | tuple[str, Sequence[RawValue]]
"""A command that was read already, or a signal by its name."""


class Inbox:
    """Lives inside one workflow."""

    def __init__(self) -> None:
        self._waiting: deque[Arrived] = deque()
        self._put = 0
        self._read = 0
        self._resting = False

    def admits(self) -> bool:
        """Whether the next one may be read as it arrives; it counts then."""
        if self._waiting or self._read >= SLICE:
            return False
        self._read += 1
        return True

    def put(self, arrived: Arrived) -> int:
        """Keep what has arrived; the answer is its ticket."""
        self._waiting.append(arrived)
        self._put += 1
        return self._put

    def taken(self, ticket: int) -> bool:
        """Whether what got the ticket was read."""
        return ticket <= self._put - len(self._waiting)

    @property
    def empty(self) -> bool:
        """Whether all was read."""
        return not self._waiting

    @property
    def ready(self) -> bool:
        """Whether there is something that may be read now."""
        return bool(self._waiting) and not self._resting

    def rest(self) -> Iterator[Arrived]:
        """What else may be read in this task; a timer asks for another one if that is not all."""
        if self._resting:
            return
        for _ in range(min(SLICE - self._read, len(self._waiting))):
            yield self._waiting.popleft()
        self._read = 0
        if self._waiting:
            self._resting = True
            asyncio.get_running_loop().call_later(PAUSE, self._rested)

    def _rested(self) -> None:
        self._resting = False
