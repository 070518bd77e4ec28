"""A host around the state machine, as small as can be, against the controller transcripts.

Our system has no controller: the run itself is host and provider. This host does no more than name what the run does
with each thing that a controller may be given: a start is `begin`, a command is `admit`, receipt and disposition, an
event of the stream is a provider's draft.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any, Final

import pytest

from orchestral_temporal.core.reducer import Author, Outcome, Run, ack, admit, append, begin, status, view
from orchestral_temporal.core.session import SessionState, admit_open
from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import SessionOpen
from orchestral_temporal.protocol.admission import AgentAdmission
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    CommandAccepted,
    ProviderCommandDisposition,
    validate_disposition,
)
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError, require
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentEventDraft,
    CommandReceived,
    ContinuityLost,
    ResourceBindingSkipped,
    RunAccepted,
    disposition_draft,
)
from orchestral_temporal.protocol.run import AgentDescriptorEnvelope, AgentRunEnvelope, AgentStartRequest, start_request
from orchestral_temporal.protocol.words import dump, parse_value
from tests.golden import Row, matches, rows

TRANSCRIPTS = [row for row in rows("reducer") if row["level"] == "controller"]

FOREIGN_STREAM = {"recover", "stream_end", "stream_error", "stream_telemetry"}
"""Steps of a stream that is somebody else's, and of its recovery: void, since one writer owns the journal
(divergence 20). A transcript is driven up to its first such step."""

REFUSED = {
    "resolve an unknown request": "request_not_found",
    "resolve with the wrong kind": "request_type_mismatch",
}
"""Transcripts whose last step is void: what would poison the run is refused instead (divergence 11)."""


def _session_busy(request: AgentStartRequest) -> None:
    spec = request.run.spec
    busy = SessionState(session_id=spec.session_id, active="another")
    opening = SessionOpen(
        session_id=spec.session_id, run_id=spec.run_id, spec_digest=request.run.spec_digest, execution="first"
    )
    admit_open(busy, opening)


def _silence(_: AgentStartRequest) -> None:
    raise ConnectionError


HURDLES: Final[Mapping[str, tuple[Callable[[AgentStartRequest], None], ...]]] = {
    "provider refuses the start": (_session_busy,),
    "provider start outcome unknown": (_silence,),
}
"""What stands in the way of the first starts of a transcript; its rows tell only what came of it."""


class Host:
    """Starts one run, takes commands and events, and writes what the sheet's host writes."""

    def __init__(self, row: Row) -> None:
        self._given = row["start"]
        self._hurdles = iter(HURDLES.get(row["name"], ()))
        self._request: AgentStartRequest | None = None
        self.run: Run | None = None
        self.decided = 0

    def take(self, step: Row) -> Any:
        """Feed one step; the result in the words of the transcript."""
        try:
            return getattr(self, step["op"])(step)
        except ProtocolError as fault:
            return {"error": {"kind": "protocol", "code": fault.error.code}}
        except StartRefused as refused:
            return {"error": {"kind": "start_rejected", "code": refused.rejection.code}}
        except ConnectionError:
            return {"error": {"kind": "start_outcome_unknown", "code": AgentProtocolErrorCode.PROVIDER_UNAVAILABLE}}

    def start(self, step: Row) -> Any:
        """Accept the run and report its skips, or find the run that has this id."""
        descriptor = parse_value(AgentDescriptorEnvelope, self._given["descriptor"])
        envelope = parse_value(AgentRunEnvelope, step["input"])
        request = start_request(envelope, self._given["provider_binding"], descriptor)
        if self.run is not None:
            require(request == self._request, AgentProtocolErrorCode.RUN_ID_CONFLICT, "The id is another run's.")
            return {"ok": dump(self.run.execution)}
        for hurdle in self._hurdles:
            hurdle(request)
        run = begin(request, descriptor, parse_value(AgentAdmission, self._given["admission"]))
        self.run, self._request, run_id = run, request, run.execution.run_id
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
        disposition = self._decide(command, step.get("provider_answer"))
        validate_disposition(disposition, command)
        self.run = append(self.run, disposition_draft(disposition), Author.PROVIDER).run
        found = dump(ack(self.run, command.command_id, duplicate=repeated))
        return {"duplicate" if repeated else "ok": found}

    def command_ack(self, step: Row) -> Any:
        """Look an acknowledgement up."""
        assert self.run is not None
        return {"ok": dump(ack(self.run, step["input"]))}

    def _decide(self, command: AgentCommandEnvelope, answer: Row | None) -> ProviderCommandDisposition:
        self.decided += 1
        if answer is None:
            return ProviderCommandDisposition(
                command_id=command.command_id, run_id=command.run_id, outcome=CommandAccepted(), duplicate=False
            )
        code = answer.get("error")
        require(code is None, AgentProtocolErrorCode(code or "internal"), "The provider cannot answer.")
        return parse_value(ProviderCommandDisposition, answer)

    def _host(self, event_id: str, payload: AgentEvent, cause: str | None = None) -> bool:
        assert self.run is not None
        run_id = self.run.execution.run_id
        draft = AgentEventDraft(event_id=event_id, run_id=run_id, causation_id=cause, payload=payload)
        appended = append(self.run, draft, Author.HOST)
        self.run = appended.run
        return appended.outcome is Outcome.DUPLICATE


def drive(host: Host, steps: Iterable[Row]) -> None:
    """Feed steps and compare all that a transcript says of each."""
    for step in steps:
        assert matches(host.take(step), step["result"])
        assert host.decided == step["provider_command_calls"]
        if host.run is None:
            assert "view_after" not in step
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


@pytest.mark.parametrize("row", [row for row in TRANSCRIPTS if row["name"] not in REFUSED], ids=lambda row: row["name"])
def test_transcript(row: Row) -> None:
    """Starts, commands and events have the result, journal and view of the source's controller."""
    drive(Host(row), takewhile(lambda step: step["op"] not in FOREIGN_STREAM, row["steps"]))


@pytest.mark.parametrize("row", [row for row in TRANSCRIPTS if row["name"] in REFUSED], ids=lambda row: row["name"])
def test_an_answer_that_would_poison_the_run_is_refused(row: Row) -> None:
    """All is as in the source until the answer comes: that gets its code and leaves the run alone (divergence 11)."""
    host = Host(row)
    *known, void = row["steps"]
    drive(host, known)
    before, decided = host.run, host.decided
    assert host.take(void) == {"error": {"kind": "protocol", "code": REFUSED[row["name"]]}}
    assert (host.run, host.decided) == (before, decided)


def test_every_transcript_is_driven_to_its_end_or_to_a_named_step() -> None:
    """No transcript is left out in silence: eleven of 34 end before a step that a divergence makes void."""
    cut = {row["name"] for row in TRANSCRIPTS if FOREIGN_STREAM & {step["op"] for step in row["steps"]}}
    assert (len(TRANSCRIPTS), len(cut), cut & REFUSED.keys()) == (34, 9, set())
    assert {row["name"] for row in TRANSCRIPTS} >= REFUSED.keys() | HURDLES.keys()
