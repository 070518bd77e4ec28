"""Whoever watches a run: every law, after every step, and once more when nothing is left to happen."""

from orchestral_temporal.core.inputs import Input
from orchestral_temporal.core.state import AppendSession, Ended, ModelOpen, Preparing, RunState, Step
from tests.sim.law import require
from tests.sim.laws_of_calls import CallLaws
from tests.sim.laws_of_commands import CommandLaws
from tests.sim.laws_of_deadline import DeadlineLaws
from tests.sim.laws_of_journal import JournalLaws
from tests.sim.laws_of_log import LogLaws
from tests.sim.laws_of_questions import QuestionLaws
from tests.sim.laws_of_rounds import RoundLaws
from tests.sim.laws_of_session import SessionLaws
from tests.sim.seen import Seen
from tests.sim.session import Entity
from tests.sim.setting import Setting
from tests.sim.workers import Outside


class Watch:
    """Holds what each law remembers: what came in and what came out, and as little of the state as can be."""

    def __init__(self, setting: Setting, outside: Outside, entity: Entity) -> None:
        self._rounds = RoundLaws(setting)
        self._calls = CallLaws(setting, outside)
        self._session = SessionLaws(entity)
        self._journal = JournalLaws()
        self._commands = CommandLaws()
        self._log = LogLaws()
        self._questions = QuestionLaws()
        self._deadline = DeadlineLaws(setting)

    def began(self, step: Step) -> None:
        """Look at the first step."""
        self._journal.began(step)

    def saw(self, before: RunState, given: Input, step: Step, now: int, timers: dict[str, object]) -> None:
        """Look at one step.

        Raises:
            Broken: a law does not hold.
        """
        seen = Seen(before, given, step, now)
        self._journal.saw(seen)
        self._commands.saw(seen)
        self._rounds.saw(seen)
        self._questions.saw(seen)
        self._deadline.saw(seen)
        self._calls.saw(seen, self._questions.answers)
        self._log.saw(seen, self._rounds.usage, self._calls.counted)
        self._session.saw(seen)
        self._goes_on(seen, timers)

    def _goes_on(self, seen: Seen, timers: dict[str, object]) -> None:
        """A run that has not ended waits for something."""
        state = seen.step.state
        if isinstance(state.phase, Ended | Preparing):
            if isinstance(state.phase, Ended):
                require(not self._calls.at_work, "E3, divergence 4", "the run has ended while a call is at work")
                require(self._rounds.open is None, "C5", "the run has ended and its model call goes on")
            return
        set_now = any(type(effect).__name__ == "WakeAfter" for effect in seen.step.effects)
        appending = any(isinstance(effect, AppendSession) for effect in seen.step.effects)
        waits = self._rounds.open is not None or self._calls.under_way or timers or set_now
        waits = waits or self._questions.pending
        require(waits or appending, "liveness", "nothing is under way and no timer is set, yet the run goes on")
        require(
            isinstance(state.phase, ModelOpen) == (self._rounds.open is not None),
            "B1",
            "the run and its watchers disagree on whether a model attempt is open",
        )

    def over(self, state: RunState) -> None:
        """Look at how it ended.

        Raises:
            Broken: a law does not hold.
        """
        require(isinstance(state.phase, Ended), "liveness", f"nothing is left to happen in phase {state.phase.at!r}")
        self._journal.over(state)
        self._commands.over(state)
        self._calls.over()
        self._session.over(state, self._calls)
