"""The end of an `invoke_tool` activity, as the run reads it (decision 16)."""

import asyncio

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError

from orchestral_temporal.core.inputs import ToolBroken, ToolLost, ToolObserved
from orchestral_temporal.protocol.activities import Fence, Heartbeat, ToolObservation
from orchestral_temporal.protocol.digest import exact_digest, sha256
from orchestral_temporal.protocol.tools import Cancelled
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import failures

CALL = "run-1/m1/c1"
STORED = sha256(b"an outcome")
BARE = Fence(invocation_id=CALL, attempt=1, arguments_digest=exact_digest({}))


def failed(cause: BaseException, *, started: int = 6) -> ActivityError:
    """A failed activity; one that no worker had has no event of its start."""
    error = ActivityError(
        "Activity task failed",
        scheduled_event_id=5,
        started_event_id=started,
        identity="worker",
        activity_type="invoke_tool",
        activity_id="call",
        retry_state=None,
    )
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "outcome",
    [asyncio.CancelledError(), failed(CancelledError("Cancelled"), started=0)],
    ids=["never scheduled", "never started"],
)
def test_a_call_that_no_worker_had_is_cancelled(outcome: BaseException) -> None:
    """A cancel that comes before the call is anywhere leaves nothing to wait for or ask about (C5)."""
    assert failures.tool_ended(CALL, 1, outcome) == ToolObserved(CALL, 1, ToolObservation(outcome=Cancelled()))


def test_a_call_cancelled_at_its_worker_may_have_begun() -> None:
    """A bare cancel from a worker says nothing of the fence."""
    ended = failures.tool_ended(CALL, 1, failed(CancelledError("Cancelled")))
    assert ended == ToolLost(CALL, 1, abandoned=True, reason="Cancelled", fenced=True)


def test_a_broken_call_whose_outcome_is_stored_has_it() -> None:
    """A result that the server did not take as it was is read where it lies, and nobody guesses (E4)."""
    fence = BARE.model_copy(update={"stored": STORED})
    ended = failures.tool_ended(CALL, 1, failed(failures.broken(ValueError("too large"), dump(Heartbeat(fence=fence)))))
    assert ended == ToolLost(CALL, 1, abandoned=True, reason="ValueError: too large", fenced=True, stored=STORED)


@pytest.mark.parametrize(
    ("details", "fenced"), [((), True), ((dump(Heartbeat(fence=BARE)),), True), ((dump(Heartbeat()),), False)]
)
def test_a_broken_call_tells_whether_its_fence_stood(details: tuple[object, ...], *, fenced: bool) -> None:
    """Without a word of a fence nobody can exclude one."""
    fault = ApplicationError("ValueError: odd", *details, type="Broken")
    assert failures.tool_ended(CALL, 1, failed(fault)) == ToolBroken(CALL, 1, "ValueError: odd", fenced=fenced)
