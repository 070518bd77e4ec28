"""Pages cut into passages: paragraphs, list items, table rows, each with what it stands under."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from orchestral_temporal.adapters.models.offline.evidence import Page

_PROSE = frozenset({"", ".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".org"})
_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_UNDERLINE = re.compile(r"\s*(?:={3,}|-{3,}|~{3,})\s*$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_ROW = re.compile(r"\s*\|")
_RULE = re.compile(r"[\s|:=+-]*$")
_FENCE = re.compile(r"\s*(?:```|~~~)")

_LONGEST = 12
"""Lines of a passage: more than that is not one thought."""


@dataclass
class Passage:
    """Lines that belong together; `above` is what they stand under, the outermost first."""

    path: str
    first: int
    above: tuple[str, ...]
    lines: list[str] = field(default_factory=list[str])


def passages(page: Page) -> Iterator[Passage]:
    """Cut a page: by headings and blank lines if it is prose, else by blank lines and indentation."""
    prose = PurePosixPath(page.path).suffix.lower() in _PROSE
    return _prose(page) if prose else _code(page)


@dataclass
class _Cutter:
    page: Page
    current: Passage | None = None

    def close(self) -> Iterator[Passage]:
        if self.current is not None:
            yield self.current
        self.current = None

    def add(self, index: int, above: tuple[str, ...]) -> Iterator[Passage]:
        if self.current is not None and len(self.current.lines) >= _LONGEST:
            yield from self.close()
        if self.current is None:
            self.current = Passage(self.page.path, self.page.first + index, above)
        self.current.lines.append(self.page.lines[index])


def _prose(page: Page) -> Iterator[Passage]:
    cutter = _Cutter(page)
    trail: list[tuple[int, str]] = []
    lead, fenced = "", False
    for index, line in enumerate(page.lines):
        fenced ^= _FENCE.match(line) is not None
        heading = None if fenced else _heading(page.lines, index)
        if heading is not None:
            yield from cutter.close()
            trail = [*(one for one in trail if one[0] < heading[0]), heading]
            lead = ""
        elif _RULE.fullmatch(line):
            yield from cutter.close()
        else:
            structured = _ITEM.match(line) or _ROW.match(line)
            if structured:
                # What introduces a list or heads a table holds for each item and row.
                lead = lead or _lead(cutter.current)
                yield from cutter.close()
            elif cutter.current is None and not line.startswith((" ", "\t")):
                lead = ""
            yield from cutter.add(index, (*(text for _, text in trail), *([lead] if lead else [])))
    yield from cutter.close()


def _heading(lines: tuple[str, ...], index: int) -> tuple[int, str] | None:
    found = _HEADING.match(lines[index])
    if found:
        return len(found[1]), found[2]
    following = lines[index + 1] if index + 1 < len(lines) else ""
    if lines[index].strip() and _UNDERLINE.match(following) and not _RULE.fullmatch(lines[index]):
        return (1 if "=" in following else 2), lines[index].strip()
    return None


def _lead(before: Passage | None) -> str:
    return before.lines[-1].strip() if before is not None else ""


def _code(page: Page) -> Iterator[Passage]:
    cutter = _Cutter(page)
    parents: list[tuple[int, str]] = []
    for index, line in enumerate(page.lines):
        if not line.strip():
            yield from cutter.close()
            continue
        depth = len(line) - len(line.lstrip())
        if parents and depth < parents[-1][0]:
            yield from cutter.close()
        parents = [one for one in parents if one[0] < depth]
        yield from cutter.add(index, tuple(text for _, text in parents))
        parents.append((depth, line.strip()))
    yield from cutter.close()
