"""The session's part: what a run leaves there, that it can be written, and that the run always lets go (E3, K14)."""

from collections import Counter

from orchestral_temporal.core.inputs import CommandsRead, ModelFailed, ModelFinished, ModelLost, ToolObserved
from orchestral_temporal.core.items import measure, user_item
from orchestral_temporal.core.state import AppendSession, CallModel, ModelOpen, RunState
from orchestral_temporal.protocol.activities import SessionAppend
from orchestral_temporal.protocol.events import InputCommitted, RunFailed, RunStarted
from orchestral_temporal.protocol.model import ModelFinishReason, ModelObservation
from orchestral_temporal.protocol.wal import LoopBoundaryCommitted, ModelAttemptObserved
from tests.sim.law import require
from tests.sim.laws_of_calls import CallLaws
from tests.sim.seen import Seen
from tests.sim.session import Entity


def _answers(turn: ModelObservation) -> bool:
    return turn.finish_reason is ModelFinishReason.STOP and bool(turn.response) and not turn.tool_calls


class SessionLaws:
    """What the session must hold in the end."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity
        self._inputs = 0
        self._exchanges = 0
        self._outputs = 0
        self._in_history: set[str] = set()
        self._sent: set[str] = set()

    def saw(self, seen: Seen) -> None:
        """Judge one step."""
        self._inputs += sum(isinstance(event, RunStarted | InputCommitted) for event in seen.events)
        boundaries = [each.payload for each in seen.step.wal if isinstance(each.payload, LoopBoundaryCommitted)]
        beyond = sum(each.next_model_round > 1 for each in boundaries)
        match seen.given:
            case CommandsRead():
                pass  # a steered attempt leaves nothing
            case ModelFinished(result=result) if _answers(result.observation):
                # Also one that is not delivered, because input waits that nobody has read.
                observed = any(isinstance(each.payload, ModelAttemptObserved) for each in seen.step.wal)
                self._outputs += observed and not isinstance(seen.terminal, RunFailed)
            case _:
                self._exchanges += beyond
        closing = [each for each in seen.step.effects if isinstance(each, AppendSession) and each.batch.close]
        require(not closing or seen.step.state.phase.at == "ended", "K14", "the session is closed before the terminal")
        session = seen.step.state.session
        self._read(seen)
        for each in seen.step.effects:
            if isinstance(each, CallModel):
                self._sent = {measure(item).digest for item in each.attempt.tail}
            elif isinstance(each, AppendSession):
                self._can_be_written(each.batch)
        believed = session is not None and session.closed
        require(not believed or self._entity.closed or self._entity.refused, "K14", "a batch counts as held too early")

    def _read(self, seen: Seen) -> None:
        """The items that the history holds for sure: what an attempt carries only once it was answered."""
        given, phase = seen.given, seen.before.phase
        self._in_history.add(measure(user_item(seen.before.start.envelope.spec.input)).digest)
        known = None
        if isinstance(given, ModelFinished):
            known = given.result.item
        elif isinstance(given, ToolObserved):
            known = given.observation.item
        self._in_history.update(() if known is None else (known.digest,))
        if isinstance(given, ModelFinished | ModelFailed | ModelLost) and isinstance(phase, ModelOpen):
            answered = (given.round, given.attempt) == (seen.before.round, phase.attempt)
            self._in_history.update(self._sent if answered else ())

    def _can_be_written(self, batch: SessionAppend) -> None:
        """Whoever appends a batch has its texts from the run's history or from the batch."""
        named = {item for record in batch.records for item in record.items}
        brought = {measure(item).digest for item in batch.texts}
        require(named <= self._in_history | brought, "K14", f"nobody can write batch {batch.number}: a text is nowhere")
        require(brought <= named, "decision 6", f"batch {batch.number} carries a text that none of its records names")

    def over(self, state: RunState, calls: CallLaws) -> None:
        """Everything is there once, in order, and the session is free."""
        session = state.session
        require(session is not None and session.closed, "K14", "the run does not let its session go")
        if self._entity.refused:
            return
        require(self._entity.closed, "K14", "the run believes that its part is closed, and the session does not")
        held = self._entity.held
        counts = Counter(str(record.type) for record in held)
        require(len({record.event_id for record in held}) == len(held), "B2", "a session record stands twice")
        require(counts["run_input_committed"] == self._inputs, "I3, B7", "input is not committed exactly once")
        require(counts["run_output_committed"] == self._outputs, "agent-loop 15", "an output without delivery, or none")
        require(counts["tool_exchange_committed"] == self._exchanges, "E3", "an exchange is missing, or one too many")
        for record in held:
            if record.event_id in calls.exchanges:
                require(record.items == calls.exchanges[record.event_id], "E7", f"{record.event_id} holds other items")
        uncertain = [record.uncertainty.effect_call_id for record in held if record.uncertainty is not None]
        require(sorted(uncertain) == calls.unknown, "E3", f"unknown are {calls.unknown}, on record {sorted(uncertain)}")
