"""Commands: each once, decided at once, and an accepted cancel wins (behaviours C, `spec/reducer.md` §7)."""

from orchestral_temporal.core.inputs import CommandArrived, PayloadRefused
from orchestral_temporal.core.reducer import ack
from orchestral_temporal.core.state import CallModel, InvokeTool, RunState
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Cancel, CommandAccepted
from orchestral_temporal.protocol.events import (
    CommandDispositionRecorded,
    CommandReceived,
    RunCancelled,
    StopRequested,
)
from orchestral_temporal.protocol.wal import CommandCommitted, ProviderEventsCommitted
from tests.sim.law import require
from tests.sim.seen import Seen


class CommandLaws:
    """The commands that were received, and the cancel that was accepted."""

    def __init__(self) -> None:
        self._known: dict[str, AgentCommandEnvelope] = {}
        self._stop: AgentCommandEnvelope | None = None

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
        require(accepted == (isinstance(command.payload, Cancel) and self._stop is None), "C1", "decided wrongly")
        if accepted:
            self._stop = command
            require(kinds[0] == "command_committed", "C5", "the stop is in the log before its command")

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
            right = "applied" if command is self._stop else "rejected" if isinstance(command.payload, Cancel) else ""
            require(found == (right or "unsupported"), "C2", f"{command_id} is acknowledged as {found}")
