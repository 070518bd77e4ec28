"""What a chat-completions endpoint is sent; beside `openai.py`, without any I/O."""

import json
import re
from collections.abc import Container, Iterator
from hashlib import sha256
from string import ascii_letters, digits
from typing import Final, Literal, assert_never

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
from orchestral_temporal.protocol.words import mended_text

CallIdStyle = Literal["as_is", "short9"]
"""How call ids are written on the wire: as the model gave them, or as nine letters and digits."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHORT9: Final = re.compile(r"[A-Za-z0-9]{9}")
_ALPHABET: Final = digits + ascii_letters


class CallIds:
    """The ids of one request's calls on the wire: each call's different, each in the endpoint's style (F059 F077).

    They depend on the conversation alone, which only grows at its end: each later round and each other process writes
    the same ones. The journal keeps the originals.
    """

    def __init__(self, style: CallIdStyle) -> None:
        self._style = style
        self._open: dict[str, list[str]] = {}
        self._written: set[str] = set()

    @property
    def taken(self) -> set[str]:
        """Every id that a call has here or on the wire: a new call needs another one."""
        return self._written | self._open.keys()

    def of_call(self, call_id: str) -> str:
        """The id of the next call."""
        number = 1
        while (written := self._candidate(call_id, number)) in self._written:
            number += 1
        self._written.add(written)
        self._open.setdefault(call_id, []).append(written)
        return written

    def of_result(self, call_id: str) -> str:
        """The id of the call that a result answers: of several with one id the first that has no answer yet."""
        waiting = self._open.get(call_id)
        return waiting.pop(0) if waiting else self._candidate(call_id, 1)

    def _candidate(self, call_id: str, number: int) -> str:
        if self._style == "as_is":
            return call_id if number == 1 else f"{call_id}-{number}"
        if number == 1 and _SHORT9.fullmatch(call_id):
            return call_id
        drawn = int.from_bytes(sha256(f"{number}/{call_id}".encode("utf-8", "surrogatepass")).digest())
        letters = (drawn // len(_ALPHABET) ** place % len(_ALPHABET) for place in range(9))
        return "".join(_ALPHABET[letter] for letter in letters)


def chat_messages(message: ModelMessage, ids: CallIds, offered: Container[str] = ()) -> Iterator[JsonObject]:
    """A message as the endpoint knows it; each tool result is a message of its own.

    Args:
        message: Of the conversation, whose messages come in order.
        ids: Of the conversation.
        offered: Names of the tools that the request offers; a call of any other is written with a name that fits.

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
                texts.append(compact(part.value))
            case ToolCallPart():
                calls.append(_chat_call(part, ids.of_call(part.call_id), offered))
            case ToolResultPart():
                answered = ids.of_result(part.call_id)
                yield {"role": "tool", "tool_call_id": answered, "content": compact(part.result)}
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


def compact(value: Json) -> str:
    """A value as JSON text without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _chat_call(part: ToolCallPart, call_id: str, offered: Container[str]) -> JsonObject:
    # Servers read past calls again. Many demand an object as arguments (F055): what a model wrote that is none is kept
    # beneath a key that says so. And they refuse odd names (F056): what a model made up is spelt in letters that pass.
    name = part.name
    if name not in offered and not _NAME.fullmatch(name):
        name = re.sub("[^A-Za-z0-9_-]", "_", name)[:64]
    arguments = part.arguments
    written = compact(arguments if isinstance(arguments, dict) else {"invalid_arguments": arguments})
    function: JsonObject = {"name": name, "arguments": written}
    return {"id": call_id, "type": "function", "function": function}
