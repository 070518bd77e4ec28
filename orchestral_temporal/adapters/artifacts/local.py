"""Artifacts in a local directory: one file for each digest, there as a whole or not at all."""

import asyncio
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

_SPREAD: Final = 2
"""Leading digits that name a folder: 256 folders keep each listing short for a million artifacts."""


class LocalArtifacts:
    """A content-addressed store below `folder`, which is made with the first artifact.

    Several processes may share it. A file has its final name only once its bytes are on the disk, so that a crash at
    any moment leaves whole artifacts, and at worst a temporary file that nobody reads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, data: bytes) -> str:
        """Store bytes durably and return their lower-case hex SHA-256; bytes that are there already cost a look.

        Raises:
            OSError: the folder cannot be written to.
        """
        return await asyncio.to_thread(self._put, data)

    async def get(self, digest: str) -> bytes:
        """Read bytes back.

        Raises:
            KeyError: nothing is stored under that digest, or what lies there are other bytes.
            OSError: the file cannot be read.
        """
        data = await asyncio.to_thread(self._get, digest)
        if data is None:
            raise KeyError(digest)
        return data

    def _put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if self._get(digest) is None:
            _write(self._path(digest), data)
        return digest

    def _get(self, digest: str) -> bytes | None:
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:_SPREAD] / digest[_SPREAD:]


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    for folder in path.parents[:3]:  # a new name, perhaps a new folder for it, perhaps a new store
        _sync(folder)


def _sync(folder: Path) -> None:
    """Make new names in a folder durable, not only the bytes behind them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
