"""Assembly: a model's stream, event by event, into one turn (`spec/agent-loop.md` §4).

    state = Assembly(request_id)
    match step(state, event):
        case Assembly():  # go on with the new state
        case ModelObservation():  # the turn; whatever follows is not read
        case Breach():  # the stream broke a rule

When the stream ends before any `finish`, `unfinished` says what that means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestral_temporal.core.limits import MESSAGE_CHARACTERS
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.model import (
    Continuation,
    Finish,
    ModelError,
    ModelErrorCode,
    ModelFinishReason,
    ModelObservation,
    ModelStreamEvent,
    ModelUsage,
    ObservedToolCall,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSnapshot,
    validate_stream_event,
)
from orchestral_temporal.protocol.words import mended_text

Rope = tuple[str, ...]
"""Text in pieces, each at least twice as long as the next: see `_longer`."""


@dataclass(frozen=True, slots=True)
class Breach:
    """Why a stream is no turn: the failure code of the run (§14), and the error that says more.

    Whether another try is allowed is for the retry window to say; only `unavailable` before any output may have one.
    """

    code: str
    error: ModelError


@dataclass(frozen=True, slots=True)
class PartialCall:
    """A call as far as it was streamed."""

    name: str
    extensions: JsonObject
    arguments: Rope = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Assembly:
    """What one attempt has streamed so far.

    `generated` is true from the first event that is not usage: the retry window is closed (§4).
    `usage` is the last snapshot, whole; calls stand in stream order.
    """

    request_id: str
    sequence: int = 0
    generated: bool = False
    usage: ModelUsage | None = None
    text: Rope = ()
    continuations: JsonObject = field(default_factory=dict[str, Json])
    calls: Mapping[str, PartialCall] = field(default_factory=dict[str, PartialCall])


def failure_code(code: ModelErrorCode) -> str:
    """The failure code of a run that a backend's error ends: `model_` and the name without underscores."""
    return "model_" + code.value.replace("_", "")


def step(state: Assembly, event: ModelStreamEvent) -> Assembly | ModelObservation | Breach:
    """Read one event: the next state, or the whole turn at `finish`, or the rule it breaks.

    The cost of a step does not grow with the text before it.
    """
    try:
        validate_stream_event(event, state.request_id, state.sequence + 1)
    except WordError as fault:
        return _breach(ModelErrorCode(fault.code), fault.message)
    state = replace(state, sequence=event.sequence)
    payload = event.payload
    if isinstance(payload, UsageSnapshot):
        return replace(state, usage=payload.usage)
    return _generate(replace(state, generated=True), payload)


def unfinished(state: Assembly) -> Breach:
    """The stream ended and no `finish` was seen: before any output as if the backend had been unavailable."""
    if not state.generated:
        return _breach(ModelErrorCode.UNAVAILABLE, "the model's stream ended before it said anything", retryable=True)
    message = "the model's stream ended before its turn did"
    return Breach("model_stream_ended", ModelError(code=ModelErrorCode.PROTOCOL, message=message, retryable=True))


def _generate(  # noqa: PLR0911 -- one answer for each kind of event
    state: Assembly, payload: TextDelta | Continuation | ToolCallStart | ToolCallArgumentsDelta | ToolCallEnd | Finish
) -> Assembly | ModelObservation | Breach:
    match payload:
        case TextDelta():
            return replace(state, text=_longer(state.text, payload.delta))
        case Continuation():
            return _continued(state, payload)
        case ToolCallStart():
            return _started(state, payload)
        case ToolCallArgumentsDelta():
            return _argued(state, payload)
        case ToolCallEnd():
            return _ended(state, payload)
        case Finish(reason=reason):
            return _observation(state, reason)
        # A backend is someone else's code: what it makes up is data here, not a gap in our table, so no assert_never.
        case _:  # pyright: ignore[reportUnnecessaryComparison] -- as above: the type is a promise, not a check
            message = f"event {state.sequence} is of a kind this version does not know"
            return Breach("unknown_model_event", ModelError(code=ModelErrorCode.PROTOCOL, message=message))


def _continued(state: Assembly, payload: Continuation) -> Assembly | Breach:
    if payload.namespace in state.continuations:
        return _protocol(f"continuation namespace {payload.namespace!r} came twice")
    return replace(state, continuations={**state.continuations, payload.namespace: payload.value})


def _started(state: Assembly, payload: ToolCallStart) -> Assembly | Breach:
    if payload.call_id in state.calls:
        return _protocol(f"tool call id {payload.call_id!r} came twice")
    return _with_call(state, payload.call_id, PartialCall(payload.name, payload.extensions))


def _argued(state: Assembly, payload: ToolCallArgumentsDelta) -> Assembly | Breach:
    call = state.calls.get(payload.call_id)
    if call is None or call.ended:
        return _protocol(f"tool call {payload.call_id!r} gets arguments without being open")
    return _with_call(state, payload.call_id, replace(call, arguments=_longer(call.arguments, payload.delta)))


def _ended(state: Assembly, payload: ToolCallEnd) -> Assembly | Breach:
    call = state.calls.get(payload.call_id)
    if call is None or call.ended:
        return _protocol(f"tool call {payload.call_id!r} ends without being open")
    return _with_call(state, payload.call_id, replace(call, ended=True))


def _observation(state: Assembly, reason: ModelFinishReason) -> ModelObservation:
    return ModelObservation(
        finish_reason=reason,
        response=_whole(state.text),
        continuation=state.continuations,
        usage=state.usage,
        tool_calls=tuple(
            ObservedToolCall(
                call_id=call_id,
                name=call.name,
                arguments=_whole(call.arguments),
                extensions=call.extensions,
                ended=call.ended,
            )
            for call_id, call in state.calls.items()
        ),
    )


def _protocol(message: str) -> Breach:
    return _breach(ModelErrorCode.PROTOCOL, message[:MESSAGE_CHARACTERS])  # it quotes an id, which may be of any size


def _breach(code: ModelErrorCode, message: str, *, retryable: bool = False) -> Breach:
    return Breach(failure_code(code), ModelError(code=code, message=message, retryable=retryable))


def _with_call(state: Assembly, call_id: str, call: PartialCall) -> Assembly:
    # One dict of a turn's calls is copied an event. Calls are few, and nothing here grows with the text.
    return replace(state, calls={**state.calls, call_id: call})


def _longer(rope: Rope, delta: str) -> Rope:
    """Append text at a cost that stays small however long the rope is.

    `text + delta` would copy all that came before at each of a million deltas. Here a piece is only joined to one that
    is less than twice its length, so a character is copied about log₂(length) times, and a rope has as few pieces.
    """
    while rope and len(rope[-1]) < 2 * len(delta):
        rope, delta = rope[:-1], rope[-1] + delta
    return (*rope, delta)


def _whole(rope: Rope) -> str:
    """The text of a rope; a lone surrogate becomes U+FFFD, a pair split between two deltas is one character again.

    Only here, where all deltas are known, can the two be told apart (divergence 15).
    """
    return mended_text("".join(rope))
