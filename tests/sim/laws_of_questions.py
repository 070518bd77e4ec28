"""Questions to people: each asked once, answered once, and nothing goes on before it is (behaviours D)."""

from orchestral_temporal.core.inputs import BatchRefused, CommandArrived, TimeReached
from orchestral_temporal.core.state import CallModel, InvokeTool
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, ResolveRequest
from orchestral_temporal.protocol.events import RequestOpened, RequestResolved
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.words import dump
from tests.sim.law import require
from tests.sim.seen import Seen


class QuestionLaws:
    """The question that is open, and the answers so far by the request's id."""

    def __init__(self) -> None:
        self.pending: str | None = None
        self.answers: dict[str, object] = {}

    def saw(self, seen: Seen) -> None:
        """Judge one step."""
        waited = self.pending
        for event in seen.events:
            if isinstance(event, RequestOpened):
                known = event.request.request_id in self.answers or self.pending is not None
                require(not known, "D1, D5", f"{event.request.request_id} is asked twice, or beside another")
                self.pending = event.request.request_id
            elif isinstance(event, RequestResolved):
                self._resolved(seen, event)
        begins = [effect for effect in seen.step.effects if isinstance(effect, CallModel | InvokeTool)]
        require(self.pending is None or not begins, "D1", "work is begun while a question is open")
        ends = isinstance(seen.given, CommandArrived | BatchRefused) or seen.given == TimeReached("deadline")
        if waited is not None and self.pending is not None and not ends:
            require(not seen.events, "D1", "a run that waits for a person goes on by itself")
        if seen.terminal is not None:
            self.pending = None

    def _resolved(self, seen: Seen, event: RequestResolved) -> None:
        require(event.request_id == self.pending, "D1", f"{event.request_id} is answered and was not asked")
        command = seen.given.command if isinstance(seen.given, CommandArrived) else None
        require(_is_answer(command, event), "D1", f"{event.request_id} is answered by nobody")
        assert isinstance(event.resolution, InputResolution)
        self.answers[event.request_id] = {"content": [dump(each) for each in event.resolution.content]}
        self.pending = None


def _is_answer(command: AgentCommandEnvelope | None, event: RequestResolved) -> bool:
    payload = command.payload if command is not None else None
    named = command is not None and command.request_id == event.request_id
    return named and isinstance(payload, ResolveRequest) and payload.response == event.resolution
