"""The fold of a WAL to its phase, straight from the table of `spec/wal-recovery.md` §4: a second opinion for tests."""

from collections.abc import Sequence

from orchestral_temporal.protocol.wal import (
    CommandCommitted,
    GenericCheckpointRecord,
    LoopBoundaryCommitted,
    ModelAttemptObserved,
    ModelAttemptStarted,
    ModelRetryScheduled,
    ProviderEventsCommitted,
)

TERMINALS = ("delivery_committed", "run_incomplete", "run_failed", "run_cancelled")


def fold(records: Sequence[GenericCheckpointRecord]) -> str:
    """The phase after a log: `prepared`, `stable(n)`, `open(r)`, `observed(r)` or `terminal`.

    Raises:
        AssertionError: the table has no such cell, a number is missing, or an id comes twice.
    """
    state, place = "prepared", 0
    for seq, record in enumerate(records, start=1):
        assert record.checkpoint_seq == seq, "the sequence has a gap"
        match record.payload:
            case LoopBoundaryCommitted(next_model_round=next_round):
                assert (state, next_round) == ("prepared", 1) or (state in ("open", "observed") and next_round > place)
                state, place = "stable", next_round
            case ModelAttemptStarted(round=started):
                # The second case is divergence 29: another attempt of the round after one that was lost on record.
                assert (state, place) in (("stable", started), ("open", started))
                state = "open"
            case ModelAttemptObserved(round=observed):
                assert (state, place) == ("open", observed)
                state = "observed"
            case ModelRetryScheduled(round=repeated):
                assert (state, place) == ("open", repeated)
            case ProviderEventsCommitted(events=events):
                assert state != "terminal"
                state = "terminal" if events[-1].payload.type in TERMINALS else state
            case CommandCommitted():
                assert state != "terminal"
            case other:
                raise AssertionError(f"this version writes no {other.type}")
    ids = [record.event_id for record in records]
    assert len(set(ids)) == len(ids), "an event id comes twice"
    return state if state in ("prepared", "terminal") else f"{state}({place})"
