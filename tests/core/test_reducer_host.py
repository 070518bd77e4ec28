"""A host around the state machine, as small as can be, against the controller transcripts."""

from typing import Any

import pytest

from orchestral_temporal.core.reducer import Author, Outcome, Run, ack, admit, append, begin, status, view
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.admission import AgentAdmission
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    CommandAccepted,
    ProviderCommandDisposition,
    validate_disposition,
)
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentEventDraft,
    CommandReceived,
    ContinuityLost,
    ResourceBindingSkipped,
    RunAccepted,
    disposition_draft,
)
from orchestral_temporal.protocol.run import AgentDescriptorEnvelope, AgentRunEnvelope, start_request
from orchestral_temporal.protocol.words import dump, parse_value
from tests.golden import Row, matches, rows

VOID = {
    "resolve an unknown request": "refused before anything is written (divergence 11)",
    "resolve with the wrong kind": "refused before anything is written (divergence 11)",
    "same start twice, then another spec under the same run id": "a table of runs; the workflow id is ours",
    "run id reused by another session": "a table of runs; the workflow id is ours",
    "provider refuses the start": "a provider that is somebody else",
    "provider start outcome unknown": "a provider that is somebody else",
}
VOID_OPERATIONS = {"recover", "stream_end", "stream_error", "stream_telemetry"}
"""Loss and recovery of a foreign stream: one writer owns the journal (divergence 20)."""

TRANSCRIPTS = [
    row
    for row in rows("reducer")
    if row["level"] == "controller"
    and row["name"] not in VOID
    and not VOID_OPERATIONS & {step["op"] for step in row["steps"]}
]


class Host:
    """Starts one run, takes commands and events, and writes what the sheet's host writes."""

    def __init__(self, given: Row) -> None:
        self._given = given
        self.run: Run | None = None

    def take(self, step: Row) -> Any:
        """Feed one step; the result in the words of the transcript."""
        try:
            return getattr(self, step["op"])(step)
        except ProtocolError as fault:
            return {"error": {"kind": "protocol", "code": fault.error.code}}

    def start(self, step: Row) -> Any:
        """Accept the run and report its skips."""
        descriptor = parse_value(AgentDescriptorEnvelope, self._given["descriptor"])
        envelope = parse_value(AgentRunEnvelope, step["input"])
        request = start_request(envelope, self._given["provider_binding"], descriptor)
        run = begin(request, descriptor, parse_value(AgentAdmission, self._given["admission"]))
        self.run, run_id = run, run.execution.run_id
        accepted = RunAccepted(session_id=run.execution.session_id, spec_digest=run.execution.spec_digest)
        self._host(ids.host_run_accepted_id(run_id), accepted)
        for skip in run.admission.skipped_optional_bindings:
            self._host(ids.host_resource_skip_id(run_id, skip.binding_id), ResourceBindingSkipped(skip=skip))
        return {"ok": dump(run.execution)}

    def stream_event(self, step: Row) -> Any:
        """Commit an event of the provider; a refused one is a loss."""
        assert self.run is not None
        before = len(self.run.records)
        try:
            self.run = append(self.run, parse_value(AgentEventDraft, step["input"]), Author.PROVIDER).run
        except ProtocolError:
            lost = ContinuityLost(last_confirmed_seq=before, reason="The stream brought an event that is refused.")
            self._host(ids.host_continuity_lost_id(self.run.execution.run_id, before + 1), lost)
        added = [record.event.payload.type for record in self.run.records[before:]]
        return {"journaled": added or "nothing journaled"}

    def command(self, step: Row) -> Any:
        """Receive a command, take the provider's answer, acknowledge."""
        assert self.run is not None
        command = parse_value(AgentCommandEnvelope, step["input"])
        if command.run_id != self.run.execution.run_id:
            return {"error": {"kind": "run_not_found"}}
        known = admit(self.run, command)
        if known is not None:
            return {"duplicate": dump(known)}
        event_id = ids.host_command_received_id(command.run_id, command.command_id)
        repeated = self._host(event_id, CommandReceived(command=command), command.command_id)
        answer = step.get("provider_answer")
        if answer is not None and "error" in answer:
            return {"error": {"kind": "protocol", "code": answer["error"]}}
        disposition = (
            ProviderCommandDisposition(
                command_id=command.command_id, run_id=command.run_id, outcome=CommandAccepted(), duplicate=False
            )
            if answer is None
            else parse_value(ProviderCommandDisposition, answer)
        )
        validate_disposition(disposition, command)
        self.run = append(self.run, disposition_draft(disposition), Author.PROVIDER).run
        found = dump(ack(self.run, command.command_id, duplicate=repeated))
        return {"duplicate" if repeated else "ok": found}

    def command_ack(self, step: Row) -> Any:
        """Look an acknowledgement up."""
        assert self.run is not None
        return {"ok": dump(ack(self.run, step["input"]))}

    def _host(self, event_id: str, payload: AgentEvent, cause: str | None = None) -> bool:
        assert self.run is not None
        run_id = self.run.execution.run_id
        draft = AgentEventDraft(event_id=event_id, run_id=run_id, causation_id=cause, payload=payload)
        appended = append(self.run, draft, Author.HOST)
        self.run = appended.run
        return appended.outcome is Outcome.DUPLICATE


@pytest.mark.parametrize("row", TRANSCRIPTS, ids=lambda row: row["name"])
def test_transcript(row: Row) -> None:
    """Starts, commands and events have the result, journal and view of the source's controller."""
    host = Host(row["start"])
    for step in row["steps"]:
        assert matches(host.take(step), step["result"])
        if host.run is None:
            continue
        assert status(host.run) == step["status_after"]
        assert matches(dump(view(host.run)), step["view_after"])
        journal = [
            {
                "authority": record.authority.authority,
                "causation_id": record.event.causation_id,
                "event_id": record.event.event_id,
                "run_seq": record.event.run_seq,
                "type": record.event.payload.type,
            }
            for record in host.run.records
        ]
        assert journal == step["journal_after"]


def test_every_controller_transcript_is_driven_or_named_void() -> None:
    """No transcript is left out in silence."""
    names = {row["name"] for row in rows("reducer") if row["level"] == "controller"}
    by_operation = {
        row["name"]
        for row in rows("reducer")
        if row["level"] == "controller" and VOID_OPERATIONS & {step["op"] for step in row["steps"]}
    }
    assert names == {row["name"] for row in TRANSCRIPTS} | VOID.keys() | by_operation
    assert len(TRANSCRIPTS) == 19
