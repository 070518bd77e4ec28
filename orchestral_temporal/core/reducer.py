"""The state machine of a run: what enters the journal, under which number, and what readers see (`spec/reducer.md`).

The sheet injects one decision, the verifier of a reconciliation. Here one writer owns the journal, so a proof is
verified by what the journal itself says of the loss (divergence 20).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from orchestral_temporal.core.projection import CommandEntry, Run, ack, command_of, status, view
from orchestral_temporal.core.table import Phase
from orchestral_temporal.core.transition import applied, check_answer, quarantined
from orchestral_temporal.protocol.admission import (
    AgentAdmission,
    Incompatible,
    check_compatibility,
    execution_for,
    validate_admission,
)
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    CommandAck,
    queued_input,
    queued_input_supported,
)
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError, refuse, require
from orchestral_temporal.protocol.events import (
    AgentEventAuthority,
    AgentEventDraft,
    AgentJournalRecord,
    ContinuityRestored,
    HostAuthority,
    ProviderAuthority,
    seal_record,
)
from orchestral_temporal.protocol.run import AgentDescriptorEnvelope, AgentStartRequest
from orchestral_temporal.protocol.state import ContinuityUnknown
from orchestral_temporal.protocol.validation import require_filled, validate
from orchestral_temporal.protocol.words import same

__all__ = [
    "Appended",
    "Author",
    "CommandEntry",
    "Outcome",
    "Run",
    "ack",
    "admit",
    "append",
    "begin",
    "command_of",
    "replay",
    "status",
    "view",
]


class Author(StrEnum):
    """Who brings a draft; a reconciliation is the host's, and takes a restored continuity only."""

    PROVIDER = "provider"
    HOST = "host"
    RECONCILED = "reconciled"


class Outcome(StrEnum):
    """What became of an event that was not refused."""

    OK = "ok"
    DUPLICATE = "duplicate"
    VIOLATION = "violation"


@dataclass(frozen=True)
class Appended:
    """The run after an event and the record of it.

    A violation is on record too: the run's continuity is unknown from there on, and `code` says which rule it broke.
    """

    run: Run
    record: AgentJournalRecord
    outcome: Outcome
    code: AgentProtocolErrorCode | None = None


def begin(request: AgentStartRequest, descriptor: AgentDescriptorEnvelope, admission: AgentAdmission) -> Run:
    """A run before its first event (`spec/reducer.md` §2.3).

    Raises:
        ProtocolError: the request is invalid or for another agent, the agent cannot take it, or the admission is wrong.
    """
    execution = execution_for(request, descriptor)
    try:
        compatibility = check_compatibility(descriptor.descriptor, request.run)
    except Incompatible as fault:
        refuse(AgentProtocolErrorCode.UNSUPPORTED, fault.rejection.message, fault.rejection.details)
    validate_admission(admission, request.run, compatibility)
    return Run(
        execution=execution,
        admission=admission,
        output_schema=request.run.spec.output_schema,
        request_kinds=descriptor.descriptor.capabilities.pending_request_kinds,
        queued_input=queued_input_supported(descriptor.descriptor.extensions),
    )


def append(run: Run, draft: AgentEventDraft, author: Author) -> Appended:
    """Number and commit a draft; an exact duplicate changes nothing in any state (`spec/reducer.md` §3).

    Raises:
        ProtocolError: the draft is refused; the run is as it was.
    """
    authority = _authority(draft, author)
    _require_run(run, draft.run_id)
    require_filled("event_id", draft.event_id)
    known = _find(run, draft.event_id)
    if known is not None:
        validate(draft)
        require(
            known.draft_digest == digest(draft) and known.authority == authority,
            AgentProtocolErrorCode.DUPLICATE_CONFLICT,
            "`event_id` is taken by another event; give each event its own.",
        )
        return Appended(run, known, Outcome.DUPLICATE)
    return _commit(run, seal_record(draft, len(run.records) + 1, authority))


def replay(run: Run, record: AgentJournalRecord) -> Appended:
    """Commit a record of the run's own journal again; never for data from outside.

    Raises:
        ProtocolError: the record is altered, of another run, or does not continue the journal.
    """
    validate(record)
    _require_run(run, record.event.run_id)
    if record.event.run_seq <= len(run.records):
        known = run.records[record.event.run_seq - 1]
        require(
            (known.event.event_id, known.event.event_digest, known.draft_digest, known.authority)
            == (record.event.event_id, record.event.event_digest, record.draft_digest, record.authority),
            AgentProtocolErrorCode.SEQUENCE_CONFLICT,
            "`run_seq` is taken by another event.",
        )
        return Appended(run, known, Outcome.DUPLICATE)
    require(
        _find(run, record.event.event_id) is None,
        AgentProtocolErrorCode.DUPLICATE_CONFLICT,
        "`event_id` has another `run_seq` already.",
    )
    require(
        record.event.run_seq == len(run.records) + 1,
        AgentProtocolErrorCode.SEQUENCE_GAP,
        "`run_seq` skips records; replay them in order.",
    )
    return _commit(run, record)


def admit(run: Run, command: AgentCommandEnvelope) -> CommandAck | None:
    """Whether a command may enter: null for yes, its acknowledgement when it is known; changes nothing (§7.2, §7.3).

    A command that would only put a fatal record into the journal is refused instead.

    Raises:
        ProtocolError: invalid_spec or invalid_digest; unsupported (queued input); run_not_found; duplicate_conflict;
            terminal_run; invalid_transition (not begun, or continuity unknown); request_not_found;
            request_type_mismatch.
    """
    validate(command)
    require(
        queued_input(command) is None or run.queued_input,
        AgentProtocolErrorCode.UNSUPPORTED,
        "The agent takes no queued input; steer without it.",
    )
    require(command.run_id == run.execution.run_id, AgentProtocolErrorCode.RUN_NOT_FOUND, "`run_id` names another run.")
    entry = run.commands.get(command.command_id)
    if entry is not None:
        require(
            same(command_of(run, command.command_id), command),
            AgentProtocolErrorCode.DUPLICATE_CONFLICT,
            "`command_id` is taken by another command; give each command its own.",
        )
        return None if entry.disposition_seq is None else ack(run, command.command_id)
    require(run.phase is not Phase.ENDED, AgentProtocolErrorCode.TERMINAL_RUN, "The run has ended.")
    require(
        run.phase is not Phase.FRESH and not isinstance(run.continuity, ContinuityUnknown),
        AgentProtocolErrorCode.INVALID_TRANSITION,
        "The run has not begun, or its continuity is unknown; try again when it is known.",
    )
    check_answer(run, command)
    return None


def _authority(draft: AgentEventDraft, author: Author) -> AgentEventAuthority:
    restoring = isinstance(draft.payload, ContinuityRestored)
    match author:
        case Author.PROVIDER:
            return ProviderAuthority()
        case Author.HOST:
            require(
                not restoring,
                AgentProtocolErrorCode.INVALID_SPEC,
                "Continuity is restored through a reconciliation only.",
            )
            return HostAuthority()
        case Author.RECONCILED:
            if not isinstance(draft.payload, ContinuityRestored):
                refuse(AgentProtocolErrorCode.INVALID_SPEC, "A reconciliation restores continuity and nothing else.")
            return HostAuthority(reconciliation_proof_ref=draft.payload.proof.proof_ref)
        case _:
            assert_never(author)


def _require_run(run: Run, run_id: str) -> None:
    require(
        run_id == run.execution.run_id,
        AgentProtocolErrorCode.RUN_ID_CONFLICT,
        "`run_id` of the event is another run's.",
    )


def _find(run: Run, event_id: str) -> AgentJournalRecord | None:
    run_seq = run.event_ids.get(event_id)
    return None if run_seq is None else run.records[run_seq - 1]


def _commit(run: Run, record: AgentJournalRecord) -> Appended:
    try:
        return Appended(applied(run, record), record, Outcome.OK)
    except ProtocolError as fault:
        if run.phase is Phase.ENDED:
            raise
        name = fault.error.code.title().replace("_", "")
        after = quarantined(run, record, f"protocol violation: {name}: {fault.message}")
        return Appended(after, record, Outcome.VIOLATION, fault.error.code)
