"""What a run asks of people, and what they answer (`spec/wire.md` §9.1, §10)."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import Json, Word
from orchestral_temporal.protocol.content import Content, validate_list
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.ids import ApprovalGrantRef, Digest, RequestId, SchemaRef, is_blank
from orchestral_temporal.protocol.run import PendingRequestKind
from orchestral_temporal.protocol.validation import require_filled, require_sha256, require_text, validate


class ApprovalDecision(StrEnum):
    """A person's answer to an approval request."""

    ALLOW = "allow"
    DENY = "deny"


class InputRequest(Word):
    """A question."""

    type: Literal["input"] = "input"
    prompt: tuple[Content, ...]
    input_schema: SchemaRef | None = None


class ApprovalRequest(Word):
    """May this operation be done? `session_approval_scope` is a class that may be remembered for a session."""

    type: Literal["approval"] = "approval"
    operation_digest: Digest
    requested_scope: tuple[str, ...]
    session_approval_scope: Digest | None = None
    reason: str


class ExternalActionRequest(Word):
    """Something to be done outside."""

    type: Literal["external_action"] = "external_action"
    name: str
    arguments: Json
    result_schema: SchemaRef | None = None


PendingRequestPayload = Annotated[InputRequest | ApprovalRequest | ExternalActionRequest, Field(discriminator="type")]


class PendingRequest(Word):
    """An open request; a blocking one makes the run wait."""

    request_id: RequestId
    blocking: bool
    payload: PendingRequestPayload


class InputResolution(Word):
    """The answer to a question."""

    type: Literal["input"] = "input"
    content: tuple[Content, ...]


class ApprovalResolution(Word):
    """The answer to an approval request: an allow names its grant, a deny has none."""

    type: Literal["approval"] = "approval"
    decision: ApprovalDecision
    grant_ref: ApprovalGrantRef | None = None


class ExternalResult(Word):
    """What an external action gave."""

    type: Literal["external_result"] = "external_result"
    result: tuple[Content, ...]


RequestResolution = Annotated[InputResolution | ApprovalResolution | ExternalResult, Field(discriminator="type")]


def request_kind(request: PendingRequest) -> PendingRequestKind:
    """What an open request asks for."""
    return PendingRequestKind(request.payload.type)


def resolution_kind(resolution: RequestResolution) -> PendingRequestKind:
    """Which kind of request an answer is for; an external result answers an external action."""
    if isinstance(resolution, ExternalResult):
        return PendingRequestKind.EXTERNAL_ACTION
    return PendingRequestKind(resolution.type)


def resolution_digest(resolution: RequestResolution) -> Digest:
    """The digest of an answer.

    Raises:
        ProtocolError: the answer is invalid.
    """
    validate(resolution)
    return digest(resolution)


@validate.register
def _(payload: InputRequest) -> None:
    validate_list("prompt", payload.prompt)
    require_filled("input_schema", payload.input_schema)


@validate.register
def _(payload: ApprovalRequest) -> None:
    require_sha256("operation_digest", payload.operation_digest)
    require(
        bool(payload.requested_scope) and not any(map(is_blank, payload.requested_scope)),
        AgentProtocolErrorCode.INVALID_SPEC,
        "`requested_scope` is empty or has a blank entry; name at least one effect.",
    )
    require_sha256("session_approval_scope", payload.session_approval_scope)
    require_text("reason", payload.reason)


@validate.register
def _(payload: ExternalActionRequest) -> None:
    require_text("name", payload.name)
    require_filled("result_schema", payload.result_schema)


@validate.register
def _(request: PendingRequest) -> None:
    require_filled("request_id", request.request_id)
    validate(request.payload)


@validate.register
def _(resolution: InputResolution) -> None:
    validate_list("content", resolution.content)


@validate.register
def _(resolution: ApprovalResolution) -> None:
    allowed = resolution.decision is ApprovalDecision.ALLOW
    require(
        bool(resolution.grant_ref) if allowed else resolution.grant_ref is None,
        AgentProtocolErrorCode.INVALID_SPEC,
        "`grant_ref` must be given with an allow and null with a deny.",
    )


@validate.register
def _(resolution: ExternalResult) -> None:
    validate_list("result", resolution.result)
