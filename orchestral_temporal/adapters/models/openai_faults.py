"""What the refusals and failures of a chat-completions endpoint mean (F064 F065 F067 F068)."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from orchestral_temporal.adapters.masking import Mask
from orchestral_temporal.adapters.models.openai_waits import retry_after_ms
from orchestral_temporal.adapters.models.openai_wire import compact
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.model import ModelError, ModelErrorCode
from orchestral_temporal.protocol.words import mended_text

QUOTED_CHARACTERS: Final = 500
"""Characters of an endpoint's own words that an error repeats."""

CONTEXT_NAMES: Final = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
"""What endpoints call a request that is too long, in lower case."""

CONTEXT_WORDS: Final = re.compile(
    r"""
      \bcontext[ _](length|window|size|limit)\b | \bavailable\ context\b | \btokens\ of\ context\b
    | \b(prompt|input|context)\ length\b | \binput\ token\ count\b | \btoo\ many\ tokens\b
    | \b(prompt|input)s?\b[^.]{0,40}\btoo\ (long|large)\b
    | \binputs?\b(?=.*\btokens\b)[^.]{0,80}(<=|exceed|above|more\ than)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""How endpoints without such a name say it; a cap on the output alone is said otherwise."""

NEVER_CONTEXT: Final = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.PAYMENT_REQUIRED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.TOO_MANY_REQUESTS,
}
"""Statuses that are meant as they are, whatever words stand beside them."""

OUTPUT_CAPS: Final = {"max_tokens", "max_completion_tokens"}
"""Parameters whose refusal is about the answer's length, not the request's."""

QUOTA_NAMES: Final = {
    "insufficient_quota",
    "insufficient_balance",
    "exceeded_current_quota_error",
    "billing_hard_limit_reached",
    "billing_not_active",
}
"""What endpoints call a limit that no waiting lifts, in lower case."""

QUOTA_WORDS: Final = re.compile(r"\b(billing|balance|credits?|payment|month(ly)?|week(ly)?)\b", re.IGNORECASE)
"""How others say it; with a time to wait beside them the words are only advice."""

STATUS_CODES: Final[Mapping[int, ModelErrorCode]] = {
    HTTPStatus.UNAUTHORIZED: ModelErrorCode.AUTHENTICATION,
    HTTPStatus.PAYMENT_REQUIRED: ModelErrorCode.AUTHENTICATION,
    HTTPStatus.FORBIDDEN: ModelErrorCode.AUTHENTICATION,
    HTTPStatus.REQUEST_TIMEOUT: ModelErrorCode.UNAVAILABLE,
    HTTPStatus.CONFLICT: ModelErrorCode.UNAVAILABLE,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ModelErrorCode.CONTEXT_LENGTH_EXCEEDED,
    HTTPStatus.TOO_MANY_REQUESTS: ModelErrorCode.RATE_LIMITED,
}
"""What an error status means; any other below 500 is `invalid_request`, from there on `unavailable`."""

NAMED_CODES: Final[Mapping[str, ModelErrorCode]] = {
    "rate_limit_exceeded": ModelErrorCode.RATE_LIMITED,
    "rate_limit_error": ModelErrorCode.RATE_LIMITED,
    "insufficient_quota": ModelErrorCode.RATE_LIMITED,
    "authentication_error": ModelErrorCode.AUTHENTICATION,
    "invalid_api_key": ModelErrorCode.AUTHENTICATION,
    "permission_error": ModelErrorCode.AUTHENTICATION,
    "invalid_request_error": ModelErrorCode.INVALID_REQUEST,
    "content_filter": ModelErrorCode.INVALID_REQUEST,
}
"""What the name of an error means that comes without a status, inside a stream; another one means trouble there."""

RETRYABLE: Final = {ModelErrorCode.RATE_LIMITED, ModelErrorCode.UNAVAILABLE}


def unreachable(host: str, cause: BaseException) -> ModelFault:
    """No answer came, or only a part of one: name, connection, TLS, time-out or a break."""
    message = f"no answer, or not all of it, came from {host} ({type(cause).__name__})"
    return ModelFault(ModelError(code=ModelErrorCode.UNAVAILABLE, message=message, retryable=True))


def another_language() -> ModelFault:
    """The answer is no chat completion."""
    message = "the endpoint sent a stream that is not made of chat completion chunks"
    return ModelFault(ModelError(code=ModelErrorCode.PROTOCOL, message=message))


def is_error(chunk: Json) -> bool:
    """Whether a chunk of a stream, or a whole body, is an error: endpoints have more than one form for it."""
    match chunk:
        case {"error": error} if error:
            return True
        case {"object": "error"}:
            return True
        case {"message": str()} | {"detail": str()}:
            return "choices" not in chunk
        case _:
            return False


def refused(
    body: Json, mask: Mask, now: float, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ModelFault:
    """What an error status, or an error inside a stream, means.

    `details` holds what the endpoint said of itself: `status`, `code`, `type`, `retry_after_ms`.

    Args:
        body: The error as it was sent, read as JSON where it is JSON.
        mask: Of the secrets that the endpoint knows.
        now: Seconds since 1970.
        status: Of the answer; null for an error inside a stream, which may name one itself.
        headers: Of the answer, names in lower case.
    """
    headers = headers or {}
    said = _error_object(body)
    words = _words(said)
    names = {name.lower() for key in ("code", "type") if isinstance(name := said.get(key), str)}
    known = status or _status_inside(said)
    code = _code(known, names, words, said.get("param"))
    wait = retry_after_ms(headers, said.get("details"), now)
    hard = bool(names & QUOTA_NAMES) or headers.get("x-should-retry") == "false"
    if code is ModelErrorCode.RATE_LIMITED and wait is None:
        hard = hard or bool(QUOTA_WORDS.search(words))
    details: JsonObject = {key: _quoted(said[key], mask) for key in ("code", "type") if said.get(key)}
    details |= {key: value for key, value in (("status", known), ("retry_after_ms", wait)) if value is not None}
    quoted = _quoted(words or (compact(said) if said else "no reason was given"), mask)
    return ModelFault(
        ModelError(
            code=code,
            message=quoted if status is None else f"status {status}: {quoted}",
            retryable=code in RETRYABLE and not hard,
            details=details,
        )
    )


def _error_object(body: Json) -> JsonObject:
    """The error in any of the places where endpoints put it; words alone are its message."""
    match body:
        case str():
            return {"message": body.strip()} if body.strip() else {}
        case [first]:
            return _error_object(first)
        case {"error": dict(error)}:
            return error
        case {"error": str(words)}:
            return {"message": words}
        case dict():
            return body
        case _:
            return {}


def _words(said: JsonObject) -> str:
    found = (said.get(key) for key in ("message", "detail"))
    return next((words for words in found if isinstance(words, str) and words), "")


def _status_inside(said: JsonObject) -> int | None:
    """The status that an error inside a stream names as its code or status (F068)."""
    known = {str(status.value): status.value for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST}
    found = (known.get(str(said.get(key))) for key in ("code", "status"))
    return next((status for status in found if status is not None), None)


def _code(status: int | None, names: set[str], words: str, param: Json) -> ModelErrorCode:
    said = status not in NEVER_CONTEXT and param not in OUTPUT_CAPS and CONTEXT_WORDS.search(words)
    if names & CONTEXT_NAMES or said:
        return ModelErrorCode.CONTEXT_LENGTH_EXCEEDED
    if status is None:
        named = (NAMED_CODES[name] for name in sorted(names) if name in NAMED_CODES)
        return next(named, ModelErrorCode.UNAVAILABLE)
    server_side = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return STATUS_CODES.get(status) or (ModelErrorCode.UNAVAILABLE if server_side else ModelErrorCode.INVALID_REQUEST)


def _quoted(said: Json, mask: Mask) -> str:
    """Words from outside: without secrets, without lone surrogates, cut to a length (F113)."""
    return mended_text(mask.text(said if isinstance(said, str) else compact(said)))[:QUOTED_CHARACTERS]
