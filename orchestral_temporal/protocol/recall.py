"""Looking back at a session: its records, its history, and where it began (`spec/session-context.md` §13)."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from orchestral_temporal.protocol.base import I64, U64, JsonObject, OpenWord, Word
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode
from orchestral_temporal.protocol.ids import AgentSessionId, Digest, RunId
from orchestral_temporal.protocol.validation import require_text, validate
from orchestral_temporal.protocol.words import dump, parse_value

ORIGIN_KEY: Final = "orchestral/session-origin/v1"
"""The extension of a run spec that holds a `SessionOrigin`."""

ANCHOR_KEY: Final = "orchestral.dev/session-history-anchor"
"""The extension of a run spec or command that holds an `AgentSessionHistoryAnchor`."""


class SessionReadRequest(Word):
    """A look into a session's records: a page of hits, or a piece of one record.

    Sequences are exclusive after, inclusive through; offset and `max_bytes` count bytes of canonical JSON.
    """

    after_seq: U64 = 0
    through_seq: U64 | None = None
    query: str | None = None
    session_seq: U64 | None = None
    json_pointer: str | None = None
    offset: U64 = 0
    max_bytes: U64 | None = None
    limit: U64 | None = None


class SessionReadHit(Word):
    """A record in short; the digest is that of the whole record, its own event digest included."""

    session_seq: U64
    run_id: RunId
    kind: str
    digest: Digest
    preview: str
    truncated: bool


class SessionReadPage(Word):
    """Hits in order, and where the next page begins."""

    through_seq: U64
    next_after_seq: U64
    complete: bool
    records: tuple[SessionReadHit, ...]


class SessionReadChunk(Word):
    """A piece of one record's canonical JSON; offsets and sizes in bytes."""

    through_seq: U64
    session_seq: U64
    digest: Digest
    json_pointer: str
    offset: U64
    next_offset: U64
    total_bytes: U64
    complete: bool
    content: str


class SessionHistoryStatus(StrEnum):
    """How a run, or the last run of a session, has ended; or that it has not."""

    UNFINISHED = "unfinished"
    DELIVERED = "delivered"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"


class SessionOrigin(Word):
    """Where a conversation began: folders and model; information only."""

    workspace: str
    additional_workspaces: tuple[str, ...] = ()
    model: str


class SessionHistorySummary(OpenWord):
    """A session in a list; time in milliseconds since the epoch."""

    session_id: AgentSessionId
    title: str
    origin: SessionOrigin | None = None
    updated_at_unix_ms: I64
    run_count: U64
    status: SessionHistoryStatus
    unfinished_run_ids: tuple[RunId, ...]


class AgentSessionHistoryAnchor(Word):
    """The activity of an external session after which a run or command belongs."""

    after_activity_id: str


_ENDINGS: Final = {
    "delivery_committed": SessionHistoryStatus.DELIVERED,
    "run_incomplete": SessionHistoryStatus.INCOMPLETE,
    "run_cancelled": SessionHistoryStatus.CANCELLED,
    "run_failed": SessionHistoryStatus.FAILED,
}


def history_status(event_types: Iterable[str]) -> SessionHistoryStatus:
    """How a run has ended, by the types of its events in order: the newest terminal counts."""
    endings = [_ENDINGS[each] for each in event_types if each in _ENDINGS]
    return endings[-1] if endings else SessionHistoryStatus.UNFINISHED


def origin_extensions(origin: SessionOrigin) -> JsonObject:
    """The extensions of a run spec that tell where the conversation began."""
    return {ORIGIN_KEY: dump(origin)}


def session_origin(extensions: JsonObject) -> SessionOrigin | None:
    """What the extensions of a run spec say of its origin; nothing without the key.

    Raises:
        ProtocolError: invalid_spec; the value is no origin.
    """
    return parse_value(SessionOrigin, extensions[ORIGIN_KEY]) if ORIGIN_KEY in extensions else None


def history_anchor(extensions: JsonObject) -> AgentSessionHistoryAnchor | None:
    """The anchor in the extensions of a run spec or command; nothing without the key.

    Raises:
        ProtocolError: invalid_spec; the value is no anchor, or its id is blank.
    """
    if ANCHOR_KEY not in extensions:
        return None
    anchor = parse_value(AgentSessionHistoryAnchor, extensions[ANCHOR_KEY])
    validate(anchor)
    return anchor


@validate.register
def _(anchor: AgentSessionHistoryAnchor) -> None:
    require_text("after_activity_id", anchor.after_activity_id, AgentProtocolErrorCode.INVALID_SPEC)
