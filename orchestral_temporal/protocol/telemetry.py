"""Telemetry: live only, never journaled (`spec/wire.md` §13, §14)."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from orchestral_temporal.protocol.base import U32, U64, Json, Word
from orchestral_temporal.protocol.content import Content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.events import AgentEventDraft
from orchestral_temporal.protocol.ids import OutputId, RunId, TelemetryId, ToolActivityId, has_control, is_blank
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_namespaced,
    require_positive,
    require_text,
    validate,
    validate_each,
)

CONTEXT_USAGE: Final = "orchestral/context-usage.v1"
"""Namespace of the telemetry extension that carries a context usage report."""

_TEXT: Final = 512
_CODE: Final = 128
_LABEL: Final = 64
_EVIDENCE: Final = 16
_DIFF_LINES: Final = 24
_ERROR_DETAILS: Final = 8


class ToolActivityState(StrEnum):
    """Where a tool activity stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ToolFileActivityKind(StrEnum):
    """What was done to a file."""

    READ = "read"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class ToolDiffLineKind(StrEnum):
    """What a line of a diff says."""

    CONTEXT = "context"
    ADDITION = "addition"
    DELETION = "deletion"


class ToolDiffLine(Word):
    """One line of a diff; may be empty."""

    kind: ToolDiffLineKind
    text: str


class ToolActivityErrorDetail(Word):
    """One labelled fact of an error."""

    label: str
    value: str


class CommandEvidence(Word):
    """A command that ran."""

    type: Literal["command"] = "command"
    command: str


class FileEvidence(Word):
    """A file that was touched; `diff_omitted` counts the lines left out."""

    type: Literal["file"] = "file"
    operation: ToolFileActivityKind
    path: str
    diff: tuple[ToolDiffLine, ...] = Field(default=(), exclude_if=lambda diff: not diff)
    diff_omitted: U32 = Field(default=0, exclude_if=lambda count: count == 0)


class NoteEvidence(Word):
    """A remark."""

    type: Literal["note"] = "note"
    text: str


class ErrorEvidence(Word):
    """An error."""

    type: Literal["error"] = "error"
    code: str
    message: str
    details: tuple[ToolActivityErrorDetail, ...] = Field(default=(), exclude_if=lambda details: not details)


class OmittedEvidence(Word):
    """How many items are left out."""

    type: Literal["omitted"] = "omitted"
    count: U32


ToolActivityEvidence = Annotated[
    CommandEvidence | FileEvidence | NoteEvidence | ErrorEvidence | OmittedEvidence, Field(discriminator="type")
]


class OutputDelta(Word):
    """More of an output that is not committed yet."""

    type: Literal["output_delta"] = "output_delta"
    output_id: OutputId
    delta: Content


class ProgressReported(Word):
    """How far the run is; `fraction` from 0 to 1."""

    type: Literal["progress_reported"] = "progress_reported"
    message: str
    fraction: float | None = None


class ToolActivity(Word):
    """What a tool is doing."""

    type: Literal["tool_activity"] = "tool_activity"
    activity_id: ToolActivityId
    tool_name: str
    state: ToolActivityState
    evidence: tuple[ToolActivityEvidence, ...] = Field(default=(), exclude_if=lambda evidence: not evidence)


class TelemetryExtension(Word):
    """Telemetry of a kind that the protocol does not name."""

    type: Literal["extension"] = "extension"
    namespace: str
    value: Json


AgentTelemetry = Annotated[
    OutputDelta | ProgressReported | ToolActivity | TelemetryExtension, Field(discriminator="type")
]


class AgentTelemetryEnvelope(Word):
    """One telemetry item of a run."""

    telemetry_id: TelemetryId
    run_id: RunId
    provider_seq: U64 | None = None
    payload: AgentTelemetry


class StreamEvent(Word):
    """A provider's stream brings an event."""

    channel: Literal["event"] = "event"
    item: AgentEventDraft


class StreamTelemetry(Word):
    """A provider's stream brings telemetry."""

    channel: Literal["telemetry"] = "telemetry"
    item: AgentTelemetryEnvelope


AgentProviderStreamItem = Annotated[StreamEvent | StreamTelemetry, Field(discriminator="channel")]


class ContextUsageReport(Word):
    """The size of one model request in tokens; a null window is unknown."""

    request_id: str
    input_tokens: U64
    input_tokens_estimated: bool
    max_context_tokens: U64 | None = None


def context_usage(telemetry: AgentTelemetry) -> ContextUsageReport | None:
    """The context usage report that telemetry carries; null when it carries none that is sound."""
    if not isinstance(telemetry, TelemetryExtension) or telemetry.namespace != CONTEXT_USAGE:
        return None
    try:
        report = ContextUsageReport.model_validate(telemetry.value)
    except ValidationError:
        return None
    return None if is_blank(report.request_id) or report.max_context_tokens == 0 else report


def _require_safe(name: str, text: str, limit: int) -> None:
    require(
        not is_blank(text) and len(text) <= limit and not has_control(text),
        AgentProtocolErrorCode.INVALID_SPEC,
        f"`{name}` is blank, longer than {limit} characters or has a control character; shorten or clean it.",
    )


def _require_at_most(name: str, count: int, limit: int) -> None:
    require(count <= limit, AgentProtocolErrorCode.INVALID_SPEC, f"`{name}` has {count} items; give at most {limit}.")


@validate.register
def _(line: ToolDiffLine) -> None:
    require(
        len(line.text) <= _TEXT and not has_control(line.text),
        AgentProtocolErrorCode.INVALID_SPEC,
        f"`text` of a diff line is longer than {_TEXT} characters or has a control character; shorten or clean it.",
    )


@validate.register
def _(detail: ToolActivityErrorDetail) -> None:
    _require_safe("label", detail.label, _LABEL)
    _require_safe("value", detail.value, _TEXT)


@validate.register
def _(evidence: CommandEvidence) -> None:
    _require_safe("command", evidence.command, _TEXT)


@validate.register
def _(evidence: FileEvidence) -> None:
    _require_safe("path", evidence.path, _TEXT)
    _require_at_most("diff", len(evidence.diff), _DIFF_LINES)
    validate_each(evidence.diff)


@validate.register
def _(evidence: NoteEvidence) -> None:
    _require_safe("text", evidence.text, _TEXT)


@validate.register
def _(evidence: ErrorEvidence) -> None:
    _require_safe("code", evidence.code, _CODE)
    _require_safe("message", evidence.message, _TEXT)
    _require_at_most("details", len(evidence.details), _ERROR_DETAILS)
    validate_each(evidence.details)


@validate.register
def _(evidence: OmittedEvidence) -> None:
    require(evidence.count > 0, AgentProtocolErrorCode.INVALID_SPEC, "`count` is 0; leave the item out.")


@validate.register
def _(telemetry: OutputDelta) -> None:
    require_filled("output_id", telemetry.output_id)
    validate(telemetry.delta)


@validate.register
def _(telemetry: ProgressReported) -> None:
    require_text("message", telemetry.message)
    require(
        telemetry.fraction is None or 0 <= telemetry.fraction <= 1,
        AgentProtocolErrorCode.INVALID_SPEC,
        "`fraction` is not from 0 to 1.",
    )


@validate.register
def _(telemetry: ToolActivity) -> None:
    require_filled("activity_id", telemetry.activity_id)
    require_text("tool_name", telemetry.tool_name)
    _require_at_most("evidence", len(telemetry.evidence), _EVIDENCE)
    validate_each(telemetry.evidence)


@validate.register
def _(telemetry: TelemetryExtension) -> None:
    require_namespaced("namespace", (telemetry.namespace,))


@validate.register
def _(envelope: AgentTelemetryEnvelope) -> None:
    require_filled("telemetry_id", envelope.telemetry_id)
    require_filled("run_id", envelope.run_id)
    require_positive(AgentProtocolErrorCode.INVALID_SPEC, provider_seq=envelope.provider_seq)
    validate(envelope.payload)
