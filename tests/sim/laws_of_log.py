"""The write-ahead log folds (`spec/wal-recovery.md` §4, divergence 29): a reading of it from its records only."""

from typing import Final

from orchestral_temporal.core.inputs import CommandsRead, ModelLost
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.ids import model_request_id
from orchestral_temporal.protocol.model import ModelUsage
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.wal import (
    CommandCommitted,
    GenericCheckpointDraft,
    LoopBoundaryCommitted,
    ModelAttemptObserved,
    ModelAttemptStarted,
    ModelContextRejected,
    ModelRetryScheduled,
    ProviderEventsCommitted,
)
from tests.core.loop_world import RUN
from tests.sim.law import require
from tests.sim.seen import Seen, Terminal

FOLD: Final = "wal-recovery 4"


class LogLaws:
    """How far the log says that the run is."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._at = "prepared"
        self._round = 0
        self._retries = 0
        self._attempt: ModelAttemptStarted | None = None
        self._rejections = 0

    def saw(self, seen: Seen, usage: ModelUsage, counted: int) -> None:
        """Judge the records of one step; `usage` and `counted` are what the run should have used by now."""
        for draft in seen.step.wal:
            self._take(draft, seen)
            if isinstance(draft.payload, LoopBoundaryCommitted):
                require(draft.payload.usage == usage, "divergence 8, F118", "a boundary has another usage")
                require(draft.payload.tool_call_count == counted, "F5", "a boundary counts other tool calls")

    def _take(self, draft: GenericCheckpointDraft, seen: Seen) -> None:
        try:
            validate(draft)
        except WordError as fault:
            require(holds=False, law="wal-recovery 2", said=f"the record {draft.event_id} is refused: {fault}")
        require(draft.event_id not in self._ids, FOLD, f"the event id {draft.event_id!r} stands twice in the log")
        self._ids.add(draft.event_id)
        require(self._at != "terminal", FOLD, f"{draft.payload.type} follows the terminal")
        payload = draft.payload
        match payload:
            case LoopBoundaryCommitted():
                self._boundary(payload, steered=isinstance(seen.given, CommandsRead))
            case ModelAttemptStarted():
                self._started(payload, draft.event_id, seen)
            case ModelRetryScheduled():
                self._open(payload)
                require(payload.retry_number == self._retries + 1, FOLD, f"retry {payload.retry_number} out of order")
                self._retries += 1
            case ModelContextRejected():
                self._rejected(payload)
            case ModelAttemptObserved():
                self._open(payload)
                self._at, self._rejections = "observed", 0
            case ProviderEventsCommitted(events=events):
                if isinstance(events[-1].payload, Terminal):
                    self._at = "terminal"
            case CommandCommitted():
                pass
            case _:
                require(holds=False, law=FOLD, said=f"a record {payload.type} has no business here")

    def _boundary(self, payload: LoopBoundaryCommitted, *, steered: bool) -> None:
        require(self._at in ("prepared", "observed") or steered, FOLD, f"a boundary in {self._at}")
        require(payload.next_model_round == self._round + 1, FOLD, f"boundary {payload.next_model_round}")
        self._at, self._round = "stable", payload.next_model_round

    def _started(self, payload: ModelAttemptStarted, event_id: str, seen: Seen) -> None:
        first = self._at == "stable"
        again = self._at == "open" and isinstance(seen.given, ModelLost)
        require(first or again, "wal-recovery 4, divergence 29", f"an attempt starts in {self._at}")
        require(payload.round == self._round, FOLD, f"an attempt of round {payload.round} in round {self._round}")
        require(payload.request_id == model_request_id(RUN, self._round), "I2", "an attempt has another request id")
        require(("-a" in event_id.removeprefix(f"generic-{RUN}-model-attempt")) == again, "divergence 29", event_id)
        self._at, self._retries, self._attempt = "open", 0, payload

    def _open(self, payload: ModelRetryScheduled | ModelContextRejected | ModelAttemptObserved) -> None:
        require(self._at == "open", FOLD, f"{payload.type} in {self._at}")
        same = (payload.round, payload.request_id) == (self._round, model_request_id(RUN, self._round))
        require(same, FOLD, f"{payload.type} of another round")

    def _rejected(self, payload: ModelContextRejected) -> None:
        """Check B: something shrank, and the count goes up by one."""
        self._open(payload)
        attempt = self._attempt
        assert attempt is not None, "a log in open has an attempt"
        cap, output = attempt.max_output_tokens or 0, payload.output_budget_tokens
        planned = attempt.context.context_estimate
        assert planned is not None, "ours always estimates"
        require(payload.retry_number == self._rejections + 1, "wal-recovery 4 B", "a rejection is out of order")
        require(payload.input_budget_tokens <= attempt.context.input_budget_tokens, "wal-recovery 4 B", "input grew")
        require(output is None or output <= cap, "wal-recovery 4 B", "output grew")
        shrank = payload.input_budget_tokens < planned.tokens or (output is not None and output < cap)
        require(shrank, "wal-recovery 4 B", "a rejection changes nothing")
        self._at, self._round, self._rejections = "stable", self._round + 1, self._rejections + 1
