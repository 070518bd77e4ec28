"""Heartbeats beside the work of an activity: how anybody notices that its worker is gone (decisions 15 and 17)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

from temporalio import activity

from orchestral_temporal.protocol.activities import Heartbeat

BEATS: Final = 4
"""Heartbeats in one heartbeat time-out: three may be late or lost (decision 15)."""

HEARTBEAT_THROTTLE: Final = timedelta(milliseconds=250)
"""The SDK sends at most one heartbeat in this time: live text is as old as this, a dead worker is noticed on time."""

STOP_SECONDS: Final = 1.0
"""How long work that was told to stop is waited for, so that its connections are closed in order."""

Result = TypeVar("Result")


def pause_between_beats() -> float:
    """Seconds from one heartbeat of the running activity to the next."""
    timeout = activity.info().heartbeat_timeout
    return timeout.total_seconds() / BEATS if timeout is not None else 1.0


async def beating(
    work: Awaitable[Result], beat: Callable[[], Heartbeat] = Heartbeat, live_text_ms: int | None = None
) -> Result:
    """Await work and heartbeat beside it, at least four times a time-out; what is done sooner needs none."""
    pause = pause_between_beats()
    if live_text_ms is not None:
        pause = min(pause, live_text_ms / 1000)
    task = asyncio.ensure_future(work)
    while True:
        try:
            if (await asyncio.wait([task], timeout=pause))[0]:
                return task.result()
            activity.heartbeat(beat())
        except asyncio.CancelledError:
            if activity.cancellation_details() is None:
                continue  # nobody cancels: the SDK says so that a beat could not be encoded, and the next one may be
            task.cancel()
            stopped, _ = await asyncio.wait([task], timeout=STOP_SECONDS)
            # An outcome that was there when the cancel came is the outcome; an error goes with the cancel.
            if any(not each.cancelled() and each.exception() is None for each in stopped):
                return task.result()
            raise
