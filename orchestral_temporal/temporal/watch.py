"""Following a run: history by long poll, live text from the heartbeat of the open attempt (decision 27)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.core.limits import PROGRESS_BYTES
from orchestral_temporal.protocol.activities import Heartbeat
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.telemetry import ProgressReported
from orchestral_temporal.protocol.words import parse
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.history import Undecodable, plain
from orchestral_temporal.temporal.visibility import cut

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

_CANCELLED: Final = ("clear", "call_ended")
_ENDS: Final = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: ("turn", "call_ended"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: ("clear", "lost"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: ("clear", "lost"),
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: _CANCELLED,
}
"""What the end of an activity means to a watcher: that of a model attempt, and that of a tool call."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Frame:
    """One thing a watcher sees.

    `text`: more live text. `clear`: the live text of that attempt is void. `turn`: it is the model's answer. `call`,
    `call_ended`: a tool call, by its summary. `progress`: a call at work says how far it is, or a failed attempt of the
    model is repeated soon; only the newest word is kept, and it is never on record (A6). `lost`: a call was lost.
    `committed`: something outside arrived, or the run waits; the journal may have grown. `event`: a record. `attempt`
    tells the model attempts of a run apart; what is void is said before the next one speaks (F013). What is open when
    it is cancelled, or when the run ends, is closed.
    """

    kind: str
    text: str = ""
    event: AgentJournalRecord | None = None
    attempt: str = ""
    progress: ProgressReported | None = None


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
        looker.cancel()
        reader.cancel()
        # Not by awaiting each: a cancel of our own that came meanwhile could not be told from theirs.
        await asyncio.gather(looker, reader, return_exceptions=True)


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
        self._progress: dict[str, ProgressReported] = {}
        self._failed = ""
        self._arrived = False
        self._settled = False
        self._told = False

    def note(self, event: HistoryEvent) -> list[Frame]:
        """What an event means to a watcher."""
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                name = scheduled.activity_type.name
                summary = _text(event)
                self._open[event.event_id] = (name, summary, scheduled.activity_id)
                self._failed = "" if name == names.CALL_MODEL else self._failed
                return [Frame("call", summary)] if name == names.INVOKE_TOOL else []
            case EventType.EVENT_TYPE_TIMER_STARTED if self._failed:
                return [self._repeated(event)]
            case kind if kind in _ENDS:
                if self._open.get(_scheduled(event), ("",))[0] == names.CALL_MODEL:
                    self._failed = event.activity_task_failed_event_attributes.failure.message
                return self._closed(_scheduled(event), *_ENDS[kind])
            case kind if kind in CLOSED:  # a cancel does not wait for all that it ends
                return [frame for each in list(self._open) for frame in self._closed(each, *_CANCELLED)]
            case (
                EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
                | EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
            ):
                self._arrived = True
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                arrived, self._arrived, self._settled = self._arrived, False, not self._arrived
                return [Frame("committed")] if arrived else []
            case _:
                pass
        return []

    def _repeated(self, event: HistoryEvent) -> Frame:
        """A pause of the run after a failed attempt: nothing else starts a timer then."""
        seconds = event.timer_started_event_attributes.start_to_fire_timeout.ToMilliseconds() / 1000
        message = f"The model is asked again in {seconds:.1f} s: {cut(self._failed, PROGRESS_BYTES)}"
        self._failed = ""
        return Frame("progress", "model", progress=ProgressReported(message=message))

    def _closed(self, scheduled: int, attempt_says: str, call_says: str) -> list[Frame]:
        name, summary, attempt = self._open.pop(scheduled, ("", "", ""))
        if name == names.CALL_MODEL:
            self._attempt = None
            return [Frame(attempt_says, attempt=attempt)]
        return [Frame(call_says, summary)] if name == names.INVOKE_TOOL else []

    async def look(self) -> None:
        """Look at the open attempt, and at the calls at work, as long as there are any."""
        while True:
            if self._at_work:
                with suppress(RPCError):
                    described = await self._client.get_workflow_handle(self._run_id).describe(rpc_timeout=RPC_TIMEOUT)
                    for pending in described.raw_description.pending_activities:
                        # What was asked for before an attempt ended may be answered after it; that is void.
                        if pending.activity_id in self._at_work:
                            await self._show(pending)
            elif self._settled and not self._open:  # the run waits, perhaps for an answer to what it asks
                self._settled = False
                self._frames.put_nowait(Frame("committed"))
            await asyncio.sleep(LOOK_PAUSE)

    @property
    def _at_work(self) -> dict[str, str]:
        """The model attempts and tool calls that are open as far as the history was read, and their summaries."""
        told = (names.CALL_MODEL, names.INVOKE_TOOL)
        return {attempt: summary for name, summary, attempt in self._open.values() if name in told}

    async def _show(self, pending: PendingActivityInfo) -> None:
        if not pending.heartbeat_details.payloads:
            return
        try:
            beat = parse(Heartbeat, await plain(pending.heartbeat_details.payloads[0], self._client.data_converter))
        except (ProtocolError, Undecodable) as fault:
            if not self._told:
                self._told = True
                _log.warning("live text cannot be read", run_id=self._run_id, why=str(fault))
            return
        if beat.progress is not None and beat.progress != self._progress.get(pending.activity_id):
            self._progress[pending.activity_id] = beat.progress
            summary = self._at_work.get(pending.activity_id, "")
            self._frames.put_nowait(Frame("progress", summary, progress=beat.progress))
        if pending.activity_type.name == names.CALL_MODEL:
            self._speak(pending, beat)

    def _speak(self, pending: PendingActivityInfo, beat: Heartbeat) -> None:
        attempt = (pending.activity_id, pending.attempt)
        if attempt != self._attempt:
            self._attempt, self._shown = attempt, 0
        fresh = beat.text[max(0, self._shown - beat.offset) :]
        if fresh:
            self._shown = beat.offset + len(beat.text)
            self._frames.put_nowait(Frame("text", fresh, attempt=pending.activity_id))


def _scheduled(event: HistoryEvent) -> int:
    """Which activity has ended; the attributes of all other kinds of an end are empty and say 0."""
    return (
        event.activity_task_completed_event_attributes.scheduled_event_id
        or event.activity_task_failed_event_attributes.scheduled_event_id
        or event.activity_task_timed_out_event_attributes.scheduled_event_id
        or event.activity_task_canceled_event_attributes.scheduled_event_id
    )


def _text(event: HistoryEvent) -> str:
    """The summary of a scheduled activity; it is JSON text in the event's user metadata."""
    data = event.user_metadata.summary.data
    try:
        return str(json.loads(data)) if data else ""
    except ValueError:  # behind a codec it is not JSON
        return ""
