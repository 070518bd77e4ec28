"""The effect of one call: what its journal amounts to, and what may be added to it (`spec/tools.md` §14).

A journal is the tuple of the call's records, in order. Nothing here is ever changed in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from orchestral_temporal.core.table import EFFECTS, EffectPhase
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.effects import (
    EffectCommitted,
    EffectErrorCode,
    EffectInvoked,
    EffectObserved,
    EffectPrepared,
    EffectUnknown,
    PreparedToolEffect,
    ToolAuthorizationEvidence,
    ToolEffectAttemptId,
    ToolEffectEvent,
    ToolEffectEventDraft,
    ToolEffectJournalRecord,
    ToolEffectKey,
    seal_effect,
)
from orchestral_temporal.protocol.errors import require
from orchestral_temporal.protocol.tools import ToolIdempotency, ToolOutcome
from orchestral_temporal.protocol.validation import require_unique, validate

EffectJournal = tuple[ToolEffectJournalRecord, ...]


class EffectState(Word):
    """What a journal amounts to: how far the call is, and what is known of it by then.

    Attempts are in the order in which they began; the authorization is that of the last one.
    """

    phase: EffectPhase
    last_effect_seq: int
    effect: PreparedToolEffect
    attempts: tuple[ToolEffectAttemptId, ...] = ()
    authorization: ToolAuthorizationEvidence | None = None
    outcome: ToolOutcome | None = None
    reason: str | None = None


@dataclass(frozen=True)
class EffectAppended:
    """A journal after a draft, the draft's record and the state; a duplicate was there already."""

    journal: EffectJournal
    record: ToolEffectJournalRecord
    state: EffectState
    duplicate: bool


def append(journal: EffectJournal, draft: ToolEffectEventDraft, expected_previous: int) -> EffectAppended:
    """Add a fact to the journal of its call; what is there already is a duplicate, wherever it was expected.

    The journal is trusted: `replay` is for one that comes from outside. `expected_previous` is its length as the
    writer knows it, 0 before the first fact.

    Raises:
        WordError: InvalidEvent, the draft is malformed; EventConflict, its id belongs to another fact;
            SequenceConflict, the journal is longer or shorter than expected; Corrupt, the fact does not follow.
    """
    validate(draft)
    known = next((record for record in journal if record.event_id == draft.event_id), None)
    if known is not None:
        require(
            known.draft_digest == digest(draft),
            EffectErrorCode.EVENT_CONFLICT,
            "`event_id` is taken by another fact of this call; give each fact its own.",
        )
        return EffectAppended(journal, known, _fold(draft.key, journal), duplicate=True)
    require(
        len(journal) == expected_previous,
        EffectErrorCode.SEQUENCE_CONFLICT,
        f"The journal has {len(journal)} records, not {expected_previous}; read it again.",
    )
    record = seal_effect(draft, expected_previous + 1)
    extended = (*journal, record)
    return EffectAppended(extended, record, _fold(draft.key, extended), duplicate=False)


def replay(key: ToolEffectKey, records: Sequence[ToolEffectJournalRecord]) -> EffectState | None:
    """Check a journal that comes from outside and say what it amounts to; nothing when it is empty.

    Raises:
        WordError: Corrupt; a record is altered, missing, repeated, out of order, of another call, or does not follow.
    """
    for record in records:
        validate(record)
    require_unique("event_id", (record.event_id for record in records), EffectErrorCode.CORRUPT)
    return _fold(key, records) if records else None


def _fold(key: ToolEffectKey, records: Sequence[ToolEffectJournalRecord]) -> EffectState:
    state: EffectState | None = None
    for number, record in enumerate(records, 1):
        require(record.key == key, EffectErrorCode.CORRUPT, "The journal holds a record of another call.")
        require(record.effect_seq == number, EffectErrorCode.CORRUPT, f"The journal lacks record {number}.")
        state = _after(state, record.payload, number)
    assert state is not None
    return state


def _after(state: EffectState | None, payload: ToolEffectEvent, number: int) -> EffectState:
    before = EffectPhase.ABSENT if state is None else state.phase
    phase = EFFECTS[payload.type].get(before)
    _require_legal(phase is not None, payload, before)
    if isinstance(payload, EffectPrepared):
        return EffectState(phase=EffectPhase.PREPARED, last_effect_seq=number, effect=payload.effect)
    assert state is not None
    changes: dict[str, object] = {"phase": phase, "last_effect_seq": number}
    match payload:
        case EffectInvoked():
            _require_legal(not state.attempts or _may_repeat(state, payload), payload, before)
            changes |= {"attempts": (*state.attempts, payload.attempt_id), "authorization": payload.authorization}
        case EffectObserved():
            changes |= {"outcome": payload.outcome}
        case EffectCommitted():
            assert state.outcome is not None
            _require_legal(payload.outcome_digest == digest(state.outcome), payload, before)
        case EffectUnknown():
            changes |= {"reason": payload.reason}
        case _:
            assert_never(payload)
    return state.model_copy(update=changes)


def _may_repeat(state: EffectState, payload: EffectInvoked) -> bool:
    """Whether a call of which no answer was seen may run again (divergence 3)."""
    repeatable = state.effect.idempotency is not ToolIdempotency.NON_IDEMPOTENT
    return repeatable and payload.attempt_id not in state.attempts


def _require_legal(held: bool, payload: ToolEffectEvent, phase: EffectPhase) -> None:
    require(held, EffectErrorCode.CORRUPT, f"The fact {payload.type} does not follow while the effect is {phase}.")
