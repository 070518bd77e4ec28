"""Measure ours beside raw Temporal activities and beside the peers: one command, one table.

    python benchmarks/run.py            # some minutes; prints the table and writes benchmarks/RESULTS.md
    python benchmarks/run.py --quick    # a look, about a minute; only prints
    python benchmarks/run.py --commands # only what is said to runs; only prints

Peers are measured if they can be imported: install the dependency group `peers` into a virtual environment of its own,
together with this project, and run this with that environment's Python. All contenders do the same work (`workload.py`)
with a model that answers at once, in one worker process, on one server that is started for it and ends with it.
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from commands import A_LITTLE, MUCH, Talk, talk
from measures import Pace, RunDied, Weight, pace, runs_per_second, weight
from stage import Stage, stage
from table import Row, Table, ratios, spread, versions
from workload import Contender, Load

RESULTS: Final = Path(__file__).with_name("RESULTS.md")

SIZES: Final = (1_024, 10_240)
"""Bytes of a tool's result."""

GOAL_RATIO: Final = 1.15
GOAL_FENCED: Final = 1.35
GOAL_SPREAD: Final = 0.10

CROWD_ROUNDS: Final = 5


@dataclass(frozen=True)
class Plan:
    """How much is measured: `repeats` of each timing, lengths of histories, runs at once, and what is said to runs."""

    repeats: int
    rounds: int
    lengths: tuple[int, ...]
    crowd: int
    crowds: int
    talk: Talk


FULL: Final = Plan(repeats=15, rounds=20, lengths=(5, 20, 40, 80, 150), crowd=30, crowds=5, talk=MUCH)
"""More and shorter runs than five long ones: a busy moment of the machine then spoils one pair, not the median."""

QUICK: Final = Plan(repeats=5, rounds=10, lengths=(5, 10, 20), crowd=10, crowds=3, talk=A_LITTLE)

Say = Callable[[str], None]


async def measure(plan: Plan, say: Say) -> Table:
    """Measure everything; each part has a server of its own, so that no part suffers from what others left."""
    table = Table()
    async with stage(SIZES) as world:
        for size in SIZES:
            table.add(*await _paces(world, plan, size, say))
    for size in SIZES:
        async with stage((size,)) as world:
            table.add(*await _weights(world, plan, size, say))
    async with stage(SIZES[:1]) as world:
        table.add(await _crowds(world, plan, say))
        table.missing = world.missing
    table.add(*await talk(plan.talk, say))
    return table


async def only_commands(plan: Plan, say: Say) -> Table:
    """Measure what is said to runs."""
    table = Table()
    table.add(*await talk(plan.talk, say))
    return table


async def _paces(world: Stage, plan: Plan, size: int, say: Say) -> list[Row]:
    found: defaultdict[str, list[Pace]] = defaultdict(list)
    for number in range(plan.repeats):
        say(f"ms per round, {size} B: {number + 1} of {plan.repeats}")
        for each in _turned(world.contenders, number):
            run_id = f"pace-{size}-{number}-{each.model_activity}"
            found[each.name].append(await pace(each, Load(plan.rounds, size), run_id))
    wall = Row(f"ms per round, results of {size // 1024} KB", goal=f"at most {GOAL_RATIO} times raw")
    busy = Row(f"processor ms per round in the worker, {size // 1024} KB")
    for name, paces in found.items():
        wall.cells[name] = spread([each.ms for each in paces])
        busy.cells[name] = spread([each.cpu_ms for each in paces])
    ours, bare, fenced = (found[each.name] for each in world.contenders[:3])
    wall.verdict = ratios([each.ms for each in ours], [each.ms for each in bare])
    busy.verdict = ratios([each.cpu_ms for each in ours], [each.cpu_ms for each in bare])
    behind = Row(f"the same behind the effect fence, {size // 1024} KB", goal=f"at most {GOAL_FENCED} times raw")
    behind.cells[world.contenders[2].name] = wall.cells[world.contenders[2].name]
    behind.verdict = ratios([each.ms for each in fenced], [each.ms for each in bare])
    return [wall, behind, busy]


async def _weights(world: Stage, plan: Plan, size: int, say: Say) -> list[Row]:
    steps = list(pairwise(plan.lengths))
    rows = [Row(f"history bytes per round, {size // 1024} KB, rounds {a} to {b}") for a, b in steps]
    events = Row(f"history events per round, {size // 1024} KB")
    for each in world.contenders:
        say(f"history, {size} B: {each.name}")
        weights: list[Weight] = []
        try:
            for rounds in plan.lengths:
                run_id = f"weight-{rounds}-{each.model_activity}"
                weights.append(await weight(each, Load(rounds, size), run_id))
        except RunDied as died:
            rows[max(0, len(weights) - 1)].cells[each.name] = f"run ended: {died}"
        grown = [(b.size - a.size) / (b.rounds - a.rounds) for a, b in pairwise(weights)]
        for row, slope in zip(rows, grown, strict=False):
            row.cells[each.name] = f"{slope:,.0f}"
        if grown:
            more = (weights[-1].events - weights[0].events) / (weights[-1].rounds - weights[0].rounds)
            events.cells[each.name] = f"{more:.1f}"
        if grown and each is world.contenders[0]:
            rows[-1].goal = f"constant within {GOAL_SPREAD:.0%}"
            rows[-1].verdict = f"slopes differ by {max(grown) / min(grown) - 1:.1%}"
    return [*rows, events]


async def _crowds(world: Stage, plan: Plan, say: Say) -> Row:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(plan.crowds):
        say(f"runs per second: {number + 1} of {plan.crowds}")
        for each in _turned(world.contenders, number):
            ids = [f"crowd-{number}-{each.model_activity}-{one}" for one in range(plan.crowd)]
            found[each.name].append(await runs_per_second(each, Load(CROWD_ROUNDS, SIZES[0]), ids))
    row = Row(f"runs per second, {plan.crowd} at once of {CROWD_ROUNDS} rounds, 1 KB")
    row.cells.update((name, spread(values)) for name, values in found.items())
    return row


def _turned(contenders: tuple[Contender, ...], number: int) -> tuple[Contender, ...]:
    """Interleaved, and every other time backwards: whoever goes second may find the machine warmer, or busier."""
    return contenders[::-1] if number % 2 else contenders


def main() -> int:
    """The command line."""
    reader = argparse.ArgumentParser(description="Measure ours beside raw Temporal activities and beside the peers.")
    reader.add_argument("--quick", action="store_true", help="a look; benchmarks/RESULTS.md stays as it is")
    reader.add_argument(
        "--commands", action="store_true", help="only what is said to runs; the page stays as it is too"
    )
    asked = reader.parse_args()
    plan = QUICK if asked.quick else FULL

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        table = asyncio.run((only_commands if asked.commands else measure)(plan, say))
    except KeyboardInterrupt:
        say("Stopped; the server and the workers have ended.")
        return 130
    page = table.render(
        f"2 cores; {versions()}. One worker process; the server in memory, tuned as in `temporal-dev.yaml`.",
        f"Times are medians of {plan.repeats} interleaved runs of {plan.rounds} rounds, crowds of {plan.crowds}, with "
        "their quartiles. A round is a call of the model and a call of a tool; raw activities carry as many bytes as "
        "ours. Bytes are the server's own count of a history, as the slope between runs of two lengths. "
        f"Acknowledgements are medians of {plan.talk.runs * plan.talk.steers} neighbours in time, by update; the raw "
        "workflow keeps a text as large as our command, and answers with one as large as our acknowledgement.",
    )
    print(page)
    if not asked.quick and not asked.commands:
        RESULTS.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
