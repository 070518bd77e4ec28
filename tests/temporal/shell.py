"""`orchestral` as a process: what a person types, what they see, and what is left when it has ended."""

import asyncio
import json
import os
import signal
import sys
import termios
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestral_temporal.protocol.base import JsonObject
from tests.temporal.world import until

ROOT = Path(__file__).parents[2]

DEAF = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Put before a command: it begins with SIGINT ignored, as what a script starts in the background."""


@dataclass(frozen=True)
class Printed:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[JsonObject]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Running:
    """A command that runs, in a process group of its own as on a terminal."""

    process: Process
    seen: list[str] = field(default_factory=list)

    async def says(self, *words: str) -> None:
        """Wait until standard error has said this."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while not all(word in "".join(self.seen) for word in words):
                line = await self.process.stderr.readline()
                if not line:
                    raise AssertionError(f"It ended without saying {words}: {''.join(self.seen)}")
                self.seen.append(line.decode())

    async def prints(self, word: str) -> str:
        """Wait until standard output holds a line with this, and return the line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            while line := await self.process.stdout.readline():
                if word in line.decode():
                    return line.decode()
        raise AssertionError(f"It ended without printing {word}.")

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """What Ctrl-C does: the signal reaches the whole group."""
        os.killpg(self.process.pid, number)

    async def ended(self) -> Printed:
        """Wait for the end."""
        async with asyncio.timeout(30):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return Printed(self.process.returncode, out.decode(), "".join(self.seen) + err.decode())


OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""Put before a command: the terminal of its standard input becomes its own, so that Ctrl-C is a signal."""

CTRL_C, CTRL_D = "\x03", "\x04"


@dataclass
class Seated:
    """A command at a terminal; its standard output is a pipe."""

    process: Process
    terminal: int
    seen: str = ""
    read: int = 0

    async def shows(self, *words: str) -> None:
        """Wait until the terminal shows these, one after the other, below what was waited for before."""
        for word in words:
            await until(lambda word=word: word in self.seen[self.read :], f"{word!r} below {self.seen!r}")
            self.read = self.seen.index(word, self.read) + len(word)

    def types(self, text: str) -> None:
        """Press these keys."""
        os.write(self.terminal, text.encode())

    async def prints(self, line: str) -> None:
        """Wait for this line of standard output."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            assert (await self.process.stdout.readline()).decode() == f"{line}\n"

    async def ended(self) -> Printed:
        """Wait for the end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            out = await self.process.stdout.read()
            code = await self.process.wait()
        return Printed(code, out.decode(), self.seen)

    def look(self) -> None:
        """Take in what the terminal shows now."""
        with suppress(OSError):  # nobody has it open any more
            self.seen += os.read(self.terminal, 65_536).decode(errors="replace")


@dataclass(frozen=True)
class Shell:
    """A folder and an environment in which commands are typed."""

    folder: Path
    environment: Mapping[str, str]
    before: Sequence[str] = ()

    @asynccontextmanager
    async def start(self, *arguments: str, stdin: bytes | None = None) -> AsyncGenerator[Running]:
        """A command as a process, which does not outlive the block."""
        async with self.begin("-m", "orchestral_temporal", *arguments, stdin=stdin) as running:
            yield running

    @asynccontextmanager
    async def begin(self, *arguments: str, stdin: bytes | None = None) -> AsyncGenerator[Running]:
        """A process of our interpreter, which does not outlive the block."""
        process = await asyncio.create_subprocess_exec(
            *(*self.before, sys.executable, *arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        if stdin is not None:
            process.stdin.write(stdin)
        process.stdin.close()
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    @asynccontextmanager
    async def sit(self, *arguments: str) -> AsyncGenerator[Seated]:
        """A command with a terminal of its own, which does not outlive the block and finds its terminal unchanged."""
        ours, theirs = os.openpty()
        before = termios.tcgetattr(theirs)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OWN_TERMINAL, "-m", "orchestral_temporal", *arguments),
            cwd=self.folder,
            env={**self.environment, "TERM": "xterm"},
            stdin=theirs,
            stdout=PIPE,
            stderr=theirs,
            start_new_session=True,
        )
        seated = Seated(process, ours)
        os.set_blocking(ours, False)
        asyncio.get_running_loop().add_reader(ours, seated.look)
        try:
            yield seated
            assert termios.tcgetattr(theirs) == before
        finally:
            asyncio.get_running_loop().remove_reader(ours)
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(ours)
            os.close(theirs)

    async def run(self, *arguments: str, stdin: bytes | None = None) -> Printed:
        """A command from its start to its end."""
        async with self.start(*arguments, stdin=stdin) as running:
            return await running.ended()

    def write(self, name: str, text: str) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.write_text(text)
        return path


async def offspring(pid: int) -> set[int]:
    """All processes below one, without itself."""
    listed = await asyncio.create_subprocess_exec("ps", "-axo", "pid=,ppid=", stdout=PIPE)
    out, _ = await listed.communicate()
    parents = dict(map(int, line.split()) for line in out.decode().splitlines())
    found, more = set[int](), {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found - {listed.pid}


async def gone(pids: set[int]) -> None:
    """Wait until none of these processes is left."""
    await until(lambda: not any(_lives(pid) for pid in pids), f"the processes {sorted(pids)} end")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
