"""The state machine of a run against the golden transcripts, and what they do not reach."""

from collections.abc import Iterable
from typing import Any

import pytest

from orchestral_temporal.core.reducer import Author, Outcome, Run, ack, append, begin, replay, status, view
from orchestral_temporal.protocol.admission import AgentAdmission, AgentExecutionRef, validate_execution
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import AgentEventDraft, AgentJournalRecord
from orchestral_temporal.protocol.run import AgentDescriptorEnvelope, AgentStartRequest
from orchestral_temporal.protocol.state import projection_digest
from orchestral_temporal.protocol.words import dump, parse, parse_value, to_json
from tests.golden import Row, matches, rows

TRANSCRIPTS = [row for row in rows("reducer") if row["level"] == "reducer"]

VOID = "verifier refuses the proof"
"""The one transcript that is void: the journal's only writer needs no verifier beside the journal (divergence 20)."""

AUTHORS = {
    "provider_draft": Author.PROVIDER,
    "host_draft": Author.HOST,
    "reconcile_draft": Author.RECONCILED,
}


def start(given: Row) -> Run:
    """The run that a transcript starts with."""
    request = parse_value(AgentStartRequest, given["request"])
    descriptor = parse_value(AgentDescriptorEnvelope, given["descriptor"])
    validate_execution(parse_value(AgentExecutionRef, given["execution"]), request, descriptor)
    return begin(request, descriptor, parse_value(AgentAdmission, given["admission"]))


def take(run: Run, step: Row) -> tuple[Run, Any, AgentJournalRecord | None]:
    """Feed one step: the run after it, its result in the words of the transcript, the record."""
    try:
        if step["op"] == "replay_record":
            appended = replay(run, parse_value(AgentJournalRecord, step["input"]))
        else:
            appended = append(run, parse_value(AgentEventDraft, step["input"]), AUTHORS[step["op"]])
    except ProtocolError as fault:
        return run, {"error": fault.error.code}, None
    result = {"violation": appended.code} if appended.outcome is Outcome.VIOLATION else appended.outcome
    return appended.run, result, appended.record


def ack_or_error(run: Run, command_id: str) -> Any:
    """The acknowledgement of a command in the words of the transcript."""
    try:
        return dump(ack(run, command_id, duplicate=False))
    except ProtocolError as fault:
        return {"error": fault.error.code}


def drive(run: Run, steps: Iterable[Row]) -> Run:
    """Feed steps and compare all that a transcript says of each; the run after them."""
    for step in steps:
        run, result, record = take(run, step)
        assert result == step["result"]
        assert status(run) == step["status_after"]
        assert matches(dump(view(run)), step["view_after"])
        if record is not None and "record" in step:
            assert matches(dump(record), step["record"])
        if "view_digest" in step and step["view_digest"] != "*":
            assert projection_digest(view(run)) == step["view_digest"]
        for command_id, expected in (step.get("acks_after") or {}).items():
            assert matches(ack_or_error(run, command_id), expected)
    return run


@pytest.mark.parametrize("row", [row for row in TRANSCRIPTS if row["name"] != VOID], ids=lambda row: row["name"])
def test_transcript(row: Row) -> None:
    """Each input of a transcript has the result, record, view and acknowledgements of the source."""
    if "start_result" in row:
        with pytest.raises(ProtocolError) as refused:
            start(row["start"])
        assert row["start_result"] == {"error": refused.value.error.code}
        return
    run = start(row["start"])
    assert matches(dump(view(run)), row["start"]["view"])
    run = drive(run, row["steps"])
    assert parse(Run, to_json(run)) == run


def test_a_proof_of_the_journal_s_own_loss_needs_no_verifier() -> None:
    """The void transcript as we have it: all as in the source, but the proof that its verifier refuses holds."""
    row = next(row for row in TRANSCRIPTS if row["name"] == VOID)
    *known, void = row["steps"]
    assert void["verifier"] == "refuses with invalid_spec"
    run, result, _ = take(drive(start(row["start"]), known), void)
    assert (result, status(run)) == (Outcome.OK, "running")


def test_every_transcript_is_there() -> None:
    """No transcript of the state machine is left out in silence."""
    assert len(TRANSCRIPTS) == 189
