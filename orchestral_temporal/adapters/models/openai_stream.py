"""Chunks of a chat-completions answer into events of a turn, in every dialect we know of (F056 F058 F059 F070 F119).

A chunk is read as plain JSON and checked against the few fields we use: the SDK's own classes promise fields that
compatible servers leave out. An answer that is not streamed is one chunk with a whole message in it (F076). Reasoning
texts are not part of the answer and are left out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, Field

from orchestral_temporal.adapters.models.openai_wire import compact
from orchestral_temporal.protocol.base import U64, Json
from orchestral_temporal.protocol.model import (
    Finish,
    ModelEvent,
    ModelFinishReason,
    ModelUsage,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSnapshot,
)
from orchestral_temporal.protocol.words import mended_text

FINISH_REASONS: Final = {
    "stop": ModelFinishReason.STOP,
    "eos": ModelFinishReason.STOP,
    "eos_token": ModelFinishReason.STOP,
    "end_turn": ModelFinishReason.STOP,
    "stop_sequence": ModelFinishReason.STOP,
    "length": ModelFinishReason.LENGTH,
    "max_tokens": ModelFinishReason.LENGTH,
    "model_length": ModelFinishReason.LENGTH,
    "tool_calls": ModelFinishReason.TOOL_CALLS,
    "tool_use": ModelFinishReason.TOOL_CALLS,
    "function_call": ModelFinishReason.TOOL_CALLS,
    "content_filter": ModelFinishReason.CONTENT_FILTER,
    "safety": ModelFinishReason.CONTENT_FILTER,
}
"""What endpoints call the end of a turn, in lower case; any other word is `other`."""

CUT_SHORT: Final = {ModelFinishReason.LENGTH, ModelFinishReason.CONTENT_FILTER}
"""Reasons after which nobody knows whether a call was complete: its end is not claimed."""

LEGACY_INDEX: Final = -1
"""Where the one `function_call` of the older form stands; no index of a call is negative."""

Tokens = U64 | None


class Usage(BaseModel):
    """Token counts in each of three conventions; what adds up to no total is taken by its parts (F119)."""

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    # In this convention what was read from a cache, or written to it, is counted beside the input.
    input_tokens: Tokens = None
    cache_read_input_tokens: Tokens = None
    cache_creation_input_tokens: Tokens = None
    output_tokens: Tokens = None
    # And in this one thoughts are counted beside the output.
    prompt_token_count: Tokens = Field(default=None, alias="promptTokenCount")
    candidates_token_count: Tokens = Field(default=None, alias="candidatesTokenCount")
    thoughts_token_count: Tokens = Field(default=None, alias="thoughtsTokenCount")

    def known(self, former: ModelUsage) -> ModelUsage:
        """All input and all output tokens; what is not said keeps its former value."""
        inputs = (
            self.prompt_tokens,
            _sum(self.input_tokens, self.cache_read_input_tokens, self.cache_creation_input_tokens),
            self.prompt_token_count,
            former.input_tokens,
        )
        outputs = (
            self.completion_tokens,
            self.output_tokens,
            _sum(self.candidates_token_count, self.thoughts_token_count),
            former.output_tokens,
        )
        return ModelUsage(input_tokens=_first(inputs), output_tokens=_first(outputs))


class Part(BaseModel):
    """A piece of a content that is a list; only texts are read."""

    text: str | None = None


class Function(BaseModel):
    """Name and arguments of a call; some servers send the arguments as an object instead of its text."""

    name: str | None = None
    arguments: Json = None


class Fragment(BaseModel):
    """A call, or more of one."""

    index: Annotated[int, Field(ge=0)] | None = None
    id: str | None = None
    function: Function | None = None


class Said(BaseModel):
    """A whole message, or what a chunk adds to it."""

    content: str | list[Part] | None = None
    refusal: str | None = None
    tool_calls: list[Fragment] | None = None
    function_call: Function | None = None


class Choice(BaseModel):
    """One answer; we ask for one."""

    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class Chunk(BaseModel):
    """One event of the stream, or the whole body of an answer that is not streamed."""

    choices: list[Choice] | None = None
    usage: Usage | None = None


@dataclass
class _Call:
    """A call as far as it was read; `call_id` is null until it has a name and so begins for the reader."""

    their_id: str
    held: str = ""
    call_id: str | None = None


class Reader:
    """Chunks of one answer into events.

    Args:
        taken: Call ids that the conversation already uses.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.finish: ModelFinishReason | None = None
        self.spoke = False
        self._usage = ModelUsage()
        self._taken = set(taken)
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    def read(self, chunk: Chunk) -> Iterator[ModelEvent]:
        """The events that a chunk adds."""
        for choice in (chunk.choices or [])[:1]:
            for event in self._said(choice.delta or choice.message or Said()):
                self.spoke = True
                yield event
            if choice.finish_reason:
                self.finish = FINISH_REASONS.get(choice.finish_reason.lower(), ModelFinishReason.OTHER)
            yield from self._counted(choice.usage)
        yield from self._counted(chunk.usage)

    def end(self) -> Iterator[ModelEvent]:
        """The events that end the turn; none when the endpoint never said that it ends (F070)."""
        if self.finish is None:
            return
        for call in self._calls:
            if call.call_id is None:  # no name ever came: the stream rules refuse the empty one (F056)
                yield from self._begun(call, "")
            if call.call_id is not None and self.finish not in CUT_SHORT:
                yield ToolCallEnd(call_id=call.call_id)
        yield Finish(reason=self.finish)

    def _said(self, said: Said) -> Iterator[ModelEvent]:
        for text in (*_texts(said.content), said.refusal):
            if text:
                yield TextDelta(delta=text)
        for fragment in said.tool_calls or ():
            yield from self._fragment(fragment.index, fragment.id or "", fragment.function or Function())
        if said.function_call is not None:
            yield from self._fragment(LEGACY_INDEX, "", said.function_call)

    def _counted(self, usage: Usage | None) -> Iterator[ModelEvent]:
        known = usage.known(self._usage) if usage is not None else self._usage
        if usage is not None and known != ModelUsage():
            self._usage = known
            yield UsageSnapshot(usage=known)

    def _fragment(self, index: int | None, their_id: str, function: Function) -> Iterator[ModelEvent]:
        call = self._known(index, their_id, function.name)
        if call is None:
            call = _Call(their_id)
            self._calls.append(call)
        if index is not None:
            self._at[index] = call
        arguments = _argument_text(function.arguments)
        if call.call_id is not None:
            if arguments:
                yield ToolCallArgumentsDelta(call_id=call.call_id, delta=arguments)
            return
        call.their_id = call.their_id or their_id
        call.held += arguments
        if function.name:
            yield from self._begun(call, function.name)

    def _known(self, index: int | None, their_id: str, name: str | None) -> _Call | None:
        """The call that a fragment goes on with.

        Servers repeat an index for a second call with another id (F073), leave out index and id (F074), repeat id and
        name in every fragment of one call, or draw a new id for each: a name tells where a call begins.
        """
        if index is not None:
            call = self._at.get(index)
            another = call is not None and call.call_id is not None and name and their_id not in {"", call.their_id}
            return None if another else call
        if name:
            return None
        same = (call for call in self._calls if their_id and call.their_id == their_id)
        return next(same, self._calls[-1] if self._calls else None)

    def _begun(self, call: _Call, name: str) -> Iterator[ModelEvent]:
        call.call_id = self._unique(call.their_id)
        yield ToolCallStart(call_id=call.call_id, name=mended_text(name))
        if call.held:
            yield ToolCallArgumentsDelta(call_id=call.call_id, delta=call.held)

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


def _texts(content: str | list[Part] | None) -> list[str | None]:
    return [part.text for part in content] if isinstance(content, list) else [content]


def _argument_text(arguments: Json) -> str:
    """The text of arguments; of an object the one that has its value (F076)."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else compact(arguments)


def _sum(first: int | None, *more: int | None) -> int | None:
    return None if first is None else first + sum(each or 0 for each in more)


def _first(counts: Iterable[int | None]) -> int | None:
    return next((count for count in counts if count is not None), None)
