"""What people type or pipe in, a line at a time; waiting for it holds up neither the loop nor the end of the process.

The terminal stays as it is, in its own line mode: there is nothing to put back, however the process ends.
"""

import asyncio
import os
import stat
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from orchestral_temporal.hosting.yaml_file import SettingsError

LINE_BYTES: Final = 1_000_000
"""Bytes of one line: no task may be longer, and a stream without an end must not fill the memory."""

_PART: Final = 65_536


class NotText(SettingsError):  # noqa: N818 -- what the line is
    """A line that is not in UTF-8."""


class Lines:
    """The lines of standard input. Nothing is read before somebody asks for a line."""

    def __init__(self) -> None:
        stream: TextIO | None = sys.stdin  # none where it was closed, as by `<&-`
        self._file = None if stream is None else stream.fileno()
        self.terminal = self._file is not None and os.isatty(self._file)
        self._held = b""
        self._prompt = ""

    async def ask(self, prompt: str) -> str | None:
        """The next line that is not blank; none at the end of what there is, as after Ctrl-D.

        On a terminal there is a prompt, on standard error; if this is cancelled, the prompt goes, and what was typed.

        Raises:
            NotText: that line is not in UTF-8; the next one can be asked for.
            SettingsError: it is too long.
        """
        self._prompt = prompt if self.terminal else ""
        try:
            while True:
                _write(self._prompt)
                line = await self._line()
                if line is None and self._prompt:
                    _write("\n")
                if line is None or line.strip():
                    return None if line is None else _decoded(line)
        except asyncio.CancelledError:
            self._hide()
            self.forget()
            raise
        finally:
            self._prompt = ""

    @contextmanager
    def aside(self) -> Generator[None]:
        """Something is written meanwhile: the prompt goes, and comes again below it."""
        self._hide()
        yield
        _write(self._prompt)

    def forget(self) -> None:
        """What was typed until now is no answer to what is asked next."""
        if self.terminal and self._file is not None:
            self._held = b""
            with suppress(termios.error):  # it is gone
                termios.tcflush(self._file, termios.TCIFLUSH)

    def _hide(self) -> None:
        if self._prompt:
            _write("\r\x1b[K" if sys.stderr.isatty() else "\n")

    async def _line(self) -> bytes | None:
        while b"\n" not in self._held:
            part = await self._part()
            if not part:
                rest, self._held = self._held, b""
                return rest or None
            self._held += part
            if len(self._held) > LINE_BYTES + _PART:
                raise SettingsError([f"A line of standard input is longer than {LINE_BYTES} bytes; use a file for it."])
        line, _, self._held = self._held.partition(b"\n")
        return line

    async def _part(self) -> bytes:
        if self._file is None:
            return b""
        if self.terminal or not _always_ready(self._file):
            await _readable(self._file)
        if self.terminal and _in_background(self._file):  # the lines belong to somebody else, who must not be stopped
            return b""
        try:
            return os.read(self._file, _PART)
        except OSError:  # the terminal has gone
            return b""


def _write(text: str) -> None:
    with suppress(OSError):  # nobody may be looking
        sys.stderr.write(text)
        sys.stderr.flush()


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise NotText(["A line of standard input is not text in UTF-8; it is left out."]) from None


async def _readable(file: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)


def _always_ready(file: int) -> bool:
    """Files and devices such as /dev/null cannot be waited for, and need not be."""
    kind = os.fstat(file).st_mode
    return not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))


def _in_background(file: int) -> bool:
    """Whether the terminal has another process in front, which the kernel would stop us for."""
    try:
        return os.tcgetpgrp(file) != os.getpgrp()
    except OSError:  # it does not control this process
        return False
