"""The session entity's decisions: one active run, batches in order, each once (decision 2); settled effects."""

from orchestral_temporal.core.limits import NAME_BYTES, SETTLEMENT_BYTES
from orchestral_temporal.core.start import StartRefused, start_refused
from orchestral_temporal.protocol.activities import (
    EffectSettled,
    EffectSettlement,
    SessionAppended,
    SessionBatch,
    SessionOpen,
    SessionOpened,
)
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.protocol.errors import (
    AgentProtocolErrorCode,
    AgentRejection,
    AgentRejectionCode,
    refuse,
    require,
)
from orchestral_temporal.protocol.validation import require_text


class KnownRun(Word):
    """A run that has opened the session: what it is, its last batch, and whether it has ended.

    `execution` is the Temporal run id of the one that opened the session or, later, appended that batch.
    """

    spec_digest: str
    execution: str
    number: int = 0
    closed: bool = False


class SessionState(Word):
    """What a session knows: its journal's head and batches, its runs, and which of them is active.

    `uncertain` are the calls with an unknown effect, by invocation id; `settlements` what operators said of them.
    """

    session_id: str
    active: str | None = None
    head: str | None = None
    last_seq: int = 0
    batches: tuple[SessionBatch, ...] = ()
    runs: dict[str, KnownRun] = {}  # noqa: RUF012 -- pydantic copies the default
    uncertain: tuple[str, ...] = ()
    settlements: tuple[EffectSettlement, ...] = ()


def admit_open(state: SessionState, wanted: SessionOpen) -> None:
    """Whether a run may have the session; changes nothing, so it is the update's validator.

    Raises:
        StartRefused: run_id_conflict, the id is known under another spec; session_conflict, another run is active
            (details: its id).
    """
    known = state.runs.get(wanted.run_id)
    if known is not None and known.spec_digest != wanted.spec_digest:
        raise start_refused(
            f"The run id {wanted.run_id!r} was used for another spec; choose another id.",
            AgentRejectionCode.RUN_ID_CONFLICT,
        )
    if state.active not in (None, wanted.run_id, wanted.release):
        raise StartRefused(
            AgentRejection(
                code=AgentRejectionCode.SESSION_CONFLICT,
                message=f"The session {state.session_id!r} is busy with run {state.active!r}; wait or use another one.",
                retryable=True,
                details={"holder": state.active},
            )
        )


def open_run(state: SessionState, wanted: SessionOpen) -> tuple[SessionState, SessionOpened]:
    """Give the session to a run that `admit_open` has let through; asking twice changes nothing."""
    known = state.runs.get(wanted.run_id)
    opened = SessionOpened(head=state.head, last_seq=state.last_seq)
    if known is not None and known.closed:
        return state, opened.model_copy(update={"served": known.execution})
    # A new execution of the run begins its batches anew; the same one asking again goes on where it was.
    number = known.number if known is not None and known.execution == wanted.execution else 0
    run = KnownRun(spec_digest=wanted.spec_digest, execution=wanted.execution, number=number)
    return state.model_copy(update={"active": wanted.run_id, "runs": {**state.runs, wanted.run_id: run}}), opened


def admit_append(state: SessionState, batch: SessionBatch) -> None:
    """Whether a batch follows what the session holds.

    Raises:
        ProtocolError: run_not_found, the run never opened the session; sequence_conflict, another batch came between.
    """
    known = state.runs.get(batch.run_id)
    if known is None:
        refuse(AgentProtocolErrorCode.RUN_NOT_FOUND, f"The run {batch.run_id!r} has not opened this session.")
    if _repeats(state, known, batch):
        return
    in_order = batch.number == known.number + 1 and batch.expected_head == state.head
    if not in_order or batch.first_seq != state.last_seq + 1 or state.active != batch.run_id:
        refuse(
            AgentProtocolErrorCode.SEQUENCE_CONFLICT,
            f"Batch {batch.number} of run {batch.run_id!r} does not follow the session's head: it went on without it.",
        )


def _repeats(state: SessionState, known: KnownRun, batch: SessionBatch) -> bool:
    """Whether the session holds a batch already.

    An execution that asks again has made the batch of that number itself. Another one goes on from an old point of the
    run's history (a reset), and its batch is the same only where it leads to the same head, which covers every record.
    """
    if batch.execution in (None, known.execution):
        return batch.number <= known.number
    ends = (batch.number, batch.head, batch.last_seq, batch.close)
    return ends == (known.number, state.head, state.last_seq, known.closed)


def append(state: SessionState, batch: SessionBatch) -> tuple[SessionState, SessionAppended]:
    """Add a batch that `admit_append` has let through; of a repeated one only who made it last is new."""
    known = state.runs[batch.run_id]
    execution = known.execution if batch.execution is None else batch.execution
    changes: dict[str, object] = {}
    run = known.model_copy(update={"execution": execution})
    if not _repeats(state, known, batch):
        run = run.model_copy(update={"number": batch.number, "closed": batch.close})
        empty = batch.last_seq < batch.first_seq
        changes = {
            "active": None if batch.close else state.active,
            "head": batch.head,
            "last_seq": batch.last_seq,
            "batches": state.batches if empty else (*state.batches, batch),
            "uncertain": (*state.uncertain, *batch.uncertain),
        }
    after = state.model_copy(update={"runs": {**state.runs, batch.run_id: run}, **changes})
    return after, SessionAppended(head=after.head, last_seq=after.last_seq)


def forget(state: SessionState, run_id: str) -> SessionState:
    """Free the session of a run whose start was refused; a run that has appended is not forgotten."""
    known = state.runs.get(run_id)
    if known is None or known.number or known.closed:
        return state
    runs = {key: run for key, run in state.runs.items() if key != run_id}
    return state.model_copy(update={"active": None if state.active == run_id else state.active, "runs": runs})


def _settlement(state: SessionState, call: str) -> EffectSettlement | None:
    return next((each for each in state.settlements if each.call == call), None)


def admit_settle(state: SessionState, wanted: EffectSettlement) -> None:
    """Whether an operator may say this of an effect; the same said twice is no conflict, whoever says it.

    Raises:
        ProtocolError: invalid_spec, a text is blank or too long; invalid_transition, the session knows no unknown
            effect of that call; duplicate_conflict, it was settled otherwise.
    """
    for name, text, limit in (("happened", wanted.happened, SETTLEMENT_BYTES), ("by", wanted.by, NAME_BYTES)):
        require_text(name, text)
        long = text is not None and len(text.encode()) > limit
        require(not long, AgentProtocolErrorCode.INVALID_SPEC, f"`{name}` is longer than {limit} bytes; say less.")
    require(
        wanted.call in state.uncertain,
        AgentProtocolErrorCode.INVALID_TRANSITION,
        f"The session {state.session_id!r} has no unknown effect of the call {wanted.call[:NAME_BYTES]!r} on record; "
        "only such an effect can be settled.",
    )
    known = _settlement(state, wanted.call)
    if known is not None and known.happened != wanted.happened:
        refuse(
            AgentProtocolErrorCode.DUPLICATE_CONFLICT,
            f"{known.by!r} has settled the call {wanted.call!r} otherwise, and that stands.",
        )


def settle(state: SessionState, wanted: EffectSettlement) -> tuple[SessionState, EffectSettled]:
    """Put on record what `admit_settle` has let through; what stands already changes nothing."""
    known = _settlement(state, wanted.call)
    if known is not None:
        return state, EffectSettled(settlement=known, repeated=True)
    settled = state.model_copy(update={"settlements": (*state.settlements, wanted)})
    return settled, EffectSettled(settlement=wanted, repeated=False)


def read(state: SessionState, after: int, limit: int) -> list[SessionBatch]:
    """The batches that hold the records after a sequence number, at most `limit` of them."""
    return [each for each in state.batches if each.last_seq > after][:limit]
