"""One simulated world: a run of the pure loop among a model, workers, a session and people that all may fail.

All chance comes from one seed and all time from a virtual clock, so a seed is a world. The laws of `watch.py` look at
every step; a crash drops the state and folds the inputs so far anew.
"""

from collections.abc import Callable
from random import Random
from typing import Final, assert_never

from orchestral_temporal.core.inputs import Bound, Input, MomentPast, SessionReady, TimeReached
from orchestral_temporal.core.loop import advance, begin
from orchestral_temporal.core.state import (
    AppendSession,
    CallModel,
    CancelModelCall,
    CancelToolCall,
    Effect,
    Ended,
    InvokeTool,
    RunState,
    Step,
    StopTimer,
    WakeAfter,
    WakeAt,
)
from orchestral_temporal.protocol.events import RequestOpened
from orchestral_temporal.protocol.words import parse, to_json
from tests.sim import people, session, workers
from tests.sim.backend import Backend
from tests.sim.clock import Clock, Process
from tests.sim.law import Broken, require
from tests.sim.setting import Setting, dice, draw
from tests.sim.telling import told, wanted
from tests.sim.watch import Watch

CALM_INPUTS: Final = 400
"""Inputs that a run may need to end once nothing goes wrong any more: a turn of many calls may be open by then."""

PAUSES: Final = (0, 0, 1, 5, 40, 300, 2_500, 12_000)
"""Milliseconds that things take: from the same instant to longer than a heartbeat time-out."""


class World:
    """The run, what is under way for it, and who watches."""

    def __init__(self, setting: Setting, random: Random, tell: Callable[[str], None] | None = None) -> None:
        self.setting: Final = setting
        self.random: Final = random
        self.clock: Final = Clock()
        self.timers: Final[dict[str, object]] = {}
        self.given: Final[list[Input]] = []
        self.steps: Final[list[Step]] = []
        self._tell = tell
        self._calm_at: int | None = None
        self.outside: Final = workers.Outside()
        self.workers: Final = workers.Workers(self)
        self.backend: Final = Backend(self)
        self.session: Final = session.Entity(self)
        self.watch: Final = Watch(setting, self.outside, self.session)
        self.state: RunState = self._begin()

    # -- chance --------------------------------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong any more."""
        return len(self.given) >= self.setting.calm_after

    def chance(self, rate: float) -> bool:
        """Whether something goes wrong that does so at this rate."""
        return not self.calm and self.random.random() < rate

    def pause(self) -> int:
        """How long something takes."""
        return self.random.choice(PAUSES)

    # -- the run -------------------------------------------------------------------------------------------------

    def _begin(self) -> RunState:
        step = begin(self.setting.start, self.setting.run, self.setting.binding)
        self.steps.append(step)
        self.watch.began(step)
        for effect in step.effects:
            self._carry_out(effect)
        return step.state

    def bring(self, given: Input) -> None:
        """Bring one input, look at what came of it, and carry it out."""
        before = self.state
        if self._tell is not None:
            self._tell(told(self.clock.now, given))
        try:
            step = advance(before, given)
        except Exception as fault:
            raise Broken("house: advance is total", f"{type(fault).__name__}: {fault} on {given}") from fault
        self.given.append(given)
        self.steps.append(step)
        self.state = step.state
        if self._tell is not None:
            self._tell(wanted(step))
        self.watch.saw(before, given, step, self.clock.now, self.timers)
        for effect in step.effects:
            self._carry_out(effect)
        for record in step.events:
            if isinstance(record.event.payload, RequestOpened):
                self.clock.spawn(people.answer(self, record.event.payload.request.request_id), self.pause())
        self._maybe_crash()
        if self.calm and self._calm_at is None:
            self._calm_at = len(self.given)
        require(
            self._calm_at is None
            or len(self.given) <= self._calm_at + CALM_INPUTS
            or isinstance(self.state.phase, Ended),
            "liveness",
            f"{CALM_INPUTS} inputs after the last fault the run is still going on",
        )

    def deliver(self, given: Input) -> None:
        """Bring an answer, perhaps once more later."""
        self.bring(given)
        if self.chance(self.setting.echoes):
            self.clock.spawn(self._echo(given), self.pause())

    def _echo(self, given: Input) -> Process:
        self.bring(given)
        yield from ()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case CallModel():
                self.clock.spawn(self.backend.answer(effect), self.pause())
            case CancelModelCall():
                pass  # its answer comes all the same, too late
            case InvokeTool():
                self.clock.spawn(self.workers.work(effect))
            case CancelToolCall(invocation_id):
                self.workers.cancel(invocation_id)
            case WakeAfter(timer, ms):
                self.timers[timer] = mark = object()
                self.clock.spawn(self._timer(timer, mark, ms))
            case WakeAt(timer, unix_ms) if unix_ms <= self.clock.now:
                self.clock.spawn(self._prepared(MomentPast(timer)))
            case WakeAt(timer, unix_ms):
                self.timers[timer] = mark = object()
                self.clock.spawn(self._timer(timer, mark, max(0, unix_ms - self.clock.now)))
            case StopTimer(timer):
                self.timers.pop(timer, None)
            case AppendSession(batch):
                self.clock.spawn(self.session.append(batch), self.pause())
            case _:
                assert_never(effect)

    def _timer(self, timer: str, mark: object, ms: int) -> Process:
        """Fire, perhaps late, perhaps once more; perhaps another timer fires meanwhile, which nobody has set."""
        yield ms // 2
        if self.chance(self.setting.echoes):
            self.bring(TimeReached(f"{timer}0"))
        yield ms - ms // 2 + (self.pause() if self.chance(0.2) else 0)
        if self.timers.get(timer) is not mark:
            return
        del self.timers[timer]
        self.bring(TimeReached(timer))
        if self.chance(self.setting.echoes):
            yield self.pause()
            if timer not in self.timers:
                self.bring(TimeReached(timer))

    # -- crashes -------------------------------------------------------------------------------------------------

    def _maybe_crash(self) -> None:
        if len(self.given) in self.setting.crashes:
            self._crash()

    def _crash(self) -> None:
        """Drop the state; what is rebuilt from the inputs, and what is read back from its text, is the same."""
        if self._tell is not None:
            self._tell("        -- crash: the state is rebuilt from its inputs")
        step = begin(self.setting.start, self.setting.run, self.setting.binding)
        again = [step]
        for given in self.given:
            step = advance(step.state, given)
            again.append(step)
        require(again == self.steps, "I1, B1", "folding the same inputs again gives other steps")
        read = parse(RunState, to_json(step.state))
        require(read == self.state, "decision 1", "the state read back from its own text is another one")
        self.state = read

    # -- all of it -----------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Let the world go on until nothing is left to happen.

        Raises:
            Broken: a law does not hold.
        """
        for part in self.setting.parts:
            self.clock.spawn(self._prepared(Bound(part)), self.pause())
        self.clock.spawn(self._prepared(SessionReady(self.setting.opened)), self.pause())
        people.arrive(self)
        while self.clock.tick():
            pass
        self.watch.over(self.state)

    def _prepared(self, given: Input) -> Process:
        self.deliver(given)
        yield from ()


def play(seed: int, tell: Callable[[str], None] | None = None) -> World:
    """The world of a seed, played to its end.

    Raises:
        Broken: a law does not hold.
    """
    random = dice(seed)
    world = World(draw(random), random, tell)
    world.play()
    return world
