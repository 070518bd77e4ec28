"""`list`, `inspect`, `events`, `artifacts` and `cancel`: looking at runs, and the one word to them so far."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from orchestral_temporal.cli.screen import answer, answer_json, answer_table, result_of
from orchestral_temporal.hosting.artifacts import artifact_store, copy_artifact
from orchestral_temporal.hosting.connection import connect
from orchestral_temporal.hosting.process import GOOD
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal.client import AgentClient, Listed

WAITING: Final = ("input", "approval")

COLUMNS: Final = ("RUN", "STATUS", "AGENT", "SESSION", "WAITING", "STARTED")


@dataclass(frozen=True)
class Wanted:
    """Which runs to list."""

    status: str | None
    waiting: str | None
    session_id: str | None
    limit: int


async def list_runs(settings: Settings, wanted: Wanted, *, as_json: bool) -> int:
    """A table, or a JSON object for each run."""
    status = AgentRunStatus(_one_of("--status", wanted.status, tuple(AgentRunStatus))) if wanted.status else None
    waiting = _one_of("--waiting", wanted.waiting, WAITING) if wanted.waiting else None
    runs = await runs_of(settings)
    found = [
        each
        async for each in runs.find(status=status, waiting=waiting, session_id=wanted.session_id, limit=wanted.limit)
    ]
    if as_json:
        for each in found:
            answer_json(_json(each))
    else:
        answer_table(COLUMNS, [_row(each) for each in found])
    return GOOD


def _one_of(option: str, given: str, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise SettingsError([f"{option} is {given!r}; use one of {', '.join(allowed)}."])
    return given


def _json(run: Listed) -> JsonObject:
    return {
        **asdict(run),
        "waiting": list(run.waiting),
        "started": run.started.isoformat(),
        "closed": run.closed.isoformat() if run.closed is not None else None,
    }


def _row(run: Listed) -> tuple[str, ...]:
    started = run.started.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    cells = (run.run_id, run.status, run.agent, run.session_id, " ".join(run.waiting), started)
    return tuple(cell or "-" for cell in cells)


async def inspect_run(settings: Settings, run_id: str, *, as_json: bool) -> int:
    """The wire view as JSON, or its main points."""
    run = (await runs_of(settings)).run(run_id)
    if as_json:
        answer_json(dump(await run.inspect()))
        return GOOD
    ended = await run.closed()
    seen = result_of(ended) if ended is not None else await run.look()
    kept = ("session_id", "status", "round", "tool_calls", "usage", "text", "failure", "reason", "refused")
    answer(f"run: {run_id}")
    for key in kept:
        if seen.get(key) not in (None, []):
            answer(f"{key.replace('_id', '').replace('_', ' ')}: {_line(seen[key])}")
    return GOOD


def _line(value: Json) -> str:
    match value:
        case dict():
            return ", ".join(f"{key} {_line(each)}" for key, each in value.items() if each is not None)
        case list():
            return "; ".join(_line(each) for each in value)
        case _:
            return str(value)


async def print_events(settings: Settings, run_id: str, *, after: int, more: bool, as_json: bool) -> int:
    """The journal, one record a line."""
    run = (await runs_of(settings)).run(run_id)
    async for record in run.events(after, more=more):
        if as_json:
            answer_json(dump(record))
        else:
            answer(f"{record.event.run_seq}\t{record.authority.authority}\t{record.event.payload.type}")
    return GOOD


async def cancel_run(settings: Settings, run_id: str, reason: str) -> int:
    """The acknowledgement as JSON."""
    answer_json(dump(await (await runs_of(settings)).run(run_id).cancel(reason)))
    return GOOD


async def get_artifact(settings: Settings, reference: str, file: Path) -> int:
    """The bytes of an artifact into a file; how many they were."""
    answer(f"{await copy_artifact(settings, reference, file)} bytes")
    return GOOD


async def runs_of(settings: Settings) -> AgentClient:
    """A client of the server, queue and store that the settings name."""
    client = await connect(settings.temporal)
    return AgentClient(client, task_queue=settings.queues.runs, artifacts=artifact_store(settings))
