"""Events: what happened in a run, who said so, under which number and digest (`spec/wire.md` §12)."""

from typing import Annotated, Final, Literal

from pydantic import Field

from orchestral_temporal.protocol.admission import ResourceBindingSkip
from orchestral_temporal.protocol.base import U64, Word
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    ProviderCommandDisposition,
    ProviderCommandOutcome,
)
from orchestral_temporal.protocol.content import Content, validate_list
from orchestral_temporal.protocol.delivery import AgentDelivery, AgentFailure, IncompleteReason, PartialDelivery
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.ids import (
    AgentEventId,
    AgentSessionId,
    CommandId,
    Digest,
    OutputId,
    ReconciliationProofRef,
    RequestId,
    RunId,
    disposition_id,
)
from orchestral_temporal.protocol.requests import PendingRequest, RequestResolution, resolution_digest
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_positive,
    require_sealed,
    require_sha256,
    require_text,
    validate,
)
from orchestral_temporal.protocol.words import dump


class RunAccepted(Word):
    """The host takes the run; always the first event."""

    type: Literal["run_accepted"] = "run_accepted"
    session_id: AgentSessionId
    spec_digest: Digest


class ResourceBindingSkipped(Word):
    """The run does without an optional binding."""

    type: Literal["resource_binding_skipped"] = "resource_binding_skipped"
    skip: ResourceBindingSkip


class RunStarted(Word):
    """Work begins."""

    type: Literal["run_started"] = "run_started"


class CommandReceived(Word):
    """A command has arrived."""

    type: Literal["command_received"] = "command_received"
    command: AgentCommandEnvelope


class CommandDispositionRecorded(Word):
    """A command has its disposition."""

    type: Literal["command_disposition_recorded"] = "command_disposition_recorded"
    command_id: CommandId
    outcome: ProviderCommandOutcome


class InputCommitted(Word):
    """A steer has become input."""

    type: Literal["input_committed"] = "input_committed"
    content: tuple[Content, ...]


class OutputCommitted(Word):
    """An output stands."""

    type: Literal["output_committed"] = "output_committed"
    output_id: OutputId
    content: tuple[Content, ...]


class RequestOpened(Word):
    """The run asks somebody."""

    type: Literal["request_opened"] = "request_opened"
    request: PendingRequest


class RequestResolved(Word):
    """A request has its answer."""

    type: Literal["request_resolved"] = "request_resolved"
    request_id: RequestId
    resolution: RequestResolution
    resolution_digest: Digest


class RequestClosed(Word):
    """A request needs no answer any more."""

    type: Literal["request_closed"] = "request_closed"
    request_id: RequestId
    reason: str


class StopRequested(Word):
    """A cancel takes effect."""

    type: Literal["stop_requested"] = "stop_requested"
    reason: str


class DeliveryCommitted(Word):
    """The run ends with its result."""

    type: Literal["delivery_committed"] = "delivery_committed"
    delivery: AgentDelivery


class RunIncomplete(Word):
    """The run ends before it is done."""

    type: Literal["run_incomplete"] = "run_incomplete"
    reason: IncompleteReason
    partial_delivery: PartialDelivery | None = None


class RunFailed(Word):
    """The run ends with a failure."""

    type: Literal["run_failed"] = "run_failed"
    failure: AgentFailure


class RunCancelled(Word):
    """The run ends because somebody cancelled it."""

    type: Literal["run_cancelled"] = "run_cancelled"
    reason: str


class ContinuityLost(Word):
    """The host no longer knows what the run does since `last_confirmed_seq`."""

    type: Literal["continuity_lost"] = "continuity_lost"
    last_confirmed_seq: U64
    reason: str


class ReconciliationProof(Word):
    """What a recovery found: the loss it heals, and a digest of what the provider showed."""

    proof_ref: ReconciliationProofRef
    last_confirmed_seq: U64
    loss_event_digest: Digest
    authoritative_snapshot_digest: Digest
    evidence_digest: Digest


class ContinuityRestored(Word):
    """The host knows the run again."""

    type: Literal["continuity_restored"] = "continuity_restored"
    proof: ReconciliationProof
    reason: str


AgentEvent = Annotated[
    RunAccepted
    | ResourceBindingSkipped
    | RunStarted
    | CommandReceived
    | CommandDispositionRecorded
    | InputCommitted
    | OutputCommitted
    | RequestOpened
    | RequestResolved
    | RequestClosed
    | StopRequested
    | DeliveryCommitted
    | RunIncomplete
    | RunFailed
    | RunCancelled
    | ContinuityLost
    | ContinuityRestored,
    Field(discriminator="type"),
]

HOST_EVENTS: Final = (RunAccepted, ResourceBindingSkipped, CommandReceived, ContinuityLost, ContinuityRestored)
"""What only the host may say; everything else only the provider."""


class AgentEventDraft(Word):
    """An event before it has a number."""

    event_id: AgentEventId
    run_id: RunId
    causation_id: CommandId | None = None
    source_fingerprint: Digest | None = None
    payload: AgentEvent


class AgentEventEnvelope(Word):
    """An event under its number and digest; numbers begin at 1 and have no gap."""

    event_id: AgentEventId
    run_id: RunId
    run_seq: U64
    causation_id: CommandId | None = None
    source_fingerprint: Digest | None = None
    event_digest: Digest
    payload: AgentEvent


class ProviderAuthority(Word):
    """The provider said so."""

    authority: Literal["provider"] = "provider"


class HostAuthority(Word):
    """The host said so; with a proof ref only for a restored continuity."""

    authority: Literal["host"] = "host"
    reconciliation_proof_ref: ReconciliationProofRef | None = None


AgentEventAuthority = Annotated[ProviderAuthority | HostAuthority, Field(discriminator="authority")]


class AgentJournalRecord(Word):
    """One line of the run journal; `draft_digest` is its identity over replays."""

    authority: AgentEventAuthority
    draft_digest: Digest
    event: AgentEventEnvelope


def evidence_digest(proof: ReconciliationProof) -> Digest:
    """The digest of all of a proof but the digest itself."""
    value = dump(proof)
    del value["evidence_digest"]
    return digest(value)


def seal_record(draft: AgentEventDraft, run_seq: int, authority: AgentEventAuthority) -> AgentJournalRecord:
    """Give a draft its number, digests and author.

    Raises:
        ProtocolError: the draft is invalid, or its kind is not this author's to write (invalid_transition).
    """
    validate(draft)
    _check_authority(draft.payload, authority)
    value = dump(draft)
    return AgentJournalRecord(
        authority=authority,
        draft_digest=digest(value),
        event=AgentEventEnvelope(
            event_id=draft.event_id,
            run_id=draft.run_id,
            run_seq=run_seq,
            causation_id=draft.causation_id,
            source_fingerprint=draft.source_fingerprint,
            event_digest=digest({**value, "run_seq": run_seq}),
            payload=draft.payload,
        ),
    )


def draft_of(event: AgentEventEnvelope) -> AgentEventDraft:
    """An event without its number and digest."""
    return AgentEventDraft(
        event_id=event.event_id,
        run_id=event.run_id,
        causation_id=event.causation_id,
        source_fingerprint=event.source_fingerprint,
        payload=event.payload,
    )


def disposition_draft(disposition: ProviderCommandDisposition) -> AgentEventDraft:
    """The durable form of a disposition (`spec/wire.md` §9.2).

    Raises:
        ProtocolError: the disposition is invalid.
    """
    draft = AgentEventDraft(
        event_id=disposition_id(disposition.run_id, disposition.command_id),
        run_id=disposition.run_id,
        causation_id=disposition.command_id,
        payload=CommandDispositionRecorded(command_id=disposition.command_id, outcome=disposition.outcome),
    )
    validate(draft)
    return draft


def _check_authority(payload: AgentEvent, authority: AgentEventAuthority) -> None:
    if isinstance(authority, ProviderAuthority):
        lawful = not isinstance(payload, HOST_EVENTS)
    elif isinstance(payload, ContinuityRestored):
        lawful = authority.reconciliation_proof_ref == payload.proof.proof_ref
    else:
        lawful = isinstance(payload, HOST_EVENTS) and authority.reconciliation_proof_ref is None
    require(
        lawful,
        AgentProtocolErrorCode.INVALID_TRANSITION,
        f"A {payload.type} event is not this author's to write.",
    )


@validate.register
def _(payload: RunAccepted) -> None:
    require_filled("session_id", payload.session_id, AgentProtocolErrorCode.INVALID_DIGEST)
    require_sha256("spec_digest", payload.spec_digest, AgentProtocolErrorCode.INVALID_DIGEST)


@validate.register
def _(payload: CommandDispositionRecorded) -> None:
    require_filled("command_id", payload.command_id)
    validate(payload.outcome)


@validate.register
def _(payload: InputCommitted) -> None:
    validate_list("content", payload.content)


@validate.register
def _(payload: OutputCommitted) -> None:
    require_filled("output_id", payload.output_id)
    validate_list("content", payload.content)


@validate.register
def _(payload: RequestResolved) -> None:
    require_sealed("resolution_digest", payload.resolution_digest, resolution_digest(payload.resolution))
    require_filled("request_id", payload.request_id)


@validate.register
def _(payload: RequestClosed) -> None:
    require_filled("request_id", payload.request_id)
    require_text("reason", payload.reason)


@validate.register
def _(payload: StopRequested | RunCancelled | ContinuityLost) -> None:
    require_text("reason", payload.reason)


@validate.register
def _(payload: ContinuityRestored) -> None:
    validate(payload.proof)
    require_text("reason", payload.reason)


@validate.register
def _(proof: ReconciliationProof) -> None:
    require_filled("proof_ref", proof.proof_ref, AgentProtocolErrorCode.INVALID_DIGEST)
    require_sha256("loss_event_digest", proof.loss_event_digest, AgentProtocolErrorCode.INVALID_DIGEST)
    require_sha256(
        "authoritative_snapshot_digest", proof.authoritative_snapshot_digest, AgentProtocolErrorCode.INVALID_DIGEST
    )
    require_sealed("evidence_digest", proof.evidence_digest, evidence_digest(proof))


@validate.register
def _(draft: AgentEventDraft) -> None:
    require_filled("event_id", draft.event_id)
    require_filled("run_id", draft.run_id)
    require_filled("causation_id", draft.causation_id)
    require_sha256("source_fingerprint", draft.source_fingerprint)
    validate(draft.payload)


@validate.register
def _(event: AgentEventEnvelope) -> None:
    require_positive(AgentProtocolErrorCode.INVALID_SPEC, run_seq=event.run_seq)
    validate(draft_of(event))
    value = dump(event)
    del value["event_digest"]
    require_sealed("event_digest", event.event_digest, digest(value))


@validate.register
def _(record: AgentJournalRecord) -> None:
    validate(record.event)
    require_sealed("draft_digest", record.draft_digest, digest(draft_of(record.event)))
    _check_authority(record.event.payload, record.authority)
