"""How a running tool learns that somebody has steered its run: its worker asks, if the tool wants to know (C4).

Nothing of Temporal's own tells an activity to return what it has without ending it. So the worker asks the run by a
query, which leaves no trace in the history. A tool that never looks at `should_yield` costs no question.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio import activity

from orchestral_temporal.temporal import names

LOOK_PAUSE: Final = 1.0
"""Seconds between two questions, and from the start of a call to the first: most calls have ended by then."""

SHARE: Final = 20
"""A question that took long, as one to a run that must be replayed, is repeated after so many times its own time."""

RPC_TIMEOUT: Final = timedelta(seconds=10)


class YieldWatch:
    """Whether a steer waits for the turn of one call."""

    def __init__(self, invocation_id: str) -> None:
        info = activity.info()
        self._run = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        self._question = {"invocation_id": invocation_id}
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._looking: asyncio.Task[None] | None = None
        self._asked = False
        self._over = False
        self._wanted = False

    def wanted(self) -> bool:
        """As far as is known; the first question, from any thread, begins the watch."""
        if not self._asked:
            self._asked = True
            with suppress(RuntimeError):  # the loop has gone with its worker
                self._loop.call_soon_threadsafe(self._begin)
        return self._wanted

    def end(self) -> None:
        """The call is over."""
        self._over = True
        if self._looking is not None:
            self._looking.cancel()

    def _begin(self) -> None:
        if not self._over:
            self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        await asyncio.sleep(self._begun + LOOK_PAUSE - self._loop.time())
        while not self._wanted:
            began = self._loop.time()
            # Whatever fails, the server or a user's payload codec: nobody has heard of a steer.
            with suppress(Exception):
                answer = await self._run.query(
                    names.QUERY_YIELD_WANTED, self._question, result_type=dict[str, bool], rpc_timeout=RPC_TIMEOUT
                )
                self._wanted = answer["yield_wanted"]
            await asyncio.sleep(max(LOOK_PAUSE, SHARE * (self._loop.time() - began)))
