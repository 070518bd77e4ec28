"""One attempt of a tool call before its server: beats, the fence, the outcome on record (decisions 15, 16, 17, 21).

| when | what stands in the heartbeat | how it gets there |
|---|---|---|
| before the fence | nothing; null if judging or the gate takes longer than a quarter of the time-out | SDK |
| just before the effect | the fence | awaited |
| while the tool works | the same | SDK and awaited, each quarter of the time-out |

The SDK's beats keep its own watch over the activity quiet; only an awaited one says what the server knows. On the plain
path one is awaited, and the SDK sends none for a call that is done within a quarter of the time-out. The outcome goes
on record as the activity's completion, which is awaited as well, so a call behind its fence costs one round trip more.

Once the server has given the attempt up, a call behind its fence works on, and the signal `outcome` tells the run so:
at once, then three times in its grace, and in the end with the outcome.
"""

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from typing import Final, TypeVar

import structlog
from temporalio import activity
from temporalio.service import RPCError

from orchestral_temporal.core.limits import FENCE_OUTCOME_BYTES
from orchestral_temporal.ports import ArtifactStore, Clock, NotStarted
from orchestral_temporal.protocol.activities import Fence, Heartbeat, Timeouts, ToolObservation
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.tools import Cancelled, Rejected
from orchestral_temporal.protocol.words import dump, to_json
from orchestral_temporal.temporal import failures
from orchestral_temporal.temporal.answering import LONGEST_PAUSE, Answer, AttemptServer, answered
from orchestral_temporal.temporal.beating import HEARTBEAT_THROTTLE, STOP_SECONDS, pause_between_beats

REPORTS_IN_GRACE: Final = 3
"""Signals `at work` in the run's grace: two may be lost."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_SUSPEND_AWARE: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds since the machine was started, its sleep included: macOS counts that in its monotonic clock."""
    return time.clock_gettime(_SUSPEND_AWARE)


class Lease:
    """An attempt as far as the server grants it to this worker; the `EffectFence` of its call."""

    def __init__(self, fence: Fence, timeouts: Timeouts, grace: timedelta, clock: Clock) -> None:
        timeout = activity.info().heartbeat_timeout
        self._timeout = timeout.total_seconds() if timeout is not None else float("inf")
        self._pause = pause_between_beats()
        self._report_pause = timeouts.uncertainty_grace_ms / 1000 / REPORTS_IN_GRACE
        self._grace = grace.total_seconds()
        self._clock = clock
        self._server = AttemptServer()
        self._asking = asyncio.Lock()
        self._fence = fence
        self._beat = Heartbeat()
        self._sent = 0.0
        self._beaten = False
        self._lost = False
        self._settled = False
        self._over = False
        self._work: asyncio.Task[object] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.stands = False
        self.cancelled = False
        self.completed = False

    @property
    def details(self) -> JsonObject:
        """What an error says of the fence; a null one is certain: the tool did not begin."""
        return dump(self._beat if self.stands else Heartbeat())

    # -- the port of the guard -----------------------------------------------------------------------------------------

    async def put_up(self) -> None:
        """Put the fence on record, or renew it.

        Raises:
            NotStarted: the server has given the attempt up, or the run was cancelled.
            asyncio.CancelledError: this worker stops, so that another one had better begin.
        """
        if not self.stands and activity.is_worker_shutdown():
            self._over = True
            raise asyncio.CancelledError
        # A beat without the fence may still be on its way, and would take back what is recorded now.
        overtaken = self._beaten and not self.stands
        self._beat = Heartbeat(fence=self._fence)
        if overtaken:
            activity.heartbeat(self._beat)
        await self._renew()
        if overtaken:
            await asyncio.sleep(2 * HEARTBEAT_THROTTLE.total_seconds())
            await self._renew()
        self.stands = True

    async def _renew(self) -> None:
        match await answered(self._ask):
            case Answer.GONE:
                self._lost = True
                message = "The worker fell silent before the tool began, and the run has given this attempt up."
                raise NotStarted(Rejected(code="not_started", message=message))
            case Answer.CANCELLED:
                raise NotStarted(Cancelled())
            case Answer.WANTED:
                pass

    def fresh(self) -> bool:
        """Whether the last confirmed beat was sent less than half a time-out ago."""
        return self._clock() - self._sent <= self._timeout / 2

    def lapsed(self) -> bool:
        """Whether the fence stands and no beat was confirmed for a time-out."""
        return self.stands and self._clock() - self._sent > self._timeout

    async def _ask(self) -> Answer:
        async with self._asking:  # so that an older beat is never recorded after a newer one
            sent = self._clock()
            answer = await self._server.beat(self._beat)
        if answer is not Answer.GONE:
            self._sent = sent
        return answer

    # -- the life of the attempt ---------------------------------------------------------------------------------------

    async def hold(self, call: Coroutine[None, None, T]) -> T:
        """Carry out the call and beat beside it. If its run is cancelled, so is the call, and `cancelled` says why.

        Raises:
            ApplicationError: `Abandoned`; this worker stops, or nobody waits for the call any more.
            asyncio.CancelledError: the activity was paused or reset before the fence stood.
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
            return await self._leave(work) if work.cancelled() or not work.done() else work.result()
        finally:
            if self._stopping is not None:
                self._stopping.cancel()

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
        finally:
            if not self.completed:
                self._fence = await _with_outcome(self._fence, observation, artifacts)
                self._beat = Heartbeat(fence=self._fence)
        if self.completed:
            return
        self._lost = self.completed = True
        if not await answered(lambda: self._server.report(self._fence)):
            self._log_nobody()

    async def _tell(self) -> float:
        """Say that the call is at work; the seconds until that must be said again."""
        try:
            if self._lost:
                return await self._tell_run()
            self._beaten = True
            activity.heartbeat(self._beat)
            if self.stands:
                answer = await self._ask()
                self._lost = answer is Answer.GONE
                if answer is Answer.CANCELLED:
                    self._cancel()
        except RPCError:  # the lease runs on, and the next try may be heard
            return min(self._pause, LONGEST_PAUSE)
        return 0 if self._lost else self._pause

    async def _tell_run(self) -> float:
        if not self._settled and not await self._server.report(self._fence):
            self._log_nobody()
            self._over = True
            raise asyncio.CancelledError
        return self._report_pause

    def _goes_on(self) -> bool:
        """Whether the call goes on after a cancel, which is the SDK's or our own."""
        details = activity.cancellation_details()
        if details is None or self._over:
            return False
        if details.cancel_requested:
            self._cancel()
        elif details.worker_shutdown or not self.stands:
            return False
        self._lost = self._lost or details.not_found or details.timed_out
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

    async def _leave(self, work: asyncio.Task[T]) -> T:
        """Stop the call; an outcome that was there when the stop came is still the outcome."""
        work.cancel()
        await asyncio.wait({work}, timeout=STOP_SECONDS)
        if work.done() and not work.cancelled():
            return work.result()
        details = activity.cancellation_details()
        gone = details is not None and (details.worker_shutdown or details.not_found or details.timed_out)
        if not (gone or self._over):
            raise asyncio.CancelledError
        call = f"attempt {self._fence.attempt} of {self._fence.invocation_id}"
        raise failures.abandoned(f"The worker stopped while it carried out {call}.", self.details)

    def _log_nobody(self) -> None:
        _log.warning("nobody waits for a tool call any more", invocation=self._fence.invocation_id)


async def _with_outcome(fence: Fence, observation: ToolObservation, artifacts: ArtifactStore) -> Fence:
    text = to_json(observation).encode()
    if len(text) > FENCE_OUTCOME_BYTES:
        try:
            return fence.model_copy(update={"stored": await artifacts.put(text)})
        except Exception:  # noqa: BLE001 -- whatever the store raises: a long record is better than none
            _log.exception("the outcome cannot be stored", invocation=fence.invocation_id)
    return fence.model_copy(update={"outcome": observation})
