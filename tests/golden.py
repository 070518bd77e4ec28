"""Golden vectors: reading them, and the wire type that each name in them stands for."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import create_model

from orchestral_temporal.protocol import (
    admission,
    approval,
    commands,
    compaction,
    content,
    delivery,
    effects,
    errors,
    events,
    ids,
    limits,
    mcp,
    model,
    plans,
    recall,
    requests,
    retry,
    run,
    session,
    skills,
    state,
    telemetry,
    tools,
    trace,
    wal,
)
from orchestral_temporal.protocol.base import JsonObject, Word
from orchestral_temporal.protocol.words import parse

Row = dict[str, Any]

_MODULES = (
    admission,
    approval,
    commands,
    compaction,
    content,
    delivery,
    effects,
    errors,
    events,
    ids,
    limits,
    mcp,
    model,
    plans,
    recall,
    requests,
    retry,
    run,
    session,
    skills,
    state,
    telemetry,
    tools,
    trace,
    wal,
)

_OTHER_NAMES = {
    "Extensions": JsonObject,
    "GenericModelObservation": model.ModelObservation,
    "GenericObservedToolCall": model.ObservedToolCall,
    "ModelRequestId": str,
    "ModelEventId": str,
    "ModelToolCallId": str,
    "ToolId": str,
    "ToolCallId": str,
    "ApprovalNonce": str,
    "AgentSessionEventId": str,
    "GenericCheckpointEventId": str,
}


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The rows of one file of `tests/vectors`."""
    return tuple(json.loads(_text(f"{name}.json")))


@cache
def section(name: str, key: str) -> tuple[Row, ...]:
    """The rows of one section of a file that is an object of lists."""
    return tuple(json.loads(_text(f"{name}.json"))[key])


def scenario(name: str) -> Row:
    """The transcript of a whole run of the source."""
    content: Row = json.loads(_text(f"scenarios/{name}.json"))
    return content


@cache
def skill_rows(kind_of_row: str) -> tuple[Row, ...]:
    """The rows of one kind in the file of skills, which has one row a line."""
    found = (json.loads(line) for line in _text("skills.jsonl").splitlines())
    return tuple(row for row in found if row["kind"] == kind_of_row)


def _text(file: str) -> bytes:
    return gzip.decompress(Path(__file__).with_name("vectors").joinpath(f"{file}.gz").read_bytes())


@cache
def rows_by_type(name: str) -> dict[str, list[Row]]:
    """The rows of one file by wire type."""
    found: dict[str, list[Row]] = {}
    for row in rows(name):
        found.setdefault(row["type"], []).append(row)
    return found


def kind(name: str) -> Any:
    """The type that a wire name stands for."""
    return _OTHER_NAMES.get(name) or next(vars(module)[name] for module in _MODULES if name in vars(module))


@cache
def _box(name: str) -> type[Word]:
    return create_model(f"Box{name}", __base__=Word, value=(kind(name), ...))


def read(name: str, text: str) -> Any:
    """Parse a text as the wire type of that name, be it a word, a union, an enum or an id.

    Raises:
        ProtocolError: the text is refused.
    """
    found = kind(name)
    if isinstance(found, type) and issubclass(found, Word):
        return parse(found, text)
    return vars(parse(_box(name), f'{{"value":{text}}}'))["value"]


def read_value(name: str, value: object) -> Any:
    """As `read`, for a value that is already in memory."""
    return read(name, json.dumps(value))


def text_of(row: Row) -> str:
    """The text of a row: the raw one where it matters."""
    return row["text"] if "text" in row else json.dumps(row["json"])


def value_of(word: Any) -> Any:
    """The JSON value of a parsed word, union member, enum member or id."""
    return word.model_dump(mode="json") if isinstance(word, Word) else word


def matches(found: Any, expected: Any) -> bool:
    """Whether a value is the expected one; `*` stands for any text."""
    if expected == "*":
        return isinstance(found, str)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(matches(found[key], each) for key, each in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(matches, found, expected))
    return found == expected
