"""Talking with the offline model: its calls are made with the real tools, or with whatever a test says."""

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from orchestral_temporal.adapters.models.offline import OfflineModel
from orchestral_temporal.ports import ToolFailed, ToolRejected
from orchestral_temporal.protocol.model import (
    ModelMessage,
    ModelObservation,
    ModelRequest,
    ModelRole,
    ModelToolDefinition,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from orchestral_temporal.testing.model_contract import assembled
from tests.contracts.workspace_call import TOOLS, call_over

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDS = 6
CITATION = re.compile(r"`([^`\n]+):(\d+)`")
DEFINITIONS = {
    name: ModelToolDefinition(name=name, description=name, input_schema=tool.descriptor.model_schema.input_schema)
    for name, tool in TOOLS.items()
}

Execute = Callable[[str, Any], Awaitable[tuple[Any, bool]]]


def said(role: ModelRole, text: str) -> ModelMessage:
    """A message of text."""
    return ModelMessage(role=role, content=(TextPart(text=text),))


def asked(messages: tuple[ModelMessage, ...], tools: tuple[str, ...] = tuple(DEFINITIONS), **more: Any) -> ModelRequest:
    """A request, its id made from the number of messages."""
    definitions = tuple(DEFINITIONS[name] for name in tools)
    return ModelRequest(request_id=f"model-r-{len(messages)}", messages=messages, tools=definitions, **more)


async def turn(request: ModelRequest) -> ModelObservation:
    """One turn, its stream held against the rules of assembly."""
    observation = await assembled(OfflineModel().stream(request), request)
    assert isinstance(observation, ModelObservation), observation
    return observation


def over(folder: Path) -> Execute:
    """Run the calls with the real tools over a folder, as the guard shows their results."""

    async def execute(name: str, arguments: Any) -> tuple[Any, bool]:
        try:
            return TOOLS[name].view(arguments, await TOOLS[name].invoke(arguments, call_over(folder))), False
        except (ToolRejected, ToolFailed) as refused:
            return {"status": "failed", "code": refused.code, "message": refused.message}, True

    return execute


async def exchange(observation: ModelObservation, execute: Execute) -> tuple[ModelMessage, ModelMessage]:
    """The assistant's message of a turn with calls, and the message with their results."""
    calls, results = [], []
    for call in observation.tool_calls:
        arguments = json.loads(call.arguments)
        calls.append(ToolCallPart(call_id=call.call_id, name=call.name, arguments=arguments))
        result, failed = await execute(call.name, arguments)
        results.append(ToolResultPart(call_id=call.call_id, result=result, is_error=failed))
    return (
        ModelMessage(role=ModelRole.ASSISTANT, content=tuple(calls)),
        ModelMessage(role=ModelRole.TOOL, content=tuple(results)),
    )


async def converse(
    messages: tuple[ModelMessage, ...], execute: Execute, tools: tuple[str, ...] = tuple(DEFINITIONS)
) -> tuple[str, tuple[ModelMessage, ...]]:
    """Go on until the answer; it comes within the promised rounds, and no call is made twice."""
    made: list[str] = []
    for _ in range(ROUNDS):
        observation = await turn(asked(messages, tools))
        if not observation.tool_calls:
            return observation.response, messages
        made += [f"{call.name} {call.arguments}" for call in observation.tool_calls]
        assert len(made) == len(set(made))
        messages += await exchange(observation, execute)
    raise AssertionError(made)


async def ask(question: str, folder: Path, tools: tuple[str, ...] = tuple(DEFINITIONS)) -> str:
    """The answer to one question over a folder."""
    return (await converse((said(ModelRole.USER, question),), over(folder), tools))[0]


def cites(text: str, expected: list[str]) -> bool:
    """The rule of `examples/questions.yaml`: a place expected is among the first three cited, two lines off at most."""
    first = [(path, int(line)) for path, line in CITATION.findall(text)[:3]]
    places = [(path, int(line)) for path, _, line in (place.rpartition(":") for place in expected)]
    return any(path == other and abs(line - near) <= 2 for path, line in places for other, near in first)
