"""OpenAI, and every endpoint that speaks its chat completions: streamed text and tool calls (decision 30)."""

import json
import logging
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from ipaddress import ip_address
from typing import cast
from urllib.parse import quote, urlsplit

from httpx2 import HTTPError, TimeoutException
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    Timeout,
)

from orchestral_temporal.adapters.masking import Mask
from orchestral_temporal.adapters.models.openai_faults import another_language, is_error, refused, unreachable
from orchestral_temporal.adapters.models.openai_stream import Chunk, Reader
from orchestral_temporal.adapters.models.openai_wire import (
    CallIds,
    CallIdStyle,
    chat_messages,
    chat_tool,
    mended,
    unsupported,
)
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.model import (
    ModelCapabilities,
    ModelDescriptor,
    ModelEvent,
    ModelRequest,
    ModelStreamEvent,
)

OPENAI_URL = "https://api.openai.com/v1"

SILENCE = timedelta(minutes=10)
"""Longest silence on an open connection: a slow model thinks for minutes before its first byte (F085)."""

CONNECT = timedelta(seconds=10)
"""Longest wait for a connection: a host that does not answer by then is down."""

LOGGERS = ("openai._base_client", "httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy")
"""Who writes of requests and answers into the log, at debug level even the headers of an answer."""


class OpenAIModel:
    """One model behind a chat-completions endpoint.

    The SDK's retries are off: a retry is the run's, on record. A request may be sent again, since a completion has no
    effect but its cost, and `request_id` goes out as the header `Idempotency-Key`. Not served: images, files and
    structured output. The client belongs to the event loop that first uses it; `close` gives its connections back.

    Args:
        model: The model's name at the endpoint.
        api_key: The key; without it `OPENAI_API_KEY` is read once, here.
        base_url: Another endpoint than OpenAI's. A loopback address is reached directly, whatever proxy is set.
        context_tokens: The window in tokens.
        max_output_tokens: Output cap of every request, in tokens.
        timeout: Longest silence on an open connection, the wait for the first byte included.
        connect_timeout: Longest wait for a connection.
        extra_body: Fields sent with every request as they are, such as `temperature`. Part of the descriptor.
        call_ids: `as_is` echoes the call ids that the model gave; `short9` sends nine letters and digits for each, for
            endpoints that take no others. Part of the descriptor when it is `short9`.

    Raises:
        ValueError: there is no key, or a header cannot carry it.
    """

    redispatchable = True

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        context_tokens: int | None = None,
        max_output_tokens: int | None = None,
        timeout: timedelta = SILENCE,
        connect_timeout: timedelta = CONNECT,
        extra_body: JsonObject | None = None,
        call_ids: CallIdStyle = "as_is",
    ) -> None:
        self._model = model
        key = _checked_key(api_key or os.environ.get("OPENAI_API_KEY", ""))
        self._mask = Mask(key)
        self._extra_body = extra_body or {}
        self._call_ids: CallIdStyle = call_ids
        self.max_output_tokens = max_output_tokens
        self.descriptor = ModelDescriptor(
            backend_id=f"openai/{model}",
            capabilities=ModelCapabilities(
                streaming=True,
                tool_calls=True,
                parallel_tool_calls=True,
                structured_output=False,
                max_context_tokens=context_tokens,
            ),
            extensions=_extensions(self._extra_body, call_ids),
        )
        url = base_url or OPENAI_URL
        self._client = AsyncOpenAI(
            api_key=key,
            base_url=url,
            max_retries=0,
            timeout=Timeout(timeout.total_seconds(), connect=connect_timeout.total_seconds()),
            http_client=DefaultAsyncHttpxClient(trust_env=False) if _is_loopback(url) else None,
        )
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._mask)

    async def close(self) -> None:
        """Give the connections back; the model can stream no more."""
        await self._client.close()
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self._mask)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """Ask once, as `ModelBackend.stream` says.

        Raises:
            ModelFault: the endpoint refused, was not reached, broke off, or spoke another language; `unsupported`
                for a request with images, files or an output schema. `details` holds what the endpoint said of itself:
                `status`, `code`, `type`, `retry_after_ms`.
        """
        sequence = 0
        async with aclosing(self._turn(request)) as turn:
            async for payload in turn:
                sequence += 1
                yield ModelStreamEvent(
                    request_id=request.request_id, event_id=f"event-{sequence}", sequence=sequence, payload=payload
                )

    async def _turn(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        ids = CallIds(self._call_ids)
        body = self._body(request, ids)
        reader = Reader(ids.taken)
        fault: ModelFault | None = None
        try:
            async with await self._open(request, body) as answer, aclosing(_chunks(answer)) as chunks:
                async for chunk in chunks:
                    if is_error(chunk):
                        raise refused(chunk, self._mask, time.time())
                    for payload in reader.read(Chunk.model_validate(chunk)):
                        yield payload
        except (APIError, HTTPError, ValueError, RecursionError) as error:
            fault = self._meant(error, reader)
        # Out here, so that it does not keep the SDK's error alive, and with it the stream that broke off: its parts
        # would wait for the collector, which may find them in another thread.
        if fault is not None:
            raise fault
        for payload in reader.end():
            yield payload

    def _meant(self, error: Exception, reader: Reader) -> ModelFault | None:
        """What an error of the SDK or of the reading means; none if the turn was complete, or ends without a word."""
        match error:
            case APIStatusError():
                status, headers = error.status_code, error.response.headers
                return refused(cast("Json", error.body), self._mask, time.time(), status=status, headers=headers)
            case APIConnectionError() | HTTPError():
                # After the finish reason only the usage can be missing. A break after output is an end without a finish
                # reason, like any other (F070).
                cause = error.__cause__ or error
                if reader.finish is not None or (reader.spoke and not isinstance(cause, TimeoutException)):
                    return None
                return unreachable(self._client.base_url.host, cause)
            case APIError():
                return refused(cast("Json", error.body), self._mask, time.time())
            case _:
                return another_language()

    async def _open(self, request: ModelRequest, body: JsonObject) -> AsyncStream[object]:
        return await self._client.post(
            "/chat/completions",
            cast_to=object,
            body=mended(body),
            # Ids of any alphabet fit into a header this way; plain ones stay as they are.
            options={"headers": {"Idempotency-Key": quote(request.request_id, safe="/:")}},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    def _body(self, request: ModelRequest, ids: CallIds) -> JsonObject:
        if request.output_schema is not None:
            raise unsupported("A request for structured output (`output_schema`)")
        offered = {tool.name for tool in request.tools}
        body: JsonObject = {
            "model": self._model,
            "messages": [chat for message in request.messages for chat in chat_messages(message, ids, offered)],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [chat_tool(tool) for tool in request.tools]
        caps = [cap for cap in (request.max_output_tokens, self.max_output_tokens) if cap is not None]
        if caps:
            # OpenAI's newer models refuse the old name, most compatible servers do not know the new one.
            own = self._client.base_url.host.endswith((".openai.com", ".azure.com"))
            body["max_completion_tokens" if own else "max_tokens"] = min(caps)
        return body | self._extra_body


async def _chunks(answer: AsyncStream[object]) -> AsyncGenerator[Json, None]:
    """The JSON values of an answer; one that is not a stream of events may be a single value (F076)."""
    if "event-stream" not in answer.response.headers.get("content-type", ""):
        whole = (await answer.response.aread()).strip()
        if whole.startswith((b"{", b"[")):
            yield json.loads(whole)
            return
    # What was read whole is read here once more: a stream of events under another name.
    async for chunk in answer:
        yield cast("Json", chunk)  # the SDK read it as JSON


def _extensions(extra_body: JsonObject, call_ids: CallIdStyle) -> JsonObject:
    """What changes requests and so belongs to the backend's identity; nothing for the defaults."""
    found: JsonObject = {}
    if extra_body:
        found["orchestral-temporal/extra-body"] = extra_body
    if call_ids != "as_is":
        found["orchestral-temporal/call-ids"] = call_ids
    return found


def _checked_key(api_key: str) -> str:
    key = api_key.strip()  # a key read from a file ends in a newline
    if not key:
        raise ValueError("api_key of OpenAIModel is not set: pass a key or set OPENAI_API_KEY.")
    if not (key.isascii() and key.isprintable()):
        raise ValueError("api_key of OpenAIModel holds a character that an HTTP header cannot carry: check its source.")
    return key


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
