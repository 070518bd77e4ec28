"""One input's work in progress: collects events, effects and WAL records in the order in which they become true."""

from orchestral_temporal.core.reducer import Author, Outcome, append
from orchestral_temporal.core.state import Effect, EffectNote, RunState, Step
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.events import AgentEvent, AgentEventDraft, AgentJournalRecord
from orchestral_temporal.protocol.wal import (
    GenericCheckpointDraft,
    GenericCheckpointEvent,
    ProviderEventsCommitted,
)


class Work:
    """Lives inside one call of `advance` and nowhere else; what comes out is a frozen `Step`."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._events: list[AgentJournalRecord] = []
        self._effects: list[Effect] = []
        self._wal: list[GenericCheckpointDraft] = []
        self._notes: list[EffectNote] = []

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.state.start.run_id

    def set(self, **changes: object) -> None:
        """Replace fields of the state."""
        self.state = self.state.model_copy(update=changes)

    def want(self, effect: Effect) -> None:
        """Ask the shell for an effect."""
        self._effects.append(effect)

    def note(self, note: EffectNote) -> None:
        """Say how far a tool call is."""
        self._notes.append(note)

    def record(self, event_id: str, payload: GenericCheckpointEvent) -> None:
        """Add a WAL record."""
        self._wal.append(GenericCheckpointDraft(event_id=event_id, run_id=self.run_id, payload=payload))

    def host(self, event_id: str, payload: AgentEvent, cause: str | None = None, *, proven: bool = False) -> None:
        """Commit an event of the host; `proven` marks a verified reconciliation."""
        draft = self._draft(event_id, payload, cause)
        self._append(draft, Author.RECONCILED if proven else Author.HOST)

    def provider(self, *events: tuple[str, AgentEvent, str | None]) -> None:
        """Commit events of the provider: one WAL record holds them all, then each is published."""
        drafts = tuple(self._draft(event_id, payload, cause) for event_id, payload, cause in events)
        name = ids.wal_provider_id(self.run_id, drafts[0].event_id, drafts[-1].event_id)
        self.record(name, ProviderEventsCommitted(events=drafts))
        for draft in drafts:
            self._append(draft, Author.PROVIDER)

    def disposition(self, event_id: str, payload: AgentEvent, cause: str) -> None:
        """Commit a command's disposition: the WAL has it in the command's own record (`spec/baseline.md`)."""
        self._append(self._draft(event_id, payload, cause), Author.PROVIDER)

    def step(self) -> Step:
        """What came of the input."""
        return Step(
            state=self.state,
            events=tuple(self._events),
            effects=tuple(self._effects),
            wal=tuple(self._wal),
            notes=tuple(self._notes),
        )

    def _draft(self, event_id: str, payload: AgentEvent, cause: str | None) -> AgentEventDraft:
        return AgentEventDraft(
            event_id=event_id, run_id=self.run_id, causation_id=cause, source_fingerprint=None, payload=payload
        )

    def _append(self, draft: AgentEventDraft, author: Author) -> None:
        appended = append(self.state.run, draft, author)
        assert appended.outcome is Outcome.OK, f"the loop wrote an event its own rules forbid: {appended.code}"
        self.set(run=appended.run)
        self._events.append(appended.record)
