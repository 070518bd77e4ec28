"""The run journal: gapless, one terminal, written ahead, honest about losses (`spec/reducer.md` §9, §10)."""

from typing import Final

from orchestral_temporal.core.inputs import ModelLost, ToolLost
from orchestral_temporal.core.state import AppendSession, CallModel, InvokeTool, RunState, Step
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentJournalRecord,
    CommandDispositionRecorded,
    ContinuityLost,
    ContinuityRestored,
    RunAccepted,
)
from orchestral_temporal.protocol.wal import ProviderEventsCommitted
from tests.sim.law import require
from tests.sim.seen import Seen, Terminal

GAPLESS: Final = "reducer 9"
ONE_END: Final = "reducer 10"


class JournalLaws:
    """What the journal holds so far."""

    def __init__(self) -> None:
        self._last = 0
        self._ids: set[str] = set()
        self._terminal: Terminal | None = None
        self._lost: set[str] = set()
        self._proofs = 0
        self._written: list[tuple[str, AgentEvent]] = []
        self._published: list[tuple[str, AgentEvent]] = []

    def began(self, step: Step) -> None:
        """The first event is the acceptance."""
        require(isinstance(step.events[0].event.payload, RunAccepted), "A1", "a run begins with something else")
        self._append(step.events)

    def saw(self, seen: Seen) -> None:
        """Judge one step."""
        step = seen.step
        if seen.had_ended:
            others = [effect for effect in step.effects if not isinstance(effect, AppendSession)]
            require(not (step.events or step.wal or step.notes or others), ONE_END, "something follows the terminal")
        grown = step.state.run.records[len(seen.before.run.records) :]
        require(grown == step.events, GAPLESS, "the step tells other events than its state holds")
        self._append(step.events)
        ahead = [each.payload.events for each in step.wal if isinstance(each.payload, ProviderEventsCommitted)]
        self._written.extend((draft.event_id, draft.payload) for drafts in ahead for draft in drafts)
        require(self._written == self._published, "B2", "provider events in log and journal differ")
        self._written, self._published = [], []
        self._losses(seen)

    def _append(self, records: tuple[AgentJournalRecord, ...]) -> None:
        for record in records:
            event = record.event
            require(event.run_seq == self._last + 1, GAPLESS, f"run_seq {event.run_seq} follows {self._last}")
            require(event.event_id not in self._ids, "reducer 3.2", f"the event id {event.event_id!r} comes twice")
            require(self._terminal is None, ONE_END, f"{event.payload.type} follows the terminal")
            self._last += 1
            self._ids.add(event.event_id)
            if isinstance(event.payload, Terminal):
                self._terminal = event.payload
            if record.authority.authority == "provider" and not isinstance(event.payload, CommandDispositionRecorded):
                self._published.append((event.event_id, event.payload))

    def _losses(self, seen: Seen) -> None:
        """A proven loss stands on record, restored, before what was lost is sent again (I4, divergence 20)."""
        given = seen.given
        if isinstance(given, ModelLost | ToolLost) and not given.abandoned and seen.changed:
            self._lost.add(given.invocation_id if isinstance(given, ToolLost) else "model")
            self._proofs += 1
        for event, following in zip(seen.events, [*seen.events, None][1:], strict=True):
            if isinstance(event, ContinuityLost):
                self._proofs -= 1
                require(self._proofs >= 0, "divergence 20", "a loss is on record that nothing proves")
                require(isinstance(following, ContinuityRestored), "divergence 20", "a loss is not restored at once")
                self._lost.clear()
        for effect in seen.step.effects:
            if isinstance(effect, CallModel):
                again = "model" if effect.attempt.attempt > 1 else None
            elif isinstance(effect, InvokeTool):
                again = effect.request.invocation_id if effect.request.attempt > 1 else None
            else:
                again = None
            require(again not in self._lost, "I4", f"{again} was lost and is sent again with no loss on record")

    def over(self, state: RunState) -> None:
        """The terminal is the last record."""
        require(self._terminal is not None, ONE_END, "the run has no terminal")
        require(isinstance(state.run.records[-1].event.payload, Terminal), ONE_END, "the terminal is not the last")
