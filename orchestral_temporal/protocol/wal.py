"""The write-ahead log of a run: what its loop knew before it acted (`spec/wal-recovery.md` §2, §3)."""

from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.admission import AgentAdmission, AgentExecutionRef
from orchestral_temporal.protocol.approval import ApprovalCapability
from orchestral_temporal.protocol.base import U64, Word
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    CommandAccepted,
    ProviderCommandOutcome,
    ResolveRequest,
)
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import JournalErrorCode, WordError, refuse, require
from orchestral_temporal.protocol.events import (
    AgentEventDraft,
    DeliveryCommitted,
    RunCancelled,
    RunFailed,
    RunIncomplete,
)
from orchestral_temporal.protocol.ids import AgentEventId, Digest, RunId
from orchestral_temporal.protocol.model import (
    ModelError,
    ModelErrorCode,
    ModelObservation,
    ModelUsage,
)
from orchestral_temporal.protocol.requests import ApprovalDecision, ApprovalResolution
from orchestral_temporal.protocol.retry import is_transient
from orchestral_temporal.protocol.run import AgentStartRequest
from orchestral_temporal.protocol.state import AgentRunRegistration
from orchestral_temporal.protocol.trace import GenericModelContextTrace
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_positive,
    require_sealed,
    require_sha256,
    require_text,
    require_unique,
    validate,
)
from orchestral_temporal.protocol.words import dump

_INVALID = JournalErrorCode.INVALID_DATA


class GenericAgentRunRegistration(Word):
    """A run as the loop registered it, under the digest of its authority."""

    request: AgentStartRequest
    execution: AgentExecutionRef
    admission: AgentAdmission
    config_digest: Digest


class LoopBoundaryCommitted(Word):
    """A round may begin."""

    type: Literal["loop_boundary_committed"] = "loop_boundary_committed"
    next_model_round: U64
    usage: ModelUsage = ModelUsage()
    tool_call_count: U64
    last_response: str = ""
    supporting_event_ids: tuple[AgentEventId, ...] = ()


class ModelAttemptStarted(Word):
    """A model attempt begins."""

    type: Literal["model_attempt_started"] = "model_attempt_started"
    round: U64
    request_id: str
    request_digest: Digest
    max_output_tokens: U64 | None = None
    context: GenericModelContextTrace


class ModelAttemptObserved(Word):
    """A model attempt gave a turn."""

    type: Literal["model_attempt_observed"] = "model_attempt_observed"
    round: U64
    request_id: str
    observation: ModelObservation


class ModelContextRejected(Word):
    """A backend found the context too long; the budgets of the next attempt."""

    type: Literal["model_context_rejected"] = "model_context_rejected"
    round: U64
    request_id: str
    retry_number: U64
    input_budget_tokens: U64
    output_budget_tokens: U64 | None = Field(default=None, exclude_if=lambda budget: budget is None)
    error: ModelError


class ModelRetryScheduled(Word):
    """An attempt will be repeated after `delay_ms`."""

    type: Literal["model_retry_scheduled"] = "model_retry_scheduled"
    round: U64
    request_id: str
    retry_number: U64
    delay_ms: U64
    error: ModelError
    observed_usage: ModelUsage | None = Field(default=None, exclude_if=lambda usage: usage is None)


class WorkflowAttemptStarted(Word):
    """A plan may begin; the digest is that of its raw argument bytes."""

    type: Literal["workflow_attempt_started"] = "workflow_attempt_started"
    round: U64
    request_id: str
    call_id: str
    arguments_digest: Digest


class CommandCommitted(Word):
    """A command and what was decided of it; the capability goes with an accepted allow."""

    type: Literal["command_committed"] = "command_committed"
    command: AgentCommandEnvelope
    outcome: ProviderCommandOutcome
    approval_capability: ApprovalCapability | None = None


class ProviderEventsCommitted(Word):
    """Events that the loop is about to say, a terminal one last."""

    type: Literal["provider_events_committed"] = "provider_events_committed"
    events: tuple[AgentEventDraft, ...]


GenericCheckpointEvent = Annotated[
    LoopBoundaryCommitted
    | ModelAttemptStarted
    | ModelAttemptObserved
    | ModelContextRejected
    | ModelRetryScheduled
    | WorkflowAttemptStarted
    | CommandCommitted
    | ProviderEventsCommitted,
    Field(discriminator="type"),
]


class GenericCheckpointDraft(Word):
    """A WAL record before it has a number."""

    event_id: str
    run_id: RunId
    payload: GenericCheckpointEvent


class GenericCheckpointRecord(Word):
    """A WAL record under its number and digest; numbers begin at 1 and have no gap."""

    checkpoint_seq: U64
    draft_digest: Digest
    event_digest: Digest
    event_id: str
    run_id: RunId
    payload: GenericCheckpointEvent


class StoredGenericAgentRun(Word):
    """A registration with its whole log."""

    registration: GenericAgentRunRegistration
    records: tuple[GenericCheckpointRecord, ...]


def seal_checkpoint(draft: GenericCheckpointDraft, checkpoint_seq: int) -> GenericCheckpointRecord:
    """Give a WAL record its number and digests.

    Raises:
        WordError: InvalidData.
    """
    validate(draft)
    unsealed = GenericCheckpointRecord(
        checkpoint_seq=checkpoint_seq,
        draft_digest=digest(draft),
        event_digest="",
        event_id=draft.event_id,
        run_id=draft.run_id,
        payload=draft.payload,
    )
    return unsealed.model_copy(update={"event_digest": checkpoint_event_digest(unsealed)})


def checkpoint_event_digest(record: GenericCheckpointRecord) -> Digest:
    """The digest of all of a record but the digest itself."""
    value = dump(record)
    del value["event_digest"]
    return digest(value)


def _check(word: Word) -> None:
    """Check a word of another family; whatever is wrong with it is InvalidData here."""
    try:
        validate(word)
    except WordError as fault:
        refuse(_INVALID, fault.message)


@validate.register
def _(registration: GenericAgentRunRegistration) -> None:
    _check(
        AgentRunRegistration(
            request=registration.request, execution=registration.execution, admission=registration.admission
        )
    )
    require_sha256("config_digest", registration.config_digest, _INVALID)


@validate.register
def _(payload: LoopBoundaryCommitted) -> None:
    require_positive(_INVALID, next_model_round=payload.next_model_round)
    for event_id in payload.supporting_event_ids:
        require_filled("supporting_event_ids", event_id, _INVALID)
    require_unique("supporting_event_ids", payload.supporting_event_ids, _INVALID)


@validate.register
def _(payload: ModelAttemptStarted) -> None:
    require_positive(_INVALID, round=payload.round, max_output_tokens=payload.max_output_tokens)
    require_text("request_id", payload.request_id, _INVALID)
    require_sha256("request_digest", payload.request_digest, _INVALID)
    validate(payload.context)


@validate.register
def _(payload: ModelAttemptObserved) -> None:
    require_positive(_INVALID, round=payload.round)
    require_text("request_id", payload.request_id, _INVALID)
    for call in payload.observation.tool_calls:
        require_text("call_id", call.call_id, _INVALID)
        require_text("name", call.name, _INVALID)
    require_unique("tool_calls", (call.call_id for call in payload.observation.tool_calls), _INVALID)
    for namespace in payload.observation.continuation:
        require_text("continuation", namespace, _INVALID)


@validate.register
def _(payload: ModelContextRejected) -> None:
    require_positive(
        _INVALID,
        round=payload.round,
        retry_number=payload.retry_number,
        input_budget_tokens=payload.input_budget_tokens,
        output_budget_tokens=payload.output_budget_tokens,
    )
    require_text("request_id", payload.request_id, _INVALID)
    require(
        payload.error.code is ModelErrorCode.CONTEXT_LENGTH_EXCEEDED,
        _INVALID,
        "`error` is another one than context_length_exceeded.",
    )


@validate.register
def _(payload: ModelRetryScheduled) -> None:
    require_positive(_INVALID, round=payload.round, retry_number=payload.retry_number, delay_ms=payload.delay_ms)
    require_text("request_id", payload.request_id, _INVALID)
    require(is_transient(payload.error), _INVALID, "`error` is not one that a retry may heal.")


@validate.register
def _(payload: WorkflowAttemptStarted) -> None:
    require_positive(_INVALID, round=payload.round)
    require_text("request_id", payload.request_id, _INVALID)
    require_text("call_id", payload.call_id, _INVALID)
    require_sha256("arguments_digest", payload.arguments_digest, _INVALID)


@validate.register
def _(payload: CommandCommitted) -> None:
    command, capability = payload.command, payload.approval_capability
    _check(command)
    _check(payload.outcome)
    response = command.payload.response if isinstance(command.payload, ResolveRequest) else None
    allowed = isinstance(response, ApprovalResolution) and response.decision is ApprovalDecision.ALLOW
    require(
        (capability is not None) == (allowed and isinstance(payload.outcome, CommandAccepted)),
        _INVALID,
        "`approval_capability` goes with an accepted allow, always and only.",
    )
    if capability is not None:
        require(
            capability.claims.binding.run_id == command.run_id,
            _INVALID,
            "`approval_capability` is for another run.",
        )
        require_sha256("authenticator", capability.authenticator, _INVALID)


@validate.register
def _(payload: ProviderEventsCommitted) -> None:
    require(bool(payload.events), _INVALID, "`events` is empty; leave the record out.")
    for draft in payload.events:
        _check(draft)
    require_unique("events", (draft.event_id for draft in payload.events), _INVALID)
    require(
        not any(
            isinstance(draft.payload, DeliveryCommitted | RunIncomplete | RunFailed | RunCancelled)
            for draft in payload.events[:-1]
        ),
        _INVALID,
        "`events` goes on after a terminal event.",
    )


def _check_draft(event_id: str, run_id: str, payload: GenericCheckpointEvent) -> None:
    require_text("event_id", event_id, _INVALID)
    require_filled("run_id", run_id, _INVALID)
    validate(payload)
    named = (payload.command.run_id,) if isinstance(payload, CommandCommitted) else ()
    if isinstance(payload, ProviderEventsCommitted):
        named = tuple(draft.run_id for draft in payload.events)
    require(all(each == run_id for each in named), _INVALID, "The record holds a command or event of another run.")


@validate.register
def _(draft: GenericCheckpointDraft) -> None:
    _check_draft(draft.event_id, draft.run_id, draft.payload)


@validate.register
def _(record: GenericCheckpointRecord) -> None:
    require_positive(_INVALID, checkpoint_seq=record.checkpoint_seq)
    _check_draft(record.event_id, record.run_id, record.payload)
    require_sha256("draft_digest", record.draft_digest, _INVALID)
    require_sealed("event_digest", record.event_digest, checkpoint_event_digest(record), _INVALID)
