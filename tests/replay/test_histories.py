"""Golden histories: what was once written must be replayed by today's code (I1)."""

import gzip
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from orchestral_temporal.temporal.history import replay
from tests.temporal.unshielded import replay_unshielded

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json.gz"))


def history_of(path: Path) -> WorkflowHistory:
    """A recorded history; its name is the workflow's id."""
    name = path.name.removesuffix(".json.gz").replace("session-", "session/")
    return WorkflowHistory.from_json(name, gzip.decompress(path.read_bytes()).decode())


def test_there_are_histories() -> None:
    """The room is not empty, so that the next test cannot pass by having nothing to do."""
    assert len(HISTORIES) >= 4


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.name)
async def test_a_recorded_history_still_replays(path: Path) -> None:
    """Neither the workflow's commands nor the order of its decisions have changed (I1)."""
    await replay_unshielded(history_of(path))


@pytest.mark.parametrize("path", [each for each in HISTORIES if "session" not in each.name], ids=lambda path: path.name)
async def test_a_recorded_history_reads_as_journal_and_wal(path: Path) -> None:
    """Offline, from the file alone, journal and WAL come out whole, and the last word is the terminal (I1)."""
    read = await replay(history_of(path))
    assert [record.event.run_seq for record in read.journal] == list(range(1, len(read.journal) + 1))
    assert read.wal[-1].payload.type == "provider_events_committed"
    assert read.state is not None
    assert read.state.phase.at == "ended"
