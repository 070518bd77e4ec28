"""The deadline: nothing is begun after it, and it ends what nothing else has ended (F1, F2)."""

from orchestral_temporal.core.inputs import TimeReached
from orchestral_temporal.core.state import CallModel, InvokeTool, ToolsOpen
from orchestral_temporal.protocol.events import RunCancelled, RunFailed, RunIncomplete
from orchestral_temporal.protocol.limits import RunLimitKind
from tests.sim.law import require
from tests.sim.seen import Seen
from tests.sim.setting import Setting


class DeadlineLaws:
    """Whether the run has been told that its time is over, and whether something else was ending it by then."""

    def __init__(self, setting: Setting) -> None:
        self._deadline = setting.start.envelope.spec.limits.deadline_unix_ms
        self._over = False

    def saw(self, seen: Seen) -> None:
        """Judge one step."""
        phase = seen.before.phase
        ending = seen.had_ended or (isinstance(phase, ToolsOpen) and phase.closing)
        if seen.given == TimeReached("deadline") and not ending:
            self._over = True
        by_deadline = (
            isinstance(seen.terminal, RunIncomplete)
            and seen.terminal.reason.type == "limit_reached"
            and seen.terminal.reason.limit is RunLimitKind.DEADLINE
        )
        if by_deadline:
            require(self._deadline is not None and seen.now >= self._deadline, "F2", "a run ends before its deadline")
        if not self._over:
            require(not by_deadline, "F2", "a deadline ends a run that something else was ending")
            return
        for effect in seen.step.effects:
            reads = isinstance(effect, InvokeTool) and effect.request.recorded is not None
            require(reads or not isinstance(effect, CallModel | InvokeTool), "F1", "work is begun after the deadline")
        early = isinstance(seen.terminal, RunCancelled | RunFailed)  # a cancel or a refused session while it prepared
        require(seen.terminal is None or by_deadline or early, "F2", "a run past its deadline ends otherwise")
