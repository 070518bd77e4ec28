"""`run`, `start` and `watch`: from a task to its answer."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio.service import RPCError

from orchestral_temporal.cli.lines import Lines
from orchestral_temporal.cli.questions import Questions
from orchestral_temporal.cli.screen import JsonScreen, Screen, Terminal, answer, answer_json, note
from orchestral_temporal.hosting.artifacts import artifact_store
from orchestral_temporal.hosting.connection import connect
from orchestral_temporal.hosting.pollers import unserved
from orchestral_temporal.hosting.process import CANCELLED, ENDINGS, GOOD, UNKNOWN, refused_code, stop_signals
from orchestral_temporal.hosting.running import Place, World, place_for_runs, workspace_of
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.protocol.activities import Role
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.temporal.client import AgentClient, ContinuityUnknown, RunHandle, Turn
from orchestral_temporal.temporal.visibility import watch_command

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

    def saying(self, text: str) -> "Asked":
        """The same with another text."""
        return replace(self, text=text)

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
    with screen_for(None, as_json=as_json) as screen:
        screen.note(f"run {run_id}")
        handle = AgentClient(client, artifacts=artifact_store(settings)).run(run_id)
        return await _followed(handle, screen, _questions(handle, screen, None))


async def run_task(settings: Settings, asked: Asked, *, as_json: bool) -> int:
    """Start a run and follow it; the first Ctrl-C cancels it."""
    lines = Lines()
    with stop_signals() as stop, screen_for(lines, as_json=as_json) as screen:
        async with place_for_runs(settings, asked.workspace, screen.note) as place:
            return await Following(place, asked, screen, lines if lines.terminal else None).until(stop)


def screen_for(lines: Lines | None, *, as_json: bool) -> Screen:
    """Where a run is shown, around the prompt of the lines."""
    return JsonScreen() if as_json else Terminal(lines)


def _questions(handle: RunHandle, screen: Screen, lines: Lines | None) -> Questions | None:
    """How a run's questions are met; none where a program reads, which sees them as events."""
    return Questions(handle, screen, lines) if isinstance(screen, Terminal) else None


async def _followed(handle: RunHandle, screen: Screen, questions: Questions | None) -> int:
    try:
        async for frame in handle.watch():
            screen.show(frame)
            if questions is not None:
                questions.show(frame)
    finally:
        if questions is not None:
            await questions.close()
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


class Following:
    """One run at the terminal, and what a Ctrl-C means to it."""

    def __init__(self, place: Place, asked: Asked, screen: Screen, lines: Lines | None = None) -> None:
        """Ask the run's questions by `lines`, where people can be asked."""
        self._place = place
        self._asked = asked
        self._screen = screen
        self._lines = lines
        self._questions: Questions | None = None
        self._starting: asyncio.Task[RunHandle] | None = None
        self._handle: RunHandle | None = None
        self._ended = asyncio.Event()
        self._given_up: int | None = None

    async def until(self, stop: asyncio.Event) -> int:
        """Carry the run out, unless somebody wants it to stop; the exit code.

        All is done in the caller's task, as the place wants it; the time limit is how another one can give it up.
        """
        try:
            async with asyncio.timeout(None) as limit:
                heeding = asyncio.create_task(self._heed(stop, limit))
                try:
                    return await self._carry_out()
                finally:
                    heeding.cancel()
                    await asyncio.wait({heeding})
        except TimeoutError:
            if self._given_up is None:
                raise
            return self._given_up

    async def _heed(self, stop: asyncio.Event, limit: asyncio.Timeout) -> None:
        await stop.wait()
        self._given_up = await self._stop()
        if self._given_up is not None:
            limit.reschedule(asyncio.get_running_loop().time())

    async def _carry_out(self) -> int:
        """Start the run and follow it; where its server goes, go on with it on another one that has its database."""
        while True:
            world = await self._place.world()
            handle = await self._handle_in(world)
            self._screen.started(handle.run_id, self._asked.session_id or handle.run_id)
            await self._see_that_it_is_taken(world, handle)
            code = await self._followed_in(world, handle)
            if code is not None:
                return code
            await self._place.leave()
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
        self._questions = _questions(handle, self._screen, self._lines)
        following = asyncio.create_task(_followed(handle, self._screen, self._questions))
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

    async def _stop(self) -> int | None:
        """Cancel the run; the exit code if it is given up, because it has not begun or does not end."""
        if self._starting is None:
            self._screen.note("Stopped before the run began; Ctrl-C again leaves at once.")
            return CANCELLED
        if self._ended.is_set():
            return None
        if self._questions is not None:
            await self._questions.close()
        self._screen.note("Cancelling the run; Ctrl-C again leaves at once.")
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await asyncio.wait({self._starting})  # what is on its way may have begun, and would go on alone
                if self._starting.exception() is not None:
                    return None
                handle = self._handle or self._starting.result()
                with suppress(ContinuityUnknown, ProtocolError, RPCError):
                    await handle.cancel("cancelled at the terminal", patience=ACK_PATIENCE)
                await self._ended.wait()
        except TimeoutError:
            watch = f"`{watch_command(self._handle.run_id)}` shows how it goes on." if self._handle else ""
            self._screen.note(f"The run has not ended; {watch or 'the server does not answer, and may begin it yet.'}")
            return UNKNOWN
        return None
