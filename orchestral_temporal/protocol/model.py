"""The model protocol: what a backend is, what it is asked, what it streams (`spec/agent-loop.md` §4)."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import U64, Json, JsonObject, SpeltOutWord, Word, object_or
from orchestral_temporal.protocol.errors import require
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_namespaced,
    require_positive,
    require_sha256,
    require_text,
    require_unique,
    validate,
    validate_each,
)


class ModelRole(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ModelFinishReason(StrEnum):
    """Why a model ended its turn."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


class ModelErrorCode(StrEnum):
    """What went wrong at a backend; a run fails with `model_` + the name without underscores."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    UNSUPPORTED = "unsupported"
    UNAVAILABLE = "unavailable"
    RATE_LIMITED = "rate_limited"
    AUTHENTICATION = "authentication"
    PROTOCOL = "protocol"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class ModelTokenAccounting(StrEnum):
    """How far a token count may be trusted."""

    EXACT = "exact"
    CONSERVATIVE_UPPER_BOUND = "conservative_upper_bound"
    ESTIMATED = "estimated"


class ModelError(SpeltOutWord):
    """A backend's failure as a value."""

    spelt_out = ("retryable",)

    code: ModelErrorCode
    message: str
    retryable: bool = False
    details: Json = None


class ModelCapabilities(Word):
    """What a backend can do; `max_context_tokens` counts tokens."""

    streaming: bool
    tool_calls: bool
    parallel_tool_calls: bool
    structured_output: bool
    max_context_tokens: U64 | None = None


class ModelDescriptor(Word):
    """A backend's identity, part of the run's authority."""

    backend_id: str
    capabilities: ModelCapabilities
    extensions: JsonObject = Field(default_factory=dict)


class ModelContextEstimate(Word):
    """Tokens of a context."""

    tokens: U64
    accounting: ModelTokenAccounting


class ModelTokenMeterDescriptor(Word):
    """A token meter's identity, part of the run's authority; its counts bound, they are never mere estimates."""

    strategy: str
    version: str
    accounting: ModelTokenAccounting
    config_digest: str


class TextPart(Word):
    """Text of a message; never empty."""

    type: Literal["text"] = "text"
    text: str


class JsonPart(Word):
    """A JSON value of a message."""

    type: Literal["json"] = "json"
    value: Json


class DataPart(Word):
    """A typed value of a message."""

    type: Literal["data"] = "data"
    media_type: str
    value: Json


class ContinuationPart(Word):
    """Opaque provider state of an assistant message, once a namespace."""

    type: Literal["continuation"] = "continuation"
    namespace: str
    value: Json


class ToolCallPart(Word):
    """A tool call as the model wrote it, arguments parsed."""

    type: Literal["tool_call"] = "tool_call"
    call_id: str
    name: str
    arguments: Json
    extensions: JsonObject = Field(default_factory=dict)


class ToolResultPart(Word):
    """What the model sees of a tool's outcome."""

    type: Literal["tool_result"] = "tool_result"
    call_id: str
    result: Json
    is_error: bool


ModelContent = Annotated[
    TextPart | JsonPart | DataPart | ContinuationPart | ToolCallPart | ToolResultPart,
    Field(discriminator="type"),
]


class ModelMessage(Word):
    """One message of a request; `content` has at least one part."""

    role: ModelRole
    content: tuple[ModelContent, ...]


class ModelToolDefinition(Word):
    """A tool as the model sees it; the schema is sent unchanged."""

    name: str
    description: str
    input_schema: Annotated[JsonObject, object_or(ModelErrorCode.INVALID_REQUEST)]


class ModelRequest(Word):
    """One logical model attempt; `max_output_tokens` counts tokens."""

    request_id: str
    messages: tuple[ModelMessage, ...]
    tools: tuple[ModelToolDefinition, ...] = ()
    output_schema: Annotated[JsonObject, object_or(ModelErrorCode.INVALID_REQUEST)] | None = None
    max_output_tokens: U64 | None = None
    extensions: JsonObject = Field(default_factory=dict)


class ModelUsage(Word):
    """Tokens as the backend reports them; null is unknown."""

    input_tokens: U64 | None = None
    output_tokens: U64 | None = None


class TextDelta(Word):
    """More text of the answer; never empty."""

    type: Literal["text_delta"] = "text_delta"
    delta: str


class Continuation(Word):
    """Opaque provider state for the whole message."""

    type: Literal["continuation"] = "continuation"
    namespace: str
    value: Json


class ToolCallStart(Word):
    """A call begins; its id is new in this attempt."""

    type: Literal["tool_call_start"] = "tool_call_start"
    call_id: str
    name: str
    extensions: JsonObject = Field(default_factory=dict)


class ToolCallArgumentsDelta(Word):
    """More of a call's raw argument text; never empty."""

    type: Literal["tool_call_arguments_delta"] = "tool_call_arguments_delta"
    call_id: str
    delta: str


class ToolCallEnd(Word):
    """A call is complete."""

    type: Literal["tool_call_end"] = "tool_call_end"
    call_id: str


class UsageSnapshot(Word):
    """Usage so far; replaces the former snapshot whole."""

    type: Literal["usage"] = "usage"
    usage: ModelUsage


class Finish(Word):
    """The end of the turn; whatever follows is not read."""

    type: Literal["finish"] = "finish"
    reason: ModelFinishReason


ModelEvent = Annotated[
    TextDelta | Continuation | ToolCallStart | ToolCallArgumentsDelta | ToolCallEnd | UsageSnapshot | Finish,
    Field(discriminator="type"),
]


class ModelStreamEvent(Word):
    """One event of a stream; `sequence` is 1, 2, 3 … without gap."""

    request_id: str
    event_id: str
    sequence: U64
    payload: ModelEvent


class ObservedToolCall(Word):
    """A call as streamed: raw argument text, and whether its end was seen."""

    call_id: str
    name: str
    arguments: str = ""
    extensions: JsonObject = Field(default_factory=dict)
    ended: bool


class ModelObservation(Word):
    """One assembled turn: the wire's GenericModelObservation."""

    finish_reason: ModelFinishReason
    response: str = ""
    continuation: JsonObject = Field(default_factory=dict, exclude_if=lambda states: not states)
    usage: ModelUsage | None = None
    tool_calls: tuple[ObservedToolCall, ...] = ()


_REQUEST = ModelErrorCode.INVALID_REQUEST
_STREAM = ModelErrorCode.PROTOCOL


def validate_stream_event(event: ModelStreamEvent, request_id: str, sequence: int) -> None:
    """Check one event of a stream against the request it answers and the number it must have (from 1).

    Raises:
        WordError: protocol, or invalid_request for the extensions of a call.
    """
    require(event.request_id == request_id and event.sequence == sequence > 0, _STREAM, "The event is out of place.")
    require_text("event_id", event.event_id, _STREAM)
    validate(event.payload)


@validate.register
def _(descriptor: ModelDescriptor) -> None:
    capabilities = descriptor.capabilities
    require_text("backend_id", descriptor.backend_id, _REQUEST)
    require_positive(_REQUEST, max_context_tokens=capabilities.max_context_tokens)
    require(
        capabilities.tool_calls or not capabilities.parallel_tool_calls,
        _REQUEST,
        "`parallel_tool_calls` goes with `tool_calls` only.",
    )
    require_namespaced("extensions", descriptor.extensions, _REQUEST)


@validate.register
def _(meter: ModelTokenMeterDescriptor) -> None:
    require_text("strategy", meter.strategy, _REQUEST)
    require_text("version", meter.version, _REQUEST)
    require(meter.accounting is not ModelTokenAccounting.ESTIMATED, _REQUEST, "`accounting` of a meter must bound.")
    require_sha256("config_digest", meter.config_digest, _REQUEST)


@validate.register
def _(part: TextPart) -> None:
    require_filled("text", part.text, _REQUEST)


@validate.register
def _(part: DataPart) -> None:
    require_text("media_type", part.media_type, _REQUEST)


@validate.register
def _(part: ContinuationPart) -> None:
    require_text("namespace", part.namespace, _REQUEST)


@validate.register
def _(part: ToolCallPart) -> None:
    require_text("call_id", part.call_id, _REQUEST)
    require_text("name", part.name, _REQUEST)
    require_namespaced("extensions", part.extensions, _REQUEST)


@validate.register
def _(part: ToolResultPart) -> None:
    require_text("call_id", part.call_id, _REQUEST)


@validate.register
def _(message: ModelMessage) -> None:
    require(bool(message.content), _REQUEST, "`content` is empty; give at least one part.")
    validate_each(message.content)
    namespaces = [part.namespace for part in message.content if isinstance(part, ContinuationPart)]
    require(message.role is ModelRole.ASSISTANT or not namespaces, _REQUEST, "A continuation is the assistant's.")
    require_unique("namespace", namespaces, _REQUEST)


@validate.register
def _(tool: ModelToolDefinition) -> None:
    require_text("name", tool.name, _REQUEST)
    require_text("description", tool.description, _REQUEST)


@validate.register
def _(request: ModelRequest) -> None:
    require_text("request_id", request.request_id, _REQUEST)
    require(bool(request.messages), _REQUEST, "`messages` is empty; give at least one.")
    require_positive(_REQUEST, max_output_tokens=request.max_output_tokens)
    validate_each(request.messages)
    validate_each(request.tools)
    require_unique("tools", (tool.name for tool in request.tools), _REQUEST)
    require_namespaced("extensions", request.extensions, _REQUEST)


@validate.register
def _(event: TextDelta) -> None:
    require_filled("delta", event.delta, _STREAM)


@validate.register
def _(event: Continuation) -> None:
    require_text("namespace", event.namespace, _STREAM)


@validate.register
def _(event: ToolCallStart) -> None:
    require_text("call_id", event.call_id, _STREAM)
    require_text("name", event.name, _STREAM)
    require_namespaced("extensions", event.extensions, _REQUEST)


@validate.register
def _(event: ToolCallArgumentsDelta | ToolCallEnd) -> None:
    require_text("call_id", event.call_id, _STREAM)
    if isinstance(event, ToolCallArgumentsDelta):
        require_filled("delta", event.delta, _STREAM)
