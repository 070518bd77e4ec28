"""The artifact store as those see it who hold what nobody else has: an outcome, a turn that was paid for."""

import math

from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.temporal.answering import UnavailableError, answered


class PatientStore:
    """A store whose `put` is asked again until it answers, or for `patience` seconds."""

    def __init__(self, store: ArtifactStore, patience: float = math.inf) -> None:
        self._store = store
        self._patience = patience

    async def put(self, data: bytes) -> str:
        """Store bytes, return their digest.

        Raises:
            UnavailableError: no more patience is left.
        """

        async def ask() -> str:
            try:
                return await self._store.put(data)
            except Exception as fault:
                raise UnavailableError("artifact store", fault) from fault

        return await answered(ask, self._patience)

    async def get(self, digest: str) -> bytes:
        """Read bytes back; as the store."""
        return await self._store.get(digest)
