"""What an OpenAI-like endpoint sends, the given cases among it, and the adapter beside it.

async with serving([case_stream("F059"), text_reply("done")]) as endpoint:   # round 1, then all others
    ...                                                                      # endpoint.base_url, endpoint.asked
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from orchestral_temporal.adapters.models.openai import OpenAIModel
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.model import (
    ModelEvent,
    ModelObservation,
    ModelRequest,
)
from orchestral_temporal.testing.model_contract import REQUEST, assembled
from tests.contracts.sse_server import Asked, Endpoint, Reply, serving

KEY = "sk-SENTINEL-7f3a91"
DONE = b"data: [DONE]\n\n"


CASES: Final = Path(__file__).parents[1] / "cases"


def case_stream(name: str) -> Reply:
    """The streamed answer of a given case, byte for byte."""
    return Reply([(CASES / f"{name}.sse").read_bytes()])


def case_data(name: str) -> Any:
    """The data of a given case."""
    return json.loads((CASES / f"{name}.json").read_bytes())


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


def error_reply(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """An error status with a JSON body; none at all for the empty text."""
    pieces = [] if body == "" else [json.dumps(body).encode()]
    return Reply(pieces, status, {"content-type": "application/json", **(headers or {})})


def whole_reply(message: Any, finish: str | None, usage: Any = None) -> Reply:
    """An answer that is not streamed: one JSON body with the whole message."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = json.dumps({"id": "fx-1", "object": "chat.completion", "choices": [choice], "usage": usage})
    return Reply([body.encode()], headers={"content-type": "application/json"})


def case_message(number: int) -> Reply:
    """The answer of case F076 with that message, from 0."""
    message = case_data("F076")["messages"][number]
    return whole_reply({"role": "assistant", **message}, message["finish_reason"])


def sent_ids(asked: Asked) -> tuple[list[str], list[str]]:
    """The ids of the calls in a request, and those that its results name."""
    messages = asked.body["messages"]
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    return calls, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def only_short_ids(asked: Asked, reply: Reply) -> Reply:
    """The reply of a backend that wants nine letters and digits, each call's other, each answered once (F077)."""
    calls, answered = sent_ids(asked)
    fit = all(re.fullmatch(case_data("F077")["outgoing_id_rule"], each) for each in calls)
    if fit and len(set(calls)) == len(calls) and answered == calls:
        return reply
    return error_reply(400, {"error": {"message": "Tool call id was odd.", "type": "invalid_request_error"}})


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


async def heard(model: OpenAIModel, request: ModelRequest = REQUEST) -> tuple[list[ModelEvent], ModelFault]:
    """What a stream says before it fails, and how it does."""
    said: list[ModelEvent] = []
    try:
        async for event in model.stream(request):
            said.append(event.payload)  # noqa: PERF401 -- the stream fails, and what came before must be kept
    except ModelFault as fault:
        return said, fault
    raise AssertionError(said)
