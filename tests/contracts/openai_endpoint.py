"""What an OpenAI-like endpoint sends, and the adapter beside it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchestral_temporal.adapters.models.openai import OpenAIModel
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.model import (
    ModelObservation,
    ModelRequest,
)
from orchestral_temporal.testing.model_contract import REQUEST, assembled
from tests.contracts.sse_server import Endpoint, Reply, serving

KEY = "sk-SENTINEL-7f3a91"
DONE = b"data: [DONE]\n\n"


def frame(value: Any) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(value)}\n\n".encode()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None) -> bytes:
    """A chunk with one choice."""
    return frame({"id": "fx-1", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]})


def call_chunk(index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> bytes:
    """A chunk with a part of one call; null fields are left out."""
    call: dict[str, Any] = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return chunk({"tool_calls": [{key: value for key, value in call.items() if value is not None}]})


def usage_chunk(prompt: int | None, completion: int | None) -> bytes:
    """The last chunk: usage, no choice."""
    return frame({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


def text_reply(*deltas: str, finish: str = "stop") -> Reply:
    """A whole answer of text."""
    return Reply([*(chunk({"content": delta}) for delta in deltas), chunk(finish=finish), DONE])


def error_reply(status: int, body: Any, headers: dict[str, str] | None = None) -> Reply:
    """An error status with a JSON body."""
    return Reply([json.dumps(body).encode()], status, {"content-type": "application/json", **(headers or {})})


@asynccontextmanager
async def adapter_at(endpoint: Endpoint, **settings: Any) -> AsyncIterator[OpenAIModel]:
    """The adapter under test at an endpoint."""
    model = OpenAIModel("fixture-model", api_key=KEY, base_url=endpoint.base_url, **settings)
    try:
        yield model
    finally:
        await model.close()


async def turn_of(reply: Reply, request: ModelRequest = REQUEST) -> ModelObservation:
    """The turn that an answer makes."""
    async with serving(reply) as endpoint, adapter_at(endpoint) as model:
        turn = await assembled(model.stream(request), request)
    assert isinstance(turn, ModelObservation)
    return turn


async def fault_of(reply: Reply, request: ModelRequest = REQUEST) -> ModelFault:
    """The fault that an answer makes."""
    async with serving(reply) as endpoint, adapter_at(endpoint) as model:
        with pytest.raises(ModelFault) as caught:
            await assembled(model.stream(request), request)
    return caught.value
