"""The state machine beyond the transcripts: what is admitted, and the shape of the table (`spec/reducer.md`)."""

import pytest

from orchestral_temporal.core.reducer import Author, Outcome, Run, ack, admit, append
from orchestral_temporal.core.table import CONFIRMED, UNKNOWN
from orchestral_temporal.protocol.commands import (
    INPUT_QUEUE,
    AgentCommandEnvelope,
    Cancel,
    CommandAccepted,
    ResolveRequest,
    Steer,
    seal_command,
)
from orchestral_temporal.protocol.delivery import Interrupted
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.events import (
    AgentEvent,
    CommandDispositionRecorded,
    CommandReceived,
    ContinuityLost,
    DeliveryCommitted,
    InputCommitted,
    OutputCommitted,
    RequestClosed,
    RequestOpened,
    RequestResolved,
    ResourceBindingSkipped,
    RunAccepted,
    RunCancelled,
    RunIncomplete,
    RunStarted,
    StopRequested,
)
from orchestral_temporal.protocol.requests import (
    ExternalResult,
    InputRequest,
    InputResolution,
    PendingRequest,
    resolution_digest,
)
from tests.core.reducer_watch import Watched, author_of
from tests.core.reducer_world import (
    BOUND,
    FAILED,
    FREE,
    HELLO,
    RUN_ID,
    accepted,
    command,
    decided,
    delivery,
    draft,
    partial,
    restored,
)

ACCEPTED = accepted(FREE)
QUESTION = RequestOpened(request=PendingRequest(request_id="q", blocking=True, payload=InputRequest(prompt=HELLO)))
LOST = ContinuityLost(last_confirmed_seq=2, reason="gone")
ANSWER = command(ResolveRequest(response=InputResolution(content=HELLO)), request_id="q")
RESULT = command(ResolveRequest(response=ExternalResult(result=HELLO)), request_id="q")
STEER = command(Steer(content=HELLO))


def after(*payloads: AgentEvent) -> Run:
    """The run after these events, each of its lawful author."""
    run = FREE
    for number, payload in enumerate(payloads):
        host = isinstance(payload, RunAccepted | ContinuityLost)
        run = append(run, draft(f"e{number}", payload), Author.HOST if host else Author.PROVIDER).run
    return run


@pytest.mark.parametrize(
    ("run", "given", "code"),
    [
        (FREE, STEER, "invalid_transition"),
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
    known = append(received, decided(given.command_id), Author.PROVIDER).run
    assert admit(known, given) == ack(known, given.command_id)
    changed = seal_command(given.command_id, RUN_ID, Cancel(reason="something else"))
    with pytest.raises(ProtocolError) as refused:
        admit(known, changed)
    assert refused.value.error.code is AgentProtocolErrorCode.DUPLICATE_CONFLICT


MATRIX = """
run_accepted                  · V V V V E
resource_binding_skipped      V · V V V E
run_started                   V · V V V E
command_received              V · · · V E
command_disposition_recorded  V · · · V E
input_committed               V V · V V E
output_committed              V V · · V E
request_opened                V V · V V E
request_resolved              V V · · V E
request_closed                V V · · V E
stop_requested                V · · V V E
delivery_committed            V V · · V E
run_incomplete                V · · · V E
run_failed                    V · · · V E
run_cancelled                 V V V · V E
continuity_lost               V · · · V E
continuity_restored           V V V V · E
"""
"""`spec/reducer.md` §4.1: fresh, accepted, running, stopping, unknown, ended; applied, violation, error."""


PHASES = ("fresh", "accepted", "running", "stopping", "unknown", "ended")


def ready(kind: str, phase: str) -> Run:
    """A run in a phase, with all that an event of this kind needs besides."""
    it = Watched(FREE if kind == "run_started" else BOUND)
    if phase == "fresh":
        return it.run
    it.bring(accepted(it.run))
    for given in (STEER, command(Cancel(reason="stop"), "x"), command(Cancel(reason="stop"), "y")):
        take(it, given)
    it.bring(CommandReceived(command=command(Cancel(reason="stop"), "undecided")), "undecided")
    if phase == "accepted":
        return it.run
    for skip in it.run.admission.skipped_optional_bindings:
        it.bring(ResourceBindingSkipped(skip=skip))
    it.bring(RunStarted())
    if kind != "delivery_committed":
        it.bring(QUESTION)
        take(it, command(ANSWER.payload, "answer", "q"))
    if phase == "stopping":
        it.bring(StopRequested(reason="stop"), "x")
    elif phase == "unknown":
        it.bring(ContinuityLost(last_confirmed_seq=len(it.run.records), reason="gone"))
    elif phase == "ended":
        it.bring(FAILED)
    return it.run


def take(it: Watched, given: AgentCommandEnvelope) -> None:
    """Receive and accept a command."""
    it.bring(CommandReceived(command=given), given.command_id)
    it.bring(CommandDispositionRecorded(command_id=given.command_id, outcome=CommandAccepted()), given.command_id)


def events(run: Run) -> list[tuple[AgentEvent, str | None]]:
    """One event of each kind, right but perhaps for the phase, with its cause."""
    resolution = InputResolution(content=HELLO)
    resolved = RequestResolved(request_id="q", resolution=resolution, resolution_digest=resolution_digest(resolution))
    another = PendingRequest(request_id="another", blocking=False, payload=InputRequest(prompt=HELLO))
    return [
        (accepted(run), None),
        (ResourceBindingSkipped(skip=BOUND.admission.skipped_optional_bindings[0]), None),
        (RunStarted(), None),
        (CommandReceived(command=command(Cancel(reason="stop"), "new")), "new"),
        (CommandDispositionRecorded(command_id="undecided", outcome=CommandAccepted()), "undecided"),
        (InputCommitted(content=HELLO), STEER.command_id),
        (OutputCommitted(output_id="o", content=HELLO), None),
        (RequestOpened(request=another), None),
        (resolved, "answer"),
        (RequestClosed(request_id="q", reason="elsewhere"), None),
        (StopRequested(reason="stop"), "y"),
        (DeliveryCommitted(delivery=delivery(run)), None),
        (RunIncomplete(reason=Interrupted(reason="cut"), partial_delivery=partial(run)), None),
        (FAILED, None),
        (RunCancelled(reason="stop"), None),
        (ContinuityLost(last_confirmed_seq=len(run.records), reason="gone"), None),
        (restored(run), None),
    ]


def judged(kind: str, phase: str) -> str:
    """What becomes of an event of a kind in a phase, as a letter of the matrix."""
    run = ready(kind, phase)
    payload, cause = next((each, cause) for each, cause in events(run) if each.type == kind)
    try:
        appended = append(run, draft("given", payload, cause), author_of(payload))
    except ProtocolError as fault:
        return "E" if fault.code == AgentProtocolErrorCode.TERMINAL_RUN else fault.code
    return {Outcome.OK: "·", Outcome.VIOLATION: "V"}.get(appended.outcome, appended.outcome)


def test_the_transitions_are_those_of_the_matrix() -> None:
    """Each kind of event does in each phase what the sheet says (`spec/reducer.md` §4.1)."""
    expected = {row.split()[0]: "".join(row.split()[1:]) for row in MATRIX.strip().splitlines()}
    assert {kind: "".join(judged(kind, phase) for phase in PHASES) for kind in expected} == expected
    assert expected.keys() == {*CONFIRMED, *UNKNOWN}
