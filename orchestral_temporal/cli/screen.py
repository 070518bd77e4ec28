"""Where things are shown: the answer alone on standard output, all else on standard error, or both as JSON lines."""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from math import ceil
from typing import Final, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestral_temporal.cli.lines import Lines
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.limits import MoneyAmount
from orchestral_temporal.protocol.telemetry import ProgressReported
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal.client import Frame, Turn

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What could steer a terminal: the text comes from a model, or from a file that it read."""


def answer(text: str) -> None:
    """Write to standard output, as it is to a file or pipe, and harmless to a terminal."""
    shown = _CONTROL.sub("", text) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(shown.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()


def answer_json(value: JsonObject) -> None:
    """Write one JSON object as one line to standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def answer_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal; elsewhere the same cells between tabs, whole. A cell is one line."""
    console = Console(highlight=False, markup=False, emoji=False)
    cells = [[" ".join(_CONTROL.sub("", cell).split()) for cell in row] for row in rows]
    if not console.is_terminal:
        for row in (columns, *cells):
            answer("\t".join(row))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def note(sentence: str) -> None:
    """Tell the person something that is not the answer; nobody may be listening."""
    with suppress(OSError):
        sys.stderr.write(_CONTROL.sub("", sentence) + "\n")
        sys.stderr.flush()


class Screen(Protocol):
    """Shows a run while it goes on, as a context."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def note(self, sentence: str) -> None:
        """Tell the person something."""
        ...

    def started(self, run_id: str, session_id: str) -> None:
        """The run has an id now."""
        ...

    def show(self, frame: Frame) -> None:
        """Show what a watcher saw."""
        ...

    def finish(self, turn: Turn) -> None:
        """Show the end."""
        ...


class JsonScreen:
    """One JSON object a line; the last one is the result. A second `started` means that what follows begins anew."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, sentence: str) -> None:
        """Standard error: a sentence is nothing for a program."""
        note(sentence)

    def started(self, run_id: str, session_id: str) -> None:
        """`{"type":"started","run_id":…,"session_id":…}`."""
        answer_json({"type": "started", "run_id": run_id, "session_id": session_id})

    def show(self, frame: Frame) -> None:
        """`{"type":KIND}` with the frame's text or its journal record."""
        value: JsonObject = {"type": frame.kind}
        if frame.event is not None:
            value["event"] = dump(frame.event)
        elif frame.text:
            value["text"] = frame.text
        if frame.progress is not None:
            value["progress"] = dump(frame.progress)
        answer_json(value)

    def finish(self, turn: Turn) -> None:
        """`{"type":"result",…}` and the result object."""
        answer_json({"type": "result", **result_of(turn)})


class Terminal:
    """Text as it streams, on a terminal; tool calls and usage as lines; at the end the answer."""

    def __init__(self, lines: Lines | None = None) -> None:
        """Write around the prompt of `lines`."""
        self._console = Console(stderr=True, highlight=False)
        self._lines = lines
        self._live: Live | None = None
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw("")

    def note(self, sentence: str) -> None:
        """A line of its own, above the live text or the prompt."""
        if self._live is not None:
            self._console.print(Text(_CONTROL.sub("", sentence), style="dim"), soft_wrap=True)
            return
        with self._lines.aside() if self._lines is not None else nullcontext():
            note(sentence)

    def started(self, run_id: str, session_id: str) -> None:
        """Name the run."""
        session = f" · session {session_id}" if session_id != run_id else ""
        self.note(f"run {run_id}{session}")

    def show(self, frame: Frame) -> None:
        """Live text is replaced, calls stay."""
        match frame.kind:
            case "text":
                self._draw(self._text + frame.text)
            case "clear" | "turn":
                self._draw("")
            case "call":
                self.note(f"· {frame.text}")
            case "progress" if frame.progress is not None:
                self.note(f"· {frame.text}: {_progress(frame.progress)}")
            case "lost":
                self.note(f"· {frame.text or 'the model'}: lost, taken up again if that is safe")
            case _:
                pass

    def finish(self, turn: Turn) -> None:
        """What the run says on standard output, how it ended on standard error."""
        self._draw("")
        result = result_of(turn)
        said = result["text"] or result["delivery"] or result["partial_delivery"]
        if said is not None:
            answer(_plain(said))
        failure = turn.failure
        if failure is not None:
            self.note(f"{turn.status}: {failure['message']} ({failure['code']})")
        elif turn.result["reason"] is not None:
            self.note(f"{turn.status}: {_plain(turn.result['reason'])}")
        usage = _usage(turn)
        if usage:
            self.note(f"{turn.status} · {usage}" if failure is None else usage)

    def _draw(self, text: str) -> None:
        """Show this live text, and none at all when it is empty."""
        self._text = text
        if text and self._live is None and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
            self._live.start()
            self._console.show_cursor()  # a second Ctrl-C leaves at once, and nobody would bring it back
        elif not text and self._live is not None:
            self._live.stop()
            self._live = None
        if self._live is not None:
            width, height = self._console.size
            self._live.update(Text(_tail(_CONTROL.sub("", text), width, height - 2)), refresh=True)


def result_of(turn: Turn) -> JsonObject:
    """The result with its whole text; where that cannot be read, a note says so and the result names the artifact."""
    if isinstance(turn.stored, Exception):
        note(str(turn.stored))
        return turn.result
    return {**turn.result, "text": turn.text}


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _progress(said: ProgressReported) -> str:
    return said.message if said.fraction is None else f"{said.message} ({said.fraction:.0%})"


def _usage(turn: Turn) -> str:
    usage = turn.result["usage"]
    if not isinstance(usage, dict):
        return ""
    names = {"tool_calls": "tool calls", "input_tokens": "tokens in", "output_tokens": "tokens out"}
    parts = [f"{usage[key]} {name}" for key, name in names.items() if usage.get(key) is not None]
    cost = usage.get("cost")
    return ", ".join(parts if cost is None else [*parts, str(parse_value(MoneyAmount, cost))])


def _tail(text: str, width: int, height: int) -> str:
    """The last lines of a text that fit."""
    lines: list[str] = []
    room = max(height, 1)
    for line in reversed(text.splitlines()):
        room -= max(1, ceil(len(line) / max(width, 1)))
        if room < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))
