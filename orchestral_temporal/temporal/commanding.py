"""Commands of a client: sent as the update `submit`, left with the server as a signal where no worker answers.

An update is answered by the run itself, with the acknowledgement; a signal waits for the next worker (decision 29).
"""

import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.client import RPCTimeoutOrCancelledError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.core.limits import COMMAND_BYTES
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import INPUT_QUEUE, AgentCommandEnvelope, CommandAck, Steer, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse
from orchestral_temporal.protocol.events import AgentEvent, CommandReceived
from orchestral_temporal.protocol.words import parse_value, to_json
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client_errors import raise_if_cancelled, refused
from orchestral_temporal.temporal.turn import ContinuityUnknown

SIGNAL_TIMEOUT: Final = timedelta(seconds=10)
"""How long a server may take to keep a command for the next worker."""

Submit = Callable[[AgentCommandEnvelope], Awaitable[CommandAck]]
"""Sends one command of a run and returns its acknowledgement."""


async def submit(
    handle: WorkflowHandle[object, JsonObject],
    command: AgentCommandEnvelope,
    patience: timedelta,
    ended: Callable[[AgentCommandEnvelope], Awaitable[CommandAck]],
) -> CommandAck:
    """Send a command; `ended` asks a run that has ended what became of it there.

    Raises:
        ProtocolError: the command is too large (invalid_spec), the run has ended (terminal_run), or refuses it.
        ContinuityUnknown: no worker took the command in time, and it waits for the next one; or the server does not
            answer, and nobody knows whether it has arrived (B5).
    """
    size = len(to_json(command).encode())
    if size > COMMAND_BYTES:
        message = f"The command has {size} bytes; at most {COMMAND_BYTES} are taken, so put long texts into a file."
        refuse(AgentProtocolErrorCode.INVALID_SPEC, message)
    try:
        # Under an update id that the server knows it would answer by itself, as if the command came for the first time.
        value: Json = await handle.execute_update(names.UPDATE_SUBMIT, command, result_type=dict, rpc_timeout=patience)
    except WorkflowUpdateFailedError as failed:
        if isinstance(failed.cause, ApplicationError) and failed.cause.type == "AcceptedUpdateCompletedWorkflow":
            return await ended(command)
        refused(failed)
    except (RPCError, RPCTimeoutOrCancelledError) as fault:
        raise_if_cancelled(fault)
        if _has_ended(fault) or not await _left(handle, command):
            return await ended(command)
        said = f"The {command.payload.type} {command.command_id!r} is on its way"
        raise ContinuityUnknown(f"{said}; no worker has acknowledged it yet.") from None
    return parse_value(CommandAck, value)


async def _left(handle: WorkflowHandle[object, JsonObject], command: AgentCommandEnvelope) -> bool:
    """Leave a command with the server; false if the run has ended."""
    try:
        await handle.signal(names.SIGNAL_COMMAND, command, rpc_timeout=SIGNAL_TIMEOUT)
    except RPCError as fault:
        raise_if_cancelled(fault)
        if _has_ended(fault):
            return False
        said = f"Nobody knows whether the {command.payload.type} {command.command_id!r} has arrived"
        hint = "send it again under the same command id"
        raise ContinuityUnknown(f"{said}, since the server did not say so ({fault.message}); {hint}.") from None
    return True


def require_received(command: AgentCommandEnvelope, journal: Iterable[AgentEvent]) -> None:
    """Check that a run which has ended received this command.

    Raises:
        ProtocolError: terminal_run, it did not; duplicate_conflict, it received another one under that id.
    """
    received = (each.command for each in journal if isinstance(each, CommandReceived))
    known = next((each for each in received if each.command_id == command.command_id), None)
    if known is None:
        refuse(AgentProtocolErrorCode.TERMINAL_RUN, f"The run {command.run_id!r} has ended.")
    if known.command_digest != command.command_digest:
        said = f"The id {command.command_id!r} is another command's; give each command its own."
        refuse(AgentProtocolErrorCode.DUPLICATE_CONFLICT, said)


def _has_ended(fault: BaseException) -> bool:
    """Whether the server says that there is no such run any more."""
    return isinstance(fault, RPCError) and fault.status is RPCStatusCode.NOT_FOUND


def steer(run_id: str, text: str, command_id: str | None, operation: JsonObject | None = None) -> AgentCommandEnvelope:
    """A steer, or with an operation a command of the input queue.

    Raises:
        ProtocolError: the command is invalid; the message names the field.
    """
    return seal_command(
        command_id or new_id("steer" if operation is None else "queue"),
        run_id,
        Steer(content=(text_content(text),)),
        extensions={} if operation is None else {INPUT_QUEUE: operation},
    )


def new_id(kind: str) -> str:
    """A command id that nobody has used."""
    return f"{kind}-{uuid.uuid4()}"


@dataclass(frozen=True)
class QueuedInput:
    """Input that waits for the model's next boundary, and how it was acknowledged."""

    run_id: str
    ack: CommandAck
    _submit: Submit

    @property
    def command_id(self) -> str:
        """The id under which it is replaced or withdrawn."""
        return self.ack.command_id

    async def replace(self, text: str, *, command_id: str | None = None) -> "QueuedInput":
        """Put another text in its place; it is known by the new command's id from then on.

        Raises:
            ProtocolError: the run has ended, or it refuses the command.
            ContinuityUnknown: no worker took the command in time; ask `ack` later.
        """
        return await replace(self.run_id, self.command_id, text, command_id, self._submit)

    async def withdraw(self, *, command_id: str | None = None) -> CommandAck:
        """Take it back; rejected once the model has read it.

        Raises:
            ProtocolError: the run has ended, or it refuses the command.
            ContinuityUnknown: no worker took the command in time; ask `ack` later.
        """
        return await withdraw(self.run_id, self.command_id, command_id, self._submit)


async def replace(run_id: str, queued: str, text: str, command_id: str | None, send: Submit) -> QueuedInput:
    """Put a text in the place of a queued input."""
    ack = await send(steer(run_id, text, command_id, {"operation": "replace", "target": queued}))
    return QueuedInput(run_id, ack, send)


async def withdraw(run_id: str, queued: str, command_id: str | None, send: Submit) -> CommandAck:
    """Take a queued input back; the wire wants a content here too, and nobody reads it."""
    return await send(steer(run_id, "withdrawn", command_id, {"operation": "withdraw", "target": queued}))
