"""Commands: each once, decided at once, and an accepted cancel wins (behaviours C, `spec/reducer.md` §7)."""

from orchestral_temporal.core.inputs import CommandArrived, CommandsRead, PayloadRefused
from orchestral_temporal.core.reducer import ack
from orchestral_temporal.core.state import CallModel, InvokeTool, ModelOpen, ModelWaiting, RunState, ToolsOpen
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    Cancel,
    CommandAccepted,
    Enqueue,
    Replace,
    ResolveRequest,
    Steer,
    Withdraw,
    queued_input,
)
from orchestral_temporal.protocol.events import (
    CommandDispositionRecorded,
    CommandReceived,
    InputCommitted,
    RunCancelled,
    StopRequested,
)
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.wal import CommandCommitted, ProviderEventsCommitted
from tests.sim.law import require
from tests.sim.seen import Seen


def _says_something(answer: ResolveRequest) -> bool:
    response = answer.response
    return isinstance(response, InputResolution) and all(each.body.value for each in response.content)


class CommandLaws:
    """The commands that were received, and the cancel that was accepted."""

    def __init__(self) -> None:
        self._known: dict[str, AgentCommandEnvelope] = {}
        self._stop: AgentCommandEnvelope | None = None
        self._waiting: list[AgentCommandEnvelope] = []
        self._accepted: set[str] = set()
        self._applied: set[str] = set()
        self._round = 0

    def saw(self, seen: Seen) -> None:
        """Judge one step."""
        received = [event.command for event in seen.events if isinstance(event, CommandReceived)]
        decided = [event for event in seen.events if isinstance(event, CommandDispositionRecorded)]
        require(
            [each.command_id for each in received] == [each.command_id for each in decided],
            "reducer 7.2",
            "a command is received without its disposition",
        )
        if isinstance(seen.given, PayloadRefused):
            require(not (seen.step.events or seen.step.effects or seen.step.wal), "C1", "nonsense has an effect")
        if isinstance(seen.given, CommandArrived):
            self._arrived(seen, seen.given.command, received)
        else:
            require(not received, "C1", "a command is received that nobody sent")
        for command, disposition in zip(received, decided, strict=True):
            self._decided(seen, command, accepted=isinstance(disposition.outcome, CommandAccepted))
        self._taken(seen)
        self._stopping(seen)

    def _arrived(self, seen: Seen, command: AgentCommandEnvelope, received: list[AgentCommandEnvelope]) -> None:
        if command.command_id in self._known:
            require(not (seen.step.events or seen.step.effects or seen.step.wal), "C1", "a command takes effect twice")
        else:
            require(received in ([], [command]), "C1", "another command is received than was sent")

    def _decided(self, seen: Seen, command: AgentCommandEnvelope, *, accepted: bool) -> None:
        self._known[command.command_id] = command
        kinds = [
            draft.payload.events[0].payload.type
            if isinstance(draft.payload, ProviderEventsCommitted)
            else draft.payload.type
            for draft in seen.step.wal
        ]
        require("command_committed" in kinds, "B5", "a command is decided and not in the log")
        phase = seen.before.phase
        stops = self._stop is not None or (isinstance(phase, ToolsOpen) and phase.expired)
        require(accepted == (not stops and self._fits(command)), "C1", f"{command.command_id} decided wrongly")
        if not accepted:
            return
        self._accepted.add(command.command_id)
        if isinstance(command.payload, Cancel):
            self._stop = command
            require(kinds[0] == "command_committed", "C5", "the stop is in the log before its command")
        elif isinstance(command.payload, Steer):
            self._wait(command)

    def _fits(self, command: AgentCommandEnvelope) -> bool:
        """Whether a command asks for something that can be done, as far as those before it tell."""
        match queued_input(command):
            case Replace(target=target) | Withdraw(target=target):
                return any(each.command_id == target and queued_input(each) for each in self._waiting)
            case _:
                return not isinstance(command.payload, ResolveRequest) or _says_something(command.payload)

    def _wait(self, command: AgentCommandEnvelope) -> None:
        waiting = self._waiting
        match queued_input(command):
            case None | Enqueue():
                waiting.append(command)
            case Replace(target=target):
                self._waiting = [command if each.command_id == target else each for each in waiting]
            case Withdraw(target=target):
                self._waiting = [each for each in waiting if each.command_id != target]

    def _taken(self, seen: Seen) -> None:
        """Input is committed in the order in which it waits, each once; no round is opened past it (B7, C3, C7)."""
        for record in seen.step.events:
            event = record.event.payload
            if not isinstance(event, InputCommitted):
                continue
            require(bool(self._waiting), "C7", "input is committed that does not wait")
            first = self._waiting.pop(0)
            assert isinstance(first.payload, Steer)
            right = (record.event.causation_id, event.content) == (first.command_id, first.payload.content)
            require(right, "B7", f"{record.event.causation_id} is committed, and {first.command_id} waits before it")
            self._applied.add(first.command_id)
        opened = [effect.attempt for effect in seen.step.effects if isinstance(effect, CallModel)]
        if any(each.round > self._round for each in opened):
            require(not self._waiting, "C3", "a round is opened past input that waits")
        self._round = max([self._round, *(each.round for each in opened)])
        plain = any(queued_input(each) is None for each in self._waiting)
        heard = isinstance(seen.given, CommandsRead) and isinstance(seen.step.state.phase, ModelOpen | ModelWaiting)
        require(not (plain and heard), "C3", "a steer does not interrupt the open attempt")

    def _stopping(self, seen: Seen) -> None:
        """After an accepted cancel nothing new is begun, and the end is its (C5, C6, divergence 1)."""
        stop = self._stop
        logged = [draft.payload for draft in seen.step.wal if isinstance(draft.payload, CommandCommitted)]
        require(len(logged) <= 1, "B5", "one input puts two commands into the log")
        for event in seen.events:
            if isinstance(event, StopRequested | RunCancelled):
                require(stop is not None, "C6", "a run stops that nobody cancelled")
        if stop is None:
            return
        for effect in seen.step.effects:
            # To read what is recorded of a lost call is to wait for it, not to begin anything.
            reads = isinstance(effect, InvokeTool) and effect.request.recorded is not None
            begins = isinstance(effect, CallModel | InvokeTool) and not reads
            require(not begins, "C5", "work is begun after an accepted cancel")
        if seen.terminal is not None:
            assert isinstance(stop.payload, Cancel)
            cancelled = isinstance(seen.terminal, RunCancelled) and seen.terminal.reason == stop.payload.reason
            require(cancelled, "C6", f"an accepted cancel ends in {seen.terminal.type}")

    def over(self, state: RunState) -> None:
        """Each command has an acknowledgement that tells what became of it (C2)."""
        for command_id, command in self._known.items():
            found = ack(state.run, command_id).state.state
            right = "accepted" if command_id in self._accepted else "rejected"
            if command is self._stop or command_id in self._applied:
                right = "applied"
            if isinstance(command.payload, ResolveRequest) and right == "accepted":
                right = "applied"
            require(found == right, "C2", f"{command_id} is acknowledged as {found}")
