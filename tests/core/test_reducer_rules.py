"""The state machine beyond the transcripts: what is admitted, what holds on every walk (`spec/reducer.md` §13)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.core.reducer import (
    Appended,
    Author,
    Outcome,
    Run,
    ack,
    admit,
    append,
    begin,
    replay,
    status,
    view,
)
from orchestral_temporal.core.table import CONFIRMED, UNKNOWN, Phase
from orchestral_temporal.protocol.admission import AgentAdmission
from orchestral_temporal.protocol.commands import (
    INPUT_QUEUE,
    AgentCommand,
    AgentCommandEnvelope,
    Cancel,
    CommandAccepted,
    ProviderCommandDisposition,
    ResolveRequest,
    Steer,
    seal_command,
)
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.delivery import AgentDelivery, AgentFailure, Interrupted, Provenance
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentEventDraft,
    CommandReceived,
    ContinuityLost,
    ContinuityRestored,
    DeliveryCommitted,
    InputCommitted,
    OutputCommitted,
    ReconciliationProof,
    RequestClosed,
    RequestOpened,
    RequestResolved,
    RunAccepted,
    RunCancelled,
    RunFailed,
    RunIncomplete,
    RunStarted,
    StopRequested,
    disposition_draft,
    evidence_digest,
)
from orchestral_temporal.protocol.requests import (
    ExternalResult,
    InputRequest,
    InputResolution,
    PendingRequest,
    resolution_digest,
)
from orchestral_temporal.protocol.run import AgentDescriptorEnvelope, AgentStartRequest
from orchestral_temporal.protocol.state import AgentRunStatus, ContinuityConfirmed, ContinuityUnknown
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import parse, parse_value, to_json
from tests.golden import rows

HELLO = (text_content("hello"),)
GIVEN = next(row["start"] for row in rows("reducer") if row["name"] == "text run delivered")
FRESH = begin(
    parse_value(AgentStartRequest, GIVEN["request"]),
    parse_value(AgentDescriptorEnvelope, GIVEN["descriptor"]),
    AgentAdmission(),
)
RUN_ID = FRESH.execution.run_id


def draft(event_id: str, payload: AgentEvent, cause: str | None = None) -> AgentEventDraft:
    """A draft of the run."""
    return AgentEventDraft(event_id=event_id, run_id=RUN_ID, causation_id=cause, payload=payload)


def after(*payloads: AgentEvent) -> Run:
    """The run after these events, each of its lawful author."""
    run = FRESH
    for number, payload in enumerate(payloads):
        host = isinstance(payload, RunAccepted | ContinuityLost)
        run = append(run, draft(f"e{number}", payload), Author.HOST if host else Author.PROVIDER).run
    return run


ACCEPTED = RunAccepted(session_id=FRESH.execution.session_id, spec_digest=FRESH.execution.spec_digest)
QUESTION = RequestOpened(request=PendingRequest(request_id="q", blocking=True, payload=InputRequest(prompt=HELLO)))
FAILED = RunFailed(failure=AgentFailure(code="x", message="y", retryable=False))
LOST = ContinuityLost(last_confirmed_seq=2, reason="gone")


def command(payload: AgentCommand, command_id: str = "c", request_id: str | None = None) -> AgentCommandEnvelope:
    """A sealed command of the run."""
    return seal_command(command_id, RUN_ID, payload, request_id=request_id)


ANSWER = command(ResolveRequest(response=InputResolution(content=HELLO)), request_id="q")
RESULT = command(ResolveRequest(response=ExternalResult(result=HELLO)), request_id="q")
STEER = command(Steer(content=HELLO))


@pytest.mark.parametrize(
    ("run", "given", "code"),
    [
        (FRESH, STEER, "invalid_transition"),
        (after(ACCEPTED, RunStarted(), LOST), STEER, "invalid_transition"),
        (after(ACCEPTED, RunStarted(), LOST), ANSWER, "invalid_transition"),
        (after(ACCEPTED, FAILED), STEER, "terminal_run"),
        (after(ACCEPTED, RunStarted()), ANSWER, "request_not_found"),
        (after(ACCEPTED, RunStarted(), QUESTION), RESULT, "request_type_mismatch"),
        (after(ACCEPTED), seal_command("c", "another", Cancel(reason="stop")), "run_not_found"),
        (after(ACCEPTED), STEER.model_copy(update={"command_digest": "ab" * 32}), "invalid_digest"),
        (after(ACCEPTED), STEER.model_copy(update={"command_id": ""}), "invalid_spec"),
        (
            after(ACCEPTED),
            seal_command("c", RUN_ID, Cancel(reason="stop"), extensions={INPUT_QUEUE: {"operation": "enqueue"}}),
            "invalid_spec",
        ),
        (
            after(ACCEPTED),
            seal_command("c", RUN_ID, Steer(content=HELLO), extensions={INPUT_QUEUE: {"operation": "enqueue"}}),
            "unsupported",
        ),
    ],
)
def test_what_would_poison_a_run_is_refused_before_anything_is_written(
    run: Run, given: AgentCommandEnvelope, code: str
) -> None:
    """A command that can only do harm gets its code instead of a record (divergence 11, `spec/reducer.md` §7.3)."""
    with pytest.raises(ProtocolError) as refused:
        admit(run, given)
    assert refused.value.error.code == code


@pytest.mark.parametrize(
    ("run", "given"),
    [
        (after(ACCEPTED), STEER),
        (after(ACCEPTED), command(Cancel(reason="stop"))),
        (after(ACCEPTED, RunStarted(), QUESTION), ANSWER),
        (after(ACCEPTED, RunStarted(), QUESTION), STEER),
    ],
)
def test_what_may_enter_is_admitted_until_it_is_known(run: Run, given: AgentCommandEnvelope) -> None:
    """A new command is admitted, again while it has no disposition; then it has its acknowledgement (C1, C2)."""
    assert admit(run, given) is None
    received = append(run, draft("r", CommandReceived(command=given), given.command_id), Author.HOST).run
    assert admit(received, given) is None
    known = append(received, accepted(given.command_id), Author.PROVIDER).run
    assert admit(known, given) == ack(known, given.command_id)
    changed = seal_command(given.command_id, RUN_ID, Cancel(reason="something else"))
    with pytest.raises(ProtocolError) as refused:
        admit(known, changed)
    assert refused.value.error.code is AgentProtocolErrorCode.DUPLICATE_CONFLICT


def accepted(command_id: str) -> AgentEventDraft:
    """The disposition that accepts a command."""
    return disposition_draft(
        ProviderCommandDisposition(command_id=command_id, run_id=RUN_ID, outcome=CommandAccepted(), duplicate=False)
    )


def proof(run: Run) -> ReconciliationProof:
    """A proof for the present loss, or for none."""
    lost = run.continuity
    unsealed = ReconciliationProof(
        proof_ref="p",
        last_confirmed_seq=lost.last_confirmed_seq if isinstance(lost, ContinuityUnknown) else 0,
        loss_event_digest=lost.loss_event_digest if isinstance(lost, ContinuityUnknown) else "ab" * 32,
        authoritative_snapshot_digest="cd" * 32,
        evidence_digest="",
    )
    return unsealed.model_copy(update={"evidence_digest": evidence_digest(unsealed)})


def delivery(support: str) -> AgentDelivery:
    """A delivery of the run."""
    return AgentDelivery(
        delivery_id="d",
        run_id=RUN_ID,
        spec_digest=FRESH.execution.spec_digest,
        final_response=HELLO[0],
        provenance=Provenance(
            provider_id=FRESH.execution.provider_id,
            agent_id=FRESH.execution.agent_id,
            supporting_event_ids=(support,),
        ),
    )


def step(run: Run, kind: str, one: int, two: int) -> Appended | None:
    """Try one event, lawful or not; two small numbers choose its ids. None when it is refused."""
    event_id, cause, asked = f"{kind}-{one}-{two}", f"c{one}", f"q{two}"
    answer = InputResolution(content=HELLO)
    resolve = seal_command(cause, RUN_ID, ResolveRequest(response=answer), request_id=asked)
    question = PendingRequest(request_id=asked, blocking=bool(two), payload=InputRequest(prompt=HELLO))
    payload: AgentEvent | None = {
        "accept": ACCEPTED,
        "start": RunStarted(),
        "steer": CommandReceived(command=command(Steer(content=HELLO), cause)),
        "cancel": CommandReceived(command=command(Cancel(reason="stop"), cause)),
        "answer": CommandReceived(command=resolve),
        "input": InputCommitted(content=HELLO),
        "output": OutputCommitted(output_id=asked, content=HELLO),
        "open": RequestOpened(request=question),
        "resolved": RequestResolved(request_id=asked, resolution=answer, resolution_digest=resolution_digest(answer)),
        "close": RequestClosed(request_id=asked, reason="elsewhere"),
        "stop": StopRequested(reason="stop"),
        "deliver": DeliveryCommitted(delivery=delivery("start-0-0")),
        "incomplete": RunIncomplete(reason=Interrupted(reason="cut")),
        "fail": FAILED,
        "cancelled": RunCancelled(reason="stop"),
        "lose": ContinuityLost(last_confirmed_seq=run.last_run_seq or 0, reason="gone"),
        "restore": ContinuityRestored(proof=proof(run), reason="found"),
    }.get(kind)
    given = accepted(cause) if payload is None else draft(event_id, payload, cause)
    author = Author.HOST if kind in ("accept", "steer", "cancel", "answer", "lose") else Author.PROVIDER
    try:
        return append(run, given, Author.RECONCILED if kind == "restore" else author)
    except ProtocolError:
        return None


KINDS = [
    "accept",
    "start",
    "dispose",
    "steer",
    "cancel",
    "answer",
    "input",
    "output",
    "open",
    "resolved",
    "close",
    "stop",
    "deliver",
    "incomplete",
    "fail",
    "cancelled",
    "lose",
    "restore",
]
WALKS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1), st.integers(0, 1)), max_size=30)


def check_state(run: Run) -> None:
    """Invariants of one state."""
    seen = view(run)
    validate(seen)
    assert [record.event.run_seq for record in run.records] == list(range(1, len(run.records) + 1))
    if isinstance(run.continuity, ContinuityConfirmed):
        assert run.continuity.through_seq == (run.last_run_seq or 0)
    else:
        assert status(run) is AgentRunStatus.UNKNOWN
        assert run.continuity.last_confirmed_seq < len(run.records)
        assert run.continuity.loss_event_digest == run.records[-1].event.event_digest
    if run.phase is Phase.ENDED:
        assert isinstance(run.continuity, ContinuityConfirmed)
        assert not run.pending
    assert not set(run.pending) & set(run.settled)


@settings(deadline=None, max_examples=150)  # the machine is shared
@given(WALKS)
def test_invariants_hold_on_every_walk(walk: list[tuple[str, int, int]]) -> None:
    """Whatever comes in whatever order: the invariants hold, and a replay of the journal gives the same run (§13)."""
    run, again = FRESH, FRESH
    for kind, one, two in [("accept", 0, 0), ("start", 0, 0), *walk]:
        appended = step(run, kind, one, two)
        if appended is None:
            continue
        before, run = run, appended.run
        check_state(run)
        assert len(run.records) == len(before.records) + (appended.outcome is not Outcome.DUPLICATE)
        if appended.outcome is Outcome.VIOLATION:
            kept = {"records": before.records, "event_ids": before.event_ids, "continuity": before.continuity}
            assert run.model_copy(update=kept) == before
        if appended.outcome is Outcome.DUPLICATE:
            assert run == before
        else:
            assert before.phase is not Phase.ENDED
            again = replay(again, appended.record).run
        assert again == run
    assert all(replay(run, record) == Appended(run, record, Outcome.DUPLICATE) for record in run.records)
    assert parse(Run, to_json(run)) == run


def test_the_table_is_the_whole_matrix() -> None:
    """Every kind of event has its row, and the phases only move forward (`spec/reducer.md` §4.1)."""
    order = list(Phase)
    for table in (CONFIRMED, UNKNOWN):
        for row in table.values():
            assert all(order.index(target) >= order.index(phase) for phase, target in row.items())
            assert Phase.ENDED not in row
    assert len(CONFIRMED) + len(UNKNOWN) == 17
