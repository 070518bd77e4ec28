"""The one table, as Markdown."""

from dataclasses import dataclass, field


@dataclass
class Row:
    """One measure: a cell for each contender, the goal, and how ours stands to it."""

    measure: str
    goal: str = ""
    verdict: str = ""
    cells: dict[str, str] = field(default_factory=dict)


class Table:
    """Rows in the order in which they were measured."""

    def __init__(self) -> None:
        self.missing: tuple[str, ...] = ()
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Append a row."""
        self._rows.append(row)

    def render(self, setting: str) -> str:
        """The page: what was measured where, the table, what is missing."""
        names = list(dict.fromkeys(name for row in self._rows for name in row.cells))
        lines = [
            ["measure", *names, "goal", "ours"],
            *([row.measure, *(row.cells.get(name, "") for name in names), row.goal, row.verdict] for row in self._rows),
        ]
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        written = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
            for line in lines
        ]
        written.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        gone = f"\nNot installed, so not measured: {', '.join(self.missing)}.\n" if self.missing else ""
        return f"# Benchmarks\n\n{setting}\n\n" + "\n".join(written) + "\n" + gone
