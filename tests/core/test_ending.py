"""What a run leaves in its session: batches that whoever appends them can write (K14, decision 2)."""

import pytest

from orchestral_temporal.core.inputs import BatchAppended, BatchRefused, Input, OutcomeArrived
from orchestral_temporal.core.items import measure
from orchestral_temporal.core.limits import CALLS_PER_TURN, FENCE_OUTCOME_BYTES, SESSION_BATCH_BYTES
from orchestral_temporal.core.state import AppendSession, CallModel
from orchestral_temporal.protocol.activities import (
    Fence,
    ResultItem,
    SessionAppend,
    SessionAppended,
    ToolObservation,
)
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.model import ModelErrorCode
from orchestral_temporal.protocol.tools import Completed, InlineOutput, ToolConcurrency, ToolIdempotency, UnknownEffect
from orchestral_temporal.protocol.words import parse, to_json
from orchestral_temporal.runtime.session_records import seal
from tests.core.loop_world import (
    RUN,
    World,
    answered,
    binding,
    called,
    model_failed,
    model_part,
    observed,
    said,
    tool,
    tool_lost,
    tools_part,
    world,
)
from tests.core.test_loop import ECHO, cancel, failure

NOBODY = ("nobody", "{}")
ONCE = ToolIdempotency.NON_IDEMPOTENT

PAYLOAD_BYTES = 2 * 1024 * 1024
"""What the server takes as one payload."""


def batches(made: World) -> list[SessionAppend]:
    """The batches of a run so far."""
    return [effect.batch for effect in made.effects if isinstance(effect, AppendSession)]


def brought(batch: SessionAppend) -> list[str]:
    """The codes and values of the results whose texts a batch carries."""
    results = [item.part.result for item in batch.texts if isinstance(item, ResultItem)]
    assert len(results) == len(batch.texts)
    assert {measure(item).digest for item in batch.texts} <= {each for record in batch.records for each in record.items}
    return [str(each["code"]) if isinstance(each, dict) else str(each) for each in results]


def small() -> World:
    """A run whose window one large result fills."""
    return world(None, binding(model=model_part(max_context_tokens=4_000)))


def told(made: World, index: int, value: str) -> None:
    """The worker of a lost call reports its outcome by signal."""
    fence = Fence(
        invocation_id=f"{RUN}/m1/c{index}",
        attempt=1,
        arguments_digest=exact_digest({"value": "x"}),
        outcome=ToolObservation(outcome=Completed(output=InlineOutput(value=value))),
    )
    made.only(OutcomeArrived(fence))


def lost(count: int) -> World:
    """A run of which so many calls, with effects and side by side, wait for what their workers report."""
    made = world(None, binding(tools=tools_part(tool("once", ONCE, ToolConcurrency.PARALLEL_SAFE))))
    made.only(called(*[("once", ECHO[1])] * count))
    for _ in range(count):
        made.only(tool_lost(abandoned=False))
    return made


def test_a_run_that_ends_after_a_refused_call_brings_its_text() -> None:
    """No attempt will ever carry what the run wrote itself, so the last batch does, and nothing else."""
    made = small()
    made.only(called(NOBODY, ECHO))
    made.only(answered("x" * 10_000))
    assert failure(made) == ("context_overflow", False)
    (batch,) = batches(made)
    assert (batch.close, brought(batch)) == (True, ["tool_not_found"])
    assert parse(SessionAppend, to_json(batch)) == batch


def test_what_an_answered_attempt_has_carried_is_not_brought_again() -> None:
    """It stands in the history already; a batch without such texts is written as it always was."""
    made = world()
    made.only(called(NOBODY))
    made.only(said("done"))
    (batch,) = batches(made)
    assert brought(batch) == []
    assert "texts" not in to_json(batch)


@pytest.mark.parametrize("failed", [False, True])
def test_an_attempt_that_was_cancelled_may_never_have_been_sent(failed: bool) -> None:
    """Scheduled and cancelled in one task it leaves no trace, and only the batch has the text (C5)."""
    made = lost(1)
    told(made, 1, "heard late")
    assert isinstance(made.last, CallModel)
    if failed:
        made.only(model_failed(ModelErrorCode.RATE_LIMITED))
    made.only(cancel())
    assert made.status == "cancelled"
    (batch,) = batches(made)
    assert brought(batch) == ["heard late"]


@pytest.mark.parametrize("end", [said("done"), cancel()])
def test_a_batch_on_the_way_brings_its_text_and_the_last_one_does_not(end: Input) -> None:
    """A batch that goes out before its round's attempt cannot know that there will be one."""
    made = world()
    made.only(called(NOBODY, ECHO))
    made.only(answered("x" * SESSION_BATCH_BYTES))
    made.only(end)
    made.only(BatchAppended(1, SessionAppended(head="h", last_seq=2)))
    first, last = batches(made)
    assert (brought(first), brought(last), last.close) == (["tool_not_found"], [], True)


def test_a_record_that_waits_for_the_batch_before_it_keeps_its_text() -> None:
    """The text goes with its own record, however long the entity takes for the one before."""
    made = world(None, binding(model=model_part(max_context_tokens=250_000)))
    made.only(called(NOBODY, ECHO))
    made.only(answered("x" * SESSION_BATCH_BYTES))
    made.only(called(NOBODY, ECHO))
    made.only(answered("x" * SESSION_BATCH_BYTES * 2))
    assert failure(made) == ("context_overflow", False)
    made.only(BatchAppended(1, SessionAppended(head="h", last_seq=2)))
    first, last = batches(made)
    assert (brought(first), brought(last), last.close) == (["tool_not_found"], ["tool_not_found"], True)


def test_the_texts_of_the_largest_turn_fit_one_payload() -> None:
    """Every call of a turn may be heard by signal, each outcome as long as a fence takes it (decision 28)."""
    made = lost(CALLS_PER_TURN)
    room = FENCE_OUTCOME_BYTES - len(to_json(ToolObservation(outcome=Completed(output=InlineOutput(value="")))))
    for index in range(CALLS_PER_TURN):
        told(made, index + 1, '"' * (room // 2))
    made.only(cancel())
    (batch,) = batches(made)
    assert len(batch.texts) == CALLS_PER_TURN
    assert len(to_json(batch).encode()) < PAYLOAD_BYTES


def test_an_effect_about_which_nobody_says_anything_can_be_written() -> None:
    """A blank word on an unknown effect is no record of the journal, and would be tried for ever (E3)."""
    made = world(None, binding(tools=tools_part(tool("once", ONCE))))
    made.only(called(("once", ECHO[1])))
    made.only(observed(UnknownEffect(message=" ")))
    assert failure(made) == ("tool_unknown_effect", False)
    (batch,) = batches(made)
    record = seal(batch.records[-1], (), "s", RUN, 1)
    assert record.payload.type == "effect_uncertainty_committed"
    assert record.payload.message == "Nothing more is known."


def test_a_session_that_does_not_take_the_last_batch_is_said() -> None:
    """The terminal stands, the run waits for nothing more, and the view has the reason (K14)."""
    made = world()
    made.only(said("done"))
    made.only(BatchRefused(1, "it went on without it"))
    made.only(BatchRefused(1, "it went on without it"))
    assert (made.status, made.state.session is not None and made.state.session.closed) == ("delivered", True)
    (refusal,) = made.state.refusals
    assert refusal.name == "session"
    assert refusal.reason.endswith("it went on without it")
