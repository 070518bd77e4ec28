"""The deadline of a run: a timer that ends whatever nothing else has ended (F1, F2; agent-loop sheet §12)."""

import pytest

from orchestral_temporal.core.inputs import Bound, CommandArrived, Input, MomentPast, SessionReady, TimeReached
from orchestral_temporal.core.loop import DEADLINE
from orchestral_temporal.core.reducer import ack
from orchestral_temporal.core.result import result
from orchestral_temporal.core.state import CallModel, CancelModelCall, CancelToolCall, StopTimer, WakeAfter, WakeAt
from orchestral_temporal.protocol.activities import SessionOpened
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelErrorCode
from orchestral_temporal.protocol.run import seal_descriptor
from orchestral_temporal.protocol.tools import Cancelled, UnknownEffect
from tests.core.loop_world import (
    World,
    answered,
    binding,
    called,
    model_failed,
    observed,
    run_part,
    start,
    tool,
    tools_part,
    world,
)
from tests.core.test_batch import ONCE, calls, uncertain
from tests.core.test_input_queue import standing, steer
from tests.core.test_loop import ECHO, cancel

MOMENT = 1_800_000_000_000
REACHED = TimeReached(DEADLINE)


def timed(*, ready: bool = True, once: bool = False) -> World:
    """A run with a deadline."""
    part = run_part()
    plain = part.descriptor.descriptor
    capabilities = plain.capabilities.model_copy(update={"supported_limits": tuple(RunLimitKind)})
    part = part.model_copy(
        update={"descriptor": seal_descriptor(plain.model_copy(update={"capabilities": capabilities}))}
    )
    tools = tools_part(tool("once", ONCE)) if once else tools_part()
    return world(start(limits={"deadline_unix_ms": MOMENT}), binding(run=part, tools=tools), ready=ready)


def check(made: World) -> None:
    """The run has ended at its deadline, keeping nothing."""
    assert made.status == "incomplete"
    value = result(made.state)
    assert value["reason"] == {"type": "limit_reached", "limit": "deadline"}
    assert value["partial_delivery"] is None
    assert made.steps[-1].events == () or made.events[-1] == "run_incomplete"


def test_a_deadline_that_is_past_starts_no_model() -> None:
    """The input is committed and the start on record, and that is all (F1)."""
    made = timed(ready=False)
    assert any(effect == WakeAt(DEADLINE, MOMENT) for effect in made.effects)
    made.bring(MomentPast(DEADLINE))
    assert made.status == "accepted"
    made.bring(steer("s1", "more"))
    assert standing(made, "s1") == "rejected"
    made.bring(SessionReady(SessionOpened()))
    check(made)
    assert made.events[-2:] == ["run_started", "run_incomplete"]
    assert made.wal[1:] == ["loop_boundary_committed", "provider_events_committed", "provider_events_committed"]
    assert not any(isinstance(effect, CallModel) for effect in made.effects)


def test_a_deadline_stops_the_model() -> None:
    """The attempt is cancelled; what came of it is dropped (F2)."""
    made = timed()
    made.bring(REACHED)
    check(made)
    assert any(isinstance(effect, CancelModelCall) for effect in made.effects)


def test_a_deadline_ends_the_pause_before_a_retry() -> None:
    """A provider's wish to be left alone for longer moves no deadline (divergence 7)."""
    made = timed()
    made.bring(model_failed(ModelErrorCode.UNAVAILABLE))
    wake = made.last
    assert isinstance(wake, WakeAfter)
    made.bring(REACHED)
    check(made)
    assert any(effect == StopTimer(wake.timer) for effect in made.effects)


@pytest.mark.parametrize("end", [answered("x"), observed(Cancelled())])
def test_a_deadline_tells_the_tools_and_hears_them(end: Input) -> None:
    """No further call is made, no steer is taken, a cancel comes too late, and the terminal waits for the call."""
    made = timed()
    made.bring(called(ECHO, ECHO))
    made.bring(REACHED)
    assert any(isinstance(effect, CancelToolCall) for effect in made.effects)
    made.bring(REACHED)
    late: CommandArrived
    for late in (steer("s1", "more"), cancel("c1")):
        made.bring(late)
    assert [standing(made, each) for each in ("s1", "c1")] == ["rejected", "rejected"]
    assert made.status == "running"
    made.bring(end)
    check(made)


def test_an_unknown_effect_is_remembered_past_the_deadline() -> None:
    """The run ends at its deadline; that nobody knows the effect stands in the session (E3)."""
    made = timed(once=True)
    made.bring(called(*calls("once")))
    made.bring(REACHED)
    made.bring(observed(UnknownEffect(message="told to stop while at work")))
    check(made)
    assert len(uncertain(made)) == 1


def test_what_has_ended_or_is_ending_ends_so() -> None:
    """The first stop wins: a cancel that came before the deadline ends the run as cancelled."""
    made = timed()
    made.bring(called(ECHO))
    made.bring(cancel("c1"))
    made.bring(REACHED)
    made.bring(observed(Cancelled()))
    assert made.status == "cancelled"
    made.bring(REACHED)
    assert made.status == "cancelled"
    assert ack(made.state.run, "c1").state.state == "applied"


@pytest.mark.parametrize("past", [True, False])
def test_a_deadline_ends_a_run_that_cannot_begin(past: bool) -> None:
    """No worker serves the model, or the session does not open: the run is not open for ever."""
    made = timed(ready=False)
    if past:
        made.bring(MomentPast(DEADLINE))
        assert isinstance(made.last, WakeAfter)
        assert made.last.timer == DEADLINE
    made.bring(REACHED)
    check(made)
    made.bring(Bound(binding()))
    made.bring(SessionReady(SessionOpened()))
    check(made)
    assert "run_started" not in made.events
