"""The workers of tool calls, and the outside world in which their effects are counted (decisions 15 and 16).

An attempt goes: begun; fence on record; effect; outcome on record; answer. Whatever befalls its worker in between, an
effect comes only behind a fence that the server has taken, and never after the server has given the attempt up: a
worker that was frozen in between fences again first, and is refused.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestral_temporal.core.inputs import Input, OutcomeArrived, ToolBroken, ToolLost, ToolObserved
from orchestral_temporal.core.invocations import unmeasured
from orchestral_temporal.core.items import measure
from orchestral_temporal.core.state import InvokeTool
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.protocol.activities import Fence, ResultItem, ToolObservation, ToolRequest
from orchestral_temporal.protocol.digest import digest, exact_digest
from orchestral_temporal.protocol.tools import (
    Cancelled,
    Completed,
    Failed,
    InlineOutput,
    Rejected,
    ToolIdempotency,
    ToolOutcome,
    UnknownEffect,
)
from tests.sim.clock import Process
from tests.sim.setting import BY_ID, FENCED, Point, Trouble

if TYPE_CHECKING:
    from tests.sim.world import World

HEARTBEAT_MS: Final = 10_000
"""After this silence the server gives an attempt up."""

WIDE: Final = 300_000
"""Canonical bytes of a result that fills a session batch by itself."""

UNSURE: Final = ToolObservation(outcome=UnknownEffect(message="Nobody answers."))


class Outside:
    """What truly happened, by invocation; `answers` is what a tool says of an effect that it had."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.answers: dict[str, ToolObservation] = {}
        self.store: dict[str, ToolObservation] = {}


@dataclass
class Attempt:
    """One attempt of one call: what stands on record of it, and what its worker knows."""

    request: ToolRequest
    idempotency: ToolIdempotency
    fenced: bool = False
    answer: ToolObservation | None = None
    recorded: bool = False
    stored: str | None = None
    cancelled: bool = False

    @property
    def number(self) -> tuple[str, int]:
        """What an answer must name."""
        return self.request.invocation_id, self.request.attempt


class Workers:
    """Every attempt that is under way."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._grace_ms = world.setting.binding.timeouts.uncertainty_grace_ms
        self._latest: dict[str, Attempt] = {}
        self._invoked = 0

    def cancel(self, invocation_id: str) -> None:
        """Ask an attempt to stop; its worker hears it at its next step."""
        self._latest[invocation_id].cancelled = True

    def work(self, effect: InvokeTool) -> Process:
        """One attempt from its beginning to its answer, or to what befalls it."""
        request = effect.request
        attempt = Attempt(request, BY_ID[request.tool_id].descriptor.idempotency)
        self._latest[request.invocation_id] = attempt  # it may be cancelled before it has begun
        self._invoked += 1
        return self._live(attempt)

    def _live(self, attempt: Attempt) -> Process:
        world = self._world
        trouble, where = self._fate(self._invoked)
        for point in Point:
            yield world.pause()
            if attempt.cancelled and attempt.answer is None:
                self._stopped(attempt, began=point is not Point.BEGUN)
                return
            self._reach(attempt, point)
            if trouble is not None and point is where:
                yield from self._befall(attempt, trouble, point)
                return
        assert attempt.answer is not None, "an attempt that came through has its answer"
        world.deliver(ToolObserved(*attempt.number, attempt.answer))
        if world.chance(world.setting.echoes):
            yield world.pause()
            invocation_id, number = attempt.number
            world.bring(ToolObserved(invocation_id, number + 1, attempt.answer))

    def _fate(self, invoked: int) -> tuple[Trouble | None, Point]:
        world, strike = self._world, self._world.setting.strike
        if strike is not None and strike.nth in (None, invoked):
            return (None if world.calm else strike.trouble), strike.point
        trouble = world.random.choice(list(Trouble)) if world.chance(world.setting.tool_faults) else None
        return trouble, world.random.choice(list(Point))

    def _reach(self, attempt: Attempt, point: Point) -> None:
        """Take one step; an attempt that has its answer early only waits to give it."""
        if attempt.answer is None:
            match point:
                case Point.BEGUN:
                    attempt.answer = self._early(attempt)
                case Point.FENCED:
                    attempt.fenced = attempt.idempotency in FENCED
                case Point.WORKED:
                    self._effect(attempt)
                case Point.RECORDED:
                    pass
        if point is Point.RECORDED and attempt.fenced:
            self._record(attempt)

    def _record(self, attempt: Attempt) -> None:
        attempt.recorded = True
        if attempt.answer is not None and self._large(attempt.answer):
            attempt.stored = digest(attempt.answer)
            self._world.outside.store[attempt.stored] = attempt.answer

    def _large(self, answer: ToolObservation) -> bool:
        """Whether an answer is too large for a heartbeat or a signal, so that it stands in the store."""
        return isinstance(answer.outcome, Completed) and self._world.random.random() < 0.3

    def _early(self, attempt: Attempt) -> ToolObservation | None:
        """What answers without an effect: a store, a tool that is asked, a guard that refuses."""
        world, request = self._world, attempt.request
        if request.recorded is not None:
            return world.outside.store[request.recorded]
        if request.reconcile:
            return self._asked(request)
        if request.attempt == 1 and world.chance(0.03):
            return self._measured(attempt, Rejected(code="input_schema_violation", message="no"))
        return None

    def _asked(self, request: ToolRequest) -> ToolObservation | None:
        """What the tool says of an earlier attempt; it knows, unless it cannot be reached. None where nothing was."""
        world = self._world
        if world.chance(0.1):
            return UNSURE.model_copy(update={"reconciled": True})
        known = world.outside.answers.get(request.invocation_id)
        happened = known is not None and isinstance(known.outcome, Completed)
        return known.model_copy(update={"reconciled": True}) if known is not None and happened else None

    def _effect(self, attempt: Attempt) -> None:
        """Let the tool loose."""
        world, invocation_id = self._world, attempt.request.invocation_id
        outcome: ToolOutcome
        if world.chance(0.05):
            outcome = Failed(code="tool_error", message=f"{invocation_id} refused", retryable=False)
        else:
            world.outside.effects[invocation_id] += 1
            outcome = Completed(output=InlineOutput(value={"did": invocation_id}))
        observation = self._measured(attempt, outcome)
        world.outside.answers[invocation_id] = observation
        unsure = attempt.idempotency is ToolIdempotency.NON_IDEMPOTENT and world.chance(0.03)
        attempt.answer = UNSURE if unsure else observation

    def _measured(self, attempt: Attempt, outcome: Completed | Failed | Rejected) -> ToolObservation:
        item = measure(ResultItem(part=tool_result(attempt.request.call_id, outcome)))
        if self._world.setting.wide:
            item = item.model_copy(update={"size": WIDE})
        return ToolObservation(outcome=outcome, item=item)

    def _stopped(self, attempt: Attempt, *, began: bool) -> None:
        """A cancel reaches a worker that has no answer yet, or comes before any took the attempt (tools sheet, §11)."""
        possible = attempt.fenced or attempt.request.reconcile
        once = began and possible and attempt.idempotency is ToolIdempotency.NON_IDEMPOTENT
        if once and attempt.fenced and self._world.random.random() < 0.5:
            self._effect(attempt)
        unsure = UNSURE.model_copy(update={"reconciled": not attempt.fenced})
        self._world.deliver(ToolObserved(*attempt.number, unsure if once else ToolObservation(outcome=Cancelled())))

    # -- trouble -------------------------------------------------------------------------------------------------

    def _befall(self, attempt: Attempt, trouble: Trouble, point: Point) -> Process:
        world = self._world
        match trouble:
            case Trouble.KILLED:
                yield HEARTBEAT_MS
                world.deliver(_given_up(attempt, abandoned=False))
            case Trouble.ABANDONED:
                world.deliver(_given_up(attempt, abandoned=True))
            case Trouble.LEFT:
                yield from self._left(attempt)
            case Trouble.BARE:
                world.deliver(ToolLost(*attempt.number, abandoned=True, reason="WorkerShutdown", fenced=True))
            case Trouble.BROKEN:
                world.deliver(ToolBroken(*attempt.number, "KeyError: 'x'", fenced=attempt.fenced))
            case Trouble.CUT_OFF | Trouble.FROZEN:
                given_up = _given_up(attempt, abandoned=False)
                world.clock.spawn(self._times_out(given_up), HEARTBEAT_MS)
                if trouble is Trouble.CUT_OFF and point is Point.FENCED and attempt.answer is None:
                    # The fence is fresh, so the worker goes on at once.
                    self._effect(attempt)
                if attempt.fenced:
                    yield from self._reports(attempt)

    def _left(self, attempt: Attempt) -> Process:
        """A stopping worker gives the call up, and its tool works on in a thread until the process ends."""
        world = self._world
        world.deliver(_given_up(attempt, abandoned=True))
        if attempt.fenced and attempt.answer is None:
            yield world.random.randint(0, self._grace_ms - 1_000)
            self._effect(attempt)

    def _times_out(self, given: Input) -> Process:
        self._world.deliver(given)
        yield from ()

    def _reports(self, attempt: Attempt) -> Process:
        """Once the server hears it again, a worker says that it is at work, and what came of it; each perhaps."""
        world = self._world
        fence = Fence(
            invocation_id=attempt.request.invocation_id,
            attempt=attempt.request.attempt,
            arguments_digest=exact_digest(attempt.request.arguments),
        )
        yield world.random.choice((0, 3_000, 9_000, 11_000, 30_000, HEARTBEAT_MS + self._grace_ms + world.pause()))
        for _ in range(world.random.choice((0, 0, 1, 2))):
            world.clock.spawn(self._signal(fence), world.pause())
        yield world.random.choice((0, 1_000, 15_000, 60_000))
        if attempt.answer is None:
            # Frozen before its effect: too late now, and the server refuses the second fence.
            attempt.answer = ToolObservation(outcome=Rejected(code="not_started", message="too late"))
        if world.random.random() < 0.8:
            for told in self._told(fence, attempt.answer):
                world.clock.spawn(self._signal(told), world.pause())

    def _told(self, fence: Fence, answer: ToolObservation) -> Iterator[Fence]:
        world = self._world
        if self._large(answer):
            name = digest(answer)
            world.outside.store[name] = answer
            told = fence.model_copy(update={"stored": name})
        else:
            told = fence.model_copy(update={"outcome": answer})
        yield told
        if world.random.random() < 0.3:
            yield told

    def _signal(self, fence: Fence) -> Process:
        self._world.bring(OutcomeArrived(fence))
        yield from ()


def _given_up(attempt: Attempt, *, abandoned: bool) -> ToolObserved | ToolLost:
    """What the server knows when an attempt ends without its answer: the last record of it (decision 16)."""
    if attempt.recorded and attempt.stored is None:
        assert attempt.answer is not None, "what is recorded is an answer"
        return ToolObserved(*attempt.number, unmeasured(attempt.answer))
    return ToolLost(*attempt.number, abandoned=abandoned, reason="gone", fenced=attempt.fenced, stored=attempt.stored)
