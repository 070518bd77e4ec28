"""One attempt of a tool call before its server: beats, the fence, the outcome on record (decisions 15, 16, 17, 21).

| when | what stands in the heartbeat | how it gets there |
|---|---|---|
| before the fence | nothing; null if judging or the gate takes longer than a quarter of the time-out | SDK |
| just before the effect | the fence | awaited; where beats went out before it, first SDK, behind them |
| while the tool works | the same | SDK and awaited, each quarter of the time-out |

The SDK's beats keep its own watch over the activity quiet; only an awaited one says what the server knows. On the plain
path one is awaited, and the SDK sends none for a call that is done within a quarter of the time-out. The outcome goes
on record as the activity's completion, which is awaited as well, so a call behind its fence costs one round trip more.

Once the server has given the attempt up, a call behind its fence works on, and the signal `outcome` tells the run so:
at once, then at pauses that double from a third of the grace, and in the end with the outcome.

A beat that a user's payload codec cannot encode was not heard, no more. The SDK then cancels the activity, without
saying why, and in the end gives it up; the call goes on as long as the server wants it.
"""

import asyncio
import contextvars
import math
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeVar

import structlog
from temporalio import activity

from orchestral_temporal.core.limits import FENCE_OUTCOME_BYTES, PROGRESS_BYTES, REPORT_PAUSE_MS
from orchestral_temporal.ports import ArtifactStore, Clock, NotStarted
from orchestral_temporal.protocol.activities import Fence, Heartbeat, Timeouts, ToolObservation
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.telemetry import ProgressReported
from orchestral_temporal.protocol.tools import Cancelled, Rejected
from orchestral_temporal.protocol.words import dump, to_json
from orchestral_temporal.temporal import failures
from orchestral_temporal.temporal.answering import (
    LONGEST_PAUSE,
    UNHEARD,
    Answer,
    AttemptServer,
    answered,
)
from orchestral_temporal.temporal.beating import STOP_SECONDS, pause_between_beats
from orchestral_temporal.temporal.dispatch import TOOL_MARGIN
from orchestral_temporal.temporal.patient_store import PatientStore
from orchestral_temporal.temporal.visibility import cut

REPORTS_IN_GRACE: Final = 3
"""The first pause between signals `at work` is this share of the run's grace, so that one may be lost."""

LOOK_PAUSE: Final = 0.05
"""Seconds between two looks at what the server has: the SDK sends the next beat within a quarter of a second."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_SUSPEND_AWARE: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds since the machine was started, its sleep included: macOS counts that in its monotonic clock."""
    return time.clock_gettime(_SUSPEND_AWARE)


class Lease:
    """An attempt as far as the server grants it to this worker; the `EffectFence` of its call."""

    def __init__(self, fence: Fence, timeouts: Timeouts, grace: timedelta, clock: Clock) -> None:
        info = activity.info()
        self._timeout = _seconds(info.heartbeat_timeout)
        self._pause = pause_between_beats()
        self._next_ms = min(timeouts.uncertainty_grace_ms // REPORTS_IN_GRACE, REPORT_PAUSE_MS)
        self._grace = grace.total_seconds()
        self._clock = clock
        self._server = AttemptServer()
        self._asking = asyncio.Lock()
        self._fence = fence
        self._beat = Heartbeat()
        self._progress: ProgressReported | None = None
        self._here = contextvars.copy_context()
        self._sent = 0.0
        self._asked = 0
        self._beaten = False
        self._lost = False
        self._settled = False
        self._over = False
        self._work: asyncio.Task[object] | None = None
        self._stopping: asyncio.Task[None] | None = None
        margin = TOOL_MARGIN.total_seconds()
        self.deadline = asyncio.get_running_loop().time() - margin + _seconds(info.start_to_close_timeout)
        self.sent = False
        self.stands = False
        self.cancelled = False
        self.completed = False

    @property
    def details(self) -> JsonObject:
        """What an error says of the fence; a null one is certain: the tool did not begin.

        So it is while the fence was only sent, though the server may have it.
        """
        return dump(self._beat if self.stands else Heartbeat())

    # -- the port of the guard -----------------------------------------------------------------------------------------

    async def put_up(self) -> None:
        """Put the fence on record, or renew it.

        Raises:
            NotStarted: the server has given the attempt up, or the run was cancelled.
            UnavailableError: the payload codec cannot encode the fence, for half a time-out.
            asyncio.CancelledError: this worker stops, so that another one had better begin.
        """
        if not self.stands:
            if activity.is_worker_shutdown():
                self._over = True
                raise asyncio.CancelledError
            beat = Heartbeat(fence=self._fence)
            await answered(lambda: self._server.encoded(beat), self._timeout / 2)
            overtaken = self._beaten
            self._beat, self.sent = beat, True
            if overtaken:
                await self._overtake()
        match await answered(self._ask):
            case Answer.GONE:
                # A fence that was sent once, and refused, is on no record: there is nothing to tell the run.
                self.sent = self.stands or self._beaten or self._asked > 1
                raise self._gone()
            case Answer.CANCELLED:
                raise NotStarted(Cancelled())
            case Answer.WANTED:
                self.stands = True

    async def _overtake(self) -> None:
        """Let the SDK record the fence first: a beat without it may still wait there, and would take ours back.

        It sends one beat at a time, so that behind a recorded fence there is none.
        """
        activity.heartbeat(self._beat)
        while True:
            recorded = await answered(self._server.recorded)
            if recorded is None:
                raise self._gone()
            if recorded.fence == self._fence:
                return
            await asyncio.sleep(LOOK_PAUSE)

    def _gone(self) -> NotStarted:
        self._lost = True
        message = "The worker fell silent before the tool began, and the run has given this attempt up."
        return NotStarted(Rejected(code="not_started", message=message))

    def fresh(self) -> bool:
        """Whether the last confirmed beat was sent less than half a time-out ago."""
        return self._clock() - self._sent <= self._timeout / 2

    def lapsed(self) -> bool:
        """Whether the fence stands and no beat was confirmed for a time-out."""
        return self.stands and self._clock() - self._sent > self._timeout

    async def _ask(self) -> Answer:
        async with self._asking:  # so that an older beat is never recorded after a newer one
            sent = self._clock()
            self._asked += 1
            answer = await self._server.beat(self._beat)
        if answer is not Answer.GONE:
            self._sent = sent
        return answer

    # -- the life of the attempt ---------------------------------------------------------------------------------------

    async def hold(self, call: Coroutine[None, None, T]) -> T:
        """Carry out the call and beat beside it. If its run is cancelled, so is the call, and `cancelled` says why.

        However it ends, the call has ended too, or was told to and given its time.

        Raises:
            ApplicationError: `Abandoned`; this worker stops, or nobody waits for the call any more.
            asyncio.CancelledError: the activity was paused or reset before the fence was sent.
        """
        work = self._work = asyncio.create_task(call)
        pause = self._pause
        try:
            while not work.done():
                try:
                    await asyncio.wait({work}, timeout=pause)
                    if not work.done():
                        pause = await self._tell()
                except asyncio.CancelledError:
                    if not self._goes_on():
                        break
                    pause = 0 if self._lost else pause
        finally:
            if self._stopping is not None:
                self._stopping.cancel()
            await _stopped(work)
        if work.done() and not work.cancelled():
            return work.result()
        raise self._given_back()

    async def record(self, observation: ToolObservation, artifacts: ArtifactStore) -> None:
        """Put an outcome on record: with the server, or with the run where the server has given the attempt up.

        The record is the activity's completion itself. We send it, since the SDK gives up a completion when a server is
        away for some seconds; `completed` says that nobody else must.

        Raises:
            RPCError: the server refuses the outcome as it is; `details` hold it then.
        """
        self._settled = True
        try:
            self.completed = not self._lost and await answered(lambda: self._server.complete(observation))
            self._lost = not self.completed
        finally:
            if not self.completed:
                await self._keep(observation, artifacts)
        if self.completed:
            return
        self.completed = True
        if not await answered(lambda: self._report(self._fence)):
            self._log_nobody()

    async def _keep(self, observation: ToolObservation, artifacts: ArtifactStore) -> None:
        """Write the outcome into the fence; where it is long, the store has it first."""
        text = to_json(observation).encode()
        if len(text) <= FENCE_OUTCOME_BYTES:
            self._fence = self._fence.model_copy(update={"outcome": observation})
        else:
            stored = await PatientStore(artifacts).put(text)
            self._fence = self._fence.model_copy(update={"stored": stored})
        self._beat = Heartbeat(fence=self._fence)

    async def _tell(self) -> float:
        """Say that the call is at work; the seconds until that must be said again."""
        if self._lost:
            return await self._tell_run()
        pause = self._pause
        if self.stands:
            try:
                answer = await self._ask()
            except UNHEARD:  # the lease runs on, and the next try may be heard
                pause = min(self._pause, LONGEST_PAUSE)
            else:
                self._lost = answer is Answer.GONE
                if self._lost:
                    return 0
                if answer is Answer.CANCELLED:
                    self._cancel()
        # After our own: if the SDK cannot encode a beat it cancels us, whatever we wait for.
        self._show()
        return pause

    def progressed(self, message: str, fraction: float | None) -> None:
        """Show watchers how far the call is; what says nothing is left out (A6)."""
        said = cut(message, PROGRESS_BYTES)
        if said and not self._settled:
            share = fraction if fraction is not None and 0 <= fraction <= 1 else None
            self._progress = ProgressReported(message=said, fraction=share)
            self._here.run(self._show)

    def _show(self) -> None:
        """Beat by the SDK, which drops what follows too closely; the fence rides along, or it would be taken back."""
        self._beaten = True
        beat = self._beat
        activity.heartbeat(beat if self._progress is None else beat.model_copy(update={"progress": self._progress}))

    async def _tell_run(self) -> float:
        if self._fence.told:  # `record` is at it
            return self._pause
        try:
            there = await self._report(self._fence.model_copy(update={"next_ms": self._next_ms}))
        except UNHEARD:
            return min(self._pause, LONGEST_PAUSE)
        if not there:
            self._log_nobody()
            self._over = True
            raise asyncio.CancelledError
        pause = self._next_ms / 1000
        self._next_ms = min(2 * self._next_ms, REPORT_PAUSE_MS)
        return pause

    async def _report(self, fence: Fence) -> bool:
        async with self._asking:  # so that no word of a call at work follows its outcome
            return await self._server.report(fence)

    def _goes_on(self) -> bool:
        """Whether the call goes on after a cancel, which is the SDK's or our own."""
        if self._over:
            return False
        details = activity.cancellation_details()
        if details is None:  # the SDK could not encode a beat
            return True
        if details.cancel_requested:
            self._cancel()
        elif details.worker_shutdown or not self.sent:
            return False
        # `timed_out` is the SDK's own guess, which it calls `not_found` too; if our beats are confirmed it is wrong.
        self._lost = self._lost or (self.lapsed() if details.timed_out else details.not_found)
        if self._stopping is None:
            # The SDK cancels once, so the end of this worker it would not tell any more.
            self._stopping = asyncio.create_task(self._stop(asyncio.current_task()))
        return True

    def _cancel(self) -> None:
        """Tell the call that its run is cancelled, unless its outcome is there."""
        if self._work is not None and not self._settled and not self.cancelled:
            self.cancelled = True
            self._work.cancel()

    async def _stop(self, held: asyncio.Task[object] | None) -> None:
        await activity.wait_for_worker_shutdown()
        await asyncio.sleep(self._grace)
        self._over = True
        if held is not None:
            held.cancel()

    def _given_back(self) -> BaseException:
        details = activity.cancellation_details()
        gone = details is not None and (details.worker_shutdown or details.not_found or details.timed_out)
        if not (gone or self._over):
            return asyncio.CancelledError()
        call = f"attempt {self._fence.attempt} of {self._fence.invocation_id}"
        return failures.abandoned(f"The worker stopped while it carried out {call}.", self.details)

    def _log_nobody(self) -> None:
        _log.warning("nobody waits for a tool call any more", invocation=self._fence.invocation_id)


def _seconds(time_out: timedelta | None) -> float:
    return time_out.total_seconds() if time_out is not None else math.inf


async def _stopped(work: asyncio.Task[T]) -> None:
    """Tell a call to stop and give it its time, whoever cancels meanwhile.

    It is told twice: the first time it may be about to put an outcome on record, and then tries once more.
    """
    for _ in range(2):
        if work.done():
            return
        work.cancel()
        waiting = asyncio.ensure_future(asyncio.wait({work}, timeout=STOP_SECONDS))
        while not waiting.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(waiting)
