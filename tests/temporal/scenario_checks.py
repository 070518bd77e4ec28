"""What is compared between a transcript and our run after its pattern, as the page of the transcripts says.

| compared | here |
|---|---|
| types, authority, causation, event ids | of the run journal in the result; command ids are the transcript's own |
| outcome | status, terminal, pending requests, usage, final response, last sequence; of failures the code |
| WAL | sequence of records, folded phase; ids, boundaries, observations and retries of those that the file kept |
| session | types and payloads: messages, exchanges with call id, arguments, result, `is_error` |
| acknowledgements | state, code, recorded sequence, `duplicate`; ours may have gone on from accepted to applied |
| effects | the steps of each call in order; how often the tools ran |
| model | number of requests, messages after the system message, tool names, output cap |
"""

from collections.abc import Sequence
from typing import Any, Final

from orchestral_temporal.protocol.wal import ProviderEventsCommitted
from orchestral_temporal.protocol.words import dump
from tests.temporal.scenario_play import Ended
from tests.temporal.scenarios import wal_line, without_wording
from tests.temporal.wal_fold import fold

NAMES: Final = {"unknown_effect": "effect_unknown"}
"""What the wire's effect journal calls a step that our notes call by another name."""

WHOLE: Final = ("loop_boundary_committed", "model_attempt_observed", "model_retry_scheduled")
"""WAL records without digests over ids or wording."""


def check(ended: Ended) -> None:
    """All of it."""
    check_start(ended)
    check_journal(ended)
    check_outcome(ended)
    check_wal(ended, ended.played.recorded.sequence("wal"))
    check_session(ended)
    check_acks(ended)
    check_requests(ended)
    check_effects(ended)


def check_start(ended: Ended) -> None:
    """The run's spec holds what the transcript's held; our own extension stands beside its own."""
    state = ended.history.state
    assert state is not None
    theirs, ours = ended.played.recorded.request.run.spec, state.start.envelope.spec
    assert ours.input == theirs.input
    assert theirs.extensions.items() <= ours.extensions.items()


def check_journal(ended: Ended) -> None:
    """Types, authority, causation and event ids of the run journal."""
    recorded = ended.played.recorded
    journal: Any = ended.turn.result["journal"]
    types = [f"{each['authority']['authority']}:{each['event']['payload']['type']}" for each in journal]
    # Some transcripts were driven without a controller and have no run journal.
    assert types == (recorded.sequence("run_journal") or types)
    ours = {each["event"]["event_id"]: each["event"] for each in journal}
    for each in ended.played.ours(recorded.journal()):
        theirs, event = each["event"], ours[each["event"]["event_id"]]
        assert (event["payload"]["type"], event["causation_id"]) == (theirs["payload"]["type"], theirs["causation_id"])
        if event["payload"]["type"] in ("output_committed", "input_committed", "command_disposition_recorded"):
            assert without_wording(event["payload"]) == without_wording(theirs["payload"])


def check_outcome(ended: Ended, *, usage: bool = True) -> None:
    """Status, terminal, pending requests, final response, last sequence, and the usage unless we count another one."""
    final = ended.played.ours(ended.played.recorded.final())
    turn, view = ended.turn, ended.turn.view
    assert view is not None
    assert turn.status == final["status"]
    if final.get("from") == "wal":
        last = ended.history.wal[-1].payload
        assert isinstance(last, ProviderEventsCommitted)
        terminal = dump(last.events[-1].payload)
        assert without_wording({key: terminal[key] for key in final["terminal"]}) == without_wording(final["terminal"])
    else:
        seen: Any = dump(view)
        assert without_wording(seen["state"]["terminal"]) == without_wording(final["terminal"])
        assert (seen["last_run_seq"], seen["pending_requests"]) == (final["last_run_seq"], [])
    if "final_response" in final:
        delivery: Any = turn.result["delivery"]
        assert delivery["final_response"] == final["final_response"]
        assert delivery["usage"] == final["usage"] or not usage


def check_wal(ended: Ended, expected: Sequence[str]) -> None:
    """The records in their order, and that they fold to an end; ids and contents of those that the file kept."""
    wal = ended.history.wal
    assert [wal_line(record) for record in wal] == list(expected)
    assert fold(wal) == "terminal"
    ours = {record.event_id: record.payload for record in wal}
    for theirs in ended.played.ours(ended.played.recorded.rows("wal")):
        payload = ours[theirs["event_id"]]
        assert payload.type == theirs["payload"]["type"]
        if payload.type in WHOLE:
            assert without_wording(dump(payload)) == without_wording(theirs["payload"])


def check_session(ended: Ended) -> None:
    """Types of all records, and the payloads of those that the file kept."""
    recorded = ended.played.recorded
    ours: list[Any] = [record["payload"] for record in ended.records]
    assert [payload["type"] for payload in ours] == recorded.sequence("session_journal")
    for row in recorded.rows("session_journal"):
        theirs = ended.played.ours(without_wording(row["payload"]))
        assert without_wording(ours[row["session_seq"] - 1]) == theirs


def check_acks(ended: Ended) -> None:
    """Every acknowledgement; ours comes when the command's whole step is done, so it may say applied at once."""
    acknowledged = [command.ack for command in ended.played.commands if command.ack is not None]
    for theirs, given in zip(acknowledged, ended.played.acks, strict=True):
        ours: Any = without_wording(given)
        if ours["state"]["state"] == "applied":
            ours["state"] = {"state": "accepted", "recorded_seq": ours["state"]["recorded_seq"]}
        assert {key: ours[key] for key in theirs} == without_wording(theirs)


def check_requests(ended: Ended) -> None:
    """Number of requests; messages, tool names and output cap of those that the file kept."""
    recorded, model = ended.played.recorded, ended.played.model
    sent = ("model_attempt_started", "model_retry_scheduled")
    assert len(model.requests) == sum(line.startswith(sent) for line in recorded.sequence("wal"))
    for theirs in recorded.requests:
        mine = model.requests[theirs.number - 1]
        known = without_wording(dump(mine)["messages"])[max(1, theirs.unknown) :]
        assert known == without_wording(theirs.messages[0 if theirs.unknown else 1 :])
        assert [tool.name for tool in mine.tools] == [tool["name"] for tool in theirs.tools]
        assert mine.max_output_tokens == theirs.row["request"]["max_output_tokens"]


def check_effects(ended: Ended) -> None:
    """The steps of each call, in the order of the calls; each that was executed there ran once."""
    recorded = ended.played.recorded
    outcomes = {row["invocation"]["call_id"]: row["result"]["outcome"]["status"] for row in recorded.tool_calls}
    expected = [steps_of(steps, outcomes.get(call_id)) for call_id, steps in recorded.effects().items()]
    ours: dict[str, list[str]] = {}
    for note in ended.history.notes:
        ours.setdefault(note.invocation_id, []).append(NAMES.get(note.at, note.at))
    assert list(ours.values()) == expected
    assert sum(len(tool.calls) for tool in ended.played.tools) == len(expected)


def steps_of(steps: Sequence[str], status: str | None) -> list[str]:
    """The steps that we note of a call with this outcome.

    Whether the guard refuses, the tool does, or a cancel comes first is one to the run: it was told that nothing has
    happened, so it notes no `invoked`.
    """
    return [each for each in steps if each != "invoked" or status not in ("rejected", "cancelled")]
