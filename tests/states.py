"""`python -m tests.states`: draws `docs/states.md` from `core/table.py`; a test of the house fails when it is stale."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from orchestral_temporal.core.table import CONFIRMED, EFFECTS, UNKNOWN, EffectPhase, Phase

PAGE = Path(__file__).resolve().parent.parent / "docs" / "states.md"

S = TypeVar("S", bound=StrEnum)
Table = Mapping[str, Mapping[S, S]]


TEXT = """\
# States

Drawn from `orchestral_temporal/core/table.py` by `python -m tests.states`: change the tables, then draw it again.

In a table · means that the event comes and the phase stays, → that it comes and the phase moves, and an empty cell that
it cannot come. The tables know phases only; what else an event needs stands in `core/transition.py` for runs and in
`core/effects.py` for effects.

## A run

{run}

Two words of a run's status are no phases. *Waiting* is a running run with a blocking request. *Unknown* is a run of any
phase whose continuity is lost. What cannot come is on record all the same, under its number, and makes continuity
unknown; only a run that has ended refuses it.

While continuity is confirmed:

{confirmed}

While continuity is unknown:

{unknown}

## The effect of a call

{effect}

{effects}
"""


def drawn() -> str:
    """The whole page."""
    return TEXT.format(
        run=_diagram(CONFIRMED, Phase.FRESH),
        confirmed=_table(CONFIRMED, Phase),
        unknown=_table(UNKNOWN, Phase),
        effect=_diagram(EFFECTS, EffectPhase.ABSENT),
        effects=_table(EFFECTS, EffectPhase),
    )


def _diagram(table: Table[S], first: S) -> str:
    """What moves, in the order of the phases; events that move alike share an arrow."""
    arrows: dict[tuple[S, S], list[str]] = {}
    for event, row in table.items():
        for phase, target in row.items():
            if phase is not target:
                arrows.setdefault((phase, target), []).append(event)
    order = list(type(first))
    left = {phase for phase, _ in arrows}
    lines = [f"{phase} --> {target}: {', '.join(arrows[phase, target])}" for phase, target in _sorted(arrows, order)]
    ends = [f"{phase} --> [*]" for phase in order if phase not in left]
    return "\n    ".join(("```mermaid\nstateDiagram-v2", f"[*] --> {first}", *lines, *ends)) + "\n```"


def _sorted(arrows: Iterable[tuple[S, S]], order: list[S]) -> list[tuple[S, S]]:
    return sorted(arrows, key=lambda arrow: (order.index(arrow[0]), order.index(arrow[1])))


def _table(table: Table[S], phases: Iterable[S]) -> str:
    """Every event and every phase."""
    columns = list(phases)
    rows = [[event, *(_cell(phase, row.get(phase)) for phase in columns)] for event, row in table.items()]
    head = [["event", *columns], ["---"] * (len(columns) + 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (*head, *rows))


def _cell(phase: S, target: S | None) -> str:
    if target is None:
        return ""
    return "·" if target is phase else f"→ {target}"


if __name__ == "__main__":
    PAGE.write_text(drawn(), "utf-8")
