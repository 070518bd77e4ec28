"""What a client reads of a run: the result object that it ended with, and its committed journal."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.words import parse_value
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client_errors import result_of
from orchestral_temporal.temporal.turn import ContinuityUnknown
from orchestral_temporal.temporal.watch import OUTAGE_PAUSE, OUTAGES

Query = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Asks a worker of the run: the query's name and its argument."""


async def read_result(handle: WorkflowHandle[object, JsonObject]) -> JsonObject:
    """Wait for a run's result object, through outages of the server.

    Raises:
        ContinuityUnknown: the run was terminated or timed out, or nobody knows it any more.
    """
    while True:
        try:
            return await handle.result()
        except WorkflowFailureError as failed:
            return result_of(failed, handle.id)
        except RPCError as fault:
            if fault.status not in OUTAGES:
                raise ContinuityUnknown(f"The run {handle.id!r} cannot be read: {fault}.") from None
        await asyncio.sleep(OUTAGE_PAUSE)


async def read_journal(run_id: str, ended: JsonObject | None, after: int, query: Query) -> Sequence[AgentJournalRecord]:
    """The committed records after a sequence number: from the result if the run has one, else page by page.

    Raises:
        ContinuityUnknown: a worker answers in other words than ours.
    """
    if ended is not None:
        journal = ended["journal"]
        if isinstance(journal, list):
            return [parse_value(AgentJournalRecord, each) for each in journal[after:]]
        # It did not fit the result: a worker replays the run for each page, which is slow, and right.
    found: list[AgentJournalRecord] = []
    more = True
    while more:
        page = await query(names.QUERY_EVENTS, {"after": after + len(found)})
        records = page["records"]
        if not isinstance(records, list):
            raise ContinuityUnknown(f"The run {run_id!r} answers in words this client does not know.")
        found.extend(parse_value(AgentJournalRecord, each) for each in records)
        more = bool(page["more"])
    return found
