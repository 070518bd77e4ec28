"""OpenAI, and every endpoint that speaks its chat completions: streamed text and tool calls (decision 30).

The stream is read as plain JSON and checked against the few fields we use. The SDK's own chunk classes promise fields
that compatible servers leave out, and its types would hide that.
"""

import os
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from datetime import timedelta
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from openai import (
    APIConnectionError,
    APIError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    Timeout,
)
from pydantic import BaseModel, NonNegativeInt

from orchestral_temporal.adapters.models.openai_wire import (
    chat_messages,
    chat_tool,
    mended,
    mended_text,
    refused,
    unreachable,
    unsupported,
)
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.model import (
    Finish,
    ModelCapabilities,
    ModelDescriptor,
    ModelError,
    ModelErrorCode,
    ModelEvent,
    ModelFinishReason,
    ModelRequest,
    ModelStreamEvent,
    ModelUsage,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallPart,
    ToolCallStart,
    UsageSnapshot,
)

OPENAI_URL = "https://api.openai.com/v1"

SILENCE = timedelta(minutes=10)
"""Longest silence on an open connection: a slow model thinks for minutes before its first byte (F085)."""

CONNECT = timedelta(seconds=10)
"""Longest wait for a connection: a host that does not answer by then is down."""

FINISH_REASONS = {
    "stop": ModelFinishReason.STOP,
    "length": ModelFinishReason.LENGTH,
    "tool_calls": ModelFinishReason.TOOL_CALLS,
    "function_call": ModelFinishReason.TOOL_CALLS,
    "content_filter": ModelFinishReason.CONTENT_FILTER,
}

CUT_SHORT = {ModelFinishReason.LENGTH, ModelFinishReason.CONTENT_FILTER}
"""Reasons after which nobody knows whether a call was complete: its end is not claimed."""


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
    ) -> None:
        self._model = model
        self._secret = _checked_key(api_key or os.environ.get("OPENAI_API_KEY", ""))
        self._extra_body = extra_body or {}
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
            extensions={"orchestral-temporal/extra-body": self._extra_body} if self._extra_body else {},
        )
        url = base_url or OPENAI_URL
        self._client = AsyncOpenAI(
            api_key=self._secret,
            base_url=url,
            max_retries=0,
            timeout=Timeout(timeout.total_seconds(), connect=connect_timeout.total_seconds()),
            http_client=DefaultAsyncHttpxClient(trust_env=False) if _is_loopback(url) else None,
        )

    async def close(self) -> None:
        """Give the connections back; the model can stream no more."""
        await self._client.close()

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
        reader = _Reader(_call_ids(request))
        try:
            async with await self._open(request) as chunks:
                async for chunk in chunks:
                    for payload in reader.read(_Chunk.model_validate(chunk)):
                        yield payload
        except APIConnectionError as error:
            # After the finish reason only the usage can be missing: the turn stands.
            if reader.finish is None:
                raise ModelFault(unreachable(error)) from None
        except APIError as error:
            raise ModelFault(refused(error, self._secret, time.time())) from None
        except ValueError:
            message = "the endpoint sent a stream that is not made of chat completion chunks"
            raise ModelFault(ModelError(code=ModelErrorCode.PROTOCOL, message=message)) from None
        for payload in reader.end():
            yield payload

    async def _open(self, request: ModelRequest) -> AsyncStream[object]:
        return await self._client.post(
            "/chat/completions",
            cast_to=object,
            body=mended(self._body(request)),
            # Ids of any alphabet fit into a header this way; plain ones stay as they are.
            options={"headers": {"Idempotency-Key": quote(request.request_id, safe="/:")}},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    def _body(self, request: ModelRequest) -> JsonObject:
        if request.output_schema is not None:
            raise unsupported("A request for structured output (`output_schema`)")
        body: JsonObject = {
            "model": self._model,
            "messages": [chat for message in request.messages for chat in chat_messages(message)],
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


class _Function(BaseModel):
    name: str | None = None
    arguments: str | None = None


class _Fragment(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(BaseModel):
    content: str | None = None
    tool_calls: list[_Fragment] | None = None


class _Choice(BaseModel):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None


class _Chunk(BaseModel):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class _Reader:
    """Chunks of one answer into events; `taken` are call ids that the conversation already uses."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.finish: ModelFinishReason | None = None
        self._taken = set(taken)
        self._calls: list[str] = []
        self._open: dict[int | None, tuple[str, str]] = {}

    def read(self, chunk: _Chunk) -> Iterator[ModelEvent]:
        """The events that a chunk adds."""
        for choice in (chunk.choices or [])[:1]:
            delta = choice.delta or _Delta()
            if delta.content:
                yield TextDelta(delta=delta.content)
            for fragment in delta.tool_calls or []:
                yield from self._fragment(fragment)
            if choice.finish_reason:
                self.finish = FINISH_REASONS.get(choice.finish_reason, ModelFinishReason.OTHER)
        if chunk.usage:
            usage = ModelUsage(input_tokens=chunk.usage.prompt_tokens, output_tokens=chunk.usage.completion_tokens)
            yield UsageSnapshot(usage=usage)

    def end(self) -> Iterator[ModelEvent]:
        """The events that end the turn; none when the endpoint never said that it ends."""
        if self.finish is None:
            return
        if self.finish not in CUT_SHORT:
            for call_id in self._calls:
                yield ToolCallEnd(call_id=call_id)
        yield Finish(reason=self.finish)

    def _fragment(self, fragment: _Fragment) -> Iterator[ModelEvent]:
        function = fragment.function or _Function()
        their_id, name = fragment.id or "", function.name or ""
        known = self._open.get(fragment.index)
        # Servers repeat an index for a second call with another id (F073), or send neither index nor id (F074).
        another = their_id != known[0] if known and their_id else fragment.index is None and bool(name)
        if known is None or another:
            known = self._open[fragment.index] = (their_id, self._unique(their_id))
            self._calls.append(known[1])
            yield ToolCallStart(call_id=known[1], name=mended_text(name))
        if function.arguments:
            yield ToolCallArgumentsDelta(call_id=known[1], delta=function.arguments)

    def _unique(self, their_id: str) -> str:
        """An id that the conversation does not know yet: theirs if it is new, else with the next free number.

        It depends on the request and the stream alone, so a request sent again gives the same ids (divergence 6).
        """
        base = mended_text(their_id).strip() or "call"
        call_id, number = base, 1
        while call_id in self._taken:
            number += 1
            call_id = f"{base}-{number}"
        self._taken.add(call_id)
        return call_id


def _call_ids(request: ModelRequest) -> Iterator[str]:
    for message in request.messages:
        for part in message.content:
            if isinstance(part, ToolCallPart):
                yield part.call_id


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
