"""The state of a run as its readers see it: status, view, and the stored form (`spec/wire.md` §15, §16)."""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal, NoReturn

from pydantic import Field

from orchestral_temporal.protocol.admission import AgentAdmission, AgentExecutionRef
from orchestral_temporal.protocol.base import U64, Word
from orchestral_temporal.protocol.delivery import AgentDelivery, AgentFailure, IncompleteReason, PartialDelivery
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import (
    AgentProtocolErrorCode,
    JournalErrorCode,
    WordError,
    refuse,
    require,
)
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.ids import DeliveryId, Digest, RequestId
from orchestral_temporal.protocol.requests import PendingRequest
from orchestral_temporal.protocol.run import AgentStartRequest
from orchestral_temporal.protocol.validation import require_positive, validate, validate_each


class AgentRunStatus(StrEnum):
    """A run in one word."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    UNKNOWN = "unknown"
    DELIVERED = "delivered"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"


class TerminalDelivered(Word):
    """The run delivered."""

    type: Literal["delivered"] = "delivered"
    delivery_id: DeliveryId


class TerminalIncomplete(Word):
    """The run ended before it was done."""

    type: Literal["incomplete"] = "incomplete"
    reason: IncompleteReason


class TerminalCancelled(Word):
    """The run was cancelled."""

    type: Literal["cancelled"] = "cancelled"
    reason: str


class TerminalFailed(Word):
    """The run failed."""

    type: Literal["failed"] = "failed"
    failure: AgentFailure


AgentTerminalState = Annotated[
    TerminalDelivered | TerminalIncomplete | TerminalCancelled | TerminalFailed, Field(discriminator="type")
]


class StateAccepted(Word):
    """Accepted, not yet begun."""

    state: Literal["accepted"] = "accepted"


class StateRunning(Word):
    """At work."""

    state: Literal["running"] = "running"


class StateWaiting(Word):
    """At work, but for people: the ids of the blocking requests, sorted."""

    state: Literal["waiting"] = "waiting"
    pending_request_ids: tuple[RequestId, ...]


class StateStopping(Word):
    """A stop was asked for and accepted."""

    state: Literal["stopping"] = "stopping"


class StateUnknown(Word):
    """What happened since `last_confirmed_seq` is not known."""

    state: Literal["unknown"] = "unknown"
    last_confirmed_seq: U64
    reason: str


class StateTerminal(Word):
    """Ended for good."""

    state: Literal["terminal"] = "terminal"
    terminal: AgentTerminalState


AgentRunState = Annotated[
    StateAccepted | StateRunning | StateWaiting | StateStopping | StateUnknown | StateTerminal,
    Field(discriminator="state"),
]


class ContinuityConfirmed(Word):
    """Everything through this `run_seq` is known; 0 before the first event."""

    continuity: Literal["confirmed"] = "confirmed"
    through_seq: U64


class ContinuityUnknown(Word):
    """Known only through `last_confirmed_seq`; `loss_event_digest` is the event that a restoration must name."""

    continuity: Literal["unknown"] = "unknown"
    last_confirmed_seq: U64
    loss_event_digest: Digest
    reason: str


AgentContinuityState = Annotated[ContinuityConfirmed | ContinuityUnknown, Field(discriminator="continuity")]


class AgentRunView(Word):
    """What inspection shows of a run."""

    execution: AgentExecutionRef
    admission: AgentAdmission
    state: AgentRunState
    last_run_seq: U64 | None = None
    pending_requests: tuple[PendingRequest, ...] = ()
    delivery: AgentDelivery | None = None
    partial_delivery: PartialDelivery | None = None


class AgentRunRegistration(Word):
    """A run as it was admitted."""

    request: AgentStartRequest
    execution: AgentExecutionRef
    admission: AgentAdmission


class StoredAgentRun(Word):
    """A run with its whole journal."""

    registration: AgentRunRegistration
    records: tuple[AgentJournalRecord, ...]


def projection_digest(view: AgentRunView) -> Digest:
    """The digest of a view.

    Raises:
        ProtocolError: the view is invalid.
    """
    validate(view)
    return digest(view)


def _inconsistent(message: str) -> NoReturn:
    refuse(AgentProtocolErrorCode.INVALID_TRANSITION, message)


def _check_deliveries(view: AgentRunView) -> None:
    execution = view.execution
    for delivery in (view.delivery, view.partial_delivery):
        if delivery is not None:
            validate(delivery)
            bound = (
                delivery.run_id,
                delivery.spec_digest,
                delivery.provenance.provider_id,
                delivery.provenance.agent_id,
            )
            require(
                bound == (execution.run_id, execution.spec_digest, execution.provider_id, execution.agent_id),
                AgentProtocolErrorCode.INVALID_DIGEST,
                "The delivery belongs to another run, spec or agent.",
            )


def _check_open(view: AgentRunView, state: StateWaiting | StateRunning | Word) -> None:
    if view.delivery is not None or view.partial_delivery is not None:
        _inconsistent("A run that has not ended carries a delivery.")
    blocking = tuple(request.request_id for request in view.pending_requests if request.blocking)
    if isinstance(state, StateWaiting) and not (blocking and state.pending_request_ids == blocking):
        _inconsistent("`pending_request_ids` are not those of the blocking requests.")
    if isinstance(state, StateRunning) and blocking:
        _inconsistent("A running run has a blocking request; it is waiting.")


def _check_terminal(view: AgentRunView, terminal: AgentTerminalState) -> None:
    if view.last_run_seq is None:
        _inconsistent("An ended run lacks `last_run_seq`.")
    if view.pending_requests:
        _inconsistent("An ended run has pending requests.")
    if isinstance(terminal, TerminalDelivered):
        fits = (
            view.delivery is not None
            and view.delivery.delivery_id == terminal.delivery_id
            and view.partial_delivery is None
        )
    elif isinstance(terminal, TerminalIncomplete):
        fits = view.delivery is None
    else:
        fits = view.delivery is None and view.partial_delivery is None
    if not fits:
        _inconsistent("The deliveries do not fit the way in which the run ended.")


@validate.register
def _(view: AgentRunView) -> None:
    validate(view.execution)
    validate(view.admission)
    require_positive(AgentProtocolErrorCode.INVALID_SPEC, last_run_seq=view.last_run_seq)
    validate_each(view.pending_requests)
    ids = [request.request_id for request in view.pending_requests]
    require(
        all(earlier < later for earlier, later in pairwise(ids)),
        AgentProtocolErrorCode.INVALID_SPEC,
        "`pending_requests` are not in ascending order of their ids, each once.",
    )
    _check_deliveries(view)
    if isinstance(view.state, StateTerminal):
        _check_terminal(view, view.state.terminal)
    else:
        _check_open(view, view.state)


@validate.register
def _(registration: AgentRunRegistration) -> None:
    request, execution = registration.request, registration.execution
    try:
        validate(request.run)
        validate(execution)
        validate(registration.admission)
    except WordError as fault:
        refuse(JournalErrorCode.INVALID_DATA, fault.message)
    require(
        (execution.run_id, execution.session_id, execution.spec_digest)
        == (request.run.spec.run_id, request.run.spec.session_id, request.run.spec_digest)
        and (execution.binding_ref, execution.descriptor_digest)
        == (request.provider_binding, request.expected_descriptor_digest),
        JournalErrorCode.INVALID_DATA,
        "The execution is another one than the start request asks for.",
    )


@validate.register
def _(stored: StoredAgentRun) -> None:
    validate(stored.registration)
    require(
        bool(stored.records), JournalErrorCode.INVALID_DATA, "`records` is empty; a run has at least its first one."
    )
    try:
        validate_each(stored.records)
    except WordError as fault:
        refuse(JournalErrorCode.INVALID_DATA, fault.message)
    run_id = stored.registration.execution.run_id
    require(
        all(
            (record.event.run_id, record.event.run_seq) == (run_id, place)
            for place, record in enumerate(stored.records, 1)
        ),
        JournalErrorCode.INVALID_DATA,
        "`records` are not those of this run from 1 on without a gap.",
    )
