"""A run under watch: whatever happens to it is held to each numbered invariant of `spec/reducer.md` §13.

A number in square brackets is an invariant's. All is judged by the journal and by what was answered to each event, not
by the run's own indexes.
"""

from collections import Counter
from copy import copy
from typing import TypeVar

from orchestral_temporal.core.reducer import Appended, Author, Outcome, Run, ack, append, replay, status, view
from orchestral_temporal.core.table import Phase
from orchestral_temporal.protocol.commands import (
    AckAccepted,
    AckApplied,
    AgentCommandEnvelope,
    Cancel,
    CommandAccepted,
    CommandAckState,
    ProviderCommandOutcome,
    ResolveRequest,
    Steer,
)
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentEventDraft,
    AgentEventEnvelope,
    CommandDispositionRecorded,
    CommandReceived,
    ContinuityLost,
    ContinuityRestored,
    DeliveryCommitted,
    InputCommitted,
    OutputCommitted,
    RequestClosed,
    RequestOpened,
    RequestResolved,
    ResourceBindingSkipped,
    RunAccepted,
    RunCancelled,
    RunFailed,
    RunIncomplete,
    RunStarted,
    StopRequested,
)
from orchestral_temporal.protocol.requests import PendingRequest, request_kind, resolution_digest
from orchestral_temporal.protocol.state import (
    AgentRunStatus,
    AgentRunView,
    ContinuityConfirmed,
    ContinuityUnknown,
    StateTerminal,
    StateWaiting,
)
from orchestral_temporal.protocol.validation import validate
from tests.core.reducer_world import draft

EFFECTS = (InputCommitted, RequestResolved, StopRequested)
TERMINAL = (DeliveryCommitted, RunIncomplete, RunFailed, RunCancelled)
OF_THE_HOST = (RunAccepted, ResourceBindingSkipped, CommandReceived, ContinuityLost, ContinuityRestored)

P = TypeVar("P", bound=AgentEvent)


def author_of(payload: AgentEvent) -> Author:
    """The lawful author of an event."""
    if isinstance(payload, ContinuityRestored):
        return Author.RECONCILED
    return Author.HOST if isinstance(payload, OF_THE_HOST) else Author.PROVIDER


def kept(run: Run) -> Run:
    """A run that stays as it is, even if the other were changed in place: only its indexes could be."""
    indexes = {"event_ids": run.event_ids, "commands": run.commands, "pending": run.pending}
    return run.model_copy(update={name: dict(index) for name, index in indexes.items()})


class Watched:
    """A run, what was said of each of its events, and what must hold of every step and state."""

    def __init__(self, run: Run) -> None:
        self.run = self.before = self.again = run
        self.authors: list[Author] = []
        self.applied: list[AgentEventEnvelope] = []
        self._acks: dict[str, CommandAckState] = {}
        self._through = 0
        self._check_state()

    def offer(self, given: AgentEventDraft, author: Author) -> Outcome | None:
        """Bring a draft; what came of it, none if it was refused."""
        run, before = self.run, kept(self.run)
        try:
            appended = append(run, given, author)
        except ProtocolError:
            assert run == before  # [2]
            return None
        assert run == before
        self._check_step(appended)
        if appended.outcome is not Outcome.DUPLICATE:
            self.before, self.run = run, appended.run
            self.authors.append(author)
            if appended.outcome is Outcome.OK:
                self.applied.append(appended.record.event)
            self.again = replay(self.again, appended.record).run
            self._check_state()
        return appended.outcome

    def bring(self, payload: AgentEvent, cause: str | None = None) -> None:
        """Bring an event that is lawful here: it takes effect."""
        given = draft(f"e{len(self.run.records)}", payload, cause)
        assert self.offer(given, author_of(payload)) is Outcome.OK

    def branch(self) -> "Watched":
        """The same run, to try something out on."""
        twin = copy(self)
        twin.authors, twin.applied, twin._acks = [*self.authors], [*self.applied], {**self._acks}
        return twin

    def is_in(self, *phases: Phase) -> bool:
        """Whether the run goes on, in one of some phases."""
        return self.run.phase in phases and isinstance(self.run.continuity, ContinuityConfirmed)

    # -- the journal, read anew ----------------------------------------------------------------------------------

    def effects(self, kind: type[P]) -> list[tuple[AgentEventEnvelope, P]]:
        """The events of a kind that took effect."""
        return [(event, event.payload) for event in self.applied if isinstance(event.payload, kind)]

    def received(self) -> dict[str, AgentCommandEnvelope]:
        """The commands that the run has."""
        return {payload.command.command_id: payload.command for _, payload in self.effects(CommandReceived)}

    def decided(self) -> dict[str, ProviderCommandOutcome]:
        """The commands that have a disposition, and which."""
        return {payload.command_id: payload.outcome for _, payload in self.effects(CommandDispositionRecorded)}

    def open_commands(self) -> list[AgentCommandEnvelope]:
        """The commands that may still have a disposition or an effect."""
        decided = self.decided()
        done = {event.causation_id for event in self.applied if isinstance(event.payload, EFFECTS)}
        return [
            command
            for command_id, command in self.received().items()
            if command_id not in done and isinstance(decided.get(command_id, CommandAccepted()), CommandAccepted)
        ]

    def settled(self) -> list[str]:
        """The ids of the requests that were resolved or closed."""
        resolved = [payload.request_id for _, payload in self.effects(RequestResolved)]
        return resolved + [payload.request_id for _, payload in self.effects(RequestClosed)]

    def pending(self) -> list[PendingRequest]:
        """The requests that wait, in the order of their ids."""
        if any(isinstance(event.payload, TERMINAL) for event in self.applied):
            return []
        settled = self.settled()
        opened = [payload.request for _, payload in self.effects(RequestOpened)]
        return sorted(
            (request for request in opened if request.request_id not in settled),
            key=lambda request: request.request_id,
        )

    # -- what holds ----------------------------------------------------------------------------------------------

    def _check_step(self, appended: Appended) -> None:
        run, after, payload = self.run, appended.run, appended.record.event.payload
        if appended.outcome is Outcome.DUPLICATE:
            assert after is run  # [9]
            assert appended.record in run.records
            return
        assert run.phase is not Phase.ENDED  # [10]
        assert after.records == (*run.records, appended.record)
        if appended.outcome is Outcome.VIOLATION:
            cursor = {name: getattr(run, name) for name in ("records", "event_ids", "continuity")}
            assert after.model_copy(update=cursor) == run  # [3]
            assert status(after) is AgentRunStatus.UNKNOWN  # [4]
            return
        unknown = isinstance(run.continuity, ContinuityUnknown)
        assert unknown == isinstance(payload, ContinuityRestored)  # [6]
        if isinstance(payload, ContinuityRestored):
            assert payload.proof.loss_event_digest == run.records[-1].event.event_digest  # [5]
            assert payload.proof.last_confirmed_seq == self._through  # [4]
        phases = list(Phase)
        assert phases.index(run.phase) <= phases.index(after.phase)  # [12]
        if isinstance(payload, DeliveryCommitted):
            assert not self.pending()  # [16]

    def _check_state(self) -> None:
        seen = view(self.run)
        validate(seen)  # [26]
        self._check_journal(seen)
        self._check_continuity()
        self._check_beginning()
        self._check_end(seen)
        self._check_requests(seen)
        self._check_ledger()
        self._check_acknowledgements()
        self._check_deliveries(seen)

    def _check_journal(self, seen: AgentRunView) -> None:
        """Numbers, ids and authors of the records; a replay of them, which checks each, is the same run."""
        records = self.run.records
        assert [record.event.run_seq for record in records] == list(range(1, len(records) + 1))  # [1]
        assert seen.last_run_seq == (len(records) or None)  # [1]
        assert len({record.event.event_id for record in records}) == len(records)  # [21]
        for record in records:
            host = isinstance(record.event.payload, OF_THE_HOST)
            assert record.authority.authority == ("host" if host else "provider")  # [23]
        assert self.again == self.run  # [8]

    def _check_continuity(self) -> None:
        """Confirmed through the last event, or unknown since one that is known."""
        found, last = self.run.continuity, len(self.run.records)
        if isinstance(found, ContinuityConfirmed):
            assert found.through_seq == last  # [7]
            through = found.through_seq
        else:
            known = [event.run_seq for event in self.applied if not isinstance(event.payload, ContinuityLost)]
            assert status(self.run) is AgentRunStatus.UNKNOWN  # [4]
            assert found.last_confirmed_seq == max(known, default=0)  # [4]
            assert found.last_confirmed_seq < last  # [5]
            assert found.loss_event_digest == self.run.records[-1].event.event_digest  # [5]
            through = found.last_confirmed_seq
        assert through >= self._through  # [32]
        self._through = through

    def _check_beginning(self) -> None:
        """The acceptance, the skips and the start."""
        begun = [event for event in self.applied if not isinstance(event.payload, ContinuityRestored)][:1]
        assert all(isinstance(event.payload, RunAccepted) and event.run_seq == 1 for event in begun)  # [27]
        reported = [(event.run_seq, payload.skip) for event, payload in self.effects(ResourceBindingSkipped)]
        admitted = self.run.admission.skipped_optional_bindings
        assert all(skip in admitted for _, skip in reported)
        assert len(reported) == len({skip.binding_id for _, skip in reported})
        for event, _ in self.effects(RunStarted):
            assert len([run_seq for run_seq, _ in reported if run_seq < event.run_seq]) == len(admitted)  # [22]

    def _check_end(self, seen: AgentRunView) -> None:
        """One stop, one end, and nothing after it."""
        stops = self.effects(StopRequested)
        assert len(stops) <= 1  # [31]
        assert stops or not self.effects(RunCancelled)  # [31]
        ends = [event.run_seq for event in self.applied if isinstance(event.payload, TERMINAL)]
        assert ends in ([], [len(self.run.records)])  # [10]
        assert isinstance(seen.state, StateTerminal) == bool(ends)
        if ends:
            assert not seen.pending_requests  # [11]
            assert isinstance(self.run.continuity, ContinuityConfirmed)  # [11]
            assert seen.last_run_seq is not None  # [11]
        for _, payload in self.effects(DeliveryCommitted):
            assert seen.delivery == payload.delivery
        for _, payload in self.effects(RunIncomplete):
            assert seen.partial_delivery == payload.partial_delivery

    def _check_requests(self, seen: AgentRunView) -> None:
        """Opened once, settled once; the view shows those that wait."""
        opened = [payload.request for _, payload in self.effects(RequestOpened)]
        ids, settled = [request.request_id for request in opened], self.settled()
        assert len(set(ids)) == len(ids)  # [14]
        assert len(set(settled)) == len(settled)  # [14]
        assert set(settled) <= set(ids)  # [14]
        assert all(request_kind(request) in self.run.request_kinds for request in opened)  # [15]
        pending = self.pending()
        assert list(seen.pending_requests) == pending
        blocking = tuple(request.request_id for request in pending if request.blocking)
        assert isinstance(seen.state, StateWaiting) == (bool(blocking) and self.is_in(Phase.RUNNING))  # [13]
        if isinstance(seen.state, StateWaiting):
            assert seen.state.pending_request_ids == blocking  # [13]
        for _, payload in self.effects(RequestResolved):
            assert payload.resolution_digest == resolution_digest(payload.resolution)  # [28]

    def _check_ledger(self) -> None:
        """One receipt, one disposition, one effect, in this order; the effect is what the command asks for."""
        commands, decided = self.received(), self.decided()
        receipts = {payload.command.command_id: event.run_seq for event, payload in self.effects(CommandReceived)}
        assert len(self.effects(CommandReceived)) == len(commands)  # [21]
        assert all(event.causation_id == each.command.command_id for event, each in self.effects(CommandReceived))
        dispositions = {
            payload.command_id: event.run_seq for event, payload in self.effects(CommandDispositionRecorded)
        }
        assert len(self.effects(CommandDispositionRecorded)) == len(dispositions)  # [18]
        assert all(event.causation_id == each.command_id for event, each in self.effects(CommandDispositionRecorded))
        assert all(receipts[command_id] < run_seq for command_id, run_seq in dispositions.items())  # [17]
        effects = [event for event in self.applied if isinstance(event.payload, EFFECTS)]
        assert set(Counter(effect.causation_id for effect in effects).values()) <= {1}  # [18]
        for effect in effects:
            cause = effect.causation_id
            assert cause is not None
            assert isinstance(decided[cause], CommandAccepted)  # [18]
            assert dispositions[cause] < effect.run_seq  # [17]
            assert _asked_for(commands[cause], effect.payload)  # [20]

    def _check_acknowledgements(self) -> None:
        """None, then accepted and applied, or rejected, or unsupported; the place of the disposition stays."""
        decided = self.decided()
        done = {event.causation_id: event.run_seq for event in self.applied if isinstance(event.payload, EFFECTS)}
        for command_id in self.received():
            try:
                state = ack(self.run, command_id).state
            except ProtocolError:
                assert command_id not in decided  # [19]
                assert command_id not in self._acks  # [19]
                continue
            assert (state.applied_seq if isinstance(state, AckApplied) else None) == done.get(command_id)
            earlier = self._acks.get(command_id, state)
            assert earlier.recorded_seq == state.recorded_seq  # [19]
            assert earlier == state or (isinstance(earlier, AckAccepted) and isinstance(state, AckApplied))  # [19]
            self._acks[command_id] = state

    def _check_deliveries(self, seen: AgentRunView) -> None:
        """An output has its id once; what is delivered rests on earlier records and is bound to the run."""
        outputs = [payload.output_id for _, payload in self.effects(OutputCommitted)]
        assert len(set(outputs)) == len(outputs)  # [21]
        run = self.run
        shown = seen.delivery or seen.partial_delivery
        if shown is None:
            return
        origin, execution = shown.provenance, run.execution
        assert set(origin.supporting_event_ids) <= {record.event.event_id for record in run.records[:-1]}  # [24]
        assert (shown.run_id, shown.spec_digest) == (execution.run_id, execution.spec_digest)  # [25]
        assert (origin.provider_id, origin.agent_id) == (execution.provider_id, execution.agent_id)  # [25]
        answer = seen.delivery.final_response if seen.delivery is not None else shown.response
        assert run.output_schema is None or answer is None or answer.schema_id == run.output_schema  # [25]


def _asked_for(command: AgentCommandEnvelope, effect: AgentEvent) -> bool:
    """Whether an effect is what its command asks for."""
    match effect, command.payload:
        case InputCommitted(content=content), Steer(content=wanted):
            return content == wanted
        case RequestResolved(request_id=request_id, resolution=given), ResolveRequest(response=wanted):
            return (request_id, given) == (command.request_id, wanted)
        case StopRequested(reason=reason), Cancel(reason=wanted):
            return reason == wanted
        case _:
            return False
