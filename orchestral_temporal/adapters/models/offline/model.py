"""A model that needs no key and no network: it searches the workspace by the rules in this package and quotes it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

from orchestral_temporal.adapters.models.offline.answer import NO_QUESTION, NO_TOOLS, answer, best, covered
from orchestral_temporal.adapters.models.offline.evidence import Call, Conversation, gather, read_conversation
from orchestral_temporal.adapters.models.offline.plan import closer_searches, reads, searches
from orchestral_temporal.adapters.models.offline.task import Task, understand
from orchestral_temporal.ports import ModelFault
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
    ToolCallStart,
    UsageSnapshot,
)

ROUNDS = 5
"""Rounds with calls spent on one task: two looks, two readings and one to spare. The next one answers."""

_TOKEN_BYTES = 3
_DELTA_CHARACTERS = 24
_FIRST_READS, _MORE_READS = 5, 3
"""Files read at first, and then if the answer is not clear; their pages stay far below 100,000 tokens."""

_CLEAR = 0.75
"""Covered share of the task from which further reading is not worth a round."""


class OfflineModel:
    """Rule based, deterministic and stateless; for trying things out and for working without a network."""

    @property
    def descriptor(self) -> ModelDescriptor:
        """Usage is estimated from bytes, and says so."""
        return ModelDescriptor(
            backend_id="orchestral/offline",
            capabilities=ModelCapabilities(
                streaming=True, tool_calls=True, parallel_tool_calls=True, structured_output=False
            ),
            extensions={"orchestral/usage": {"estimated": True, "bytes_per_token": _TOKEN_BYTES}},
        )

    @property
    def redispatchable(self) -> bool:
        """A request has no effect at all."""
        return True

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelStreamEvent]:
        """Stream one turn.

        Raises:
            ModelFault: structured output is asked for.
        """
        if request.output_schema is not None:
            raise ModelFault(
                ModelError(
                    code=ModelErrorCode.UNSUPPORTED,
                    message="output_schema is set; the offline model writes text only, so leave it out.",
                )
            )
        # Reading and ranking is work for the processor, which must not hold up the event loop.
        turn = await asyncio.to_thread(_turn, request)
        for sequence, payload in enumerate(turn, start=1):
            yield ModelStreamEvent(
                request_id=request.request_id,
                event_id=f"{request.request_id}/e{sequence}",
                sequence=sequence,
                payload=payload,
            )
            await asyncio.sleep(0)


def _turn(request: ModelRequest) -> list[ModelEvent]:
    conversation = read_conversation(request.messages)
    task = understand(conversation.text)
    calls = _next_calls(task, conversation, {tool.name for tool in request.tools})
    if calls:
        events = list(_call_events(calls, conversation.turns + 1))
        reason, output = ModelFinishReason.TOOL_CALLS, sum(len(json.dumps(call.arguments)) for call in calls)
    else:
        text, reason = _cut(_final(task, conversation, request), request.max_output_tokens)
        events = [TextDelta(delta=text[at : at + _DELTA_CHARACTERS]) for at in range(0, len(text), _DELTA_CHARACTERS)]
        output = len(text.encode())
    size = len(request.model_dump_json().encode())
    usage = ModelUsage(input_tokens=-(-size // _TOKEN_BYTES), output_tokens=-(-output // _TOKEN_BYTES))
    return [*events, UsageSnapshot(usage=usage), Finish(reason=reason)]


def _next_calls(task: Task, conversation: Conversation, offered: set[str]) -> list[Call]:
    """The calls of this round, none of them made before; empty if it is time to answer."""
    if conversation.rounds >= ROUNDS:
        return []
    made = [one.call for one in conversation.done]
    findings = gather(conversation.done)

    def new(calls: list[Call]) -> list[Call]:
        return [call for call in calls if call.name in offered and call not in made]

    calls = new(searches(task))
    if not calls and conversation.rounds == 1:
        calls = new(closer_searches(task, findings))
    if calls:
        return calls
    read = sum(call.name == "file_read" and call.arguments.get("path") not in task.paths for call in made)
    if read == 0:
        return new(reads(task, findings, _FIRST_READS))
    if read <= _FIRST_READS and covered(best(task, findings)) < _CLEAR:
        return new(reads(task, findings, _MORE_READS))
    return []


def _final(task: Task, conversation: Conversation, request: ModelRequest) -> str:
    if not (task.terms or task.paths):
        return NO_QUESTION
    if not conversation.done and "text_search" not in {tool.name for tool in request.tools}:
        return NO_TOOLS
    return answer(task, gather(conversation.done))


def _cut(text: str, most_tokens: int | None) -> tuple[str, ModelFinishReason]:
    data = text.encode()
    if most_tokens is None or len(data) <= most_tokens * _TOKEN_BYTES:
        return text, ModelFinishReason.STOP
    return data[: most_tokens * _TOKEN_BYTES].decode(errors="ignore"), ModelFinishReason.LENGTH


def _call_events(calls: list[Call], turn: int) -> Iterator[ModelEvent]:
    for number, call in enumerate(calls, start=1):
        call_id = f"call-{turn}-{number}"
        yield ToolCallStart(call_id=call_id, name=call.name)
        yield ToolCallArgumentsDelta(call_id=call_id, delta=json.dumps(call.arguments, ensure_ascii=False))
        yield ToolCallEnd(call_id=call_id)
