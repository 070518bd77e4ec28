"""One step as the laws see it."""

from dataclasses import dataclass

from orchestral_temporal.core.inputs import Input
from orchestral_temporal.core.state import Ended, RunState, Step
from orchestral_temporal.protocol.events import (
    AgentEvent,
    DeliveryCommitted,
    RunCancelled,
    RunFailed,
    RunIncomplete,
)

Terminal = DeliveryCommitted | RunIncomplete | RunFailed | RunCancelled


@dataclass(frozen=True)
class Seen:
    """State before, input, answer, and the time in milliseconds."""

    before: RunState
    given: Input
    step: Step
    now: int

    @property
    def had_ended(self) -> bool:
        """Whether the run was over before this step."""
        return isinstance(self.before.phase, Ended)

    @property
    def changed(self) -> bool:
        """Whether anything came of the input."""
        step = self.step
        return step.state is not self.before or bool(step.effects or step.events or step.wal or step.notes)

    @property
    def events(self) -> list[AgentEvent]:
        """What happened."""
        return [record.event.payload for record in self.step.events]

    @property
    def terminal(self) -> Terminal | None:
        """How the run ended in this step."""
        return next((event for event in self.events if isinstance(event, Terminal)), None)
