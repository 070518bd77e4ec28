"""`run` without a task: a run for each line, all in one session."""

import asyncio
import signal
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from temporalio.service import RPCError

from orchestral_temporal.cli.follow import Asked, Following, screen_for
from orchestral_temporal.cli.lines import Lines, NotText
from orchestral_temporal.cli.screen import Screen
from orchestral_temporal.hosting.process import GOOD, complain, complaint, first_of, stop_signals
from orchestral_temporal.hosting.running import Place, place_for_runs
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.temporal.client import ContinuityUnknown
from orchestral_temporal.temporal.failures import StartRefused

PROMPT: Final = "> "


@dataclass(frozen=True)
class Chat:
    """What the runs of a chat have in common; without a session they get a new one."""

    agent: str
    workspace: Path | None
    session_id: str | None


async def chat(settings: Settings, wanted: Chat, *, as_json: bool) -> int:
    """Carry out a run for each line; a line that cannot become one is complained of, and the next one is taken.

    Returns:
        0 for a chat at the terminal, and for piped lines whose runs were all delivered; else their highest exit code.
    """
    lines = Lines()
    session = wanted.session_id or f"chat-{uuid.uuid4()}"
    worst = GOOD
    with screen_for(lines, as_json=as_json) as screen:
        async with place_for_runs(settings, wanted.workspace, screen.note) as place:
            await place.world()
            if lines.terminal:
                screen.note(f"session {session} · Ctrl-D leaves, Ctrl-C cancels a run")
            talk = _Talk(Asked("", wanted.agent, wanted.workspace, session, None), place, screen, lines)
            while (code := await talk.turn()) is not None:
                worst = max(worst, code)
                if talk.over:
                    return worst
    return GOOD if lines.terminal else worst


@dataclass
class _Talk:
    """A chat between two lines; `over` when a signal was meant for all of it."""

    like: Asked
    place: Place
    screen: Screen
    lines: Lines
    over: bool = False

    async def turn(self) -> int | None:
        """The exit code of the next line; none when there is no more."""
        try:
            line = await self._line()
            return None if line is None else await self._carried_out(line)
        except (NotText, StartRefused, ProtocolError, ContinuityUnknown, RPCError) as fault:
            told = complaint(fault)
            complain(told)
            return told.code

    async def _line(self) -> str | None:
        with stop_signals() as stop:
            return await first_of(self.lines.ask(PROMPT), _nothing_after(stop))

    async def _carried_out(self, line: str) -> int:
        with stop_signals() as stop:
            asking = self.lines if self.lines.terminal else None
            code = await Following(self.place, self.like.saying(line), self.screen, asking).until(stop)
        # Only who sits at the prompt can go on from there.
        self.over = stop.is_set() and (stop.number == signal.SIGTERM or not self.lines.terminal)
        return code


async def _nothing_after(stop: asyncio.Event) -> None:
    await stop.wait()
