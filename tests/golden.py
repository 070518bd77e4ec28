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
    content,
    delivery,
    errors,
    events,
    ids,
    limits,
    model,
    requests,
    retry,
    run,
    session,
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
    content,
    delivery,
    errors,
    events,
    ids,
    limits,
    model,
    requests,
    retry,
    run,
    session,
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

LATER = {
    "AgentSessionHistoryAnchor",
    "McpProtocolEra",
    "McpServerId",
    "McpServerSnapshot",
    "McpToolAnnotations",
    "McpToolSnapshot",
    "McpTransportKind",
    "Plan",
    "PreparedToolEffect",
    "ProjectInstruction",
    "Scope",
    "SessionCompactionPolicy",
    "SessionHistoryStatus",
    "SessionHistorySummary",
    "SessionOrigin",
    "SessionReadChunk",
    "SessionReadHit",
    "SessionReadPage",
    "SessionReadRequest",
    "SessionSummarizerDescriptor",
    "SkillCatalogDescriptor",
    "SkillCompatibility",
    "SkillDependencies",
    "SkillDescriptor",
    "SkillId",
    "SkillLoad",
    "SkillPackage",
    "SkillSource",
    "SkillSourceKind",
    "Step",
    "StepId",
    "StepIoBinding",
    "StepKind",
    "StepOutcome",
    "ToolArgumentResolution",
    "ToolAuthorizationEvidence",
    "ToolEffectAttemptId",
    "ToolEffectEvent",
    "ToolEffectEventDraft",
    "ToolEffectEventId",
    "ToolEffectJournalRecord",
    "ToolEffectKey",
    "WorkflowId",
    "WorkingSet",
}
"""Wire types that no module has yet: effects, skills, plans, MCP, recall and history."""


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The rows of one file of `tests/vectors`."""
    return tuple(
        json.loads(gzip.decompress(Path(__file__).with_name("vectors").joinpath(f"{name}.json.gz").read_bytes()))
    )


@cache
def rows_by_type(name: str) -> dict[str, list[Row]]:
    """The rows of one file by wire type, without those of types that come later."""
    found: dict[str, list[Row]] = {}
    for row in rows(name):
        if row["type"] not in LATER and not is_skill_fact(row):
            found.setdefault(row["type"], []).append(row)
    return found


def is_skill_fact(row: Row) -> bool:
    """Whether a row of the session journal is about a loaded skill, which comes with the skills."""
    value = row.get("json")
    payload = value.get("payload", value) if isinstance(value, dict) else None
    return (
        row["type"].startswith("AgentSession") and isinstance(payload, dict) and payload.get("type") == "skill_loaded"
    )


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
