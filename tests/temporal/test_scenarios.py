"""The eleven transcripts of the source that part 1 reproduces, compared as their page says.

| compared | here |
|---|---|
| types, authority, causation, event ids | of the run journal in the result |
| outcome | status, terminal, pending requests, usage, final response, last sequence |
| WAL | sequence of records, folded phase |
| session | types and payloads: messages, exchanges with call id, arguments, result, `is_error` |
| effects | how often the tools ran; the effect journal itself comes with the fence (part 4) |
| model | number of requests, messages after the system message, tool names, output cap |
"""

from pathlib import Path
from typing import Any

import pytest

from orchestral_temporal.core.projection import Run
from orchestral_temporal.core.reducer import Author, Outcome, append, replay, status, view
from orchestral_temporal.protocol.admission import AgentAdmission, AgentExecutionRef
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.events import AgentJournalRecord, draft_of
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.scenarios import FOLDER, RecordedRun, recorded_runs, wal_line, without_wording
from tests.temporal.wal_fold import fold
from tests.temporal.world import World, plan

NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.gz"))
CONTROLLER = [name for name in NAMES if name.startswith("agent_controller.")]
LOOP = [name for name in NAMES if name not in CONTROLLER]


def test_part_one_has_eleven_transcripts() -> None:
    """Nine of the loop and two of the controller alone."""
    assert (len(LOOP), len(CONTROLLER)) == (9, 2)


@pytest.mark.parametrize("name", LOOP)
async def test_transcript_is_reproduced(world: World, name: str, tmp_path: Path) -> None:
    """The same input, limits, tools and model answers give the transcript's journal, WAL, session and requests."""
    for number, recorded in enumerate(recorded_runs(name, tmp_path)):
        await check(world, recorded, world.id(f"r{number}"), world.id(f"s{number}"))


async def check(world: World, recorded: RecordedRun, run_id: str, session_id: str) -> None:
    """Act one run again, and compare."""
    model, tools = recorded.model(), recorded.tools()
    async with world.serving(plan(model, *tools, max_output_tokens=4_096, context_tokens=131_072)):
        turn = await act(world, recorded, run_id, session_id)
        history = await world.read(run_id)
        records = await world.records(session_id)

    check_journal(recorded, turn, run_id, session_id)
    check_outcome(recorded, turn, run_id, session_id)
    assert [wal_line(record) for record in history.wal] == recorded.sequence("wal")
    assert fold(history.wal) == "terminal"
    check_session(recorded, records, run_id, session_id)
    check_requests(recorded, model)
    # Every call that the model made and that was in order ran once.
    assert sum(len(tool.calls) for tool in tools) == recorded.sequence("session_journal").count(
        "tool_exchange_committed"
    )


async def act(world: World, recorded: RecordedRun, run_id: str, session_id: str) -> Turn:
    """Start the run and wait for its end."""
    spec = recorded.request.run.spec
    task = spec.input[0].body.value
    assert isinstance(task, str)
    return await (await world.runs.start(task, run_id=run_id, session_id=session_id, limits=spec.limits)).wait()


def check_journal(recorded: RecordedRun, turn: Turn, run_id: str, session_id: str) -> None:
    """Types, authority, causation and event ids of the run journal."""
    journal: Any = turn.result["journal"]
    types = [f"{each['authority']['authority']}:{each['event']['payload']['type']}" for each in journal]
    # One transcript was driven without a controller and has no run journal.
    assert types == (recorded.sequence("run_journal") or types)
    assert {each["event"]["causation_id"] for each in journal} == {None}
    theirs = recorded.under_our_ids(recorded.journal(), run_id, session_id)
    ours = {each["event"]["event_id"]: each["event"]["payload"] for each in journal}
    for each in theirs:
        payload = ours[each["event"]["event_id"]]
        assert payload["type"] == each["event"]["payload"]["type"]
        if payload["type"] == "output_committed":
            assert payload == each["event"]["payload"]


def check_outcome(recorded: RecordedRun, turn: Turn, run_id: str, session_id: str) -> None:
    """Status, terminal, pending requests, usage, final response, last sequence."""
    final = recorded.under_our_ids(recorded.final(), run_id, session_id)
    assert turn.view is not None
    seen = dump(turn.view)
    assert turn.status == final["status"]
    if final.get("from") == "wal":
        assert final["terminal"] == {"type": "delivery_committed"}
    else:
        state: Any = seen["state"]
        assert state["terminal"] == final["terminal"]
        assert (seen["last_run_seq"], seen["pending_requests"]) == (final["last_run_seq"], [])
    if "final_response" in final:
        delivery: Any = turn.result["delivery"]
        assert delivery["final_response"] == final["final_response"]
        assert delivery["usage"] == final["usage"]


def check_session(recorded: RecordedRun, records: list[JsonObject], run_id: str, session_id: str) -> None:
    """Types of all records, and the payloads of those that the file kept."""
    ours: list[Any] = [record["payload"] for record in records]
    assert [payload["type"] for payload in ours] == recorded.sequence("session_journal")
    kept = {row["session_seq"]: row["payload"] for row in recorded.rows("session_journal")}
    for seq, payload in kept.items():
        theirs = recorded.under_our_ids(without_wording(payload), run_id, session_id)
        assert without_wording(ours[seq - 1]) == theirs


def check_requests(recorded: RecordedRun, model: ScriptedModel) -> None:
    """Number of requests; messages, tool names and output cap of those that the file kept."""
    rounds = [line for line in recorded.sequence("wal") if line.startswith("model_attempt_started")]
    assert len(model.requests) == len(rounds)
    for theirs in recorded.requests:
        mine = model.requests[theirs.row["round"] - 1]
        known = without_wording(dump(mine)["messages"])[max(1, theirs.unknown) :]
        assert known == without_wording(theirs.messages[0 if theirs.unknown else 1 :])
        assert [tool.name for tool in mine.tools] == [tool["name"] for tool in theirs.tools]
        assert mine.max_output_tokens == theirs.row["request"]["max_output_tokens"]


@pytest.mark.parametrize("name", CONTROLLER)
def test_controller_transcript_is_reproduced(name: str, tmp_path: Path) -> None:
    """The stand-in provider's events, appended and then replayed, give the transcript's records byte for byte."""
    (recorded,) = recorded_runs(name, tmp_path)
    records = [parse_value(AgentJournalRecord, each) for each in recorded.journal()]
    (registration,) = [row["registration"] for row in recorded.content["run_journal"] if row.get("op") == "create"]
    fresh = Run(
        execution=parse_value(AgentExecutionRef, registration["execution"]),
        admission=parse_value(AgentAdmission, registration["admission"]),
        output_schema=None,
        request_kinds=(),
        queued_input=False,
    )
    driven = rehydrated = fresh
    for record in records:
        author = Author(record.authority.authority)
        appended = append(driven, draft_of(record.event), author)
        assert (appended.record, appended.outcome) == (record, Outcome.OK)
        driven, rehydrated = appended.run, replay(rehydrated, record).run

    assert view(rehydrated) == view(driven)
    final = recorded.final()
    assert status(driven) == final["status"]
    seen: Any = dump(view(driven))
    assert (seen["last_run_seq"], seen["pending_requests"]) == (final["last_run_seq"], [])
    assert seen["state"]["terminal"] == final["terminal"]
    assert seen["delivery"]["final_response"] == final["final_response"]
