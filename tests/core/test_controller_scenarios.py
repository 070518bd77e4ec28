"""Transcripts of the source in which its controller meets a provider of two events: acted by the reducer alone."""

from typing import Any

import pytest

from orchestral_temporal.core.reducer import Author, Outcome, Run, ack, admit, append, replay, status, view
from orchestral_temporal.protocol.admission import AgentAdmission, AgentExecutionRef
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Steer, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.events import AgentJournalRecord, draft_of
from orchestral_temporal.protocol.words import dump, parse_value
from tests.golden import Row, scenario

DELIVERED = (
    "agent_controller.a_new_controller_rehydrates_inspect_and_events_from_the_agent_journal",
    "agent_controller.controller_drives_provider_stream_into_one_inspectable_terminal_run",
)
RETRIES = "agent_controller.command_retries_bind_the_complete_envelope_and_survive_controller_restart"


def driven_and_rehydrated(content: Row) -> tuple[Run, Run]:
    """The run made of the transcript's drafts, and the one read back from its records; both give its records."""
    (created,) = [row["registration"] for row in content["run_journal"] if row.get("op") == "create"]
    fresh = Run(
        execution=parse_value(AgentExecutionRef, created["execution"]),
        admission=parse_value(AgentAdmission, created["admission"]),
        output_schema=None,
        request_kinds=(),
        queued_input=False,
    )
    driven = rehydrated = fresh
    for row in content["run_journal"]:
        if "record" in row:
            record = parse_value(AgentJournalRecord, row["record"])
            appended = append(driven, draft_of(record.event), Author(record.authority.authority))
            assert (appended.record, appended.outcome) == (record, Outcome.OK)
            driven, rehydrated = appended.run, replay(rehydrated, record).run
    (final,) = content["final_status"].values()
    seen = view(driven)
    assert (status(driven), seen.last_run_seq, seen.pending_requests) == (final["status"], final["last_run_seq"], ())
    assert view(rehydrated) == seen
    return driven, rehydrated


@pytest.mark.parametrize("name", DELIVERED)
def test_a_delivered_run_is_the_same_when_it_is_read_back(name: str) -> None:
    """The provider's events, appended and then replayed, give the transcript's records byte for byte (A1, I1)."""
    content = scenario(name)
    driven, _ = driven_and_rehydrated(content)
    (final,) = content["final_status"].values()
    seen: Any = dump(view(driven))
    assert seen["state"]["terminal"] == final["terminal"]
    assert seen["delivery"]["final_response"] == final["final_response"]


@pytest.mark.parametrize("which", [0, 1], ids=["driven", "read back"])
def test_a_command_id_binds_the_whole_command(which: int) -> None:
    """The same command again is known, another one under its id is refused; so too after a restart (C1, C2)."""
    content = scenario(RETRIES)
    run = driven_and_rehydrated(content)[which]
    first, again, conflict = content["commands"]
    payloads = [row["record"]["event"]["payload"] for row in content["run_journal"] if "record" in row]
    (sent,) = [each["command"] for each in payloads if each["type"] == "command_received"]
    command = parse_value(AgentCommandEnvelope, sent)

    given: Any = dump(ack(run, command.command_id, duplicate=False))
    assert {key: given[key] for key in first["ack"]} == first["ack"]
    known = admit(run, command)
    assert known is not None
    assert {key: dump(known)[key] for key in again["ack"]} == again["ack"]
    other = seal_command(command.command_id, command.run_id, Steer(content=(text_content("second content"),)))
    with pytest.raises(ProtocolError) as refused:
        admit(run, other)
    assert refused.value.error.code is AgentProtocolErrorCode.DUPLICATE_CONFLICT
    assert conflict["error"].startswith("DuplicateConflict")
