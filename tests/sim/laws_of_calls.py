"""Tool calls: no effect twice, none without a trace, no guess about one (behaviours E, decisions 15 and 16)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestral_temporal.core.inputs import (
    BatchRefused,
    CommandArrived,
    CommandsRead,
    OutcomeArrived,
    TimeReached,
    ToolBroken,
    ToolLost,
    ToolObserved,
)
from orchestral_temporal.core.items import measure
from orchestral_temporal.core.limits import ATTEMPTS_PER_CALL
from orchestral_temporal.core.state import CallModel, EffectNote, InvokeTool, ToolsOpen, WakeAfter
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.protocol.activities import Fence, ResultItem, ToolObservation, ToolRequest
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.events import InputCommitted, RunCancelled, RunFailed, RunIncomplete
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelObservation, ToolResultPart
from orchestral_temporal.protocol.tools import Cancelled, Rejected, ToolConcurrency, ToolIdempotency, UnknownEffect
from orchestral_temporal.protocol.wal import LoopBoundaryCommitted, ModelAttemptObserved
from tests.core.loop_world import RUN
from tests.sim.law import require
from tests.sim.seen import Seen
from tests.sim.setting import ASKS, BY_ID, FENCED, NAMES, Setting
from tests.sim.workers import Outside

ONCE: Final = ToolIdempotency.NON_IDEMPOTENT
REFUSALS: Final = ("tool_not_found", "invalid_tool_arguments")
READABLE: Final = ("", '{"value":"x"}', '{"value":"y"}')


@dataclass
class Call:
    """One call as far as inputs and effects tell.

    `loose`: the last attempt that was lost and may have had its effect, or 0. `reports`: digests of the results that
    workers have reported. `told`: the outcome of the newest attempt, or of the one it asks about, has reached the run,
    though not as its answer, and `told_of` is which. `overtaken`: while it was asked about, the lost attempt reported
    that it was not idle. `uncertain`: since when nothing has been heard of a lost attempt whose tool may be at work.
    `settled`: how it ended.
    """

    request: ToolRequest
    open: bool = True
    at_work: bool = True
    loose: int = 0
    overtaken: bool = False
    settled: str = ""
    told: bool = False
    told_of: int = 0
    unsure: bool = False
    unknown: bool = False
    uncertain: int | None = None
    reports: set[str] = field(default_factory=set[str])

    @property
    def reconciles(self) -> bool:
        """Whether its tool can be asked."""
        return BY_ID[self.request.tool_id].reconciles

    @property
    def idempotency(self) -> ToolIdempotency:
        """The class of its tool."""
        return BY_ID[self.request.tool_id].descriptor.idempotency


class CallLaws:
    """Every call of the run so far, and the turn that is open."""

    def __init__(self, setting: Setting, outside: Outside) -> None:
        self._calls: dict[str, Call] = {}
        self._outside = outside
        self._turn: ModelObservation | None = None
        self._round = 0
        self._grace = setting.binding.timeouts.uncertainty_grace_ms
        limits = setting.start.envelope.spec.limits
        self._ceiling = limits.max_tool_calls
        steps = [each for each in (limits.max_model_steps, setting.run.max_model_steps) if each is not None]
        self._steps = min(steps, default=None)
        self.counted = 0
        self.exchanges: dict[str, tuple[str, ...]] = {}

    @property
    def at_work(self) -> list[str]:
        """The calls that are not settled."""
        return [invocation_id for invocation_id, call in self._calls.items() if call.at_work]

    @property
    def under_way(self) -> bool:
        """Whether a worker or the server will still answer for a call."""
        return any(call.open for call in self._calls.values())

    @property
    def unknown(self) -> list[str]:
        """The calls of which nobody knows whether they took effect."""
        return sorted(invocation_id for invocation_id, call in self._calls.items() if call.unknown)

    def saw(self, seen: Seen, answers: Mapping[str, object]) -> None:
        """Judge one step; `answers` are those of people, by the request's id."""
        for draft in seen.step.wal:
            if isinstance(draft.payload, ModelAttemptObserved):
                self._turn, self._round = draft.payload.observation, draft.payload.round
        match seen.given:
            case ToolObserved() | ToolLost() | ToolBroken():
                self._ended(seen, seen.given)
            case OutcomeArrived(fence):
                self._reported(seen, fence)
            case _:
                pass
        for note in seen.step.notes:
            self._noted(seen, note)
        bounded = any(isinstance(draft.payload, LoopBoundaryCommitted) for draft in seen.step.wal)
        if bounded and self._turn is not None and self._turn.tool_calls and not isinstance(seen.given, CommandsRead):
            self._exchange(seen, answers)
        for effect in seen.step.effects:
            if isinstance(effect, InvokeTool):
                self._invoked(seen, effect)
        self._believed(seen)
        self._limits(seen)

    def _believed(self, seen: Seen) -> None:
        """An outcome that was told before the loss is the outcome (decision 16)."""
        if isinstance(seen.given, ToolLost):
            call = self._calls[seen.given.invocation_id]
            waits = call.at_work and not call.open and call.told
            require(not waits, "decision 16", f"{seen.given.invocation_id} is waited for, and its outcome is known")

    # -- what comes in -----------------------------------------------------------------------------------------------

    def _find(self, invocation_id: str, attempt: int) -> Call | None:
        call = self._calls.get(invocation_id)
        return call if call is not None and call.at_work and call.request.attempt == attempt else None

    def _ended(self, seen: Seen, given: ToolObserved | ToolLost | ToolBroken) -> None:
        call = self._find(given.invocation_id, given.attempt)
        if call is None or not call.open:
            require(not seen.changed, "E3", "an answer for an attempt that is not open has an effect")
            return
        call.open = False
        if call.overtaken and call.idempotency is ONCE and _ran(given):
            call.unsure = True
            said = [note.at for note in seen.step.notes if note.invocation_id == given.invocation_id]
            require("unknown_effect" in said, "E4", f"two attempts of {given.invocation_id} ran, and nobody says so")
        if _ran(given) and call.told_of != given.attempt:
            call.told = False  # that nothing came of the attempt before does not say what came of this one
        if isinstance(given, ToolObserved):
            self._heard(call, given.observation)
            return
        if given.fenced:
            call.loose = given.attempt
        if isinstance(given, ToolLost):
            call.told = call.told or given.stored is not None
        if given.fenced and call.idempotency is ONCE and (call.reconciles or not _given_up(given)):
            call.uncertain = seen.now

    def _heard(self, call: Call, observation: ToolObservation) -> None:
        outcome = observation.outcome
        if isinstance(outcome, UnknownEffect):
            call.unsure = True
        elif not (call.loose and isinstance(outcome, Rejected | Cancelled)):
            # That one attempt did nothing says nothing of those before it.
            item = ResultItem(part=tool_result(call.request.call_id, outcome))
            call.reports.add((observation.item or measure(item)).digest)

    def _told_of(self, fence: Fence) -> Call | None:
        """The call whose attempt a report is of: the open one, the one asked about, or the one that is waited for."""
        call = self._calls.get(fence.invocation_id)
        if call is None or not call.at_work or exact_digest(call.request.arguments) != fence.arguments_digest:
            return None
        asks = call.request.reconcile and call.request.recorded is None
        heard = {call.request.attempt} if call.open else set[int]()
        return call if fence.attempt in heard | ({call.loose} if asks or not call.open else set[int]()) else None

    def _reported(self, seen: Seen, fence: Fence) -> None:
        call = self._told_of(fence)
        if call is None:
            step = seen.step
            idle = not (step.effects or step.events or step.wal or step.notes) and step.state.phase == seen.before.phase
            require(idle, "decision 16", "a report on no open attempt has an effect")
            return
        done = [note.at for note in seen.step.notes if note.at in ("observed", "unknown_effect")]
        require(not (call.open and done), "decision 16", "a report settles a call whose attempt is open")
        idle = fence.outcome is not None and isinstance(fence.outcome.outcome, Rejected)
        if call.open and fence.attempt != call.request.attempt and not call.told:
            call.overtaken = not idle
        if fence.told:
            call.told, call.told_of = True, fence.attempt
        if fence.outcome is not None:
            self._heard(call, fence.outcome)
        elif not (fence.told or call.open):
            call.uncertain = seen.now
            again = [effect.ms for effect in seen.step.effects if isinstance(effect, WakeAfter)]
            require(again == [self._grace], "decision 16", "a call still at work gets no new grace")

    # -- what comes out ----------------------------------------------------------------------------------------------

    def _noted(self, seen: Seen, note: EffectNote) -> None:
        call = self._calls.get(note.invocation_id)
        if call is None or note.at not in ("observed", "unknown_effect"):
            return
        require(call.at_work, "E3", f"{note.invocation_id} is settled twice")
        call.at_work = call.open = False
        call.settled = note.said
        if note.at == "unknown_effect":
            call.unknown = True
            self._unknown(seen, note, call)

    def _unknown(self, seen: Seen, note: EffectNote, call: Call) -> None:
        require(call.idempotency in FENCED, "divergence 3", f"a call of class {call.idempotency} becomes unknown")
        require(call.loose or call.unsure, "decision 16", f"{note.invocation_id} was never let loose, yet is unknown")
        require(not call.told or call.unsure, "decision 16", f"{note.invocation_id} is unknown, its outcome was told")
        self._waited(seen, call)

    def _waited(self, seen: Seen, call: Call) -> None:
        """A worker that may still report is waited for, unless the run is ending (decision 16)."""
        phase = seen.before.phase
        ending = isinstance(seen.given, CommandArrived | BatchRefused) or seen.given == TimeReached("deadline")
        ending = ending or (isinstance(phase, ToolsOpen) and phase.closing)
        if call.uncertain is not None and not (call.told or call.unsure or call.request.recorded or ending):
            require(seen.now >= call.uncertain + self._grace, "decision 16", "the grace is cut short")

    def _invoked(self, seen: Seen, effect: InvokeTool) -> None:
        request = effect.request
        self._asked_for(effect)
        require(self._steps is None or self._round < self._steps, "F4", "a call is made after the last step")
        before = self._calls.get(request.invocation_id)
        if before is None:
            require(request.attempt == 1, "E3", "a first attempt is not the first")
            require(not (request.reconcile or request.recorded), "E3", "a first attempt is no question")
            self._calls[request.invocation_id] = Call(request)
        else:
            self._repeated(seen, request, before)
        others = [self._calls[each] for each in self.at_work]
        safe = [BY_ID[each.request.tool_id].descriptor.concurrency is ToolConcurrency.PARALLEL_SAFE for each in others]
        require(len(others) == 1 or all(safe), "E7", "a call that is not parallel-safe runs beside another")

    def _asked_for(self, effect: InvokeTool) -> None:
        """The observation that asks for a call is in the log before it is invoked (B6)."""
        request, turn = effect.request, self._turn
        require(turn is not None and effect.round == self._round, "B6", "a call without an observation")
        assert turn is not None
        index = int(request.invocation_id.removeprefix(f"{RUN}/m{self._round}/c")) - 1
        call = turn.tool_calls[index]
        asked = (call.call_id, call.name, call.ended) == (request.call_id, effect.name, True)
        require(asked, "B6", f"{request.invocation_id} is not the call that was observed")

    def _repeated(self, seen: Seen, request: ToolRequest, call: Call) -> None:
        before = call.request
        require(call.at_work and not call.open, "E3", "a call is repeated while it is open or after it was settled")
        require(request.attempt == before.attempt + 1, "E3", "an attempt number is skipped")
        require(request.attempt <= ATTEMPTS_PER_CALL, "decision 18", "a call is repeated without end")
        same = (before.call_id, before.tool_id, before.arguments) == (
            request.call_id,
            request.tool_id,
            request.arguments,
        )
        require(same, "E4", "a call is repeated as another one")
        if call.idempotency is ONCE and call.loose:
            asks = request.reconcile or request.recorded is not None
            require(asks, "E3, E4", f"{request.invocation_id} may have taken effect and is presented again")
        if request.reconcile:
            self._waited(seen, call)
        call.request = request
        call.open, call.told, call.overtaken, call.uncertain = True, False, False, None

    # -- what the model is told --------------------------------------------------------------------------------------

    def _exchange(self, seen: Seen, answers: Mapping[str, object]) -> None:
        """Each call has exactly one result, in call order, and none of them says what is not so."""
        assert self._turn is not None
        require(not self.unknown, "E3", "a turn with an unknown effect has its exchange")
        calls, headers = self._turn.tool_calls, seen.step.state.headers
        taken = sum(isinstance(event, InputCommitted) for event in seen.events)  # after the exchange, in the same step
        headers = headers[: len(headers) - taken]
        self.counted += sum(each.name != ASKS for each in calls)
        digests = tuple(each.digest for each in headers[-len(calls) :])
        self.exchanges[f"generic-{RUN}-tool-exchange-{self._round}"] = (headers[-len(calls) - 1].digest, *digests)
        shown = _shown(seen)
        for index, (call, found) in enumerate(zip(calls, digests, strict=True), start=1):
            made = self._calls.get(f"{RUN}/m{self._round}/c{index}")
            if made is not None and found in made.reports:
                continue
            item = shown.get(found)
            if item is None:
                require(not _sends(seen), "E7", f"the result of call {index} is that of no worker, and is not shown")
                continue
            require(item.call_id == call.call_id, "E7", f"the result of call {index} is that of another call")
            if call.name == ASKS:
                said = answers.get(f"input:{RUN}:{self._round}:{call.call_id}")
                require(item.result == said, "D1", f"the model is told {item.result}, and the person said {said}")
                continue
            self._made_here(item, made, readable=call.name in NAMES and call.arguments in READABLE)

    def _made_here(self, item: ToolResultPart, call: Call | None, *, readable: bool) -> None:
        """A result that the run made itself is of a call that had no effect."""
        code = item.result.get("code") if isinstance(item.result, dict) else None
        if call is None:
            require(code in REFUSALS and not readable, "divergence 5", f"a call that could be run is refused: {code}")
            return
        had = self._outside.effects[call.request.invocation_id]
        harmless = call.idempotency not in FENCED or not had
        require(harmless, "E3, E4", f"{call.request.invocation_id} took effect and the model is told {item.result}")

    def _limits(self, seen: Seen) -> None:
        used = seen.step.state.tool_calls
        require(self._ceiling is None or used <= self._ceiling, "F5", f"{used} calls are counted")
        require(len(self._calls) <= used, "F5", "calls are made that are not counted")
        end = seen.terminal
        reached = end.reason if isinstance(end, RunIncomplete) and end.reason.type == "limit_reached" else None
        if reached is not None and reached.limit is RunLimitKind.TOOL_CALLS:
            require(used == self._ceiling, "F5", f"the call limit ends a run after {used} calls")
        if end is not None and self.unknown:
            right = isinstance(end, RunCancelled) or (isinstance(end, RunFailed) and "unknown" in end.failure.code)
            right = right or (reached is not None and reached.limit is RunLimitKind.DEADLINE)
            require(right, "E3", f"an unknown effect ends in {end.type}")

    def over(self) -> None:
        """An effect that must not happen twice did not, and one that happened is on record as such (E3, E4)."""
        for invocation_id, call in self._calls.items():
            had = self._outside.effects[invocation_id]
            if call.idempotency is ONCE:
                require(had <= 1, "E4", f"{invocation_id} took effect {had} times")
                told = call.unknown or call.settled == "completed"
                require(not had or told, "E3", f"{invocation_id} took effect, and is {call.settled!r} on record")


def _given_up(given: ToolLost | ToolBroken) -> bool:
    """Whether the worker itself has ended the attempt."""
    return isinstance(given, ToolBroken) or given.abandoned


def _ran(given: ToolObserved | ToolLost | ToolBroken) -> bool:
    """Whether an attempt may have let its tool loose."""
    if isinstance(given, ToolObserved):
        nothing = isinstance(given.observation.outcome, Rejected | Cancelled)
        return not (nothing or given.observation.reconciled)
    return given.fenced


def _sends(seen: Seen) -> bool:
    return any(isinstance(effect, CallModel) for effect in seen.step.effects)


def _shown(seen: Seen) -> dict[str, ToolResultPart]:
    """The results whose text rides with the attempt of this step, by digest."""
    sent = [effect.attempt.tail for effect in seen.step.effects if isinstance(effect, CallModel)]
    return {measure(item).digest: item.part for tail in sent for item in tail if isinstance(item, ResultItem)}
