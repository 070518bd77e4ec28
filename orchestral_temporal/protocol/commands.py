"""Commands: what somebody asks of a run, its disposition and acknowledgement (`spec/wire.md` §9)."""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from orchestral_temporal.protocol.base import U64, Json, JsonObject, Word
from orchestral_temporal.protocol.content import Content, validate_list
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse, require
from orchestral_temporal.protocol.ids import CommandId, Digest, RequestId, RunId
from orchestral_temporal.protocol.requests import RequestResolution
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_namespaced,
    require_sealed,
    require_text,
    validate,
)
from orchestral_temporal.protocol.words import dump

INPUT_QUEUE: Final = "orchestral/input-queue.v1"
"""Extension key: in a descriptor, queued input is understood; in a command, the queue operation."""


class Steer(Word):
    """More input while the run goes on."""

    type: Literal["steer"] = "steer"
    content: tuple[Content, ...]


class ResolveRequest(Word):
    """An answer to a pending request, named by the envelope's `request_id`."""

    type: Literal["resolve_request"] = "resolve_request"
    response: RequestResolution


class Cancel(Word):
    """Stop the run."""

    type: Literal["cancel"] = "cancel"
    reason: str


AgentCommand = Annotated[Steer | ResolveRequest | Cancel, Field(discriminator="type")]


class AgentCommandEnvelope(Word):
    """A command under its digest; `command_id` is its idempotency key."""

    command_id: CommandId
    run_id: RunId
    request_id: RequestId | None = None
    payload: AgentCommand
    extensions: JsonObject = Field(default_factory=dict, exclude_if=lambda extensions: not extensions)
    command_digest: Digest


class Enqueue(Word):
    """Wait for the next boundary instead of interrupting."""

    operation: Literal["enqueue"] = "enqueue"


class Replace(Word):
    """Take the place of a queued input."""

    operation: Literal["replace"] = "replace"
    target: CommandId


class Withdraw(Word):
    """Take a queued input back."""

    operation: Literal["withdraw"] = "withdraw"
    target: CommandId


QueuedInputOperation = Annotated[Enqueue | Replace | Withdraw, Field(discriminator="operation")]

_operation: TypeAdapter[Enqueue | Replace | Withdraw] = TypeAdapter(QueuedInputOperation)


class CommandAccepted(Word):
    """The command will be carried out, unless something overtakes it."""

    outcome: Literal["accepted"] = "accepted"


class CommandRejected(Word):
    """The command will not be carried out."""

    outcome: Literal["rejected"] = "rejected"
    code: AgentProtocolErrorCode
    message: str


class CommandUnsupported(Word):
    """The agent has no such feature."""

    outcome: Literal["unsupported"] = "unsupported"
    feature: str


ProviderCommandOutcome = Annotated[
    CommandAccepted | CommandRejected | CommandUnsupported, Field(discriminator="outcome")
]


class ProviderCommandDisposition(Word):
    """What a provider decided about a command; `duplicate` is information only."""

    command_id: CommandId
    run_id: RunId
    outcome: ProviderCommandOutcome
    duplicate: bool


class AckAccepted(Word):
    """Accepted, no effect yet; `recorded_seq` is the `run_seq` of the disposition."""

    state: Literal["accepted"] = "accepted"
    recorded_seq: U64


class AckApplied(Word):
    """Accepted and carried out at `applied_seq`."""

    state: Literal["applied"] = "applied"
    recorded_seq: U64
    applied_seq: U64


class AckRejected(Word):
    """Rejected for good."""

    state: Literal["rejected"] = "rejected"
    recorded_seq: U64
    code: AgentProtocolErrorCode
    message: str


class AckUnsupported(Word):
    """Not understood, for good."""

    state: Literal["unsupported"] = "unsupported"
    recorded_seq: U64
    feature: str


CommandAckState = Annotated[AckAccepted | AckApplied | AckRejected | AckUnsupported, Field(discriminator="state")]


class CommandAck(Word):
    """The host's acknowledgement; `duplicate` says that the command was known before."""

    command_id: CommandId
    run_id: RunId
    duplicate: bool
    state: CommandAckState


def seal_command(
    command_id: str,
    run_id: str,
    payload: AgentCommand,
    *,
    request_id: str | None = None,
    extensions: JsonObject | None = None,
) -> AgentCommandEnvelope:
    """Put a command under its digest; `request_id` goes with an answer only.

    Raises:
        ProtocolError: the command is invalid.
    """
    unsealed = AgentCommandEnvelope(
        command_id=command_id,
        run_id=run_id,
        request_id=request_id,
        payload=payload,
        extensions=extensions or {},
        command_digest="",
    )
    _check_fields(unsealed)
    return unsealed.model_copy(update={"command_digest": command_digest(unsealed)})


def command_digest(command: AgentCommandEnvelope) -> Digest:
    """The digest of all of a command but the digest itself."""
    value = dump(command)
    del value["command_digest"]
    return digest(value)


def queued_input_supported(extensions: JsonObject) -> bool:
    """Whether a descriptor with these extensions declares queued input: version is the integer 1."""
    declared = extensions.get(INPUT_QUEUE)
    version = declared.get("version") if isinstance(declared, dict) else None
    return type(version) is int and version == 1


def queued_input(command: AgentCommandEnvelope) -> QueuedInputOperation | None:
    """The queue operation of a command; null for an ordinary one (`spec/wire.md` §9.4).

    Raises:
        ProtocolError: invalid_spec; the operation is unreadable, not on a steer, or names no other command.
    """
    if INPUT_QUEUE not in command.extensions:
        return None
    operation = _read_operation(command.extensions[INPUT_QUEUE])
    require(
        isinstance(command.payload, Steer) and command.request_id is None,
        AgentProtocolErrorCode.INVALID_SPEC,
        f"`{INPUT_QUEUE}` goes with a steer only.",
    )
    validate(command.payload)
    if isinstance(operation, Replace | Withdraw):
        require(
            operation.target not in ("", command.command_id),
            AgentProtocolErrorCode.INVALID_SPEC,
            "`target` is empty or the command itself; name the queued command.",
        )
    return operation


def validate_disposition(disposition: ProviderCommandDisposition, command: AgentCommandEnvelope) -> None:
    """Check that a disposition is one of this command.

    Raises:
        ProtocolError: invalid_spec.
    """
    require(
        (disposition.command_id, disposition.run_id) == (command.command_id, command.run_id),
        AgentProtocolErrorCode.INVALID_SPEC,
        "The disposition names another command or run.",
    )
    validate(disposition.outcome)


def _read_operation(value: Json) -> Enqueue | Replace | Withdraw:
    try:
        return _operation.validate_python(value)
    except ValidationError:
        refuse(
            AgentProtocolErrorCode.INVALID_SPEC,
            f"`{INPUT_QUEUE}` is no operation; use enqueue, replace or withdraw with its target.",
        )


def _check_fields(command: AgentCommandEnvelope) -> None:
    require_filled("command_id", command.command_id)
    require_filled("run_id", command.run_id)
    require_filled("request_id", command.request_id)
    require_namespaced("extensions", command.extensions)
    require(
        (command.request_id is not None) == isinstance(command.payload, ResolveRequest),
        AgentProtocolErrorCode.INVALID_SPEC,
        "`request_id` goes with resolve_request, always and only.",
    )
    validate(command.payload)


@validate.register
def _(command: Steer) -> None:
    validate_list("content", command.content)


@validate.register
def _(command: Cancel) -> None:
    require_text("reason", command.reason)


@validate.register
def _(command: AgentCommandEnvelope) -> None:
    _check_fields(command)
    require_sealed("command_digest", command.command_digest, command_digest(command))


@validate.register
def _(outcome: CommandRejected) -> None:
    require_text("message", outcome.message)


@validate.register
def _(outcome: CommandUnsupported) -> None:
    require_text("feature", outcome.feature)
