"""`text_search`: lines that match a pattern (`spec/builtin-tools.md` §9)."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from orchestral_temporal.adapters.tools.workspace.arguments import flag, text, whole
from orchestral_temporal.adapters.tools.workspace.paths import is_folder, locate, open_file
from orchestral_temporal.adapters.tools.workspace.patterns import Glob, PatternInvalid, Regex, line_regex
from orchestral_temporal.adapters.tools.workspace.results import search_budget, search_pattern, search_result
from orchestral_temporal.adapters.tools.workspace.walk import Entry, Scan, walk
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.adapters.tools.workspace.words import WORKSPACE, TextMatch, closed
from orchestral_temporal.ports import ToolCall, ToolRejected
from orchestral_temporal.protocol.base import Json, JsonObject

FILES = 20_000
"""Files one search opens: about two seconds of work."""

SCANNED_BYTES = 64 << 20
"""Bytes one search reads, and so the most memory one file can take."""

LINE_BYTES = 4 << 20
"""Bytes of a line that is searched."""

WINDOW_BYTES = 256 << 10
"""Bytes matched between two looks at the clock, unless a line is longer; the worst patterns need 0.3 s for them."""

SHOWN_CHARACTERS = 2000
"""Characters of a preview or context line, the marks of a cut included."""

_CHUNK = 1 << 20
_DEFAULT, _CAP, _CONTEXT_CAP = 50, 200, 3
_MARK = "…"

INPUT_SCHEMA = closed(
    {
        "pattern": {
            "type": "string",
            "description": "Regular expression (RE2: no look-around, no back-references; \\w, \\d, \\s and \\b know "
            "ASCII only, \\p{L} any letter), searched in each line by itself; or plain text with literal=true.",
        },
        "path": {
            "type": "string",
            "description": "File, or folder to search below, relative to the workspace. Default: the whole workspace.",
        },
        "workspace": WORKSPACE,
        "literal": {"type": "boolean", "description": "Take the pattern as plain text. Default: false."},
        "case_sensitive": {"type": "boolean", "description": "Whether capitals matter. Default: true."},
        "include": {"type": "string", "description": "Glob that a file must match to be searched. Example: *.md"},
        "context": {
            "type": "integer",
            "description": f"Lines to show before and after each match. Default 0, at most {_CONTEXT_CAP}.",
        },
        "limit": {"type": "integer", "description": f"Lines to return. Default {_DEFAULT}, at most {_CAP}."},
    },
    required=["pattern"],
)

DESCRIPTION = (
    "Find lines in text files. Returns path, line number and the line for the first match in each line. Hidden files "
    "are included; what ignore files name, version control and build folders, and files that are no UTF-8 text are "
    "left out; symlinks are not followed. `completeness` says whether everything was looked at."
)


@dataclass(frozen=True)
class _Query:
    regex: Regex
    include: Glob | None
    context: int
    limit: int


def search_text(arguments: JsonObject, call: ToolCall, watch: Watch) -> JsonObject:
    """Find the lines.

    Raises:
        ToolRejected, ToolFailed: the codes of §2 and §9.
        Abandoned: nobody waits for the result.
    """
    place = locate(arguments, call, default=".", missing="workspace_path_missing")
    is_folder(place)  # Refuses a path that does not exist.
    query = _query(arguments)
    budget = search_budget(call)
    scan, found = Scan(watch), list[Json]()
    with closing(walk(place, scan)) as entries:
        for entry in entries:
            if entry.is_folder or not (query.include is None or query.include.matches(entry.path)):
                continue
            if scan.considered_files >= FILES:
                scan.stop("file_limit")
                break
            scan.considered_files += 1
            found += _search_file(entry, query, scan, query.limit - len(found))
            if len(found) > query.limit:
                scan.stop("result_limit")
            if not scan.going():
                break
    return search_result(place, scan, found[: query.limit], budget)


def _query(arguments: JsonObject) -> _Query:
    pattern = search_pattern(arguments, "text_search")
    try:
        regex = line_regex(
            pattern,
            literal=flag(arguments, "literal", default=False),
            case_sensitive=flag(arguments, "case_sensitive", default=True),
        )
    except PatternInvalid as error:
        raise ToolRejected(
            "text_search_pattern_invalid", f"pattern is no RE2 expression: {error}; correct it or set literal."
        ) from error
    include = text(arguments, "include")
    try:
        glob = Glob(include) if include else None
    except PatternInvalid as error:
        raise ToolRejected("text_search_include_invalid", f"include is no glob: {error}; correct it.") from error
    return _Query(
        regex=regex,
        include=glob,
        context=whole(arguments, "context", 0, cap=_CONTEXT_CAP),
        limit=whole(arguments, "limit", _DEFAULT, cap=_CAP),
    )


def _search_file(entry: Entry, query: _Query, scan: Scan, room: int) -> list[Json]:
    """Up to `room` + 1 matches of one file; none if it turns out to be no text."""
    try:
        data = _read(entry, scan)
    except OSError as error:
        scan.skipped_unreadable_files += 1
        scan.fail("read_error", entry.path, error)
        return []
    scan.searched_files += 1
    found: list[Json] = []
    try:
        for hit in _hits(data, query.regex, scan):
            found.append(_match(entry.path, data, hit, query.context))
            if len(found) > room:
                break
    except _Binary:
        scan.searched_files -= 1
        scan.skipped_binary_files += 1
        return []
    except _LineTooLong:
        scan.reasons.add("search_error")
        scan.warn(f"{entry.path} has a line of more than {LINE_BYTES} bytes; the search of this file ended there.")
    return found


def _read(entry: Entry, scan: Scan) -> bytes:
    """The file, line ends made LF; cut at the end of a line where the bytes of the search are used up."""
    chunks: list[bytes] = []
    room = SCANNED_BYTES - scan.scanned_bytes
    with open_file(entry.name, entry.holder) as stream:
        while chunk := stream.read(min(_CHUNK, room + 1)):
            chunks.append(chunk)
            room -= len(chunk)
            if room < 0:
                scan.stop("byte_limit")
            if not scan.going():
                break
    data = b"".join(chunks)
    scan.scanned_bytes += min(len(data), len(data) + room)
    if scan.stopped:
        data = data[: data.rfind(b"\n", 0, -1) + 1]
    return data.replace(b"\r\n", b"\n")


class _Binary(Exception):  # noqa: N818 -- a finding, not an error
    """The file is no UTF-8 text."""


class _LineTooLong(Exception):  # noqa: N818 -- as above
    """A line has more than `LINE_BYTES`."""


@dataclass(frozen=True)
class _Hit:
    """A line of a text and the match in it; offsets count bytes of the text."""

    number: int
    line: tuple[int, int]
    match: tuple[int, int]


def _hits(data: bytes, regex: Regex, scan: Scan) -> Iterator[_Hit]:
    number, counted = 1, 0
    for start, end in _windows(data):
        if not scan.stopped and not scan.going():
            return
        _refuse_binary(data, start, end)
        at = start
        while at <= end and (found := regex.search(data, at, end)) is not None:
            first, last = found.span()
            line_start = max(start, data.rfind(b"\n", start, first) + 1)
            line_end = _line_end(data, first, end)
            number, counted = number + data.count(b"\n", counted, line_start), line_start
            yield _Hit(number, (line_start, line_end), (first, last))
            at = line_end + 1


def _windows(data: bytes) -> Iterator[tuple[int, int]]:
    """Pieces of whole lines, `WINDOW_BYTES` long or one line, each without its last line break."""
    start, last = 0, len(data) - data.endswith(b"\n")
    while start < len(data):
        end = last
        if last - start > WINDOW_BYTES:
            end = data.rfind(b"\n", start, start + WINDOW_BYTES)
            end = _line_end(data, start, last) if end < 0 else end
        if end - start > LINE_BYTES:
            raise _LineTooLong
        yield start, end
        start = end + 1


def _refuse_binary(data: bytes, start: int, end: int) -> None:
    if data.find(b"\0", start, end) >= 0:
        raise _Binary
    try:
        data[start:end].decode()
    except UnicodeDecodeError:
        raise _Binary from None


def _line_end(data: bytes, start: int, end: int) -> int:
    found = data.find(b"\n", start, end)
    return end if found < 0 else found


def _match(path: str, data: bytes, hit: _Hit, context: int) -> Json:
    (line_start, line_end), (first, last) = hit.line, hit.match
    line = data[line_start:line_end].decode()
    column = len(data[line_start:first].decode())
    preview = _window(line, column, column + len(data[first:last].decode()))
    return TextMatch(
        path=path,
        line_number=hit.number,
        column=column + 1,
        match_start_byte=first - line_start,
        match_end_byte=last - line_start,
        preview=preview,
        preview_truncated=len(line) > SHOWN_CHARACTERS,
        context_before=tuple(_lines_before(data, line_start, context)),
        context_after=tuple(_lines_after(data, line_end, context)),
    ).model_dump(mode="json")


def _window(line: str, first: int, last: int) -> str:
    """The line, or the part of it around the match, a mark where it is cut."""
    if len(line) <= SHOWN_CHARACTERS:
        return line
    size = SHOWN_CHARACTERS - 2 * len(_MARK)
    start = max(0, min(first - max(0, size - (last - first)) // 2, len(line) - size))
    return (_MARK if start else "") + line[start : start + size] + (_MARK if start + size < len(line) else "")


def _lines_before(data: bytes, line_start: int, count: int) -> list[str]:
    lines: list[str] = []
    end = line_start - 1
    while len(lines) < count and end >= 0:
        start = data.rfind(b"\n", 0, end) + 1
        lines.append(_context_line(data, start, end))
        end = start - 1
    return lines[::-1]


def _lines_after(data: bytes, line_end: int, count: int) -> list[str]:
    lines: list[str] = []
    start = line_end + 1
    while len(lines) < count and start < len(data):
        end = _line_end(data, start, len(data))
        lines.append(_context_line(data, start, end))
        start = end + 1
    return lines


def _context_line(data: bytes, start: int, end: int) -> str:
    # A context line may lie beyond what was checked to be text; four bytes hold any character.
    line = data[start : min(end, start + 4 * (SHOWN_CHARACTERS + 1))].decode(errors="replace")
    return _window(line, 0, 0)
