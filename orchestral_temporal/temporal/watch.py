"""Following a run: history by long poll, live text from the heartbeat of the open attempt (decision 27)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.protocol.activities import Heartbeat
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.words import parse
from orchestral_temporal.temporal import names

LOOK_PAUSE: Final = 0.25
"""Seconds between two looks at an open attempt: its text changes four times a second at most."""

OUTAGE_PAUSE: Final = 0.5
"""Seconds between two tries while the server does not answer."""

RPC_TIMEOUT: Final = timedelta(seconds=10)

CLOSED: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
    }
)
OUTAGES: Final = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.ABORTED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
)
"""What a server says that is away, overloaded, or dies in the middle of an answer (`unknown`): asking again helps."""


@dataclass(frozen=True)
class Frame:
    """One thing a watcher sees.

    `text`: more live text. `clear`: the live text of that attempt is void. `call`, `call_ended`: a tool call, by its
    summary. `lost`: an attempt was lost. `committed`: something outside arrived, the journal may have grown. `event`: a
    record. `attempt` tells the model attempts of a run apart; what is void is said before the next one speaks (F013).
    """

    kind: str
    text: str = ""
    event: AgentJournalRecord | None = None
    attempt: str = ""


async def follow(client: Client, run_id: str) -> AsyncIterator[Frame]:
    """Everything but the journal, until the run has closed; goes on through outages of the server.

    Raises:
        RPCError: the run does not exist.
    """
    frames: asyncio.Queue[Frame | None] = asyncio.Queue()
    live = _Live(client, run_id, frames)
    looker = asyncio.create_task(live.look())
    reader = asyncio.create_task(_read(client, run_id, live, frames))
    reader.add_done_callback(lambda _: frames.put_nowait(None))
    try:
        while (frame := await frames.get()) is not None:
            yield frame
        await reader
    finally:
        for task in (looker, reader):
            task.cancel()
            with suppress(asyncio.CancelledError, RPCError):
                await task


async def grown(client: Client, run_id: str) -> None:
    """Wait until the run's history grows, for a long poll's time at most; for a moment if the server is away.

    Raises:
        RPCError: the run does not exist.
    """
    handle = client.get_workflow_handle(run_id)
    try:
        known = (await handle.describe(rpc_timeout=RPC_TIMEOUT)).history_length
        async with asyncio.timeout(RPC_TIMEOUT.total_seconds()):
            async for event in handle.fetch_history_events(wait_new_event=True):
                if event.event_id > known:
                    return
    except TimeoutError:
        return
    except RPCError as fault:
        if fault.status not in OUTAGES:
            raise
        await asyncio.sleep(OUTAGE_PAUSE)


async def _read(client: Client, run_id: str, live: "_Live", frames: asyncio.Queue[Frame | None]) -> None:
    seen = 0
    while True:
        try:
            handle = client.get_workflow_handle(run_id)
            async for event in handle.fetch_history_events(wait_new_event=True, skip_archival=True):
                if event.event_id <= seen:
                    continue
                seen = event.event_id
                for frame in live.note(event):
                    frames.put_nowait(frame)
                if event.event_type in CLOSED:
                    return
        except RPCError as fault:
            if fault.status not in OUTAGES:
                raise
            await asyncio.sleep(OUTAGE_PAUSE)


class _Live:
    """Which calls are open, and how much of the open attempt's text was shown."""

    def __init__(self, client: Client, run_id: str, frames: asyncio.Queue[Frame | None]) -> None:
        self._client = client
        self._run_id = run_id
        self._frames = frames
        self._open: dict[int, tuple[str, str, str]] = {}
        self._shown = 0
        self._attempt: tuple[str, int] | None = None
        self._arrived = False

    def note(self, event: HistoryEvent) -> list[Frame]:
        """What an event means to a watcher."""
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                name = scheduled.activity_type.name
                summary = _text(event)
                self._open[event.event_id] = (name, summary, scheduled.activity_id)
                return [Frame("call", summary)] if name == names.INVOKE_TOOL else []
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                closed = event.activity_task_completed_event_attributes.scheduled_event_id
                return self._closed(closed, "call_ended")
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                return self._closed(event.activity_task_failed_event_attributes.scheduled_event_id, "lost")
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                return self._closed(event.activity_task_timed_out_event_attributes.scheduled_event_id, "lost")
            case (
                EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
                | EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
            ):
                self._arrived = True
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED if self._arrived:
                self._arrived = False
                return [Frame("committed")]
            case _:
                pass
        return []

    def _closed(self, scheduled: int, how: str) -> list[Frame]:
        name, summary, attempt = self._open.pop(scheduled, ("", "", ""))
        if name == names.CALL_MODEL:
            self._attempt = None
            return [Frame("clear" if how == "lost" else "turn", attempt=attempt)]
        return [Frame(how, summary)] if name == names.INVOKE_TOOL else []

    async def look(self) -> None:
        """Look at the open attempt as long as there is one."""
        while True:
            if self._speaking:
                with suppress(RPCError):
                    described = await self._client.get_workflow_handle(self._run_id).describe(rpc_timeout=RPC_TIMEOUT)
                    for pending in described.raw_description.pending_activities:
                        # What was asked for before an attempt ended may be answered after it; that is void.
                        if pending.activity_id in self._speaking:
                            await self._show(pending)
            await asyncio.sleep(LOOK_PAUSE)

    @property
    def _speaking(self) -> list[str]:
        """The model attempts that are open as far as the history was read."""
        return [attempt for name, _, attempt in self._open.values() if name == names.CALL_MODEL]

    async def _show(self, pending: PendingActivityInfo) -> None:
        if not pending.heartbeat_details.payloads:
            return
        (plain,) = await _decoded(self._client, pending)
        try:
            beat = parse(Heartbeat, plain)
        except ProtocolError:
            return
        attempt = (pending.activity_id, pending.attempt)
        if attempt != self._attempt:
            self._attempt, self._shown = attempt, 0
        fresh = beat.text[max(0, self._shown - beat.offset) :]
        if fresh:
            self._shown = beat.offset + len(beat.text)
            self._frames.put_nowait(Frame("text", fresh, attempt=pending.activity_id))


async def _decoded(client: Client, pending: PendingActivityInfo) -> list[bytes]:
    payloads = list(pending.heartbeat_details.payloads[:1])
    codec = client.data_converter.payload_codec
    return [each.data for each in (payloads if codec is None else await codec.decode(payloads))]


def _text(event: HistoryEvent) -> str:
    """The summary of a scheduled activity; it is JSON text in the event's user metadata."""
    data = event.user_metadata.summary.data
    try:
        return str(json.loads(data)) if data else ""
    except ValueError:  # behind a codec it is not JSON
        return ""
