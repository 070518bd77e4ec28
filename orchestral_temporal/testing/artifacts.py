"""An artifact store in memory; it passes the contract of the real one."""

import hashlib


class MemoryArtifacts:
    """An artifact store that forgets with its process."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        """Keep bytes under their digest."""
        digest = hashlib.sha256(data).hexdigest()
        self._kept[digest] = data
        return digest

    async def get(self, digest: str) -> bytes:
        """Read them back.

        Raises:
            KeyError: nothing is stored under that digest.
        """
        return self._kept[digest]
