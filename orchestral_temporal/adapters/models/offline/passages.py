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
    lead, fenced, headed = _Lead(), False, False
    for index, line in enumerate(page.lines):
        fenced ^= _FENCE.match(line) is not None
        heading = None if fenced else _heading(page.lines, index)
        if heading is not None:
            yield from cutter.close()
            trail = [one for one in trail if one[0] < heading[0]]
            # A heading belongs to the first passage under it, and stands above the others.
            yield from cutter.add(index, tuple(text for _, text in trail))
            trail, lead, headed = [*trail, heading], _Lead(), True
        elif headed and _RULE.fullmatch(line):
            yield from cutter.add(index, ())
        elif _RULE.fullmatch(line):
            yield from cutter.close()
            lead.gap = not line.strip()
        else:
            if lead.follow(line) and not headed:
                yield from cutter.close()
            yield from cutter.add(index, (*(text for _, text in trail), *lead.above))
            headed = False
    yield from cutter.close()


@dataclass
class _Lead:
    """What holds for the parts of a list or table: the sentence before a list, the first row of a table."""

    above: tuple[str, ...] = ()
    kind: str = ""
    before: str = ""
    gap: bool = False

    def follow(self, line: str) -> bool:
        """Take the next line that is not blank; whether it begins a part of its own."""
        kind = "row" if _ROW.match(line) else "item" if _ITEM.match(line) else ""
        if not kind and self.kind and line[0].isspace():
            self.before, self.gap = line.strip(), False
            return False
        same = kind == self.kind
        if kind == "row" and same and not self.gap:
            self.above = self.above or (self.before,)
        elif kind == "item" and not same:
            self.above = (self.before,) if self.before.endswith(":") else ()
        elif kind != "item":
            self.above = ()
        self.kind, self.before, self.gap = kind, line.strip(), False
        return bool(kind) or not same


def _heading(lines: tuple[str, ...], index: int) -> tuple[int, str] | None:
    """The level and text of a heading: marked, underlined, in capitals, or alone above an indented part."""
    line = lines[index]
    found = _HEADING.match(line)
    if found:
        return len(found[1]), found[2]
    if _RULE.fullmatch(line) or line[0].isspace() or _ITEM.match(line) or _ROW.match(line):
        return None
    after, next_but_one = (*lines[index + 1 : index + 3], "", "")[:2]
    if _UNDERLINE.match(after):
        return (1 if "=" in after else 2), line.strip()
    alone = not after.strip() and (index == 0 or not lines[index - 1].strip())
    if alone and line.isupper():
        return 2, line.strip()
    return (3, line.strip()) if alone and next_but_one.startswith("  ") else None


def _code(page: Page) -> Iterator[Passage]:
    cutter = _Cutter(page)
    # The first line of a file mostly says what the file is for.
    title = next((line.strip() for line in page.lines if line.strip()), "")
    parents: list[tuple[int, str]] = []
    for index, line in enumerate(page.lines):
        if not line.strip():
            yield from cutter.close()
            continue
        depth = len(line) - len(line.lstrip())
        if parents and depth < parents[-1][0]:
            yield from cutter.close()
        parents = [one for one in parents if one[0] < depth]
        yield from cutter.add(index, (title, *(text for _, text in parents)))
        parents.append((depth, line.strip()))
    yield from cutter.close()
