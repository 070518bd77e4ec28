"""What a chat-completions endpoint is sent, and what its refusals mean; beside `openai.py`, without any I/O."""

import json
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite
from typing import assert_never

from openai import APIConnectionError, APIError, APIStatusError

from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.model import (
    ContinuationPart,
    DataPart,
    JsonPart,
    ModelError,
    ModelErrorCode,
    ModelMessage,
    ModelToolDefinition,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

QUOTED_CHARACTERS = 500
"""Characters of an endpoint's own words that an error repeats."""

SECRET_CHARACTERS = 8
"""A key shorter than this is a dummy such as `none`; masking it would only garble messages."""

CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
"""What endpoints call a request that is too long, in lower case."""

QUOTA_CODES = {"insufficient_quota"}
"""What endpoints call a limit that no waiting lifts, in lower case."""

CODES: dict[int, ModelErrorCode] = {
    HTTPStatus.UNAUTHORIZED: ModelErrorCode.AUTHENTICATION,
    HTTPStatus.PAYMENT_REQUIRED: ModelErrorCode.AUTHENTICATION,
    HTTPStatus.FORBIDDEN: ModelErrorCode.AUTHENTICATION,
    HTTPStatus.REQUEST_TIMEOUT: ModelErrorCode.UNAVAILABLE,
    HTTPStatus.CONFLICT: ModelErrorCode.UNAVAILABLE,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ModelErrorCode.CONTEXT_LENGTH_EXCEEDED,
    HTTPStatus.TOO_MANY_REQUESTS: ModelErrorCode.RATE_LIMITED,
}
"""What an error status means; any other below 500 is `invalid_request`, from there on `unavailable`."""

RETRYABLE = {ModelErrorCode.RATE_LIMITED, ModelErrorCode.UNAVAILABLE}


def chat_messages(message: ModelMessage) -> Iterator[JsonObject]:
    """A message as the endpoint knows it; each tool result is a message of its own.

    Raises:
        ModelFault: unsupported; the message holds an image or a file.
    """
    texts: list[str] = []
    calls: list[Json] = []
    for part in message.content:
        match part:
            case TextPart():
                texts.append(part.text)
            case JsonPart():
                texts.append(_compact(part.value))
            case ToolCallPart():
                calls.append(_chat_call(part))
            case ToolResultPart():
                yield {"role": "tool", "tool_call_id": part.call_id, "content": _compact(part.result)}
            case ContinuationPart():
                pass  # opaque state of another backend: this one has none
            case DataPart():
                raise unsupported(f"A message part of media type {part.media_type!r}")
            case _:
                assert_never(part)
    chat: JsonObject = {"role": message.role.value, "content": "\n\n".join(texts) or None}
    if calls:
        chat["tool_calls"] = calls
    if texts or calls:
        yield chat


def chat_tool(tool: ModelToolDefinition) -> JsonObject:
    """A tool with its schema as registered, only completed to an object schema (F050).

    Never `strict`: that would narrow what the schema allows (F053).
    """
    parameters: JsonObject = {"type": "object", "properties": {}} | tool.input_schema
    function: JsonObject = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def unsupported(what: str) -> ModelFault:
    """The refusal of something that this version does not send."""
    message = f"{what} cannot be sent to this model; send text."
    return ModelFault(ModelError(code=ModelErrorCode.UNSUPPORTED, message=message))


def mended(value: Json) -> Json:
    """The value without lone surrogates, which no UTF-8 body can carry (divergence 15)."""
    match value:
        case str():
            return mended_text(value)
        case list():
            return [mended(item) for item in value]
        case dict():
            return {mended_text(key): mended(item) for key, item in value.items()}
        case _:
            return value


def mended_text(text: str) -> str:
    """The text with U+FFFD for each lone surrogate."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def unreachable(error: APIConnectionError) -> ModelError:
    """What it means that no answer came, or only a part of one."""
    cause = type(error.__cause__ or error).__name__
    message = f"no answer, or not all of it, came from {error.request.url.host} ({cause})"
    return ModelError(code=ModelErrorCode.UNAVAILABLE, message=message, retryable=True)


def refused(error: APIError, secret: str, now: float) -> ModelError:
    """What an error status, or an error inside a stream, means; `secret` is masked, `now` is in seconds since 1970."""
    headers: Mapping[str, str] = error.response.headers if isinstance(error, APIStatusError) else {}
    status = error.status_code if isinstance(error, APIStatusError) else _status(error.code)
    kinds = {kind.lower() for kind in (error.code, error.type) if isinstance(kind, str)}
    code = ModelErrorCode.CONTEXT_LENGTH_EXCEEDED if kinds & CONTEXT_CODES else _code(status)
    hard = bool(kinds & QUOTA_CODES) or headers.get("x-should-retry") == "false"
    details: dict[str, int | str | None] = {
        "status": status,
        "code": _quoted(error.code, secret),
        "type": _quoted(error.type, secret),
        "retry_after_ms": _retry_after_ms(headers, now),
    }
    return ModelError(
        code=code,
        message=_quoted(_words(error), secret) or "",
        retryable=code in RETRYABLE and not hard,
        details={key: value for key, value in details.items() if value is not None},
    )


def _chat_call(part: ToolCallPart) -> JsonObject:
    # Servers read the arguments of past calls again, and many demand an object (F055). What a model wrote that is none
    # is kept beneath a key that says so.
    arguments: Json = part.arguments
    if not isinstance(arguments, dict):
        arguments = {"invalid_arguments": arguments}
    return {
        "id": part.call_id,
        "type": "function",
        "function": {"name": part.name, "arguments": _compact(arguments)},
    }


def _compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _code(status: int) -> ModelErrorCode:
    server_side = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return CODES.get(status) or (ModelErrorCode.UNAVAILABLE if server_side else ModelErrorCode.INVALID_REQUEST)


def _status(code: str | None) -> int:
    """The status that an error inside a stream names as its code; without one the endpoint is in trouble (F068)."""
    known = {str(status.value) for status in HTTPStatus}
    return int(code) if code in known else HTTPStatus.INTERNAL_SERVER_ERROR.value


def _words(error: APIError) -> str:
    """The endpoint's own sentence; the SDK leaves it out where it does not stand in the usual place."""
    match error.body:
        case str(words) | {"detail": str(words)} if words:
            return f"{error.message} - {words}"
        case _:
            return error.message


def _quoted(text: str | None, secret: str) -> str | None:
    """Words from outside: without the key, without lone surrogates, cut to a length (F113)."""
    if text is None:
        return None
    masked = text.replace(secret, "[key]") if len(secret) >= SECRET_CHARACTERS else text
    return mended_text(masked)[:QUOTED_CHARACTERS]


def _retry_after_ms(headers: Mapping[str, str], now: float) -> int | None:
    """Milliseconds that the endpoint asks us to wait; null if it does not say (F064)."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is None:
        asked = headers.get("retry-after", "")
        seconds = _number(asked)
        milliseconds = 1000 * (_date(asked) - now if seconds is None else seconds)
    return round(milliseconds) if milliseconds > 0 else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else 0


def _date(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0
