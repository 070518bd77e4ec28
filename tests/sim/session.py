"""The session's entity: takes batches in order, late, or never."""

from typing import TYPE_CHECKING

from orchestral_temporal.core.inputs import BatchAppended, BatchRefused
from orchestral_temporal.protocol.activities import PendingRecord, SessionAppend, SessionAppended
from tests.sim.clock import Process
from tests.sim.law import require

if TYPE_CHECKING:
    from tests.sim.world import World


class Entity:
    """Where the session's journal stands; `held` is what this run has put there."""

    def __init__(self, world: "World") -> None:
        self._world = world
        opened = world.setting.opened
        self._head = opened.head
        self._last_seq = opened.last_seq
        self._number = 0
        self.held: list[PendingRecord] = []
        self.closed = False
        self.refused = False

    def append(self, batch: SessionAppend) -> Process:
        """Take a batch if it follows, and say so sooner or later."""
        law = "divergence 28, decision 2"
        require(not self.closed, law, "a batch comes after the run's part was closed")
        require(batch.number == self._number + 1, law, f"batch {batch.number} follows batch {self._number}")
        require(batch.expected_head == self._head, law, f"batch {batch.number} expects another head")
        require(batch.first_seq == self._last_seq + 1, law, f"batch {batch.number} begins at another place")
        if self._world.chance(self._world.setting.session_faults):
            self.refused = True
            self._world.bring(BatchRefused(batch.number, "the session is gone"))
            return
        self._number = batch.number
        self._last_seq += len(batch.records)
        self._head = f"h{self._last_seq}"
        self.held.extend(batch.records)
        self.closed = batch.close
        yield self._world.pause()
        self._world.deliver(BatchAppended(batch.number, SessionAppended(head=self._head, last_seq=self._last_seq)))
