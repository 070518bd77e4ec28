"""The activities that keep the session (decision 2).

Every Temporal error inside is raised as an ApplicationError: unwrapped, some of them cannot be reported, and the
activity would hang.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.core.limits import TASK_SECONDS
from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.activities import (
    SessionAppend,
    SessionAppended,
    SessionBatch,
    SessionForget,
    SessionOpen,
    SessionOpened,
)
from orchestral_temporal.protocol.base import Json, JsonObject, Word
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.errors import AgentRejection, AgentRejectionCode, WordError
from orchestral_temporal.protocol.session import AgentSessionRecord
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.runtime.context_items import ContextItems, ContextMissing
from orchestral_temporal.runtime.session_records import next_head, seal
from orchestral_temporal.temporal import failures, names
from orchestral_temporal.temporal.beating import beating
from orchestral_temporal.temporal.history import RunHistorySource
from orchestral_temporal.temporal.session_workflow import AgentSession

INLINE_BATCH_BYTES: Final = 32_768
"""Bytes of records that the entity keeps in its own history; more go to the artifact store."""

UPDATE_TIMEOUT: Final = timedelta(seconds=10)
"""How long one call to the entity may take before the activity tries again."""

SESSION_JOURNAL: Final = "session_journal"


class SessionActivities:
    """Opening and appending to sessions."""

    def __init__(self, *, artifacts: ArtifactStore, items: ContextItems) -> None:
        self._artifacts = artifacts
        self._items = items

    @activity.defn(name=names.OPEN_SESSION)
    async def open_session(self, wanted: SessionOpen) -> SessionOpened:
        """Take the session for a run, or say who holds it; a holder that is gone is released."""
        return await beating(_open_free(activity.client(), wanted))

    @activity.defn(name=names.APPEND_SESSION)
    async def append_session(self, wanted: SessionAppend) -> SessionAppended:
        """Seal a batch's records and hand them to the entity."""
        return await beating(self._append(activity.client(), wanted))

    async def _append(self, client: Client, wanted: SessionAppend) -> SessionAppended:
        if wanted.number == 0:
            await _update(client, wanted.session_id, names.SESSION_CLOSE_RUN, SessionForget(run_id=wanted.run_id))
            return SessionAppended(head=wanted.expected_head, last_seq=wanted.first_seq - 1)
        try:
            batch = await self._seal(wanted)
        except (ContextMissing, WordError) as lost:
            # No other try would make these records. The run's part is closed without them: the session is free, the id
            # of the run stays used up, and an unknown effect can be settled. Then the run is told.
            if wanted.close:
                await _update(client, wanted.session_id, names.SESSION_APPEND, _batch(wanted, ()))
            raise ApplicationError(str(lost), type=SESSION_JOURNAL, non_retryable=True) from None
        value = await _update(client, wanted.session_id, names.SESSION_APPEND, batch)
        return parse_value(SessionAppended, value)

    async def _seal(self, wanted: SessionAppend) -> SessionBatch:
        """The batch of wire records.

        Raises:
            ContextMissing: nothing holds the text of a record.
            WordError: the texts do not make the records.
        """
        found = {new.digest: new.item for new in map(self._items.put, wanted.texts)}
        named = dict.fromkeys(each for record in wanted.records for each in record.items)
        source = RunHistorySource(activity.client(), self._artifacts, wanted.run_id, _execution())
        found |= await self._items.find([each for each in named if each not in found], lambda: source)
        records = tuple(
            seal(record, [found[each] for each in record.items], wanted.session_id, wanted.run_id, seq)
            for seq, record in enumerate(wanted.records, start=wanted.first_seq)
        )
        batch = _batch(wanted, records)
        body = canonical([dump(each) for each in records])
        if len(body) <= INLINE_BATCH_BYTES:
            return batch
        segment = await self._artifacts.put(body)
        return batch.model_copy(update={"records": (), "segment": segment})


def _execution() -> str:
    return activity.info().workflow_run_id or ""


def _batch(wanted: SessionAppend, records: Sequence[AgentSessionRecord]) -> SessionBatch:
    return SessionBatch(
        run_id=wanted.run_id,
        number=wanted.number,
        expected_head=wanted.expected_head,
        head=next_head(wanted.expected_head, records),
        first_seq=wanted.first_seq,
        last_seq=wanted.first_seq + len(records) - 1,
        records=tuple(records),
        close=wanted.close,
        uncertain=tuple(each.uncertainty.effect_call_id for each in wanted.records if each.uncertainty is not None),
        execution=_execution(),
    )


async def _open_free(client: Client, wanted: SessionOpen) -> SessionOpened:
    """Open the session, releasing a holder that is gone."""
    try:
        opened = await _open(client, wanted)
    except WorkflowUpdateFailedError as refused:
        holder = _holder(refused)
        if holder is None or await _runs(client, holder):
            raise _refused(refused) from None
        opened = await _open(client, wanted.model_copy(update={"release": holder}))
    if opened.served is None:
        return opened
    old = await _old_result(client, wanted.run_id, opened.served)
    return opened.model_copy(update={"result": old})


async def _open(client: Client, wanted: SessionOpen) -> SessionOpened:
    start = WithStartWorkflowOperation(
        AgentSession.run,
        id=names.session_workflow_id(wanted.session_id),
        task_queue=activity.info().task_queue,
        task_timeout=timedelta(seconds=TASK_SECONDS),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        static_summary=f"session {wanted.session_id}"[:200],
    )
    try:
        value: Json = await client.execute_update_with_start_workflow(
            names.SESSION_OPEN,
            wanted,
            start_workflow_operation=start,
            result_type=dict,
            rpc_timeout=UPDATE_TIMEOUT,
        )
    except WorkflowAlreadyStartedError:
        await _looked_at(start)
        message = f"The session {wanted.session_id!r} was closed from outside; use another session."
        raise ApplicationError(message, type=SESSION_JOURNAL, non_retryable=True) from None
    except (RPCTimeoutOrCancelledError, RPCError) as fault:
        await _looked_at(start)
        raise ApplicationError(f"The session cannot be reached: {fault}", type=SESSION_JOURNAL) from None
    return parse_value(SessionOpened, value)


async def _looked_at(start: WithStartWorkflowOperation[AgentSession, None]) -> None:
    """The SDK keeps a failed start in a future of its own too, and asyncio complains if nobody looks at that."""
    with suppress(Exception, asyncio.CancelledError):
        await start.workflow_handle()


async def _update(client: Client, session_id: str, name: str, word: Word) -> JsonObject:
    handle = client.get_workflow_handle(names.session_workflow_id(session_id))
    try:
        return await handle.execute_update(name, word, result_type=dict, rpc_timeout=UPDATE_TIMEOUT)
    except WorkflowUpdateFailedError as refused:
        raise ApplicationError(failures.sentence(refused.cause), type=SESSION_JOURNAL, non_retryable=True) from None
    except (RPCTimeoutOrCancelledError, RPCError) as fault:
        gone = isinstance(fault, RPCError) and fault.status is RPCStatusCode.NOT_FOUND
        message = f"The session {session_id!r} cannot be reached: {fault}"
        raise ApplicationError(message, type=SESSION_JOURNAL, non_retryable=gone) from None


def _holder(refused: WorkflowUpdateFailedError) -> str | None:
    rejection = failures.read_refused_start(refused.cause)
    if rejection is None or rejection.code is not AgentRejectionCode.SESSION_CONFLICT:
        return None
    details = rejection.details
    holder = details.get("holder") if isinstance(details, dict) else None
    return holder if isinstance(holder, str) else None


def _refused(refused: WorkflowUpdateFailedError) -> ApplicationError:
    rejection = failures.read_refused_start(refused.cause)
    if rejection is not None:
        return failures.refused_start(rejection)
    return ApplicationError(failures.sentence(refused.cause), type=SESSION_JOURNAL, non_retryable=True)


async def _runs(client: Client, run_id: str) -> bool:
    """Whether a run still goes on; one that the server does not know any more does not."""
    try:
        described = await client.get_workflow_handle(run_id).describe(rpc_timeout=UPDATE_TIMEOUT)
    except RPCError as fault:
        if fault.status is RPCStatusCode.NOT_FOUND:
            return False
        raise ApplicationError(f"The run {run_id!r} cannot be looked up: {fault}", type=SESSION_JOURNAL) from None
    return described.status is WorkflowExecutionStatus.RUNNING


async def _old_result(client: Client, run_id: str, execution: str) -> JsonObject:
    """The result object of an earlier execution of a run."""
    handle = client.get_workflow_handle(run_id, run_id=execution, result_type=dict)
    try:
        return await handle.result(rpc_timeout=UPDATE_TIMEOUT)
    except WorkflowFailureError as failed:
        cause = failed.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return cause.details[0]
        raise _spent(run_id, "left no result") from None
    except RPCError as fault:
        if fault.status is RPCStatusCode.NOT_FOUND:
            raise _spent(run_id, "its result is no longer kept") from None
        raise ApplicationError(f"The run {run_id!r} cannot be read: {fault}", type=SESSION_JOURNAL) from None


def _spent(run_id: str, why: str) -> ApplicationError:
    message = f"The run id {run_id!r} was used before and {why}; choose another id."
    code = AgentRejectionCode.RUN_ID_CONFLICT
    return failures.refused_start(AgentRejection(code=code, message=message, retryable=False))
