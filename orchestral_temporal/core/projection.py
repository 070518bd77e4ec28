"""What a run is between two events, and what its readers see of it (`spec/reducer.md` §2, §7.1, §11).

The journal is held once; everything else is an index into it: numbers of the records that matter, no second copy.
"""

from typing import assert_never

from pydantic import Field

from orchestral_temporal.core.table import Phase
from orchestral_temporal.protocol.admission import AgentAdmission, AgentExecutionRef
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.protocol.commands import (
    AckAccepted,
    AckApplied,
    AckRejected,
    AckUnsupported,
    AgentCommandEnvelope,
    CommandAccepted,
    CommandAck,
    CommandAckState,
    CommandRejected,
    CommandUnsupported,
)
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentJournalRecord,
    CommandDispositionRecorded,
    CommandReceived,
    DeliveryCommitted,
    RequestOpened,
    RunCancelled,
    RunFailed,
    RunIncomplete,
)
from orchestral_temporal.protocol.ids import AgentEventId, CommandId, OutputId, RequestId, ResourceBindingId, SchemaRef
from orchestral_temporal.protocol.requests import PendingRequest
from orchestral_temporal.protocol.run import PendingRequestKind
from orchestral_temporal.protocol.state import (
    AgentContinuityState,
    AgentRunState,
    AgentRunStatus,
    AgentRunView,
    AgentTerminalState,
    ContinuityConfirmed,
    ContinuityUnknown,
    StateAccepted,
    StateRunning,
    StateStopping,
    StateTerminal,
    StateUnknown,
    StateWaiting,
    TerminalCancelled,
    TerminalDelivered,
    TerminalFailed,
    TerminalIncomplete,
)


class CommandEntry(Word):
    """Where the journal speaks of a command: `run_seq` of its receipt, its disposition and its effect."""

    received_seq: int
    disposition_seq: int | None = None
    applied_seq: int | None = None


class Run(Word):
    """A run: its journal, and the indexes that decide what may come next. Nothing inside is ever changed in place."""

    execution: AgentExecutionRef
    admission: AgentAdmission
    output_schema: SchemaRef | None
    request_kinds: tuple[PendingRequestKind, ...]
    queued_input: bool
    records: tuple[AgentJournalRecord, ...] = ()
    phase: Phase = Phase.FRESH
    continuity: AgentContinuityState = ContinuityConfirmed(through_seq=0)
    reported: tuple[ResourceBindingId, ...] = ()
    event_ids: dict[AgentEventId, int] = Field(default_factory=dict)
    commands: dict[CommandId, CommandEntry] = Field(default_factory=dict)
    outputs: tuple[OutputId, ...] = ()
    pending: dict[RequestId, int] = Field(default_factory=dict)
    settled: tuple[RequestId, ...] = ()

    @property
    def last_run_seq(self) -> int | None:
        """The number of the last record; null before the first."""
        return self.records[-1].event.run_seq if self.records else None


def payload_at(run: Run, run_seq: int) -> AgentEvent:
    """The event under a number; numbers begin at 1 and have no gap."""
    return run.records[run_seq - 1].event.payload


def command_of(run: Run, command_id: str) -> AgentCommandEnvelope:
    """A command that the run has received."""
    payload = payload_at(run, run.commands[command_id].received_seq)
    assert isinstance(payload, CommandReceived)
    return payload.command


def request_of(run: Run, request_id: str) -> PendingRequest:
    """A request that is pending."""
    payload = payload_at(run, run.pending[request_id])
    assert isinstance(payload, RequestOpened)
    return payload.request


def disposition_of(entry: CommandEntry, run: Run) -> CommandDispositionRecorded | None:
    """What was decided of a command; null while nothing is."""
    if entry.disposition_seq is None:
        return None
    payload = payload_at(run, entry.disposition_seq)
    assert isinstance(payload, CommandDispositionRecorded)
    return payload


def ack(run: Run, command_id: str, *, duplicate: bool = True) -> CommandAck:
    """The acknowledgement of a command; a query by id always says `duplicate` (`spec/reducer.md` §7.1).

    Raises:
        ProtocolError: command_not_found, or invalid_transition while it has no disposition.
    """
    entry = run.commands.get(command_id)
    if entry is None:
        refuse(AgentProtocolErrorCode.COMMAND_NOT_FOUND, "`command_id` names no command of this run.")
    return CommandAck(
        command_id=command_id, run_id=run.execution.run_id, duplicate=duplicate, state=_ack_state(run, entry)
    )


def status(run: Run) -> AgentRunStatus:
    """The run in one word."""
    state = _state(run)
    if isinstance(state, StateTerminal):
        return AgentRunStatus(state.terminal.type)
    return AgentRunStatus(state.state)


def view(run: Run) -> AgentRunView:
    """What inspection shows (`spec/reducer.md` §11)."""
    last = run.records[-1].event.payload if run.phase is Phase.ENDED else None
    return AgentRunView(
        execution=run.execution,
        admission=run.admission,
        state=_state(run),
        last_run_seq=run.last_run_seq,
        pending_requests=tuple(request_of(run, request_id) for request_id in sorted(run.pending)),
        delivery=last.delivery if isinstance(last, DeliveryCommitted) else None,
        partial_delivery=last.partial_delivery if isinstance(last, RunIncomplete) else None,
    )


def _ack_state(run: Run, entry: CommandEntry) -> CommandAckState:
    found, recorded = disposition_of(entry, run), entry.disposition_seq
    if found is None or recorded is None:
        refuse(AgentProtocolErrorCode.INVALID_TRANSITION, "The command has no disposition yet; ask again.")
    match found.outcome:
        case CommandAccepted() if entry.applied_seq is not None:
            return AckApplied(recorded_seq=recorded, applied_seq=entry.applied_seq)
        case CommandAccepted():
            return AckAccepted(recorded_seq=recorded)
        case CommandRejected(code=code, message=message):
            return AckRejected(recorded_seq=recorded, code=code, message=message)
        case CommandUnsupported(feature=feature):
            return AckUnsupported(recorded_seq=recorded, feature=feature)
        case _:
            assert_never(found.outcome)


def _state(run: Run) -> AgentRunState:
    if run.phase is Phase.ENDED:
        return StateTerminal(terminal=_terminal(run))
    if isinstance(run.continuity, ContinuityUnknown):
        return StateUnknown(last_confirmed_seq=run.continuity.last_confirmed_seq, reason=run.continuity.reason)
    match run.phase:
        case Phase.FRESH | Phase.ACCEPTED:
            return StateAccepted()
        case Phase.STOPPING:
            return StateStopping()
        case Phase.RUNNING:
            blocking = tuple(request_id for request_id in sorted(run.pending) if request_of(run, request_id).blocking)
            return StateWaiting(pending_request_ids=blocking) if blocking else StateRunning()
        case _:
            assert_never(run.phase)


def _terminal(run: Run) -> AgentTerminalState:
    payload = payload_at(run, len(run.records))
    match payload:
        case DeliveryCommitted(delivery=delivery):
            return TerminalDelivered(delivery_id=delivery.delivery_id)
        case RunIncomplete(reason=reason):
            return TerminalIncomplete(reason=reason)
        case RunFailed(failure=failure):
            return TerminalFailed(failure=failure)
        case _:
            assert isinstance(payload, RunCancelled), "an ended run ends with a terminal event"
            return TerminalCancelled(reason=payload.reason)
