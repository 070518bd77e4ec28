"""Kill a worker around an effect that must not happen twice, ours beside the peers: one command, one table.

    python benchmarks/kill.py             # half an hour; prints the table, writes benchmarks/KILL.md
    python benchmarks/kill.py --tries 1   # a look, some minutes; only prints

Every system runs the same agent: a model that follows a script asks for one call of a tool and then answers; the tool
adds a line to a file and syncs it. The process kills itself at the place that is tried, another one takes over at once,
and then the lines are counted. Peers are tried if they are installed (dependency group `peers`).
"""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from kill_try import OURS, Seen, System, WorkerFailed, attempt
from ledger import AFTER, ARRIVAL, BEFORE, MODEL, NOWHERE
from server import connect, own_server
from table import grid, page, versions

RESULTS: Final = Path(__file__).with_name("KILL.md")

TRIES: Final = 5

SIDE_BY_SIDE: Final = 4
"""Tries at once: they spend most of their time waiting for a time-out."""

SYSTEMS: Final = (
    OURS,
    System("raw activities", "kill_raw"),
    System("pydantic-ai-slim", "kill_pydantic_ai", "pydantic-ai-slim"),
    System("temporalio-openai-agents", "kill_openai_agents", "temporalio-openai-agents"),
)

CAREFUL: Final = (
    System("raw activities, tool tried once", "kill_raw", None, 1),
    System("pydantic-ai-slim, tool tried once", "kill_pydantic_ai", "pydantic-ai-slim", 1),
    System("temporalio-openai-agents, tool tried once", "kill_openai_agents", "temporalio-openai-agents", 1),
)
"""The same with `maximum_attempts=1` in the retry policy of the tool's activity, as its author may ask for."""

TRIED: Final[dict[str, Sequence[System]]] = {
    NOWHERE: SYSTEMS,
    ARRIVAL: SYSTEMS + CAREFUL,
    BEFORE: SYSTEMS + CAREFUL,
    AFTER: SYSTEMS + CAREFUL,
    MODEL: SYSTEMS,
}
"""The systems by place."""

HEAD: Final = ("killed", "system", "effects", "model calls", "the run's end", "s to next step", "s to end")

NOTES: Final = """\
An agent calls a tool once and then answers. The tool has an effect that must not happen twice: a line in a file. The
worker kills itself with SIGKILL, once a run: *before the tool* (its activity has arrived, none of its code has run),
*before the effect* (in the tool, nothing written yet), *after the effect* (the line is on disk, the result not reported
yet), *in the next model call* (the tool's result is in the history). A second worker, loaded and standing by, begins to
serve at once. Wanted: never two effects, and an end that is true.

Seconds count from the kill: median, least and most. The *next step* is an activity scheduled, started or completed,
or the run's end; a time-out or a timer is none. Seconds are settings more than merits; shorter time-outs make any
of these quicker, at the price of calling slow work lost.

`orchestral_temporal`: its defaults, which are 10 s of silence for a call with effects, then 30 s in which its
result may still turn up, and 5 s of silence for a model call. The tool is declared `non_idempotent`, the model may
be asked again. Inside the tool nobody can tell *before* from *after* the effect, so either ends as unknown.
`pydantic-ai-slim`: its defaults, 60 s from start to close and, for a model call, 30 s of silence.
`temporalio-openai-agents`: its default for a model call, 60 s; a tool has none, so the 10 s of its README. Raw
activities: 10 s. These three retry without limit by default; *tool tried once* is the same with
`maximum_attempts=1` for the tool's activity, which its author may set."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A system and the place where its worker is killed."""

    place: str
    system: System


async def run(tries: int, say: Say) -> str:
    """Try everything; the page."""
    installed = [each for each in SYSTEMS if _installed(each)]
    modules = {each.module for each in installed}
    cases = [Case(place, each) for place, systems in TRIED.items() for each in systems if each.module in modules]
    seen = await _try(cases, tries, say)
    how = (
        f"{os.cpu_count()} cores; {versions()}. Tries of each line: {tries}; {SIDE_BY_SIDE} at once on one server in "
        "memory, tuned as in `temporal-dev.yaml`. The two worker processes of a try serve no other run. No chance is "
        "in it, so there is no seed."
    )
    lines = [HEAD, *(_line(case, found) for case, found in seen.items())]
    missing = [each.name for each in SYSTEMS if each not in installed]
    return page("Killed around an effect", [how, NOTES, grid(lines)], missing)


async def _try(cases: Sequence[Case], tries: int, say: Say) -> dict[Case, list[Seen]]:
    seen: dict[Case, list[Seen]] = {each: [] for each in cases}
    boot, room = asyncio.Lock(), asyncio.Semaphore(SIDE_BY_SIDE)
    with TemporaryDirectory() as folder:
        async with own_server() as address:
            client = await connect(address)

            async def one(case: Case, number: int) -> None:
                async with room:
                    found = await attempt(client, case.system, case.place, _new(folder, case, number), boot)
                seen[case].append(found)
                say(f"{sum(map(len, seen.values()))} of {len(cases) * tries}: {case.system.name}, {case.place}")

            async with asyncio.TaskGroup() as group:
                for number in range(tries):
                    for case in cases:
                        group.create_task(one(case, number))
    return seen


def _new(folder: str, case: Case, number: int) -> Path:
    """A folder for one try; its name is safe as an id."""
    words = f"{case.place} {case.system.module} {case.system.attempts} {number}"
    made = Path(folder) / words.replace(" ", "-")
    made.mkdir()
    return made


def _installed(system: System) -> bool:
    try:
        return system.distribution is None or bool(distribution(system.distribution))
    except PackageNotFoundError:
        return False


def _line(case: Case, found: Sequence[Seen]) -> Sequence[str]:
    return (
        case.place,
        case.system.name,
        _counts([each.effects for each in found]),
        _counts([each.model_calls for each in found]),
        _counts([each.end for each in found]),
        _seconds([each.to_step for each in found]),
        _seconds([each.to_end for each in found]),
    )


def _counts(values: Sequence[Hashable]) -> str:
    """What was seen; with how often, if not always the same."""
    counted = Counter(values)
    if len(counted) == 1:
        return str(values[0])
    return ", ".join(f"{value} ({times} of {len(values)})" for value, times in counted.most_common())


def _seconds(values: Sequence[float | None]) -> str:
    known = sorted(each for each in values if each is not None)
    return f"{median(known):.1f} ({known[0]:.1f} to {known[-1]:.1f})" if known else ""


def main() -> int:
    """The command line."""
    reader = argparse.ArgumentParser(description="Kill workers around an effect, ours beside the peers.")
    reader.add_argument("--tries", type=int, default=TRIES, help="tries of each line; KILL.md is written from 5 on")
    tries: int = reader.parse_args().tries

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if tries < 1:
        reader.error("`--tries` must be 1 or more.")
    try:
        written = asyncio.run(run(tries, say))
    except ExceptionGroup as faults:
        died = faults.subgroup(WorkerFailed)
        if died is None:
            raise
        say(str(died.exceptions[0]))
        return 1
    except KeyboardInterrupt:
        say("Stopped; the server and the workers have ended.")
        return 130
    print(written)
    if tries >= TRIES:
        RESULTS.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
