"""What became of the calls of a run, folded from its notes and what is seen of the calls at work."""

import pytest

from orchestral_temporal.core.effect_notes import CallEffect, at_work, calls_of, settle_command
from orchestral_temporal.core.state import CallAt, EffectAt, EffectNote, Ended, OpenCall, ToolsOpen
from orchestral_temporal.protocol.activities import EffectSettlement, Fence, Heartbeat, ToolObservation
from orchestral_temporal.protocol.tools import Completed, InlineOutput, ToolIdempotency

ONCE = ToolIdempotency.NON_IDEMPOTENT
FIRST, SECOND = "r/m1/c1", "r/m1/c2"


def note(at: EffectAt, said: str = "", *, call: str = FIRST, attempt: int = 1) -> EffectNote:
    """One step of a call."""
    return EffectNote(invocation_id=call, attempt=attempt, tool="send", idempotency=ONCE, at=at, said=said)


def folded(*notes: EffectNote) -> CallEffect:
    """The one call that these notes are about."""
    (call,) = calls_of(notes)
    return call


@pytest.mark.parametrize(
    ("notes", "standing", "told"),
    [
        ([note("prepared")], "Prepared", (1, None, None)),
        ([note("prepared"), note("invoked")], "Invoked", (1, None, None)),
        ([note("prepared"), note("invoked"), note("lost", "gone")], "Invoked", (1, None, "gone")),
        ([note("prepared"), note("lost", "gone"), note("prepared", attempt=2)], "Prepared", (2, None, "gone")),
        ([note("prepared"), note("invoked"), note("observed", "failed")], "Observed", (1, "failed", None)),
        ([note("lost", "gone"), note("observed", "completed", attempt=2)], "Observed", (2, "completed", None)),
        ([note("observed", "completed"), note("committed", "completed")], "Committed", (1, "completed", None)),
        ([note("committed", "rejected")], "Committed", (1, "rejected", None)),
        ([note("invoked"), note("lost", "gone"), note("unknown_effect", "?")], "UnknownEffect", (1, None, "?")),
    ],
)
def test_the_notes_of_a_call_fold_to_where_it_stands(
    notes: list[EffectNote], standing: str, told: tuple[int, str | None, str | None]
) -> None:
    """State in the words of the sheet, attempts, the outcome's status, and a reason while there is no outcome."""
    call = folded(*notes)
    assert call.standing == standing
    assert (call.attempts, call.outcome, call.reason) == told


def test_calls_stand_in_the_order_of_their_preparation() -> None:
    """One row a call, however its notes are mixed with those of others."""
    calls = calls_of([note("prepared"), note("prepared", call=SECOND), note("invoked", call=SECOND), note("invoked")])
    assert [call.call for call in calls] == [FIRST, SECOND]


def phase(at: CallAt) -> ToolsOpen:
    """The first call, open in its turn."""
    return ToolsOpen(calls=(OpenCall(call_id="c", name="send", invocation_id=FIRST, tool_id="t", arguments={}, at=at),))


def beat(*, outcome: bool = False, stored: str | None = None) -> Heartbeat:
    """A heartbeat with a fence."""
    told = ToolObservation(outcome=Completed(output=InlineOutput(value=1))) if outcome else None
    fence = Fence(invocation_id=FIRST, attempt=1, arguments_digest="0" * 64, outcome=told, stored=stored)
    return Heartbeat(fence=fence)


@pytest.mark.parametrize(
    ("last", "seen"),
    [
        (None, (False, "Prepared")),
        (Heartbeat(), (False, "Prepared")),
        (beat(), (True, "Invoked")),
        (beat(outcome=True), (True, "Observed")),
        (beat(stored="5" * 64), (True, "Observed")),
    ],
)
def test_a_call_at_work_shows_its_fence(last: Heartbeat | None, seen: tuple[bool, str]) -> None:
    """The fence in the last heartbeat tells more than the run has on record: it may have run, or has answered."""
    (call,) = at_work([folded(note("prepared"))], phase(CallAt.OPEN), 1, {FIRST: last})
    assert (call.fenced, call.standing) == seen


def test_nothing_is_said_of_a_fence_that_nobody_can_see() -> None:
    """A call that the server holds no longer, one that has ended, and one of another turn stay as they are."""
    known = [folded(note("prepared"))]
    assert at_work(known, phase(CallAt.OPEN), 1, {}) == tuple(known)
    assert at_work(known, phase(CallAt.SETTLED), 1, {FIRST: beat()}) == tuple(known)
    assert at_work(known, Ended(), 1, {FIRST: beat()}) == tuple(known)


def test_an_uncertain_call_says_how_long_its_outcome_is_waited_for() -> None:
    """A lost call behind its fence waits for the grace (decision 16)."""
    (call,) = at_work([folded(note("invoked"), note("lost", "gone"))], phase(CallAt.UNCERTAIN), 10_000, {})
    assert call.standing == "uncertain: waits up to 10 s for its outcome"
    assert (call.waits_ms, call.reason, call.remedy) == (10_000, "gone", None)


def test_only_an_unknown_effect_asks_for_a_settlement() -> None:
    """The remedy is the command to type; none for a known effect, a settled one, or where nobody knows."""
    unknown = folded(note("unknown_effect", "?"))
    settlement = EffectSettlement(call=FIRST, happened=None, by="ada")
    assert unknown.remedy == "orchestral effects settle r m1/c1 --happened TEXT"
    assert folded(note("committed", "completed")).remedy is None
    assert unknown.model_copy(update={"settlement": settlement}).remedy is None
    assert unknown.model_copy(update={"settlement_unknown": "nobody answers"}).remedy is None


def test_the_command_that_settles_can_be_typed_as_it_stands() -> None:
    """A run id may hold slashes and what a shell would take apart, and begin like an option."""
    assert settle_command("a b/c/m2/c3") == "orchestral effects settle 'a b/c' m2/c3"
    assert settle_command("-r/m1/c1") == "orchestral effects settle -- -r m1/c1"
    assert settle_command("-r/m1/c1", "--did-not") == "orchestral effects settle --did-not -- -r m1/c1"
