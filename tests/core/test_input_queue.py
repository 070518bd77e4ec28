"""Steers and queued input in the loop (C3, C7; agent-loop sheet §11, reducer sheet §7.4)."""

import pytest

from orchestral_temporal.core.batch import yield_wanted
from orchestral_temporal.core.inputs import CommandArrived, CommandsRead, TimeReached
from orchestral_temporal.core.limits import (
    ANSWERS_BYTES,
    CALLS_PER_TURN,
    FENCE_OUTCOME_BYTES,
    QUEUE_BYTES,
    QUEUED_INPUTS,
    TAIL_BYTES,
)
from orchestral_temporal.core.reducer import ack
from orchestral_temporal.core.state import AppendSession, CallModel, CancelModelCall, InvokeTool, StopTimer, WakeAfter
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.commands import INPUT_QUEUE, Steer, seal_command
from orchestral_temporal.protocol.content import Content, stored_text, text_content
from orchestral_temporal.protocol.events import InputCommitted
from orchestral_temporal.protocol.model import ModelErrorCode
from tests.core.loop_world import RUN, World, answered, called, model_failed, said, start, world
from tests.core.test_loop import ECHO, cancel


def steer(command_id: str, *texts: str | Content, **operation: Json) -> CommandArrived:
    """A steer, or a queue operation, as it arrives."""
    contents = tuple(each if isinstance(each, Content) else text_content(each) for each in texts or ("go",))
    extensions: dict[str, Json] = {INPUT_QUEUE: dict(operation)} if operation else {}
    return CommandArrived(seal_command(command_id, RUN, Steer(content=contents), extensions=extensions))


def queued(command_id: str, text: str) -> CommandArrived:
    """Input that waits for the boundary."""
    return steer(command_id, text, operation="enqueue")


def committed(made: World) -> list[tuple[str | None, str]]:
    """The inputs of the journal: the command behind each, and its text."""
    return [
        (record.event.causation_id, str(record.event.payload.content[0].body.value))
        for step in made.steps
        for record in step.events
        if isinstance(record.event.payload, InputCommitted)
    ]


def standing(made: World, command_id: str) -> str:
    """What has become of a command."""
    return ack(made.state.run, command_id).state.state


def read(made: World, *given: CommandArrived) -> None:
    """Commands that are at hand together, and the word that there are no more."""
    for each in given:
        made.bring(each)
    made.bring(CommandsRead())


def sent(made: World) -> list[tuple[int, list[str]]]:
    """Each model attempt: its round, and the texts that ride with it."""
    return [
        (effect.attempt.round, [str(item.model_dump()) for item in effect.attempt.tail])
        for effect in made.effects
        if isinstance(effect, CallModel)
    ]


def test_a_steer_voids_the_open_attempt_and_the_next_round_carries_it() -> None:
    """The journal is that of the sheet, the WAL too: input, boundary, next attempt; the lost one is charged (§15)."""
    made = world()
    read(made, steer("s1", "use the staging database"))
    assert any(isinstance(effect, CancelModelCall) for effect in made.effects)
    assert made.events[2:] == ["command_received", "command_disposition_recorded", "input_committed"]
    assert made.wal[2:] == [
        "model_attempt_started",
        "command_committed",
        "provider_events_committed",
        "loop_boundary_committed",
        "model_attempt_started",
    ]
    round_, tail = sent(made)[-1]
    assert round_ == 2
    assert "use the staging database" in tail[-1]
    assert made.state.usage.output_tokens == 1_000
    assert standing(made, "s1") == "applied"
    made.bring(said("done"))
    assert made.events[5:] == ["output_committed", "delivery_committed"]
    batches = [effect.batch for effect in made.effects if isinstance(effect, AppendSession)]
    assert [each.type for batch in batches for each in batch.records] == [
        "run_input_committed",
        "run_input_committed",
        "run_output_committed",
    ]


def test_a_burst_shares_one_round_in_order() -> None:
    """A hundred steers that are at hand together reach the model in order, and void one attempt (C3, B7)."""
    made = world()
    read(made, *(steer(f"s{number}", f"step {number}") for number in range(100)))
    assert committed(made) == [(f"s{number}", f"step {number}") for number in range(100)]
    assert [round_ for round_, _ in sent(made)] == [1, 2]
    assert len(sent(made)[-1][1]) == 100


def test_queued_input_waits_for_the_boundary() -> None:
    """It disturbs no attempt; an answer that is there before it was read is kept, and not delivered (C7)."""
    made = world()
    read(made, queued("q1", "and then the tests"))
    assert [round_ for round_, _ in sent(made)] == [1]
    assert standing(made, "q1") == "accepted"
    made.bring(said("Half of it."))
    assert made.status == "running"
    assert committed(made) == [("q1", "and then the tests")]
    made.bring(said("All of it."))
    assert made.status == "delivered"
    assert made.events.count("output_committed") == 1


def test_an_answer_that_meets_a_steer_is_kept_and_not_delivered() -> None:
    """Both are there in one task: no attempt is lost, and the steer stands in the next request (F031)."""
    made = world()
    made.bring(steer("s1", "wait"))
    made.bring(said("Half of it."))
    made.bring(CommandsRead())
    assert not any(isinstance(effect, CancelModelCall) for effect in made.effects)
    assert standing(made, "s1") == "applied"
    assert "wait" in sent(made)[-1][1][-1]
    made.bring(said("All of it."))
    made.bring(steer("s2", "too late"))
    assert made.status == "delivered"
    assert made.state.refusals[-1].reason.startswith("terminal_run")


def test_the_six_queue_operations() -> None:
    """A replacement keeps the place under its own id, a chain of them too; what is withdrawn never comes (C7)."""
    made = world()
    for given in (
        queued("q1", "one"),
        queued("q2", "two"),
        steer("r1", "ONE", operation="replace", target="q1"),
        steer("r2", "One!", operation="replace", target="r1"),
        steer("w1", operation="withdraw", target="q2"),
        queued("q3", "three"),
    ):
        read(made, given, given)
    made.bring(said("So far."))
    assert committed(made) == [("r2", "One!"), ("q3", "three")]
    assert {each: standing(made, each) for each in ("q1", "q2", "r1", "w1")} == dict.fromkeys(
        ("q1", "q2", "r1", "w1"), "accepted"
    )
    assert [standing(made, each) for each in ("r2", "q3")] == ["applied", "applied"]
    read(made, steer("late", "no", operation="replace", target="r2"))
    read(made, steer("later", operation="withdraw", target="q3"))
    assert [standing(made, each) for each in ("late", "later")] == ["rejected", "rejected"]


def test_only_queued_input_is_edited() -> None:
    """A plain steer is on its way to the model, and cannot be replaced or withdrawn any more (row 6)."""
    made = world(ready=False)
    read(made, steer("s1", "now"), steer("w1", operation="withdraw", target="s1"))
    assert standing(made, "w1") == "rejected"
    assert [each.command_id for each in made.state.queue] == ["s1"]


@pytest.mark.parametrize("content", [text_content(""), stored_text("0" * 64)])
def test_a_steer_says_something_in_text(content: Content) -> None:
    """Other contents are rejected, and nothing is disturbed (row 9)."""
    made = world()
    read(made, steer("s1", content))
    assert standing(made, "s1") == "rejected"
    assert [round_ for round_, _ in sent(made)] == [1]


def test_what_waits_is_bounded() -> None:
    """So many inputs, so many bytes; a replacement may not pass the bound either, and a withdrawal makes room."""
    made = world()
    for number in range(QUEUED_INPUTS):
        read(made, queued(f"q{number}", "x"))
    read(made, queued("over", "x"))
    assert standing(made, "over") == "rejected"
    read(made, steer("w", operation="withdraw", target="q0"), queued("fits", "x"))
    assert standing(made, "fits") == "accepted"
    read(made, steer("r", "x" * QUEUE_BYTES, operation="replace", target="q1"))
    assert standing(made, "r") == "rejected"


def test_what_may_ride_together_fits_one_request() -> None:
    """Input that waits, answers to questions and late outcomes of one turn stay below the 2 MiB of a payload."""
    assert QUEUE_BYTES + ANSWERS_BYTES + CALLS_PER_TURN * FENCE_OUTCOME_BYTES + TAIL_BYTES < 1_800_000


def test_a_steer_comes_before_the_run_has_begun() -> None:
    """It waits, and round 1 begins with it."""
    made = world(ready=False)
    read(made, steer("s1", "first"))
    assert made.events == ["run_accepted", "command_received", "command_disposition_recorded"]
    assert standing(made, "s1") == "accepted"


def test_a_steer_during_a_tool_waits_for_its_result() -> None:
    """The call is not disturbed; boundary, input, next attempt (§15)."""
    made = world()
    made.bring(called(ECHO))
    read(made, steer("s1", "and quickly"))
    assert not any(isinstance(effect, CancelModelCall) for effect in made.effects)
    assert isinstance(made.last, InvokeTool)
    made.bring(answered("x"))
    assert made.wal[-4:] == [
        "command_committed",
        "loop_boundary_committed",
        "provider_events_committed",
        "model_attempt_started",
    ]
    assert committed(made) == [("s1", "and quickly")]


def test_a_steer_ends_the_pause_before_a_retry() -> None:
    """The timer is stopped, and the next round begins at once."""
    made = world()
    made.bring(model_failed(ModelErrorCode.UNAVAILABLE, retryable=True))
    wake = made.last
    assert isinstance(wake, WakeAfter)
    read(made, steer("s1", "never mind"))
    assert any(isinstance(effect, StopTimer) and effect.timer == wake.timer for effect in made.effects)
    assert sent(made)[-1][0] == 2
    made.bring(TimeReached(wake.timer))
    assert len(sent(made)) == 2


@pytest.mark.parametrize(("given", "events"), [(steer("s1", "more"), 1), (queued("q1", "more"), 0)])
def test_the_last_step_takes_no_more_input(given: CommandArrived, events: int) -> None:
    """A run at its step limit ends there: what was not read stays accepted, an answer in hand is kept as partial."""
    made = world(start(limits={"max_model_steps": 1}))
    read(made, given)
    if not events:
        made.bring(said("Half of it."))
    assert made.status == "incomplete"
    assert len(committed(made)) == events


def test_a_run_that_is_stopping_takes_no_command() -> None:
    """Whatever its kind, it is rejected on record (reducer sheet, §7.4 row 3)."""
    made = world()
    made.bring(called(ECHO))
    made.bring(cancel())
    read(made, steer("s1", "wait"), queued("q1", "wait"))
    assert [standing(made, each) for each in ("s1", "q1")] == ["rejected", "rejected"]
    assert made.state.queue == ()


def test_a_call_had_better_yield_while_a_plain_steer_waits_for_its_turn() -> None:
    """Queued input waits for the boundary and asks nobody; a call of another turn is not asked (C4, §11)."""
    made = world()
    made.bring(called(ECHO))
    mine = f"{RUN}/m1/c1"
    wanted = [yield_wanted(made.state, mine)]
    for given in (queued("q1", "later"), steer("s1", "now")):
        made.bring(given)
        wanted.append(yield_wanted(made.state, mine))
    assert wanted == [False, False, True]
    assert not yield_wanted(made.state, f"{RUN}/m2/c1")
    made.bring(answered("x"))
    assert not yield_wanted(made.state, mine)
