"""The effect journal of a call: what may follow what, and what a journal amounts to."""

from typing import Any

import pytest

from orchestral_temporal.core.effects import EffectJournal, EffectState, append, replay
from orchestral_temporal.core.table import EFFECTS, EffectPhase
from orchestral_temporal.protocol.digest import digest, exact_digest
from orchestral_temporal.protocol.effects import (
    EffectCommitted,
    EffectErrorCode,
    EffectInvoked,
    EffectObserved,
    EffectPrepared,
    EffectUnknown,
    PolicyAuthorization,
    PreparedToolEffect,
    ToolEffectEvent,
    ToolEffectEventDraft,
    ToolEffectJournalRecord,
    ToolEffectKey,
    effect_attempt_id,
    effect_event_id,
    effect_key,
)
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import Completed, InlineOutput, ToolIdempotency, ToolInvocation
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import dump, parse_value, same
from tests.golden import Row, section

SEQUENCES = section("journals", "tool_effects")
SHA = "ab" * 32
DONE = Completed(output=InlineOutput(value={"result": "hello"}))
POLICY = PolicyAuthorization()


def records_of(values: list[Any]) -> EffectJournal:
    """The records of a row."""
    return tuple(parse_value(ToolEffectJournalRecord, value) for value in values)


def projection(state: EffectState | None) -> Any:
    """A state as the vectors write it."""
    if state is None:
        return None
    detail: dict[str, Any] = {
        "attempt_id": state.attempts[-1] if state.attempts else None,
        "authorization": state.authorization and dump(state.authorization),
        "outcome": state.outcome and dump(state.outcome),
        "reason": state.reason,
    }
    return {
        "detail": {key: value for key, value in detail.items() if value is not None},
        "last_effect_seq": state.last_effect_seq,
        "phase": state.phase,
    }


@pytest.mark.parametrize("row", [row for row in SEQUENCES if "steps" in row], ids=lambda row: row["name"])
def test_a_journal_grows_as_in_the_source(row: Row) -> None:
    """Each draft is appended, recognised or refused with its code, and the state after it is that of the source."""
    key = parse_value(ToolEffectKey, row["key"])
    journal: EffectJournal = ()
    for step in row["steps"]:
        try:
            done = append(journal, parse_value(ToolEffectEventDraft, step["draft"]), step["expected_previous"])
        except WordError as fault:
            result: Any = {"error": str(fault.code)}
        else:
            result = "duplicate" if done.duplicate else "ok"
            journal = done.journal
            assert dump(done.record) == step["record"]
            assert done.state == replay(key, journal)
        assert result == step["result"]
        assert projection(replay(key, journal)) == step["projection_after"]


@pytest.mark.parametrize("row", [row for row in SEQUENCES if "records" in row], ids=lambda row: row["name"])
def test_a_stored_journal_is_checked_as_in_the_source(row: Row) -> None:
    """A journal from outside is folded, or refused when a record is altered, missing, moved or repeated."""
    try:
        found = {"projection": projection(replay(parse_value(ToolEffectKey, row["key"]), records_of(row["records"])))}
    except WordError as fault:
        found = {"error": str(fault.code)}
    assert found == row["result"]


@pytest.mark.parametrize("row", section("tool_policy", "effect_flows"), ids=lambda row: row["name"])
def test_journals_of_guarded_calls_are_written_alike(row: Row) -> None:
    """What the source's guard wrote for each call is written here record by record, under the same ids and digests."""
    journals: dict[str, EffectJournal] = {}
    for value in row["effect_journal"]:
        key = parse_value(ToolEffectKey, value["key"])
        journal = journals.get(key.call_id, ())
        payload = dict(value["payload"])
        if payload.get("outcome_digest") == "*":
            payload["outcome_digest"] = digest(replay(key, journal).outcome)
        draft = {"event_id": value["event_id"], "key": value["key"], "payload": payload}
        done = append(journal, parse_value(ToolEffectEventDraft, draft), len(journal))
        journals[key.call_id] = done.journal
        assert value["event_id"] == effect_event_id(key, payload["type"].removeprefix("effect_"))
        assert "masked" in value or dump(done.record) == value


def prepared(idempotency: ToolIdempotency, **arguments: Any) -> PreparedToolEffect:
    """A prepared call."""
    invocation = ToolInvocation(run_id="r", call_id="r/m1/c1", tool_id="t", arguments=arguments)
    return PreparedToolEffect(
        invocation=invocation,
        args_digest=digest(arguments),
        operation_digest=SHA,
        permission_digest=SHA,
        policy_digest=SHA,
        descriptor_digest=SHA,
        idempotency=idempotency,
        exact_digest=exact_digest(arguments),
    )


KEY = effect_key(prepared(ToolIdempotency.PURE).invocation)


def written(*payloads: ToolEffectEvent) -> EffectState:
    """The state after these facts, each under an id of its own."""
    journal: EffectJournal = ()
    state: EffectState | None = None
    for number, payload in enumerate(payloads, 1):
        draft = ToolEffectEventDraft(event_id=effect_event_id(KEY, payload.type, number), key=KEY, payload=payload)
        done = append(journal, draft, len(journal))
        journal, state = done.journal, done.state
    assert state is not None
    return state


def invoked(attempt: int) -> EffectInvoked:
    """An execution begins."""
    return EffectInvoked(attempt_id=effect_attempt_id(KEY, attempt), authorization=POLICY)


def sample(kind: str) -> ToolEffectEvent:
    """A fact of each kind, for a call that may not be repeated."""
    facts: tuple[ToolEffectEvent, ...] = (
        EffectPrepared(effect=prepared(ToolIdempotency.NON_IDEMPOTENT)),
        invoked(1),
        EffectObserved(outcome=DONE),
        EffectCommitted(outcome_digest=digest(DONE)),
        EffectUnknown(reason="lost"),
    )
    return next(fact for fact in facts if fact.type == kind)


PATHS = {
    EffectPhase.ABSENT: (),
    EffectPhase.PREPARED: ("prepared",),
    EffectPhase.INVOKED: ("prepared", "invoked"),
    EffectPhase.OBSERVED: ("prepared", "invoked", "observed"),
    EffectPhase.COMMITTED: ("prepared", "invoked", "observed", "committed"),
    EffectPhase.UNKNOWN_EFFECT: ("prepared", "invoked", "effect_unknown"),
}


@pytest.mark.parametrize("phase", EffectPhase)
@pytest.mark.parametrize("kind", EFFECTS)
def test_every_cell_of_the_table(phase: EffectPhase, kind: str) -> None:
    """In each phase each fact leads where the table says, or is refused; a call that may not be repeated never is."""
    facts = [sample(each) for each in (*PATHS[phase], kind)]
    expected = EFFECTS[kind].get(phase)
    if expected is None or (phase, kind) == (EffectPhase.INVOKED, "invoked"):
        with pytest.raises(WordError) as refused:
            written(*facts)
        assert refused.value.code is EffectErrorCode.CORRUPT
    else:
        assert written(*facts).phase is expected


@pytest.mark.parametrize(
    "idempotency", [ToolIdempotency.PURE, ToolIdempotency.IDEMPOTENT, ToolIdempotency.IDEMPOTENT_WITH_KEY]
)
def test_a_repeatable_call_runs_again_on_record(idempotency: ToolIdempotency) -> None:
    """A lost call that may run twice is invoked again under its own attempt id and ends as any other (divergence 3)."""
    start = (EffectPrepared(effect=prepared(idempotency)), invoked(1), invoked(2))
    assert written(*start).attempts == ("attempt:r:r/m1/c1", "attempt:r:r/m1/c1/a2")
    assert written(*start, EffectObserved(outcome=DONE)).phase is EffectPhase.OBSERVED
    with pytest.raises(WordError) as refused:
        written(*start, invoked(2))
    assert refused.value.code is EffectErrorCode.CORRUPT


def test_a_record_of_another_call_is_refused() -> None:
    """A journal belongs to one call: a foreign record neither replays nor is followed by ours."""
    draft = ToolEffectEventDraft(event_id="p", key=KEY, payload=sample("prepared"))
    journal = append((), draft, 0).journal
    other = ToolEffectKey(run_id="r", call_id="r/m1/c2")
    foreign = ToolEffectEventDraft(event_id="i", key=other, payload=invoked(1))
    for attempt in (lambda: replay(other, journal), lambda: append(journal, foreign, 1)):
        with pytest.raises(WordError) as refused:
            attempt()
        assert refused.value.code is EffectErrorCode.CORRUPT


def test_ids_of_an_effect() -> None:
    """Event and attempt ids are those of the source; only a repeated execution adds its number (divergence 6)."""
    assert effect_event_id(KEY, "invoked") == "effect:r:r/m1/c1:invoked"
    assert effect_event_id(KEY, "invoked", 2) == "effect:r:r/m1/c1:invoked-a2"
    assert effect_attempt_id(KEY) == "attempt:r:r/m1/c1"


def test_arguments_that_share_a_digest_are_told_apart() -> None:
    """Integers beyond 2^53 collapse in the wire's digest, never in the exact one (F024, F040, divergence 14)."""
    one, other = prepared(ToolIdempotency.PURE, n=2**53), prepared(ToolIdempotency.PURE, n=2**53 + 1)
    validate(one)
    assert one.args_digest == other.args_digest
    assert one.exact_digest != other.exact_digest
    assert not same(one, other)
    with pytest.raises(WordError) as refused:
        validate(one.model_copy(update={"exact_digest": other.exact_digest}))
    assert refused.value.code is EffectErrorCode.INVALID_EVENT
    assert "exact_digest" not in dump(one.model_copy(update={"exact_digest": None}))
