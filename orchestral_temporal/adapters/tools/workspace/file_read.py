"""`file_read`: one page of a text file (`spec/builtin-tools.md` §4)."""

import codecs
import hashlib
import os
from dataclasses import dataclass, field
from typing import BinaryIO

from orchestral_temporal.adapters.tools.workspace.arguments import whole
from orchestral_temporal.adapters.tools.workspace.paths import NotRegular, Place, holding_folder, locate, open_file
from orchestral_temporal.adapters.tools.workspace.results import OUTPUT_BYTES
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.adapters.tools.workspace.words import WORKSPACE, FileReadOutput, closed
from orchestral_temporal.ports import ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import JsonObject

SCANNED_BYTES = 32 << 20
"""Bytes of a file that one call reads through: a second of work."""

LINE_BYTES = 64 << 10
"""Bytes of a line that a page shows; longer lines are products of machines."""

_RESERVE, _LEAST = 2048, 256
"""Bytes kept for everything but the content, and the least content worth a page."""

_CHUNK = 1 << 20
_DEFAULT, _CAP = 400, 2000
_LINE_MARK, _PAGE_MARK = "… [line truncated]\n", "… [output truncated]\n"

INPUT_SCHEMA = closed(
    {
        "path": {"type": "string", "description": "File to read, relative to the workspace."},
        "workspace": WORKSPACE,
        "offset": {"type": "integer", "description": "First line to read, counted from 1. Default: 1."},
        "limit": {"type": "integer", "description": f"Lines to read. Default {_DEFAULT}, at most {_CAP}."},
    },
    required=["path"],
)

DESCRIPTION = (
    "Read a UTF-8 text file by lines. A result without `eof` is the whole file; otherwise go on at `next_offset` for "
    "more. Overlong lines are shortened and listed in `truncated_line_numbers`."
)


@dataclass
class _Lines:
    """A file line by line, every byte that is passed checked to be UTF-8."""

    stream: BinaryIO
    watch: Watch
    scanned: int = 0

    def at_end(self) -> bool:
        """Whether no byte is left; looking scans nothing."""
        here = self.stream.tell()
        ended = not self.stream.read(1)
        self.stream.seek(here)
        return ended

    def next(self) -> tuple[str, bool]:
        """The next line and whether it was too long to be kept whole; an empty text at the end of the file."""
        raw = self._read(LINE_BYTES + 1)
        if raw.endswith(b"\n") or len(raw) <= LINE_BYTES:
            return _decode(raw), False
        decoder = codecs.getincrementaldecoder("utf-8")()
        kept = _feed(decoder, raw[:LINE_BYTES])
        _feed(decoder, raw[LINE_BYTES:])
        ended = False
        while not ended:
            piece = self._read(_CHUNK)
            ended = not piece or piece.endswith(b"\n")
            _feed(decoder, piece, final=ended)
        return kept + _LINE_MARK, True

    def _read(self, most: int) -> bytes:
        self.watch.look()
        raw = self.stream.readline(most)
        self.scanned += len(raw)
        if self.scanned > SCANNED_BYTES:
            raise ToolFailed(
                "file_read_scan_limit", f"The page lies beyond the first {SCANNED_BYTES} bytes of the file; search it."
            )
        return raw


def _decode(raw: bytes) -> str:
    return _feed(codecs.getincrementaldecoder("utf-8")(), raw, final=True)


def _feed(decoder: codecs.IncrementalDecoder, raw: bytes, *, final: bool = False) -> str:
    try:
        return decoder.decode(raw, final)
    except UnicodeDecodeError as error:
        raise ToolFailed("file_not_utf8", "The file is not UTF-8 text, so it cannot be shown.") from error


@dataclass
class _Page:
    """The lines gathered so far; `end` is the number of the last."""

    end: int
    room: int
    content: list[str] = field(default_factory=list[str])
    reasons: set[str] = field(default_factory=set[str])
    shortened: list[int] = field(default_factory=list[int])

    def take(self, line: str, *, too_long: bool) -> bool:
        """Add the next line; false if it does not fit and the page ends before it."""
        size = len(line.encode())
        if size > self.room:
            self.reasons.add("byte_limit")
            if self.content:
                return False
            line = _cut(line, self.room)
        self.end += 1
        self.content.append(line)
        self.room -= len(line.encode())
        if too_long:
            self.reasons.add("line_too_long")
        if too_long or line.endswith(_PAGE_MARK):
            self.shortened.append(self.end)
        return True


def _cut(line: str, size: int) -> str:
    """The line with a mark, in at most `size` bytes, cut between two characters."""
    return line.encode()[: size - len(_PAGE_MARK.encode())].decode(errors="ignore") + _PAGE_MARK


def read_page(arguments: JsonObject, call: ToolCall, watch: Watch) -> JsonObject:
    """Read the page.

    Raises:
        ToolRejected, ToolFailed: the codes of §2 and §4.
        Abandoned: nobody waits for the result.
    """
    place = locate(arguments, call, default="", missing="file_path_missing")
    room = (call.max_output_bytes or OUTPUT_BYTES) - _RESERVE
    if room < _LEAST:
        raise ToolFailed(
            "file_read_limit_too_small", f"Reading a file needs an output limit of {_RESERVE + _LEAST} bytes."
        )
    offset = whole(arguments, "offset", 1)
    if offset == 0:
        raise ToolRejected("file_read_offset_invalid", "offset is 0; lines are counted from 1.")
    try:
        with _open(place) as stream:
            return _read_page(place, _Lines(stream, watch), offset, whole(arguments, "limit", _DEFAULT, cap=_CAP), room)
    except OSError as error:
        raise ToolFailed("file_read_failed", f"The file {place.shown!r} cannot be read: {error.strerror}.") from error


def _open(place: Place) -> BinaryIO:
    with holding_folder(place) as folder:
        try:
            return open_file(place.parts[-1] if place.parts else ".", folder)
        except NotRegular as error:
            raise ToolFailed("file_read_not_file", f"path is no regular file: {place.shown!r}; name a file.") from error
        except PermissionError:
            raise
        except OSError as error:
            raise ToolFailed(
                "workspace_path_unavailable", f"path cannot be opened: {place.shown!r}; search for the file."
            ) from error


def _read_page(place: Place, lines: _Lines, offset: int, limit: int, room: int) -> JsonObject:
    status = os.fstat(lines.stream.fileno())
    _skip(lines, offset)
    page = _Page(end=offset - 1, room=room)
    while not (eof := lines.at_end()):
        if len(page.content) == limit:
            page.reasons.add("line_limit")
            break
        line, too_long = lines.next()
        if not page.take(line, too_long=too_long):
            break
    content = "".join(page.content)
    return FileReadOutput(
        workspace=place.root,
        path=place.shown,
        revision=_digest(f"orchestral.file-revision/v1\n{place.real}\n{status.st_size}\n{status.st_mtime_ns}"),
        content=content,
        content_digest=_digest(content),
        start_line=offset,
        end_line=page.end,
        next_offset=page.end + 1,
        eof=eof,
        truncated=bool(page.reasons),
        truncation_reasons=tuple(sorted(page.reasons)),
        truncated_line_numbers=tuple(page.shortened),
        file_size_bytes=status.st_size,
        scanned_bytes=lines.scanned,
    ).model_dump(mode="json")


def _skip(lines: _Lines, offset: int) -> None:
    for _ in range(1, offset):
        if not lines.next()[0]:
            break
    if offset > 1 and lines.at_end():
        raise ToolRejected("file_read_offset_out_of_range", f"offset is {offset}; the file has fewer lines.")


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()
