"""The calls of one turn: groups side by side, lost calls, late outcomes (`spec/agent-loop.md` §9, decision 16)."""

import pytest

from orchestral_temporal.core.inputs import BatchRefused, OutcomeArrived, TimeReached, ToolBroken, ToolObserved
from orchestral_temporal.core.limits import ATTEMPTS_PER_CALL, SESSION_BATCH_BYTES
from orchestral_temporal.core.result import result
from orchestral_temporal.core.state import (
    AppendSession,
    CallModel,
    CancelModelCall,
    CancelToolCall,
    InvokeTool,
    StopTimer,
    WakeAfter,
)
from orchestral_temporal.protocol.activities import BoundTool, Fence, ToolObservation
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.model import ModelErrorCode
from orchestral_temporal.protocol.tools import (
    Cancelled,
    Completed,
    InlineOutput,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    UnknownEffect,
)
from tests.core.loop_world import (
    RUN,
    THERE,
    World,
    answered,
    binding,
    called,
    model_failed,
    observed,
    said,
    start,
    tool,
    tool_lost,
    tools_part,
    world,
)
from tests.core.test_loop import cancel, failure

SAFE = ToolConcurrency.PARALLEL_SAFE
ONCE = ToolIdempotency.NON_IDEMPOTENT
KEYED = ToolIdempotency.IDEMPOTENT_WITH_KEY
ARGUMENTS: JsonObject = {"value": "x"}


def calls(*names: str) -> list[tuple[str, str]]:
    """Calls of a turn, each with the same arguments."""
    return [(name, '{"value":"x"}') for name in names]


def open_world(*tools: BoundTool, **limits: int) -> World:
    """A run with these tools."""
    return world(start(limits=dict(limits)), binding(tools=tools_part(*tools)))


def invoked(made: World) -> list[tuple[str, int]]:
    """Every attempt of a call so far: name and attempt."""
    return [(effect.name, effect.request.attempt) for effect in made.effects if isinstance(effect, InvokeTool)]


def answer(made: World, index: int, value: str) -> None:
    """Answer the call at a place of its turn."""
    answer_of = answered(value).observation
    made.bring(ToolObserved(f"{RUN}/m{made.state.round}/c{index}", 1, answer_of))


def results(made: World) -> list[object]:
    """The results that the newest attempt carries."""
    effect = next(each for each in reversed(made.effects) if isinstance(each, CallModel))
    return [item.part.result for item in effect.attempt.tail if item.kind == "result"]


def test_parallel_safe_neighbours_run_side_by_side() -> None:
    """Safe neighbours start together, others alone, and results reach the model in call order (E7, divergence 4)."""
    made = open_world(tool("safe", concurrency=SAFE), tool("lone"))
    made.bring(called(*calls("safe", "safe", "lone", "safe")))
    assert invoked(made) == [("safe", 1)] * 2
    answer(made, 2, "second")
    assert invoked(made) == [("safe", 1)] * 2
    answer(made, 1, "first")
    assert invoked(made)[2:] == [("lone", 1)]
    answer(made, 3, "third")
    assert invoked(made)[3:] == [("safe", 1)]
    answer(made, 4, "fourth")
    assert results(made) == ["first", "second", "third", "fourth"]
    assert made.state.tool_calls == 4


def test_a_refused_call_does_not_split_a_group() -> None:
    """What the run itself refuses needs no worker, so its neighbours still run side by side."""
    made = open_world(tool("safe", concurrency=SAFE))
    made.bring(called(*calls("safe", "nobody", "safe")))
    assert invoked(made) == [("safe", 1)] * 2


def test_the_call_limit_is_reserved_before_a_group_starts() -> None:
    """A group is cut to what is left of the limit, and the run ends there (F5, divergence 4)."""
    made = open_world(tool("safe", concurrency=SAFE), max_tool_calls=2)
    made.bring(called(*calls("safe", "safe", "safe")))
    assert invoked(made) == [("safe", 1)] * 2
    answer(made, 1, "x")
    assert made.status == "running"
    answer(made, 2, "x")
    assert result(made.state)["reason"] == {"type": "limit_reached", "limit": "tool_calls"}


def test_a_fatal_outcome_lets_the_others_of_its_group_settle() -> None:
    """The run ends when the last of the group is known; what comes after the group never starts (divergence 4)."""
    made = open_world(tool("safe", concurrency=SAFE), tool("lone"))
    made.bring(called(*calls("safe", "safe", "safe", "lone")))
    made.bring(ToolObserved(f"{RUN}/m1/c2", 1, ToolObservation(outcome=UnknownEffect(message="who knows"))))
    answer(made, 1, "x")
    assert made.status == "running"
    answer(made, 3, "x")
    assert failure(made) == ("tool_unknown_effect", False)
    assert len(invoked(made)) == 3


def test_an_answer_that_comes_twice_or_for_nothing_changes_nothing() -> None:
    """Answers name the attempt they are for."""
    made = open_world(tool("safe", concurrency=SAFE))
    made.bring(called(*calls("safe", "safe")))
    answer(made, 1, "first")
    before = made.state
    answer(made, 1, "again")
    made.bring(ToolObserved(f"{RUN}/m1/c2", 2, answered("x").observation))
    made.bring(ToolObserved(f"{RUN}/m7/c1", 1, answered("x").observation))
    assert made.state == before


def test_cancel_stops_every_open_call_and_waits_for_all() -> None:
    """Each open call is told, each is heard, then the run ends cancelled (C5, F016)."""
    made = open_world(tool("safe", concurrency=SAFE), tool("once", ONCE, SAFE), tool("lone"))
    made.bring(called(*calls("safe", "safe", "once", "lone")))
    answer(made, 1, "x")
    made.bring(cancel())
    told = [effect.invocation_id for effect in made.effects if isinstance(effect, CancelToolCall)]
    assert told == [f"{RUN}/m1/c2", f"{RUN}/m1/c3"]
    made.bring(tool_lost(abandoned=True, fenced=False))
    assert made.status == "running"
    made.bring(tool_lost(abandoned=False))
    assert made.status == "cancelled"
    assert uncertain(made) == [f"{RUN}/m1/c3"]


def uncertain(made: World) -> list[str]:
    """The calls of which the session says that nobody knows their effect."""
    batches = [effect.batch for effect in made.effects if isinstance(effect, AppendSession)]
    found = [each.uncertainty for batch in batches for each in batch.records]
    return [each.effect_call_id for each in found if each is not None]


def lost_once(*, reconciles: bool = False, grace: int = 30_000) -> World:
    """A run whose fenced call of a tool that must not run twice was lost."""
    made = open_world(tool("once", ONCE, reconciles=reconciles))
    made.state = made.state.model_copy(update={"uncertainty_grace_ms": grace})
    made.bring(called(*calls("once")))
    made.bring(tool_lost(abandoned=False))
    return made


def fence(outcome: str | None = None, stored: str | None = None) -> OutcomeArrived:
    """What a worker reports of the first call."""
    told = ToolObservation(outcome=Completed(output=InlineOutput(value=outcome))) if outcome is not None else None
    return OutcomeArrived(
        Fence(
            invocation_id=f"{RUN}/m1/c1",
            attempt=1,
            arguments_digest=exact_digest(ARGUMENTS),
            outcome=told,
            stored=stored,
        )
    )


def test_a_lost_effect_is_unknown_after_the_grace() -> None:
    """Fence only, no hook: the outcome is waited for, then said to be unknown, and the call never runs again (E4)."""
    made = lost_once(grace=10_000)
    assert made.last == WakeAfter(f"grace/{RUN}/m1/c1/1", 10_000)
    made.bring(TimeReached("grace/another/1"))
    assert made.status == "running"
    made.bring(TimeReached(f"grace/{RUN}/m1/c1/1"))
    assert failure(made) == ("tool_unknown_effect", False)
    assert uncertain(made) == [f"{RUN}/m1/c1"]
    assert invoked(made) == [("once", 1)]


def test_a_late_outcome_is_the_outcome() -> None:
    """Within the grace the worker's report settles the call, and its text rides with the next attempt (decision 16)."""
    made = lost_once()
    made.bring(fence("real"))
    assert any(isinstance(effect, StopTimer) for effect in made.effects)
    assert results(made) == ["real"]
    made.bring(said("done"))
    assert made.status == "delivered"
    assert invoked(made) == [("once", 1)]


def test_a_report_may_come_before_the_loss_it_answers() -> None:
    """In one activation signals are seen before results, so a report is kept until the loss is known."""
    made = open_world(tool("once", ONCE))
    made.bring(called(*calls("once")))
    made.bring(fence("real"))
    made.bring(fence())
    made.bring(tool_lost(abandoned=False))
    assert results(made) == ["real"]


def test_a_call_still_at_work_is_waited_for_anew() -> None:
    """A worker that the server has given up says that it goes on: each time the grace begins again."""
    made = open_world(tool("once", ONCE))
    made.bring(called(*calls("once")))
    made.bring(fence())
    made.bring(tool_lost(abandoned=False))
    made.bring(fence())
    made.bring(fence())
    graces = [effect for effect in made.effects if isinstance(effect, WakeAfter)]
    assert len(graces) == 3
    made.bring(fence("real"))
    assert results(made) == ["real"]


def test_an_outcome_kept_elsewhere_is_fetched() -> None:
    """A report too large for a signal or a heartbeat names the observation in the artifact store (decision 15)."""
    made = lost_once()
    made.bring(fence(stored="5" * 64))
    again = made.last
    assert isinstance(again, InvokeTool)
    assert (again.request.attempt, again.request.recorded) == (2, "5" * 64)
    made.bring(tool_lost(abandoned=True))
    third = made.last
    assert isinstance(third, InvokeTool)
    assert (third.request.attempt, third.request.recorded) == (3, "5" * 64)
    made.bring(answered("real"))
    assert results(made) == ["real"]


def test_a_fence_that_names_a_stored_outcome_is_fetched_at_once() -> None:
    """The last heartbeat of a lost call may hold the reference."""
    made = open_world(tool("once", ONCE))
    made.bring(called(*calls("once")))
    made.bring(tool_lost(abandoned=False, stored="6" * 64))
    again = made.last
    assert isinstance(again, InvokeTool)
    assert again.request.recorded == "6" * 64


@pytest.mark.parametrize("wrong", [{"attempt": 2}, {"arguments_digest": "0" * 64}, {"invocation_id": "other/m1/c1"}])
def test_a_report_of_another_attempt_is_refused_on_record(wrong: dict[str, object]) -> None:
    """A report must name this run's call, its attempt and its exact arguments; else it stands in the view."""
    made = lost_once()
    made.bring(OutcomeArrived(fence("x").fence.model_copy(update=wrong)))
    assert made.state.refusals[-1].name == "outcome"
    assert made.state.phase.at == "tools"
    made.bring(TimeReached(f"grace/{RUN}/m1/c1/1"))
    assert failure(made) == ("tool_unknown_effect", False)


def test_a_report_when_no_call_is_open_is_refused_on_record() -> None:
    """After its turn a report is too late; it changes nothing."""
    made = world()
    made.bring(fence("x"))
    assert made.state.refusals[-1].name == "outcome"
    assert made.status == "running"


@pytest.mark.parametrize("abandoned", [True, False])
def test_a_tool_that_can_tell_is_asked(abandoned: bool) -> None:
    """A reconcile hook is asked for the lost effect after the grace."""
    made = open_world(tool("once", ONCE, reconciles=True))
    made.bring(called(*calls("once")))
    made.bring(tool_lost(abandoned=abandoned))
    assert isinstance(made.last, WakeAfter)
    made.bring(TimeReached(made.last.timer))
    asked = made.last
    assert isinstance(asked, InvokeTool)
    assert (asked.request.attempt, asked.request.reconcile) == (2, True)
    made.bring(tool_lost(abandoned=False, fenced=False))
    again = made.last
    assert isinstance(again, InvokeTool)
    assert (again.request.attempt, again.request.reconcile) == (3, True)
    made.bring(answered("it happened"))
    assert results(made) == ["it happened"]


def test_a_worker_that_gives_a_fenced_call_up_makes_it_unknown_at_once() -> None:
    """Nobody will report any more, so nothing is waited for (F088)."""
    made = open_world(tool("once", ONCE))
    made.bring(called(*calls("once")))
    made.bring(tool_lost(abandoned=True))
    assert failure(made) == ("tool_unknown_effect", False)


def test_a_call_that_was_never_let_loose_runs_again() -> None:
    """No fence on record means no effect, whatever the class (decision 16)."""
    made = open_world(tool("once", ONCE))
    made.bring(called(*calls("once")))
    made.bring(tool_lost(abandoned=False, fenced=False))
    assert invoked(made) == [("once", 1), ("once", 2)]
    assert made.events[-2:] == ["continuity_lost", "continuity_restored"]


def test_a_keyed_call_still_at_work_is_presented_again_after_the_grace() -> None:
    """Its key makes that safe, and its worker may be dead by now."""
    made = open_world(tool("keyed", KEYED))
    made.bring(called(*calls("keyed")))
    made.bring(fence())
    made.bring(tool_lost(abandoned=False))
    assert invoked(made) == [("keyed", 1)]
    made.bring(TimeReached(f"grace/{RUN}/m1/c1/1"))
    assert invoked(made) == [("keyed", 1), ("keyed", 2)]


@pytest.mark.parametrize("kind", [ToolIdempotency.PURE, KEYED])
def test_a_call_that_ends_every_worker_ends_itself(kind: ToolIdempotency) -> None:
    """Attempts are bounded: then the model is told, or, of a fenced call, that nobody knows."""
    made = open_world(tool("killer", kind))
    made.bring(called(*calls("killer")))
    for _ in range(ATTEMPTS_PER_CALL):
        made.bring(tool_lost(abandoned=False))
    assert len(invoked(made)) == ATTEMPTS_PER_CALL
    if kind is KEYED:
        assert failure(made) == ("tool_unknown_effect", False)
    else:
        assert "worker_lost" in str(results(made))


@pytest.mark.parametrize("kind", [ToolIdempotency.PURE, KEYED])
def test_cancel_of_a_lost_call_that_may_run_again_has_no_effect_to_report(kind: ToolIdempotency) -> None:
    """It is not started again; the run ends cancelled without an uncertainty (`spec/tools.md` §11)."""
    made = open_world(tool("echo", kind))
    made.bring(called(*calls("echo")))
    made.bring(cancel())
    made.bring(tool_lost(abandoned=False))
    assert made.status == "cancelled"
    assert uncertain(made) == []


def test_cancel_ends_the_wait_for_an_uncertain_call() -> None:
    """Whoever cancels does not wait for the grace; the uncertainty is on record (F016)."""
    made = lost_once(reconciles=True)
    made.bring(cancel())
    assert made.status == "cancelled"
    assert uncertain(made) == [f"{RUN}/m1/c1"]
    assert isinstance(made.effects[-2], StopTimer)


@pytest.mark.parametrize(
    ("kind", "fenced", "unknown"),
    [
        (ToolIdempotency.IDEMPOTENT, True, False),
        (KEYED, False, False),
        (KEYED, True, True),
        (ONCE, False, False),
        (ONCE, True, True),
    ],
)
def test_a_broken_worker_is_believed_only_before_the_fence(kind: ToolIdempotency, fenced: bool, unknown: bool) -> None:
    """Where an effect is possible nobody guesses; elsewhere the model is told (E4)."""
    made = open_world(tool("echo", kind))
    made.bring(called(*calls("echo")))
    made.bring(ToolBroken(*THERE, "KeyError: 'x'", fenced=fenced))
    if unknown:
        assert failure(made) == ("tool_unknown_effect", False)
    else:
        assert "tool_internal" in str(results(made))


def test_each_step_of_a_call_is_noted() -> None:
    """The effect journal of a call is the fold of its notes (`spec/tools.md` §14)."""
    made = open_world(tool("once", ONCE), tool("echo"))
    made.bring(called(*calls("echo", "nobody", "once")))
    made.bring(answered("x"))
    made.bring(tool_lost(abandoned=False))
    made.bring(TimeReached(f"grace/{RUN}/m1/c3/1"))
    notes = [(note.tool, note.at, note.said) for step in made.steps for note in step.notes]
    assert notes == [
        ("echo", "prepared", ""),
        ("echo", "invoked", ""),
        ("echo", "observed", "completed"),
        ("echo", "committed", "completed"),
        ("nobody", "committed", "rejected"),
        ("once", "prepared", ""),
        ("once", "invoked", ""),
        ("once", "lost", "gone"),
        ("once", "unknown_effect", "The call was lost: gone"),
    ]


def test_an_unknown_effect_of_a_cancelled_call_is_remembered() -> None:
    """The worker's own word that it does not know is kept also when the run is stopping."""
    made = open_world(tool("once", ONCE))
    made.bring(called(*calls("once")))
    made.bring(cancel())
    made.bring(observed(UnknownEffect(message="?")))
    assert made.status == "cancelled"
    assert uncertain(made) == [f"{RUN}/m1/c1"]


@pytest.mark.parametrize("kind", [KEYED, ONCE])
def test_a_later_attempt_does_not_settle_an_earlier_one(kind: ToolIdempotency) -> None:
    """What breaks before its own fence says nothing of the attempt that was lost behind one (E4)."""
    made = open_world(tool("echo", kind, reconciles=True))
    made.bring(called(*calls("echo")))
    made.bring(tool_lost(abandoned=True))
    if kind is ONCE:
        made.bring(TimeReached(f"grace/{RUN}/m1/c1/1"))
    assert invoked(made) == [("echo", 1), ("echo", 2)]
    for _ in range(ATTEMPTS_PER_CALL):
        made.bring(ToolBroken(*THERE, "KeyError: 'x'", fenced=False))
    assert failure(made) == ("tool_unknown_effect", False)


def test_a_keyed_attempt_that_did_not_start_is_made_again() -> None:
    """A frozen worker reports that nothing ran; the attempt before it may have, so the key is presented again."""
    made = open_world(tool("keyed", KEYED))
    made.bring(called(*calls("keyed")))
    made.bring(tool_lost(abandoned=False))
    made.bring(OutcomeArrived(fence().fence.model_copy(update={"attempt": 2})))
    made.bring(tool_lost(abandoned=False))
    nothing = ToolObservation(outcome=Rejected(code="not_started", message="frozen"))
    made.bring(OutcomeArrived(fence().fence.model_copy(update={"attempt": 2, "outcome": nothing})))
    assert invoked(made) == [("keyed", 1), ("keyed", 2), ("keyed", 3)]


def test_an_attempt_that_did_not_start_is_told_to_the_model() -> None:
    """Of a call that had one attempt only, it is the whole truth."""
    made = lost_once()
    nothing = ToolObservation(outcome=Rejected(code="not_started", message="frozen"))
    made.bring(OutcomeArrived(fence().fence.model_copy(update={"outcome": nothing})))
    assert "not_started" in str(results(made))


def test_a_question_that_is_cancelled_before_it_is_asked_leaves_the_effect_unknown() -> None:
    """Only the question was certainly not asked; the attempt before it may have had its effect (E3, F016)."""
    made = open_world(tool("once", ONCE, reconciles=True))
    made.bring(called(*calls("once")))
    made.bring(tool_lost(abandoned=True))
    made.bring(TimeReached(f"grace/{RUN}/m1/c1/1"))
    made.bring(cancel())
    made.bring(observed(Cancelled()))
    assert made.status == "cancelled"
    assert uncertain(made) == [f"{RUN}/m1/c1"]


def test_a_session_that_is_lost_waits_for_the_calls_at_work() -> None:
    """The calls are told and heard before the run fails, so that no effect is without a word (E3)."""
    made = open_world(tool("safe", concurrency=SAFE))
    made.only(called(*calls("safe")))
    made.only(answered("x" * SESSION_BATCH_BYTES))
    made.only(called(*calls("safe", "safe")))
    made.only(BatchRefused(1, "the session is gone"))
    assert made.status == "running"
    made.only(answered("x"))
    made.only(observed(Cancelled()))
    assert failure(made) == ("session_journal", True)


def test_a_session_that_is_lost_stops_the_model_or_the_pause_before_it() -> None:
    """Nothing goes on for a run that can be kept nowhere; a refusal of another batch changes nothing (C5, K14)."""
    for waiting in (True, False):
        made = open_world(tool("safe", concurrency=SAFE))
        made.only(called(*calls("safe")))
        made.only(answered("x" * SESSION_BATCH_BYTES))
        if waiting:
            made.only(model_failed(ModelErrorCode.UNAVAILABLE))
        made.only(BatchRefused(2, "another batch"))
        assert made.status == "running"
        made.only(BatchRefused(1, "the session is gone"))
        assert failure(made) == ("session_journal", True)
        assert any(isinstance(effect, CancelModelCall) for effect in made.effects) is not waiting
