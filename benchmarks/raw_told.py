"""Nothing but Temporal: a workflow that is told things, with payloads as large as ours; it rides as `raw` does."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Final

from temporalio import activity, workflow
from temporalio.plugin import SimplePlugin

with workflow.unsafe.imports_passed_through():
    from raw import text

COMMAND_SIZE: Final = 350
"""Bytes of a steer on its way, its digest included."""

ACK_SIZE: Final = 140
"""Bytes of its acknowledgement."""

ATTEMPT_SIZE: Final = 1_600
"""Bytes that the attempt of a model is given, whose context has grown by a steer."""

LONG: Final = timedelta(minutes=10)

_begun: Final = Counter[str]()
_changed: Final = asyncio.Condition()


async def begun(workflow_id: str, times: int) -> None:
    """Wait until so many activities of a workflow have begun."""
    async with _changed:
        await _changed.wait_for(lambda: _begun[workflow_id] >= times)


@activity.defn(name="raw_work")
async def _raw_work(_given: str) -> None:
    async with _changed:
        _begun[activity.info().workflow_id or ""] += 1
        _changed.notify_all()
    await asyncio.Event().wait()


@workflow.defn(name="RawTold")
class RawTold:
    """Keeps what it is told, by update or by signal, until it is told to end.

    One that replaces has an activity under way, and each update puts another one in its place.
    """

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._over = False
        self._replaces = False
        self._work: workflow.ActivityHandle[None] | None = None

    @workflow.run
    async def run(self, replaces: bool) -> int:
        """How much it was told."""
        self._replaces = replaces
        self._replace()
        await workflow.wait_condition(lambda: self._over)
        return len(self._kept)

    @workflow.update
    async def tell(self, words: str) -> str:
        """Keep it and answer with as much as an acknowledgement has."""
        self._kept.append(words)
        self._replace()
        return text(ACK_SIZE, f"{len(self._kept)} ")

    @tell.validator
    def check(self, words: str) -> None:
        """Take no empty words."""
        if not words:
            message = "Say something."
            raise ValueError(message)

    @workflow.signal
    def note(self, words: str) -> None:
        """Keep it."""
        self._kept.append(words)

    @workflow.query
    def kept(self) -> int:
        """How much it was told so far."""
        return len(self._kept)

    @workflow.signal
    def end(self) -> None:
        """That was all."""
        self._over = True

    def _replace(self) -> None:
        if not self._replaces:
            return
        if self._work is not None:
            self._work.cancel()
        self._work = workflow.start_activity(_raw_work, text(ATTEMPT_SIZE), start_to_close_timeout=LONG)
        self._work.add_done_callback(lambda work: work.cancelled() or work.exception())


PLUGIN: Final = SimplePlugin("raw-told", workflows=[RawTold], activities=[_raw_work])
