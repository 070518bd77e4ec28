"""The session entity's decisions (decision 2)."""

import pytest

from orchestral_temporal.core.limits import NAME_BYTES, SETTLEMENT_BYTES
from orchestral_temporal.core.session import (
    SessionState,
    admit_append,
    admit_open,
    admit_settle,
    append,
    forget,
    open_run,
    read,
    settle,
)
from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.protocol.activities import EffectSettled, EffectSettlement, SessionBatch, SessionOpen
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError

EMPTY = SessionState(session_id="s")


def wanted(run_id: str = "r1", spec: str = "a", execution: str = "e1", release: str | None = None) -> SessionOpen:
    """A run asks for the session."""
    return SessionOpen(session_id="s", run_id=run_id, spec_digest=spec, execution=execution, release=release)


def batch(
    number: int,
    first: int,
    last: int,
    head: str | None,
    *,
    close: bool = False,
    run: str = "r1",
    execution: str | None = "e1",
    then: str | None = None,
) -> SessionBatch:
    """A batch whose records are not looked at here; `then` is the head after it."""
    return SessionBatch(
        run_id=run,
        number=number,
        expected_head=head,
        head=then or f"h{last}",
        first_seq=first,
        last_seq=last,
        close=close,
        execution=execution,
    )


def opened(state: SessionState, asked: SessionOpen) -> SessionState:
    """The state after an admitted open."""
    admit_open(state, asked)
    return open_run(state, asked)[0]


def added(state: SessionState, given: SessionBatch) -> SessionState:
    """The state after an admitted append."""
    admit_append(state, given)
    return append(state, given)[0]


def test_one_run_at_a_time() -> None:
    """A second run is refused and told who holds the session; asking twice for oneself changes nothing."""
    state = opened(EMPTY, wanted())
    assert opened(state, wanted()) == state
    with pytest.raises(StartRefused) as refused:
        admit_open(state, wanted("r2"))
    assert refused.value.rejection.details == {"holder": "r1"}
    assert opened(state, wanted("r2", release="r1")).active == "r2"


def test_a_run_id_is_bound_to_its_spec() -> None:
    """The same id under another spec is refused, open or closed (I6)."""
    state = opened(EMPTY, wanted())
    with pytest.raises(StartRefused) as refused:
        admit_open(state, wanted(spec="b"))
    assert refused.value.rejection.code == "run_id_conflict"


def test_a_closed_run_is_served_by_its_old_execution() -> None:
    """The same id and spec after the end leads to the old result and takes no lock (I6)."""
    state = added(opened(EMPTY, wanted()), batch(1, 1, 2, None, close=True))
    again = wanted(execution="e2")
    admit_open(state, again)
    after, answer = open_run(state, again)
    assert (answer.served, after.active) == ("e1", None)


def test_another_execution_of_a_run_begins_its_batches_anew() -> None:
    """A terminated run that is started again under its id and spec writes on, and its batches are no repeats."""
    state = added(opened(EMPTY, wanted()), batch(1, 1, 2, None))
    state = opened(state, wanted(execution="e2"))
    state = added(state, batch(1, 3, 3, "h2", close=True, execution="e2"))
    assert (state.last_seq, state.active) == (3, None)


def test_batches_are_appended_once_and_in_order() -> None:
    """A repeated batch is answered from the state; one out of order, or of a stranger, is refused."""
    state = opened(EMPTY, wanted())
    first = batch(1, 1, 2, None)
    state = added(state, first)
    assert added(state, first) == state
    state = added(state, batch(2, 3, 3, "h2"))
    assert (state.head, state.last_seq, len(state.batches)) == ("h3", 3, 2)
    for wrong in (batch(4, 4, 4, "h3"), batch(3, 4, 4, "h2"), batch(3, 5, 5, "h3")):
        with pytest.raises(ProtocolError, match="does not follow"):
            admit_append(state, wrong)
    with pytest.raises(ProtocolError, match="has not opened"):
        admit_append(state, batch(1, 4, 4, "h3", run="r9"))


TWO = added(added(opened(EMPTY, wanted()), batch(1, 1, 2, None)), batch(2, 3, 3, "h2"))
"""A session with two batches of one execution."""


def refused(state: SessionState, given: SessionBatch) -> None:
    """A batch is refused, and the sentence says that the session went on."""
    with pytest.raises(ProtocolError, match="went on without it") as fault:
        admit_append(state, given)
    assert fault.value.code is AgentProtocolErrorCode.SEQUENCE_CONFLICT


def test_a_reset_run_goes_on_where_its_batch_follows() -> None:
    """Another execution of the run appends what follows the head; the id then leads to it, and the old one is out."""
    state = added(TWO, batch(3, 4, 4, "h3", execution="e2"))
    assert (state.last_seq, state.runs["r1"].execution, state.active) == (4, "e2", "r1")
    refused(state, batch(3, 4, 4, "h3", execution="e1", then="other"))
    state = added(state, batch(4, 5, 5, "h4", close=True, execution="e2"))
    assert open_run(state, wanted(execution="e3"))[1].served == "e2"


def test_a_reset_run_may_make_the_newest_batch_again() -> None:
    """The same number and the same head are the same records: they stand once, and the run goes on."""
    again = batch(2, 3, 3, "h2", execution="e2")
    state, answer = append(TWO, again)
    admit_append(TWO, again)
    assert (answer.head, answer.last_seq, state.batches) == ("h3", 3, TWO.batches)
    assert state.runs["r1"].execution == "e2"
    state = added(state, batch(3, 4, 4, "h3", close=True, execution="e2"))
    last = batch(3, 4, 4, "h3", close=True, execution="e3")
    assert added(state, last).batches == state.batches
    assert open_run(added(state, last), wanted(execution="e4"))[1].served == "e3"
    refused(state, last.model_copy(update={"close": False}))


def test_a_reset_run_whose_session_went_on_is_refused() -> None:
    """A batch of an old number is no repeat when another execution has made it: neither doubled nor taken as done."""
    refused(TWO, batch(1, 1, 2, None, execution="e2"))
    refused(TWO, batch(1, 1, 2, None, execution="e2", then="other"))
    refused(TWO, batch(2, 3, 3, "h2", execution="e2", then="other"))
    refused(TWO, batch(2, 3, 4, "h2", execution="e2", then="h3"))
    refused(TWO, batch(1, 4, 4, "h3", execution="e2"))
    closed = added(TWO, batch(3, 4, 4, "h3", close=True))
    refused(closed, batch(3, 4, 4, "h3", close=True, execution="e2", then="other"))
    refused(closed, batch(4, 5, 5, "h4", execution="e2"))


def test_a_batch_of_an_old_history_names_no_execution() -> None:
    """It is a repeat by its number alone, as it was when it was taken, and changes nothing of what is known."""
    old = batch(1, 1, 2, None, execution=None)
    state = added(added(opened(EMPTY, wanted()), old), batch(2, 3, 3, "h2", execution=None))
    assert added(state, old) == state
    assert state.runs["r1"].execution == "e1"
    assert "execution" not in old.model_dump_json()


def test_a_run_that_lost_the_session_cannot_append() -> None:
    """A released holder that comes back is refused, so two writers never mix."""
    state = opened(opened(EMPTY, wanted()), wanted("r2", release="r1"))
    with pytest.raises(ProtocolError, match="does not follow"):
        admit_append(state, batch(1, 1, 1, None))


def test_an_empty_last_batch_only_frees_the_session() -> None:
    """A run without records closes its part and leaves no batch behind."""
    state = added(opened(EMPTY, wanted()), SessionBatch(
        run_id="r1", number=1, expected_head=None, head=None, first_seq=1, last_seq=0, close=True
    ))  # fmt: skip
    assert (state.active, state.batches, state.last_seq) == (None, (), 0)


def test_a_refused_start_is_forgotten() -> None:
    """Its lock and its id are free again; a run that has appended, or a stranger, is not touched (`answers.md` 7)."""
    state = opened(EMPTY, wanted())
    assert forget(state, "r1") == EMPTY
    assert forget(state, "r9") == state
    written = added(state, batch(1, 1, 1, None))
    assert forget(written, "r1") == written
    waiting = opened(opened(EMPTY, wanted()), wanted("r2", release="r1"))
    assert forget(waiting, "r1").active == "r2"


def test_read_pages_by_sequence() -> None:
    """The batches after a sequence number, a bounded number of them."""
    state = opened(EMPTY, wanted())
    for number in range(1, 5):
        state = added(state, batch(number, number, number, f"h{number - 1}" if number > 1 else None))
    assert [each.number for each in read(state, 1, 2)] == [2, 3]
    assert read(state, 4, 2) == []


UNCERTAIN = append(open_run(EMPTY, wanted())[0], batch(1, 1, 2, None).model_copy(update={"uncertain": ("r1/m1/c1",)}))[
    0
]
"""A session in which nobody knows the effect of one call."""


def said(happened: str | None = "the mail was sent", *, call: str = "r1/m1/c1", by: str = "ada") -> EffectSettlement:
    """What an operator says."""
    return EffectSettlement(call=call, happened=happened, by=by)


def settled(state: SessionState, given: EffectSettlement) -> tuple[SessionState, EffectSettled]:
    """The state and the answer after an admitted settlement."""
    admit_settle(state, given)
    return settle(state, given)


@pytest.mark.parametrize("happened", ["the mail was sent", None])
def test_an_unknown_effect_is_settled_once(happened: str | None) -> None:
    """The first word stands, with the name of who said it; the same from anybody changes nothing (divergence 30)."""
    state, first = settled(UNCERTAIN, said(happened))
    again, second = settled(state, said(happened, by="bob"))
    assert state.settlements == (said(happened),)
    assert again == state
    assert first == EffectSettled(settlement=said(happened), repeated=False)
    assert second == EffectSettled(settlement=said(happened), repeated=True)


@pytest.mark.parametrize(("first", "second"), [("sent", None), (None, "sent"), ("sent", "sent twice")])
def test_a_settlement_is_never_taken_back(first: str | None, second: str | None) -> None:
    """What contradicts the first word is a conflict, also from the same operator."""
    state, _ = settled(UNCERTAIN, said(first))
    with pytest.raises(ProtocolError, match="'ada' has settled") as refused:
        admit_settle(state, said(second))
    assert refused.value.code is AgentProtocolErrorCode.DUPLICATE_CONFLICT


def test_only_an_unknown_effect_is_settled() -> None:
    """A call of which the journal says no such thing is refused."""
    with pytest.raises(ProtocolError, match="no unknown effect of the call 'r1/m1/c2'") as refused:
        admit_settle(UNCERTAIN, said(call="r1/m1/c2"))
    assert refused.value.code is AgentProtocolErrorCode.INVALID_TRANSITION


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (said(" "), "`happened` is blank"),
        (said("é" * SETTLEMENT_BYTES), f"`happened` is longer than {SETTLEMENT_BYTES} bytes"),
        (said(by=""), "`by` is blank"),
        (said(by="a" * (NAME_BYTES + 1)), f"`by` is longer than {NAME_BYTES} bytes"),
    ],
)
def test_what_an_operator_says_is_text_and_bounded(wrong: EffectSettlement, sentence: str) -> None:
    """Blank and long texts are refused with the field and the bound; those just within pass."""
    with pytest.raises(ProtocolError, match=sentence) as refused:
        admit_settle(UNCERTAIN, wrong)
    assert refused.value.code is AgentProtocolErrorCode.INVALID_SPEC
    admit_settle(UNCERTAIN, said("a" * SETTLEMENT_BYTES, by="b" * NAME_BYTES))
