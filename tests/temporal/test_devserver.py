"""The embedded server: it never outlives its owner, is never two, keeps its runs, and says in words why it cannot."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from orchestral_temporal.hosting import watchdog
from orchestral_temporal.hosting.connection import Answer, ConnectionFailed, connect, probe, resolve_target
from orchestral_temporal.hosting.devserver import DevServerFailed, dev_server
from orchestral_temporal.hosting.loading import load_settings
from orchestral_temporal.hosting.locks import Lock, runtime_folder
from orchestral_temporal.hosting.namespace import check
from orchestral_temporal.hosting.settings import TemporalSettings

ROOT = Path(__file__).parents[2]

OWNER = """
import asyncio, os, signal, sys
from pathlib import Path
from orchestral_temporal.hosting.connection import probe, resolve_target
from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.loading import load_settings

async def main():
    settings = load_settings(Path(sys.argv[1])).temporal
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    async with dev_server(settings) as server:
        print(server.started, server.pid, flush=True)
        await stop.wait()
        print((await probe(resolve_target(settings))).name, flush=True)

asyncio.run(main())
print("left", flush=True)
os._exit(0)
"""
"""A process that owns a server until SIGINT; then it says what still answers, and leaves in order."""


async def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 -- what another process does sets no event of ours
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def parent_of(pid: int) -> int:
    """The process that started another one."""
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)


def file_of(folder: Path, port: int, server: str = "ui_port: false") -> Path:
    """A settings file for a server of one's own."""
    path = folder / f"{port}.yaml"
    path.write_text(
        f"temporal: {{address: '127.0.0.1:{port}', namespace: shop, server: {{{server}}}}}\nagents: {{a: {{}}}}\n"
    )
    return path


def settings_of(folder: Path, port: int, server: str = "ui_port: false") -> TemporalSettings:
    """The same, read."""
    return load_settings(file_of(folder, port, server)).temporal


@asynccontextmanager
async def owner(file: Path) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process of its own terminal session that owns a server; killed at the end if it is still there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(file), stdout=-1, stderr=-1, cwd=ROOT, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: asyncio.subprocess.Process) -> list[str]:
    """The next line of a process, in words."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().split()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("server", ["ui_port: false", "ui_port: false, db: t.db"])
async def test_a_killed_owner_takes_its_server_along(tmp_path: Path, free_port: int, server: str) -> None:
    """After SIGKILL of the process that started it, the server is gone, with or without a database."""
    async with owner(file_of(tmp_path, free_port, server)) as process:
        started, pid = await said(process)
        assert started == "True"
        assert alive(int(pid))
        process.kill()
        await until(lambda: not alive(int(pid)))


@pytest.mark.usefixtures("alone")
async def test_an_owner_killed_while_it_starts_leaves_nothing(tmp_path: Path, free_port: int) -> None:
    """The locks, which watchdog and server inherit, are free again after SIGKILL in the middle of a start."""
    log = tmp_path / "t.db.log"
    async with owner(file_of(tmp_path, free_port, "ui_port: false, db: t.db")) as process:
        await until(log.exists)
        process.kill()
        await process.wait()
        with Lock(tmp_path / "t.db.lock") as lock:
            await until(lock.take)
    assert await probe(resolve_target(settings_of(tmp_path, free_port))) is Answer.NOTHING


@pytest.mark.usefixtures("alone")
async def test_ctrl_c_reaches_the_owner_first(tmp_path: Path, free_port: int) -> None:
    """SIGINT to the whole terminal session leaves the server up until its owner ends it."""
    async with owner(file_of(tmp_path, free_port)) as process:
        _, pid = await said(process)
        os.killpg(process.pid, signal.SIGINT)
        assert await said(process) == ["TEMPORAL"]
        assert await said(process) == ["left"]
        assert not alive(int(pid))


@pytest.mark.usefixtures("alone")
async def test_of_three_that_come_at_once_one_starts_and_all_have_a_server(tmp_path: Path, free_port: int) -> None:
    """Exactly one server for one database and address; a late one takes over when the first owner was killed."""
    file = file_of(tmp_path, free_port, "ui_port: false, db: t.db")
    async with owner(file) as one, owner(file) as two, owner(file) as three:
        processes = [one, two, three]
        answers = await asyncio.gather(*map(said, processes))
        assert sorted(started for started, _ in answers) == ["False", "False", "True"]
        first = next(process for process, (started, _) in zip(processes, answers, strict=True) if started == "True")
        first.kill()
        await until(lambda: (tmp_path / "t.db.lock").read_bytes() == b"")  # the watchdog knows
        async with dev_server(load_settings(file).temporal) as server:
            assert server.started


@pytest.mark.usefixtures("alone")
async def test_a_restart_on_the_same_file_keeps_namespace_and_runs(tmp_path: Path, free_port: int) -> None:
    """Runs, retention and search attributes outlive an orderly stop and a SIGKILL of the server."""
    (tmp_path / "a#b %41?").mkdir()  # the folder's name must not matter to a server that reads paths as URLs
    settings = settings_of(tmp_path / "a#b %41?", free_port, "ui_port: false, db: t.db, retention: 240h")
    for n in range(3):
        async with dev_server(settings) as server:
            assert server.pid is not None
            client = await connect(settings)
            state = await check(client, "shop")
            assert state.ready
            assert state.retention == settings.server.retention
            if n == 0:
                await client.start_workflow("AgentRun", id="r1", task_queue="nobody")
            if n == 1:
                os.kill(server.pid, signal.SIGKILL)
                await until(lambda pid=server.pid: not alive(pid))
            if n != 1:
                description = await client.get_workflow_handle("r1").describe()
                assert description.status is WorkflowExecutionStatus.RUNNING


@pytest.mark.usefixtures("alone")
async def test_a_server_without_its_watchdog_is_still_ended(tmp_path: Path, free_port: int) -> None:
    """If somebody kills the watchdog, leaving the block ends the server all the same."""
    async with dev_server(settings_of(tmp_path, free_port)) as server:
        assert server.pid is not None
        guard = parent_of(server.pid)
        os.kill(guard, signal.SIGKILL)
    await until(lambda: not alive(server.pid or 0))


@pytest.mark.parametrize("how", ["close", "signal"])
async def test_the_watchdog_kills_what_does_not_listen(tmp_path: Path, how: str) -> None:
    """A command that ignores SIGTERM is gone after the grace, whether the pipe ends or the watchdog is told."""
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    with Lock(tmp_path / "lock") as lock, (tmp_path / "out").open("wb") as out:
        assert lock.take()
        os.write(lock.fd, b"words")
        command = [sys.executable, "-I", "-S", watchdog.__file__, "0.1", str(lock.fd), "sh", "-c", stubborn]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=out, pass_fds=[lock.fd]) as guard:  # noqa: ASYNC220 -- a process that asyncio would kill by itself
            assert guard.stdin is not None
            assert guard.stdout is not None
            pid = int(guard.stdout.readline())
            await until(lambda: (tmp_path / "out").read_bytes() == b"ready\n")
            if how == "signal":
                guard.send_signal(signal.SIGTERM)
                await until(lambda: guard.poll() is not None)
        assert not alive(pid)
        assert (tmp_path / "lock").read_bytes() == b""


@pytest.mark.usefixtures("alone")
async def test_a_database_that_is_served_elsewhere_is_named(
    tmp_path: Path, free_port: int, temporal_settings: TemporalSettings
) -> None:
    """The same file at another address is refused with the address to use; two servers would ruin it."""
    settings = settings_of(tmp_path, free_port, "ui_port: false, db: t.db")
    elsewhere = settings.model_copy(update={"address": temporal_settings.address})
    async with dev_server(settings):
        with pytest.raises(DevServerFailed, match=rf"t\.db\.lock is served at 127\.0\.0\.1:{free_port} already"):
            await dev_server(elsewhere.model_copy(update={"address": "127.0.0.1:1"})).__aenter__()


@pytest.mark.usefixtures("alone")
async def test_a_port_of_something_else_is_refused(tmp_path: Path) -> None:
    """What listens but is no Temporal server is told from one that starts, and nothing is started beside it."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as stranger:
        settings = settings_of(tmp_path, stranger.sockets[0].getsockname()[1])
        with pytest.raises(DevServerFailed, match="not Temporal listens") as caught:
            await dev_server(settings).__aenter__()
        assert caught.value.hint == "End it, or set another temporal.address."
        with pytest.raises(ConnectionFailed, match="is no Temporal server that we can speak to"):
            await connect(settings)


@pytest.mark.usefixtures("alone")
async def test_a_server_that_cannot_start_is_quoted(tmp_path: Path, free_port: int) -> None:
    """The last lines of its log are in the error, and the locks are free again."""
    (tmp_path / "t.db").write_bytes(b"this is no database at all" * 200)
    settings = settings_of(tmp_path, free_port, "ui_port: false, db: t.db")
    with pytest.raises(DevServerFailed, match=r"ended at once: .*file is not a database") as caught:
        await dev_server(settings).__aenter__()
    assert str(tmp_path / "t.db.log") in caught.value.hint
    with Lock(tmp_path / "t.db.lock") as lock:
        assert lock.take()


@pytest.mark.usefixtures("alone")
async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, free_port: int) -> None:
    """A database below a file, and a log that is a folder, are refused before anything is started."""
    (tmp_path / "file").touch()
    (tmp_path / "t.db.log").mkdir()
    for db, message in (("file/t.db", "file: File exists"), ("t.db", r"t\.db\.log: Is a directory")):
        settings = settings_of(tmp_path, free_port, f"ui_port: false, db: {db}")
        with pytest.raises(DevServerFailed, match=rf"cannot use .*{message}"):
            await dev_server(settings).__aenter__()


@pytest.mark.usefixtures("alone")
async def test_a_taken_ui_port_is_replaced_and_said(tmp_path: Path, free_port: int) -> None:
    """The UI comes up on another port, and the notice names both."""
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as other:
        taken = other.sockets[0].getsockname()[1]
        async with dev_server(settings_of(tmp_path, free_port, f"ui_port: {taken}")) as server:
            assert server.ui_url is not None
            port = int(server.ui_url.rpartition(":")[2])
            assert server.notices == (f"Port {taken} is taken, so the UI is at port {port}.",)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()


async def test_a_server_that_is_there_is_used(client: Client, temporal_settings: TemporalSettings) -> None:
    """A second block at the same address starts nothing, and ends nothing when it is left."""
    async with dev_server(temporal_settings) as again:
        assert not again.started
        assert again.address == temporal_settings.address
    assert (await check(client, "default")).ready


async def test_a_server_of_a_stranger_is_used_too(
    client: Client, temporal_settings: TemporalSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Temporal server that none of our locks speaks of is used as it is, and its UI is not guessed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with dev_server(temporal_settings) as found:
        assert (found.started, found.ui_url) == (False, None)
    assert (await check(client, "default")).ready


async def test_a_server_without_our_namespace_is_refused(client: Client, temporal_settings: TemporalSettings) -> None:
    """The error names the namespace and the command that creates it; nothing is created behind one's back."""
    other = temporal_settings.model_copy(update={"namespace": "nowhere"})
    with pytest.raises(ConnectionFailed, match="has no namespace nowhere") as caught:
        await dev_server(other).__aenter__()
    assert "`orchestral setup --namespace nowhere`" in caught.value.hint
    assert not (await check(client, "nowhere")).exists


def test_the_folder_of_the_locks_is_ours_alone(alone: Path) -> None:
    """Locks that belong to no database lie in a folder that nobody else may enter."""
    assert runtime_folder().parent == alone
    assert runtime_folder().stat().st_mode & 0o077 == 0
