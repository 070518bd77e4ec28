"""File locks that say who serves an address or a database, and where."""

import errno
import fcntl
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Record:
    """What a holder tells the others once its server can be used."""

    address: str
    ui_url: str | None


class Lock:
    """An advisory lock on a file; it is free when every process that inherited the descriptor has let go."""

    def __init__(self, path: Path) -> None:
        # No link is followed: the folder for temporary files belongs to everybody.
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def take(self) -> bool:
        """Take the lock, and wipe what an earlier holder said; false if somebody has it."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.ftruncate(self.fd, 0)
        return True

    def publish(self, record: Record) -> None:
        """Tell the others; only the holder may."""
        os.pwrite(self.fd, json.dumps(asdict(record)).encode(), 0)

    def read(self) -> Record | None:
        """What the holder says; none as long as its server cannot be used yet, or not any more."""
        with suppress(ValueError, TypeError):
            return Record(**json.loads(os.pread(self.fd, 4096, 0)))
        return None


def runtime_folder() -> Path:
    """A folder of this user for locks and logs that belong to no database.

    Raises:
        PermissionError: somebody else made it.
    """
    folder = Path(tempfile.gettempdir()) / f"orchestral-temporal-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "another user owns it", str(folder))
    return folder
