"""The one table, as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, field


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
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        written = [_line(line, widths) for line in lines]
        written.insert(1, _line(["-" * width for width in widths], widths))
        missing = [f"Not installed, so not measured: {', '.join(self.missing)}."] if self.missing else []
        return "\n\n".join(["# Benchmarks", *paragraphs, "\n".join(written), *missing]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"
