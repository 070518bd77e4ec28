"""Virtual time: processes are generators that yield how many milliseconds they sleep; nothing else passes time."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

Process = Iterator[int]
"""Something that goes on in the world; each value it yields is a pause in milliseconds."""


class Clock:
    """What will happen, in order of time, and at the same time in order of announcement."""

    def __init__(self) -> None:
        self.now = 0
        self._numbers = count()
        self._queue: list[tuple[int, int, Process]] = []

    def spawn(self, process: Process, after: int = 0) -> None:
        """Let a process begin after a pause."""
        heappush(self._queue, (self.now + after, next(self._numbers), process))

    def tick(self) -> bool:
        """Let the next process go on until it pauses; false when nothing is left to happen."""
        if not self._queue:
            return False
        self.now, _, process = heappop(self._queue)
        pause = next(process, None)
        if pause is not None:
            self.spawn(process, pause)
        return True
