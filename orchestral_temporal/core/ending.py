"""How a run ends and what the session keeps of it (`spec/agent-loop.md` §12–§13, `spec/session-context.md` §1)."""

from typing import Literal

from orchestral_temporal.core import budgets
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.limits import SESSION_BATCH_BYTES
from orchestral_temporal.core.projection import command_of
from orchestral_temporal.core.state import AppendSession, Ended, OpenCall, RunState, SessionCursor
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import PendingRecord, SessionAppend, SessionAppended
from orchestral_temporal.protocol.commands import Cancel
from orchestral_temporal.protocol.content import Content, stored_text, text_content
from orchestral_temporal.protocol.delivery import (
    AgentDelivery,
    AgentFailure,
    IncompleteReason,
    Interrupted,
    LimitReached,
    PartialDelivery,
    Provenance,
)
from orchestral_temporal.protocol.digest import sha256
from orchestral_temporal.protocol.events import (
    AgentEvent,
    ContinuityLost,
    ContinuityRestored,
    DeliveryCommitted,
    OutputCommitted,
    ReconciliationProof,
    RunCancelled,
    RunFailed,
    RunIncomplete,
    StopRequested,
    evidence_digest,
)
from orchestral_temporal.protocol.ids import is_blank
from orchestral_temporal.protocol.limits import RunLimitKind, UsageReport
from orchestral_temporal.protocol.model import ModelUsage
from orchestral_temporal.protocol.session import EffectUncertaintyCommitted
from orchestral_temporal.protocol.words import Json

RecordKind = Literal["run_input_committed", "tool_exchange_committed", "run_output_committed"]


def remember(
    work: Work,
    *,
    event_id: str,
    kind: RecordKind,
    items: tuple[str, ...],
    request_id: str | None = None,
    usage: ModelUsage | None = None,
) -> None:
    """Add a record to the run's part of the session journal, by the digests of its messages."""
    sizes = {each.digest: each.size for each in work.state.headers}
    size = sum(sizes[each] for each in items)
    # Of the record before, a model attempt has carried what the run wrote, and was answered: that stands in history.
    # The attempt after this one may never be sent, or be cancelled before it was.
    texts = tuple(each for each in work.state.sent.recent if each.ours)
    work.set(session=_cursor(work).model_copy(update={"texts": texts}))
    _keep(
        work,
        PendingRecord(event_id=event_id, type=kind, items=items, request_id=request_id, usage=usage, size=size),
    )


def remember_unknown(work: Work, call: OpenCall, message: str) -> None:
    """Say for ever that nobody knows whether a call took effect (E3)."""
    uncertainty = EffectUncertaintyCommitted(
        effect_call_id=call.invocation_id,
        model_call_id=call.call_id,
        tool_name=call.name,
        message=_said(message),
    )
    event_id = ids.session_uncertainty_id(work.run_id, work.state.round, call.call_id)
    _keep(work, PendingRecord(event_id=event_id, type="effect_uncertainty_committed", uncertainty=uncertainty))


def _keep(work: Work, record: PendingRecord) -> None:
    cursor = _cursor(work)
    kept = cursor.model_copy(update={"pending": (*cursor.pending, record), "last_seq": cursor.last_seq + 1})
    work.set(session=kept)
    if sum(each.size for each in kept.pending) >= SESSION_BATCH_BYTES:
        _append(work, close=False)


def _cursor(work: Work) -> SessionCursor:
    cursor = work.state.session
    assert cursor is not None, "records are kept only in a session"
    return cursor


def _append(work: Work, *, close: bool) -> None:
    """Hand over what waits, one batch at a time."""
    cursor = _cursor(work)
    if cursor.appending is not None or cursor.closed:
        return
    named = {item for record in cursor.pending for item in record.items}
    batch = SessionAppend(
        session_id=work.state.start.session_id,
        run_id=work.run_id,
        number=cursor.number + 1,
        expected_head=cursor.head,
        first_seq=cursor.appended_seq + 1,
        records=cursor.pending,
        close=close,
        texts=tuple(each.item for each in cursor.texts if each.known.digest in named),
    )
    work.set(session=cursor.model_copy(update={"number": batch.number, "appending": batch, "texts": ()}))
    work.want(AppendSession(batch))


def batch_appended(work: Work, number: int, appended: SessionAppended) -> None:
    """The entity holds the batch: drop its records, and close the session's part when the run has ended."""
    cursor = work.state.session
    batch = cursor.appending if cursor is not None else None
    if cursor is None or batch is None or batch.number != number:
        return
    work.set(
        session=cursor.model_copy(
            update={
                "pending": cursor.pending[len(batch.records) :],
                "appended_seq": appended.last_seq,
                "head": appended.head,
                "appending": None,
                "closed": batch.close,
            }
        )
    )
    if not batch.close:
        close_when_ended(work)


def batch_refused(work: Work, number: int) -> bool:
    """The session is lost to this run, unless the refusal is of another batch."""
    cursor = work.state.session
    if cursor is None or cursor.appending is None or cursor.appending.number != number:
        return False
    work.set(session=cursor.model_copy(update={"appending": None, "closed": True}))
    return True


def session_lost(work: Work, message: str) -> None:
    """Fail a run whose records the session does not take."""
    fail(work, "session_journal", message, retryable=True)


def close_when_ended(work: Work) -> None:
    """Append the rest and free the session once the terminal is committed (K14: terminal first, then the session)."""
    if isinstance(work.state.phase, Ended) and work.state.session is not None:
        _append(work, close=True)


def usage_report(state: RunState) -> UsageReport | None:
    """What the run used; null when nothing is known (`spec/agent-loop.md` §7)."""
    if state.usage == ModelUsage() and not state.tool_calls:
        return None
    return UsageReport(
        input_tokens=state.usage.input_tokens,
        output_tokens=state.usage.output_tokens,
        tool_calls=state.tool_calls or None,
        cost=budgets.cost(state),
    )


def _provenance(work: Work, supporting: tuple[str, ...]) -> Provenance:
    execution = work.state.run.execution
    return Provenance(
        provider_id=execution.provider_id,
        agent_id=execution.agent_id,
        supporting_event_ids=supporting,
        extensions={},
    )


def _last_said(state: RunState) -> Content:
    """The last text of the model; one that lies in the artifact store is named, not repeated."""
    stored = state.last_stored
    return text_content(state.last_response) if stored is None else stored_text(stored.digest)


def deliver(work: Work) -> None:
    """Commit the answer, which is what the model said last, and the delivery together (A1)."""
    run_id = work.run_id
    content = _last_said(work.state)
    output_event = ids.generic_event_id(run_id, "output")
    delivery = AgentDelivery(
        delivery_id=ids.delivery_id(run_id),
        run_id=run_id,
        spec_digest=work.state.start.envelope.spec_digest,
        final_response=content,
        usage=usage_report(work.state),
        provenance=_provenance(work, (*work.state.supporting, output_event)),
    )
    work.provider(
        (output_event, OutputCommitted(output_id=ids.response_output_id(run_id), content=(content,)), None),
        (ids.generic_event_id(run_id, "delivered"), DeliveryCommitted(delivery=delivery), None),
    )
    _ended(work)


def limit(work: Work, kind: RunLimitKind, text: str) -> None:
    """A limit is reached: `text`, what the model said last or nothing, is kept as a partial delivery."""
    partial = None
    if text:
        partial = PartialDelivery(
            partial_delivery_id=ids.partial_delivery_id(work.run_id),
            run_id=work.run_id,
            spec_digest=work.state.start.envelope.spec_digest,
            response=_last_said(work.state),
            unresolved_issues=(f"The run reached its limit of {kind} before it had finished.",),
            usage=usage_report(work.state),
            provenance=_provenance(work, work.state.supporting[:1]),
        )
    _incomplete(work, LimitReached(limit=kind), partial)


def deadline(work: Work) -> None:
    """The deadline is reached: nothing is kept of what was on its way (`spec/agent-loop.md` §12, F1, F2)."""
    reason = LimitReached(limit=RunLimitKind.DEADLINE)
    event = RunIncomplete(reason=reason, partial_delivery=None)
    _terminal(work, ids.generic_event_id(work.run_id, "deadline"), event)


def interrupted(work: Work, reason: str) -> None:
    """The open attempt is lost and must not be sent again (I2)."""
    _incomplete(work, Interrupted(reason=reason), None)


def _incomplete(work: Work, reason: IncompleteReason, partial: PartialDelivery | None) -> None:
    _terminal(
        work, ids.generic_event_id(work.run_id, "incomplete"), RunIncomplete(reason=reason, partial_delivery=partial)
    )


def fail(work: Work, code: str, message: str, *, retryable: bool = False, details: Json = None) -> None:
    """The run cannot go on; code and retryable as `spec/agent-loop.md` §14 lists them."""
    failure = AgentFailure(code=code, message=_said(message), retryable=retryable, details=details)
    _terminal(work, ids.generic_event_id(work.run_id, "failed"), RunFailed(failure=failure))


def _said(message: str) -> str:
    """A message from outside, never blank: no record takes one that is."""
    return "Nothing more is known." if is_blank(message) else message


def cancelled(work: Work, command_id: str) -> None:
    """An accepted cancel takes effect: the stop names its command, the terminal repeats its reason (C5)."""
    command = command_of(work.state.run, command_id)
    assert isinstance(command.payload, Cancel), "only a cancel stops a run"
    reason = command.payload.reason
    work.provider((ids.generic_event_id(work.run_id, "stop"), StopRequested(reason=reason), command_id))
    _terminal(work, ids.generic_event_id(work.run_id, "cancelled"), RunCancelled(reason=reason))


def _terminal(work: Work, event_id: str, event: AgentEvent) -> None:
    work.provider((event_id, event, None))
    _ended(work)


def _ended(work: Work) -> None:
    work.set(phase=Ended())
    close_when_ended(work)


def lose_and_restore(work: Work, reason: str) -> None:
    """Put a proven loss and its restoration on record before the next dispatch (I4, divergence 20).

    One writer owns the journal, so the proof is bound to our own Lost event (`spec/wal-recovery.md` §6 step 5).
    """
    run, run_id = work.state.run, work.run_id
    confirmed = run.last_run_seq or 0
    work.host(
        ids.host_continuity_lost_id(run_id, confirmed + 1), ContinuityLost(last_confirmed_seq=confirmed, reason=reason)
    )
    lost = work.state.run.records[-1]
    drafts = [
        each.draft_digest
        for each in run.records
        if each.authority.authority == "provider" and each.event.run_seq <= confirmed
    ]
    proof = ReconciliationProof(
        proof_ref=ids.recovery_proof_ref(run_id, confirmed),
        last_confirmed_seq=confirmed,
        loss_event_digest=lost.event.event_digest,
        authoritative_snapshot_digest=sha256(":".join([run_id, str(confirmed), *drafts]).encode()),
        evidence_digest="",
    )
    proof = proof.model_copy(update={"evidence_digest": evidence_digest(proof)})
    work.host(
        ids.host_continuity_restored_id(run_id, confirmed),
        ContinuityRestored(proof=proof, reason="The run goes on from its own history."),
        proven=True,
    )
