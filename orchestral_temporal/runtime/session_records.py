"""Session records from what a run remembers of them: digests in, sealed wire records out."""

from collections.abc import Sequence

from orchestral_temporal.core.items import messages
from orchestral_temporal.protocol.activities import Item, MessageItem, PendingRecord
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.model import ModelMessage
from orchestral_temporal.protocol.session import (
    AgentSessionEvent,
    AgentSessionEventDraft,
    AgentSessionRecord,
    RunInputCommitted,
    RunOutputCommitted,
    ToolExchangeCommitted,
    seal_session,
)


def seal(record: PendingRecord, items: Sequence[Item], session_id: str, run_id: str, seq: int) -> AgentSessionRecord:
    """The wire record of a pending one, whose `items` are given in its own order.

    Raises:
        WordError: the items do not make the record they are said to make.
    """
    draft = AgentSessionEventDraft(
        event_id=record.event_id,
        session_id=session_id,
        run_id=run_id,
        payload=_payload(record, items),
    )
    return seal_session(draft, seq)


def _payload(record: PendingRecord, items: Sequence[Item]) -> AgentSessionEvent:
    if record.uncertainty is not None:
        return record.uncertainty
    first = items[0]
    assert isinstance(first, MessageItem), "every record with items begins with a message"
    if record.type == "run_input_committed":
        return RunInputCommitted(message=first.message)
    request_id = record.request_id or ""
    if record.type == "run_output_committed":
        return RunOutputCommitted(request_id=request_id, message=first.message, usage=record.usage)
    return ToolExchangeCommitted(
        request_id=request_id,
        assistant=first.message,
        tool=_results(items[1:]),
        retained_artifacts=(),
        usage=record.usage,
    )


def _results(items: Sequence[Item]) -> ModelMessage:
    (message,) = messages(items)
    return message


def next_head(head: str | None, records: Sequence[AgentSessionRecord]) -> str | None:
    """The session's head after a batch: a digest chain over the records' own digests."""
    for record in records:
        head = digest({"event_digest": record.event_digest, "previous": head})
    return head
