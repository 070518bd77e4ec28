"""`run`, `start` and `watch`: from a task to its answer."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from orchestral_temporal.cli.screen import JsonScreen, Screen, Terminal, answer, answer_json, note
from orchestral_temporal.hosting.artifacts import artifact_store
from orchestral_temporal.hosting.connection import connect
from orchestral_temporal.hosting.pollers import unserved
from orchestral_temporal.hosting.process import CANCELLED, ENDINGS, GOOD, UNKNOWN, refused_code, stop_signals
from orchestral_temporal.hosting.running import World, workspace_of, world_for_run
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.protocol.activities import Role
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.temporal.client import AgentClient, ContinuityUnknown, RunHandle, Turn

CANCEL_SECONDS: Final = 5.0
"""How long a cancelled run is waited for at the terminal: a model or a tool that is told to stop needs a second."""

ACK_PATIENCE: Final = timedelta(seconds=2)
"""How long of that a worker has to answer, before the cancel is left with the server for the next one."""


@dataclass(frozen=True)
class Asked:
    """What a person asks for."""

    text: str
    agent: str
    workspace: Path | None
    session_id: str | None
    run_id: str | None

    async def start(self, runs: AgentClient, workspace: str | None) -> RunHandle:
        """Start it."""
        return await runs.start(
            self.text, run_id=self.run_id, session_id=self.session_id, agent=self.agent, workspace=workspace
        )


async def start_task(settings: Settings, asked: Asked, *, as_json: bool) -> int:
    """Start a run and print its id, as JSON `{"run_id","session_id"}`."""
    client = await connect(settings.temporal)
    runs = AgentClient(client, task_queue=settings.queues.runs)
    handle = await asked.start(runs, workspace_of(settings, asked.workspace))
    if as_json:
        answer_json({"run_id": handle.run_id, "session_id": asked.session_id or handle.run_id})
    else:
        answer(handle.run_id)
    if await unserved(client, settings.queues):
        note("No worker serves all its queues: the run waits until `orchestral worker` or `orchestral dev` does.")
    return GOOD


async def watch_run(settings: Settings, run_id: str, *, as_json: bool) -> int:
    """Follow a run that is there."""
    client = await connect(settings.temporal)
    with _screen(as_json=as_json) as screen:
        screen.note(f"run {run_id}")
        runs = AgentClient(client, artifacts=artifact_store(settings))
        return await _followed(runs.run(run_id), screen)


async def run_task(settings: Settings, asked: Asked, *, as_json: bool) -> int:
    """Start a run and follow it; the first Ctrl-C cancels it."""
    with stop_signals() as stop, _screen(as_json=as_json) as screen:
        return await _Following(settings, asked, screen).until(stop)


def _screen(*, as_json: bool) -> Screen:
    return JsonScreen() if as_json else Terminal()


async def _followed(handle: RunHandle, screen: Screen) -> int:
    async for frame in handle.watch():
        screen.show(frame)
    turn = await handle.wait()
    screen.finish(turn)
    return _code(turn)


def _code(turn: Turn) -> int:
    failure = turn.failure
    if failure is not None and turn.result["head_digest"] is None:  # the start was refused, nothing was created
        return refused_code(str(failure["code"]))
    return ENDINGS.get(turn.status, UNKNOWN)


async def _unless(first: asyncio.Task[int], other: Coroutine[None, None, Sequence[Role]]) -> Sequence[Role]:
    """What the other finds, or nothing if the first is done before."""
    looking = asyncio.create_task(other)
    try:
        await asyncio.wait({first, looking}, return_when=asyncio.FIRST_COMPLETED)
        return () if first.done() else looking.result()
    finally:
        looking.cancel()
        await asyncio.wait({looking})


class _Following:
    """One run at the terminal, and what a Ctrl-C means to it."""

    def __init__(self, settings: Settings, asked: Asked, screen: Screen) -> None:
        self._settings = settings
        self._asked = asked
        self._screen = screen
        self._starting: asyncio.Task[RunHandle] | None = None
        self._handle: RunHandle | None = None
        self._ended = asyncio.Event()

    async def until(self, stop: asyncio.Event) -> int:
        """Carry the run out, unless somebody wants it to stop."""
        work = asyncio.create_task(self._carry_out())
        asked = asyncio.create_task(stop.wait())
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        given_up = await self._stop(work) if not work.done() else None
        asked.cancel()
        try:
            return await work
        except asyncio.CancelledError:
            if given_up is None:
                raise
            return given_up

    async def _carry_out(self) -> int:
        """Start the run and follow it; where its server goes, go on with it on another one that has its database."""
        while True:
            async with world_for_run(self._settings, self._asked.workspace, self._screen.note) as world:
                handle = await self._handle_in(world)
                self._screen.started(handle.run_id, self._asked.session_id or handle.run_id)
                await self._see_that_it_is_taken(world, handle)
                code = await self._followed_in(world, handle)
            if code is not None:
                return code
            self._screen.note("The server has gone; looking for another.")

    async def _handle_in(self, world: World) -> RunHandle:
        """The run in this world: started the first time, found again later."""
        if self._handle is not None:
            self._handle = await world.found(self._handle.run_id)
        else:
            self._starting = asyncio.create_task(self._asked.start(world.runs, world.workspace))
            self._handle = await self._starting
        return self._handle

    async def _followed_in(self, world: World, handle: RunHandle) -> int | None:
        """Follow the run to its end; none if its server was lost before. Where workers leave, ours take their place."""
        following = asyncio.create_task(_followed(handle, self._screen))
        try:
            while roles := await _unless(following, world.lost()):
                self._screen.note("The workers have gone: others are started for the time of this run.")
                await world.serve(roles)
            if not following.done():
                return None
            self._ended.set()
            return following.result()
        finally:
            following.cancel()
            await asyncio.wait({following})

    async def _see_that_it_is_taken(self, world: World, handle: RunHandle) -> None:
        if not await world.takes(handle.run_id):
            self._screen.note("No worker has taken the run: workers are started for the time of it.")
            await world.serve()

    async def _stop(self, work: asyncio.Task[int]) -> int | None:
        """Cancel the run, or give up what has not begun; the exit code if the work was given up."""
        if self._starting is None:
            self._screen.note("Stopped before the run began; Ctrl-C again leaves at once.")
            work.cancel()
            return CANCELLED
        if self._ended.is_set():
            return None
        self._screen.note("Cancelling the run; Ctrl-C again leaves at once.")
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await asyncio.wait({self._starting})  # what is on its way may have begun, and would go on alone
                if self._starting.exception() is not None:
                    return None
                handle = self._handle or self._starting.result()
                with suppress(ContinuityUnknown, ProtocolError):
                    await handle.cancel("cancelled at the terminal", patience=ACK_PATIENCE)
                await self._ended.wait()
        except TimeoutError:
            watch = f"`orchestral watch {self._handle.run_id}` shows how it goes on." if self._handle else ""
            self._screen.note(f"The run has not ended; {watch or 'the server does not answer, and may begin it yet.'}")
            work.cancel()
            return UNKNOWN
        return None
