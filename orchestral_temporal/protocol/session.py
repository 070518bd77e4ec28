"""The session journal: facts of a conversation over its runs (`spec/session-context.md` §1)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import U64, Json, JsonObject, Word
from orchestral_temporal.protocol.content import ArtifactRefWithDigest
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import JournalErrorCode, WordError, refuse, require
from orchestral_temporal.protocol.ids import AgentSessionId, Digest, RunId
from orchestral_temporal.protocol.model import (
    ModelMessage,
    ModelRole,
    ModelUsage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from orchestral_temporal.protocol.skills import SkillLoad
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_positive,
    require_sealed,
    require_sha256,
    require_text,
    require_unique,
    validate,
)
from orchestral_temporal.protocol.words import dump

_INVALID = JournalErrorCode.INVALID_EVENT


class SessionSourceRange(Word):
    """Records of a session, both ends included."""

    first_session_seq: U64
    last_session_seq: U64


class RunInputCommitted(Word):
    """What a person said."""

    type: Literal["run_input_committed"] = "run_input_committed"
    message: ModelMessage


class ToolExchangeCommitted(Word):
    """The calls of one turn and all their results; usage is that of the turn."""

    type: Literal["tool_exchange_committed"] = "tool_exchange_committed"
    request_id: str
    assistant: ModelMessage
    tool: ModelMessage
    retained_artifacts: tuple[ArtifactRefWithDigest, ...]
    usage: ModelUsage | None = None


class EffectUncertaintyCommitted(Word):
    """Nobody knows whether an effect happened."""

    type: Literal["effect_uncertainty_committed"] = "effect_uncertainty_committed"
    effect_call_id: str
    model_call_id: str
    tool_name: str
    message: str


class RunOutputCommitted(Word):
    """The answer of a run."""

    type: Literal["run_output_committed"] = "run_output_committed"
    request_id: str
    message: ModelMessage
    usage: ModelUsage | None = None


class SkillLoaded(Word):
    """A skill is in the context of its run, whole as it was."""

    type: Literal["skill_loaded"] = "skill_loaded"
    load: SkillLoad


class _Compaction(Word):
    source: SessionSourceRange
    source_digest: Digest
    policy_digest: Digest
    summary_config_digest: Digest
    summary: ModelMessage
    strategy: str
    model: str | None = None
    version: str


class CompactionCommitted(_Compaction):
    """A summary stands for records of other runs."""

    type: Literal["compaction_committed"] = "compaction_committed"


class ActiveRunCompactionCommitted(_Compaction):
    """A summary stands for records of the run itself."""

    type: Literal["active_run_compaction_committed"] = "active_run_compaction_committed"


AgentSessionEvent = Annotated[
    RunInputCommitted
    | ToolExchangeCommitted
    | EffectUncertaintyCommitted
    | RunOutputCommitted
    | SkillLoaded
    | CompactionCommitted
    | ActiveRunCompactionCommitted,
    Field(discriminator="type"),
]


class AgentSessionEventDraft(Word):
    """A fact before it has a number."""

    event_id: str
    session_id: AgentSessionId
    run_id: RunId
    payload: AgentSessionEvent


class AgentSessionRecord(Word):
    """A fact under its number and digest; numbers begin at 1 and have no gap."""

    session_seq: U64
    draft_digest: Digest
    event_digest: Digest
    event_id: str
    session_id: AgentSessionId
    run_id: RunId
    payload: AgentSessionEvent


def seal_session(draft: AgentSessionEventDraft, session_seq: int) -> AgentSessionRecord:
    """Give a fact its number and digests.

    Raises:
        WordError: InvalidEvent.
    """
    validate(draft)
    unsealed = AgentSessionRecord(
        session_seq=session_seq,
        draft_digest=digest(draft),
        event_digest="",
        event_id=draft.event_id,
        session_id=draft.session_id,
        run_id=draft.run_id,
        payload=draft.payload,
    )
    return unsealed.model_copy(update={"event_digest": session_event_digest(unsealed)})


def session_event_digest(record: AgentSessionRecord) -> Digest:
    """The digest of all of a record but the digest itself."""
    value = dump(record)
    del value["event_digest"]
    return digest(value)


def _check_foreign(word: Word) -> None:
    """Check a word of another family; whatever is wrong with it is InvalidEvent here."""
    try:
        validate(word)
    except WordError as fault:
        refuse(_INVALID, fault.message)


def _check_message(name: str, message: ModelMessage, *roles: ModelRole) -> None:
    _check_foreign(message)
    require(message.role in roles, _INVALID, f"`{name}` is a {message.role} message; its role must be {roles[0]}.")


def _check_ids(event_id: str, session_id: str, run_id: str) -> None:
    require_text("event_id", event_id, _INVALID)
    require_filled("session_id", session_id, _INVALID)
    require_filled("run_id", run_id, _INVALID)


def _objects(value: Json) -> Iterator[JsonObject]:
    """Every object inside a value, itself included; no recursion, so depth does not matter."""
    waiting: list[Json] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _check_artifacts(exchange: ToolExchangeCommitted) -> None:
    results = [part.result for part in exchange.tool.content if isinstance(part, ToolResultPart)]
    shown = [found for result in results for found in _objects(result) if "artifact_ref" in found]
    for artifact in exchange.retained_artifacts:
        require_filled("artifact_ref", artifact.artifact_ref, _INVALID)
        require_sha256("digest", artifact.digest, _INVALID)
    require_unique("retained_artifacts", (each.artifact_ref for each in exchange.retained_artifacts), _INVALID)
    for artifact in exchange.retained_artifacts:
        require(
            dump(artifact) in shown,
            _INVALID,
            "`retained_artifacts` names an artifact that no result of the exchange shows.",
        )


@validate.register
def _(source: SessionSourceRange) -> None:
    require(
        1 <= source.first_session_seq <= source.last_session_seq,
        _INVALID,
        "The range is reversed or begins at 0; sequences begin at 1.",
    )


@validate.register
def _(payload: RunInputCommitted) -> None:
    _check_message("message", payload.message, ModelRole.USER)


@validate.register
def _(payload: ToolExchangeCommitted) -> None:
    require_text("request_id", payload.request_id, _INVALID)
    _check_message("assistant", payload.assistant, ModelRole.ASSISTANT)
    _check_message("tool", payload.tool, ModelRole.TOOL)
    calls = {part.call_id for part in payload.assistant.content if isinstance(part, ToolCallPart)}
    answered = {part.call_id for part in payload.tool.content if isinstance(part, ToolResultPart)}
    require(
        bool(calls) and calls == answered and all(isinstance(part, ToolResultPart) for part in payload.tool.content),
        _INVALID,
        "The results of the exchange are not those of its calls, one for each and nothing else.",
    )
    _check_artifacts(payload)


@validate.register
def _(payload: EffectUncertaintyCommitted) -> None:
    for name in ("effect_call_id", "model_call_id", "tool_name", "message"):
        require_text(name, getattr(payload, name), _INVALID)


@validate.register
def _(payload: RunOutputCommitted) -> None:
    require_text("request_id", payload.request_id, _INVALID)
    _check_message("message", payload.message, ModelRole.ASSISTANT)
    require(
        not any(isinstance(part, ToolCallPart | ToolResultPart) for part in payload.message.content),
        _INVALID,
        "`message` holds a tool call or result; an answer has neither.",
    )


@validate.register
def _(payload: SkillLoaded) -> None:
    _check_foreign(payload.load)


@validate.register
def _(payload: CompactionCommitted | ActiveRunCompactionCommitted) -> None:
    validate(payload.source)
    for name in ("source_digest", "policy_digest", "summary_config_digest"):
        require_sha256(name, getattr(payload, name), _INVALID)
    require_text("strategy", payload.strategy, _INVALID)
    require_text("version", payload.version, _INVALID)
    require_text("model", payload.model, _INVALID)
    _check_message("summary", payload.summary, ModelRole.SYSTEM, ModelRole.ASSISTANT)
    require(
        all(isinstance(part, TextPart) for part in payload.summary.content),
        _INVALID,
        "`summary` holds something else than text.",
    )


@validate.register
def _(draft: AgentSessionEventDraft) -> None:
    _check_ids(draft.event_id, draft.session_id, draft.run_id)
    validate(draft.payload)


@validate.register
def _(record: AgentSessionRecord) -> None:
    require_positive(_INVALID, session_seq=record.session_seq)
    _check_ids(record.event_id, record.session_id, record.run_id)
    validate(record.payload)
    require_sha256("draft_digest", record.draft_digest, _INVALID)
    require_sealed("event_digest", record.event_digest, session_event_digest(record), _INVALID)
