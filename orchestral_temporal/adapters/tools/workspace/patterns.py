"""Globs and regular expressions, in time linear in the text whatever the pattern (RE2; `spec/builtin-tools.md` §9)."""

import re
from typing import Protocol, cast

import re2

PATTERN_BYTES = 2048
"""Bytes a pattern may have: people and models write far shorter ones."""

_MEMORY = 4 << 20
"""Bytes one compiled pattern may use; the library keeps 128 of them."""

# The library has no types; here and in `_compile` is all that touches it.
_RE2_ERROR = cast("type[Exception]", re2.error)  # pyright: ignore[reportUnknownMemberType] -- re2 ships no types

_TEXT_ANCHORS = {"A": "^", "z": "$"}
_LINES_ONLY = re.compile(r"\(\?[a-zA-Z]*-[a-zA-Z]*m|\\C")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SIMPLE = {"?": "[^/]", "{": "(?:", ",": "|", "}": ")"}
_CLASS = re.compile(r"\[(?P<negated>[!^]?)(?P<body>\]?[^\]]*)\]")
_CLASS_ITEM = re.compile(r"(?P<low>.)-(?P<high>.)|(?P<one>.)", re.DOTALL)


class PatternInvalid(ValueError):  # noqa: N818 -- the words of the tools' codes: `…_pattern_invalid`
    """The pattern has no meaning; the message says why."""


class Match(Protocol):
    """Where a pattern was found."""

    def span(self) -> tuple[int, int]:
        """First byte and the byte after the last."""
        ...


class Regex(Protocol):
    """A compiled pattern; offsets count bytes."""

    def search(self, text: bytes, pos: int, endpos: int) -> Match | None:
        """The leftmost match within the bounds."""
        ...

    def fullmatch(self, text: str) -> Match | None:
        """A match of the whole text."""
        ...


def _compile(flags: str, pattern: str, *, case_sensitive: bool, never_newline: bool) -> Regex:
    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.never_nl = never_newline
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return cast("Regex", re2.compile(flags + pattern, options))  # pyright: ignore[reportUnknownMemberType] -- re2 ships no types
    except UnicodeEncodeError as error:
        raise PatternInvalid("it is no valid Unicode") from error
    except _RE2_ERROR as error:
        detail = error.args[0]
        reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise PatternInvalid(reason.replace(flags, "", 1)) from error


def line_regex(pattern: str, *, literal: bool, case_sensitive: bool) -> Regex:
    r"""A pattern that finds matches inside single lines when it searches a text of many.

    A line break never matches, `^` and `$` are the ends of a line, and so are `\A` and `\z`.

    Raises:
        PatternInvalid: it is no RE2 expression, or it could look beyond a line.
    """
    if literal:
        return _compile("(?m)", re.escape(pattern), case_sensitive=case_sensitive, never_newline=True)
    if _LINES_ONLY.search(_ESCAPE.sub(lambda found: "\\C" if found[1] == "C" else "", pattern)):
        raise PatternInvalid(r"lines are searched one by one, so the flag -m and \C have no meaning")
    by_line = _ESCAPE.sub(lambda found: _TEXT_ANCHORS.get(found[1], found[0]), pattern)
    return _compile("(?m)", by_line, case_sensitive=case_sensitive, never_newline=True)


class Glob:
    """`*` and `?` stay inside a path component; `**` as a whole component crosses any number of them.

    Also `[ab]`, `[a-z]`, `[!a]` and `{one,two}`, which nest. A backslash is a character like any other.
    """

    def __init__(self, glob: str, *, case_sensitive: bool = True) -> None:
        self._regex = _compile("(?s)", _translate(glob), case_sensitive=case_sensitive, never_newline=False)

    def matches(self, path: str) -> bool:
        """Whether the path relative to the workspace, or its last component, matches as a whole."""
        name = path[path.rfind("/") + 1 :]
        return self._regex.fullmatch(path) is not None or (name != path and self._regex.fullmatch(name) is not None)


def _translate(glob: str) -> str:
    parts: list[str] = []
    depth = at = 0
    while at < len(glob):
        part, length = _next_part(glob, at, depth)
        depth += {"(?:": 1, ")": -1}.get(part, 0)
        if depth < 0:
            raise PatternInvalid("a '}' closes nothing")
        parts.append(part)
        at += length
    if depth:
        raise PatternInvalid("a '{' is not closed")
    return "".join(parts)


def _next_part(glob: str, at: int, depth: int) -> tuple[str, int]:
    """The expression for the part of the glob that begins at `at`, and that part's length."""
    character = glob[at]
    if character == "*":
        return _stars(glob, at, depth)
    if character == "[":
        return _character_class(glob, at)
    if character == "," and depth == 0:
        return character, 1
    return _SIMPLE.get(character) or re.escape(character), 1


def _stars(glob: str, at: int, depth: int) -> tuple[str, int]:
    length = len(glob) - at - len(glob[at:].lstrip("*"))
    begins = at == 0 or glob[at - 1] == "/" or (depth > 0 and glob[at - 1] in "{,")
    after = glob[at + length : at + length + 1]
    if length != len("**") or not begins:
        return "[^/]*", length
    if after == "/":
        return "(?:.*/)?", length + 1
    return ("[^/]*" if after and not (depth and after in ",}") else ".*"), length


def _character_class(glob: str, at: int) -> tuple[str, int]:
    found = _CLASS.match(glob, at)
    if found is None or not found["body"]:
        raise PatternInvalid("a '[' is not closed")
    items: list[str] = []
    for item in _CLASS_ITEM.finditer(found["body"]):
        if item["one"] is None and item["low"] > item["high"]:
            raise PatternInvalid(f"the range {item[0]} runs backwards")
        items.append(re.escape(item["one"]) if item["one"] else f"{re.escape(item['low'])}-{re.escape(item['high'])}")
    # A negated class would otherwise match the separator, which only `**` may.
    return f"[{'^/' if found['negated'] else ''}{''.join(items)}]", len(found[0])
