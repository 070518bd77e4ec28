"""The effect journal of one call: what was prepared, begun, seen and committed (`spec/tools.md` §14)."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import U64, Json, Word
from orchestral_temporal.protocol.digest import digest, exact_digest
from orchestral_temporal.protocol.errors import WordError, refuse, require
from orchestral_temporal.protocol.ids import Digest, RunId
from orchestral_temporal.protocol.tools import EffectSet, ToolIdempotency, ToolInvocation, ToolOutcome
from orchestral_temporal.protocol.validation import (
    require_positive,
    require_sealed,
    require_sha256,
    require_text,
    validate,
)
from orchestral_temporal.protocol.words import dump

ToolEffectEventId = Annotated[str, "one event of an effect journal"]
ToolEffectAttemptId = Annotated[str, "one execution of a call"]


class EffectErrorCode(StrEnum):
    """What is wrong with an effect journal or with what is to be appended to it; never on the wire."""

    INVALID_EVENT = "InvalidEvent"
    EVENT_CONFLICT = "EventConflict"
    SEQUENCE_CONFLICT = "SequenceConflict"
    CORRUPT = "Corrupt"


_INVALID = EffectErrorCode.INVALID_EVENT


class ToolEffectKey(Word):
    """Whose effect: `call_id` is our invocation id, the idempotency key (divergence 6)."""

    run_id: RunId
    call_id: str


class ToolArgumentResolution(Word):
    """Arguments that the host completed from a read the model has seen.

    The digest is that of the last record in the effect journal of that read.
    """

    arguments: Json
    source: ToolEffectKey
    source_event_digest: Digest


class PreparedToolEffect(Word):
    """All that a call is: its own arguments, and the digests of what it may do, under which rules.

    `effect_scopes` are those of its plan. `exact_digest` is ours (divergence 14): it tells arguments apart whose
    `args_digest` is the same.
    """

    invocation: ToolInvocation
    args_digest: Digest
    argument_resolution: ToolArgumentResolution | None = Field(default=None, exclude_if=lambda found: found is None)
    operation_digest: Digest
    permission_digest: Digest
    policy_digest: Digest
    descriptor_digest: Digest
    idempotency: ToolIdempotency
    effect_scopes: EffectSet = ()
    exact_digest: Digest | None = Field(default=None, exclude_if=lambda found: found is None)


class PolicyAuthorization(Word):
    """The policy allows the call as it is."""

    kind: Literal["policy"] = "policy"


class ApprovalAuthorization(Word):
    """A person allows the call; the nonce is that of the capability, used up by it."""

    kind: Literal["approval"] = "approval"
    nonce: str


ToolAuthorizationEvidence = Annotated[PolicyAuthorization | ApprovalAuthorization, Field(discriminator="kind")]


class EffectPrepared(Word):
    """The call is fixed; nothing has run."""

    type: Literal["prepared"] = "prepared"
    effect: PreparedToolEffect


class EffectInvoked(Word):
    """The call may have run from here on."""

    type: Literal["invoked"] = "invoked"
    attempt_id: ToolEffectAttemptId
    authorization: ToolAuthorizationEvidence


class EffectObserved(Word):
    """The tool has answered."""

    type: Literal["observed"] = "observed"
    outcome: ToolOutcome


class EffectCommitted(Word):
    """The answer stands for ever."""

    type: Literal["committed"] = "committed"
    outcome_digest: Digest


class EffectUnknown(Word):
    """Nobody can say whether the call ran; it never runs again."""

    type: Literal["effect_unknown"] = "effect_unknown"
    reason: str


ToolEffectEvent = Annotated[
    EffectPrepared | EffectInvoked | EffectObserved | EffectCommitted | EffectUnknown,
    Field(discriminator="type"),
]


class ToolEffectEventDraft(Word):
    """A fact of an effect before it has a number."""

    event_id: ToolEffectEventId
    key: ToolEffectKey
    payload: ToolEffectEvent


class ToolEffectJournalRecord(Word):
    """A fact of an effect under its number and digest; numbers begin at 1 and have no gap."""

    effect_seq: U64
    draft_digest: Digest
    event_digest: Digest
    event_id: ToolEffectEventId
    key: ToolEffectKey
    payload: ToolEffectEvent


def effect_key(invocation: ToolInvocation) -> ToolEffectKey:
    """The key of a call's effect."""
    return ToolEffectKey(run_id=invocation.run_id, call_id=invocation.call_id)


def effect_event_id(key: ToolEffectKey, fact: str, attempt: int = 1) -> ToolEffectEventId:
    """An event of an effect: fact prepared, invoked, observed, committed or unknown.

    Attempts count from 1; from the second on the id ends in `-a<k>`, as that of a model attempt does (divergence 3).
    """
    return f"effect:{key.run_id}:{key.call_id}:{fact}" + (f"-a{attempt}" if attempt > 1 else "")


def effect_attempt_id(key: ToolEffectKey, attempt: int = 1) -> ToolEffectAttemptId:
    """One execution of a call; from the second on it ends in `/a<k>` (divergence 6)."""
    return f"attempt:{key.run_id}:{key.call_id}" + (f"/a{attempt}" if attempt > 1 else "")


def seal_effect(draft: ToolEffectEventDraft, effect_seq: int) -> ToolEffectJournalRecord:
    """Give a fact its number and digests.

    Raises:
        WordError: InvalidEvent.
    """
    validate(draft)
    unsealed = ToolEffectJournalRecord(
        effect_seq=effect_seq,
        draft_digest=digest(draft),
        event_digest="",
        event_id=draft.event_id,
        key=draft.key,
        payload=draft.payload,
    )
    return unsealed.model_copy(update={"event_digest": effect_event_digest(unsealed)})


def effect_event_digest(record: ToolEffectJournalRecord) -> Digest:
    """The digest of all of a record but the digest itself."""
    value = dump(record)
    del value["event_digest"]
    return digest(value)


@validate.register
def _(key: ToolEffectKey) -> None:
    require_text("run_id", key.run_id, _INVALID)
    require_text("call_id", key.call_id, _INVALID)


def _check_resolution(resolution: ToolArgumentResolution, key: ToolEffectKey) -> None:
    validate(resolution.source)
    require(isinstance(resolution.arguments, dict), _INVALID, "`arguments` of the resolution is no object; give one.")
    require_sha256("source_event_digest", resolution.source_event_digest, _INVALID)
    require(
        resolution.source.run_id == key.run_id and resolution.source.call_id != key.call_id,
        _INVALID,
        "`source` is no other call of the same run; name the read that the arguments come from.",
    )


@validate.register
def _(effect: PreparedToolEffect) -> None:
    _check_foreign(effect.invocation)
    arguments = effect.invocation.arguments
    require_sealed("args_digest", effect.args_digest, digest(arguments), _INVALID)
    for name in ("operation_digest", "permission_digest", "policy_digest", "descriptor_digest"):
        require_sha256(name, getattr(effect, name), _INVALID)
    if effect.argument_resolution is not None:
        _check_resolution(effect.argument_resolution, effect_key(effect.invocation))
    if effect.exact_digest is not None:
        require_sealed("exact_digest", effect.exact_digest, exact_digest(arguments), _INVALID)


def _check_foreign(word: Word) -> None:
    """Check a word of the tool protocol; whatever is wrong with it is InvalidEvent here."""
    try:
        validate(word)
    except WordError as fault:
        refuse(_INVALID, fault.message)


@validate.register
def _(authorization: ApprovalAuthorization) -> None:
    require_text("nonce", authorization.nonce, _INVALID)


@validate.register
def _(payload: EffectInvoked) -> None:
    require_text("attempt_id", payload.attempt_id, _INVALID)
    validate(payload.authorization)


@validate.register
def _(payload: EffectObserved) -> None:
    _check_foreign(payload.outcome)


@validate.register
def _(payload: EffectCommitted) -> None:
    require_sha256("outcome_digest", payload.outcome_digest, _INVALID)


@validate.register
def _(payload: EffectUnknown) -> None:
    require_text("reason", payload.reason, _INVALID)


def _check_draft(event_id: str, key: ToolEffectKey, payload: ToolEffectEvent) -> None:
    require_text("event_id", event_id, _INVALID)
    validate(key)
    validate(payload)
    require(
        not isinstance(payload, EffectPrepared) or effect_key(payload.effect.invocation) == key,
        _INVALID,
        "`effect` is another call than `key` names.",
    )


@validate.register
def _(draft: ToolEffectEventDraft) -> None:
    _check_draft(draft.event_id, draft.key, draft.payload)


@validate.register
def _(record: ToolEffectJournalRecord) -> None:
    try:
        _check_draft(record.event_id, record.key, record.payload)
    except WordError as fault:
        refuse(EffectErrorCode.CORRUPT, fault.message)
    require_positive(EffectErrorCode.CORRUPT, effect_seq=record.effect_seq)
    require_sha256("draft_digest", record.draft_digest, EffectErrorCode.CORRUPT)
    require_sealed("event_digest", record.event_digest, effect_event_digest(record), EffectErrorCode.CORRUPT)
