"""A tool is asked about a lost attempt, and that attempt reports itself meanwhile (decision 16)."""

import pytest

from orchestral_temporal.core.inputs import Input, OutcomeArrived, TimeReached, ToolBroken, ToolObserved
from orchestral_temporal.core.limits import REPORT_PAUSE_MS
from orchestral_temporal.core.state import CancelToolCall, InvokeTool, WakeAfter
from orchestral_temporal.protocol.activities import ToolObservation
from orchestral_temporal.protocol.tools import (
    Cancelled,
    Completed,
    InlineOutput,
    Rejected,
    ToolIdempotency,
    ToolOutcome,
    UnknownEffect,
)
from tests.core.loop_world import RUN, THERE, World, answered, called, observed, said, tool, tool_lost
from tests.core.test_batch import KEYED, ONCE, calls, fence, open_world, results, uncertain
from tests.core.test_loop import failure

TIMER = f"grace/{RUN}/m1/c1"


def asked(kind: ToolIdempotency = ONCE) -> World:
    """A run whose call was lost behind its fence, and whose tool is being asked about that."""
    made = open_world(tool("asked", kind, reconciles=True))
    made.bring(called(*calls("asked")))
    if kind is ONCE:
        made.bring(tool_lost(abandoned=False))
        made.bring(TimeReached(f"{TIMER}/1"))
    else:
        made.bring(ToolBroken(*THERE, "KeyError: 'x'", fenced=True))
    effect = made.last
    assert isinstance(effect, InvokeTool)
    assert (effect.request.attempt, effect.request.reconcile) == (2, True)
    return made


def of(attempt: int, **changes: object) -> OutcomeArrived:
    """A report on an attempt of the call; at work, unless it says more."""
    return OutcomeArrived(fence().fence.model_copy(update={"attempt": attempt, **changes}))


def ends(outcome: ToolOutcome) -> ToolObservation:
    """How an attempt ended."""
    return ToolObservation(outcome=outcome)


NOT_STARTED = ends(Rejected(code="not_started", message="frozen"))
REAL = of(1, outcome=ends(Completed(output=InlineOutput(value="real"))))
NOTHING = of(1, outcome=NOT_STARTED)
AT_WORK = of(1)


def hook(outcome: ToolOutcome) -> ToolObserved:
    """What the tool says of the first attempt, or nobody can."""
    return ToolObserved(*THERE, ToolObservation(outcome=outcome, reconciled=True))


HAPPENED = hook(Completed(output=InlineOutput(value="second")))
CANNOT_TELL = hook(UnknownEffect(message="Nobody can tell."))
RAN = answered("second")
BEFORE = tool_lost(abandoned=False, fenced=False)
BEHIND = tool_lost(abandoned=False)
BROKEN_BEFORE = ToolBroken(*THERE, "KeyError: 'x'", fenced=False)
BROKEN_BEHIND = ToolBroken(*THERE, "KeyError: 'x'", fenced=True)


def standing(made: World) -> object:
    """The result if there is one; else whether the effect is unknown, or still waited for."""
    if made.status == "failed":
        return "unknown" if failure(made)[0] == "tool_unknown_effect" else failure(made)
    return "waits" if isinstance(made.last, WakeAfter) else results(made)[0]


@pytest.mark.parametrize(
    ("end", "real", "at_work", "nothing"),
    [
        (HAPPENED, "real", "second", "second"),
        (CANNOT_TELL, "real", "waits", "not_started"),
        (observed(Cancelled()), "real", "waits", "not_started"),
        (BEFORE, "real", "waits", "not_started"),
        (BROKEN_BEFORE, "real", "waits", "not_started"),
        (RAN, "unknown", "unknown", "second"),
        (BEHIND, "unknown", "unknown", "waits"),
        (BROKEN_BEHIND, "unknown", "unknown", "waits"),
    ],
    ids=["happened", "cannot tell", "cancelled", "lost before", "broken before", "ran", "lost behind", "broken behind"],
)
def test_a_report_counts_when_the_question_has_ended(end: Input, real: str, at_work: str, nothing: str) -> None:
    """The attempt that asks may be past its question, so only its end says whether the report is the truth (E4)."""
    for report, expected in ((REAL, real), (AT_WORK, at_work), (NOTHING, nothing)):
        made = asked()
        made.bring(report)
        assert made.status == "running"
        stopped = any(isinstance(effect, CancelToolCall) for effect in made.effects)
        assert stopped is (report is not NOTHING)
        made.bring(end)
        found = standing(made)
        assert found == expected or (isinstance(found, dict) and found["code"] == expected)


def test_a_call_found_at_work_is_waited_for_again() -> None:
    """The wait is for the attempt that was asked about: its outcome is the call's, any other attempt's is not."""
    made = asked()
    made.bring(AT_WORK)
    made.bring(BEFORE)
    made.bring(of(2, outcome=NOT_STARTED))
    assert made.state.refusals[-1].name == "outcome"
    made.bring(AT_WORK)
    assert made.last == WakeAfter(f"{TIMER}/2", 30_000)
    made.bring(REAL)
    assert results(made) == ["real"]
    made.bring(said("done"))
    assert made.status == "delivered"


def test_a_stored_outcome_of_the_attempt_asked_about_is_fetched() -> None:
    """Its text is read, also in a run that is told to stop meanwhile; nothing runs again."""
    made = asked()
    made.bring(of(1, stored="5" * 64))
    made.bring(BEFORE)
    assert isinstance(made.last, InvokeTool)
    assert made.last.request.recorded == "5" * 64
    assert uncertain(made) == []


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([AT_WORK, REAL], "real"),
        ([REAL, AT_WORK], "real"),
        ([NOTHING, of(2)], "not_started"),
        ([of(2), NOTHING], "unknown"),
        ([of(2), REAL], "real"),
        ([of(3), of(2, arguments_digest="0" * 64)], "unknown"),
    ],
)
def test_which_of_two_reports_counts(reports: list[OutcomeArrived], expected: str) -> None:
    """An outcome counts more than a word of being at work, and the attempt that came first more than its successor."""
    made = asked()
    for report in reports:
        made.bring(report)
    made.bring(CANNOT_TELL)
    found = standing(made)
    assert found == expected or (isinstance(found, dict) and found["code"] == expected)


def test_a_keyed_call_takes_what_it_is_told_first() -> None:
    """A key may be presented twice, so what any of its attempts answers is the call's outcome."""
    made = asked(KEYED)
    made.bring(REAL)
    made.bring(BEHIND)
    assert results(made) == ["real"]


@pytest.mark.parametrize(
    ("next_ms", "grace"), [(None, 30_000), (1_000, 30_000), (60_000, 120_000), (10**12, 1_200_000)]
)
def test_a_worker_says_when_its_next_word_comes(next_ms: int | None, grace: int) -> None:
    """The grace is twice that, so that one word may be lost, and bounded, since anybody may send signals."""
    made = open_world(tool("once", ONCE))
    made.bring(called(*calls("once")))
    made.bring(of(1, next_ms=next_ms))
    made.bring(tool_lost(abandoned=False))
    made.bring(of(1, next_ms=next_ms))
    graces = [effect.ms for effect in made.effects if isinstance(effect, WakeAfter)]
    assert graces == [grace, grace]
    assert max(graces) <= 2 * REPORT_PAUSE_MS


@pytest.mark.parametrize("end", [tool_lost(abandoned=True), BROKEN_BEHIND])
def test_a_tool_is_not_asked_while_it_may_be_at_work(end: Input) -> None:
    """Its worker has given the call up, its thread perhaps not: asked at once the tool would be right only so far."""
    made = open_world(tool("asked", ONCE, reconciles=True))
    made.bring(called(*calls("asked")))
    made.bring(end)
    assert made.last == WakeAfter(f"{TIMER}/1", 30_000)
    made.bring(TimeReached(f"{TIMER}/1"))
    assert isinstance(made.last, InvokeTool)
    assert made.last.request.reconcile
