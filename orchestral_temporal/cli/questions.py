"""What a run asks of people while it is followed: asked on the terminal, or shown with the command that answers it."""

import asyncio
from typing import Final

from temporalio.service import RPCError

from orchestral_temporal.cli.lines import Lines, NotText
from orchestral_temporal.cli.screen import Terminal
from orchestral_temporal.hosting.process import complaint
from orchestral_temporal.protocol.commands import AckRejected
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import RequestClosed, RequestOpened, RequestResolved
from orchestral_temporal.protocol.requests import InputRequest, PendingRequest
from orchestral_temporal.temporal.client import ContinuityUnknown, Frame, RunHandle
from orchestral_temporal.temporal.visibility import answer_command, question

PROMPT: Final = "answer> "


class Questions:
    """The open questions of one run, one after the other; an open one can be answered from elsewhere as well."""

    def __init__(self, handle: RunHandle, screen: Terminal, lines: Lines | None) -> None:
        """Ask by `lines`; without them, show each question with its command."""
        self._handle = handle
        self._screen = screen
        self._lines = lines
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._prompted: str | None = None

    def show(self, frame: Frame) -> None:
        """Begin with a question that was opened, end with one that is open no more."""
        match frame.event.event.payload if frame.event is not None else None:
            case RequestOpened(request=PendingRequest(request_id=name, payload=InputRequest()) as request):
                if self._lines is None:
                    command = answer_command(self._handle.run_id, name)
                    self._screen.note(f"? {question(request)}\n  `{command}` answers, at another terminal.")
                else:
                    self._asking[name] = asyncio.create_task(self._ask(request, self._lines))
            case RequestResolved(request_id=name) | RequestClosed(request_id=name) if name in self._asking:
                if self._prompted == name:
                    self._screen.note("· answered elsewhere")
                self._asking[name].cancel()
            case _:
                pass

    async def close(self) -> None:
        """Ask no more."""
        for task in self._asking.values():
            task.cancel()
        for ended in await asyncio.gather(*self._asking.values(), return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _ask(self, request: PendingRequest, lines: Lines) -> None:
        """Ask until the run takes an answer, or nobody wants to give one here."""
        async with self._one_at_a_time:
            lines.forget()
            self._screen.note(f"? {question(request)}")
            while True:
                self._prompted = request.request_id
                try:
                    said = await lines.ask(PROMPT)
                except NotText as fault:
                    self._screen.note(str(fault))
                    continue
                finally:
                    self._prompted = None
                if said is None:
                    command = answer_command(self._handle.run_id, request.request_id)
                    self._screen.note(f"The question stays open; `{command}` answers it.")
                    return
                if await self._answered(request.request_id, said):
                    return

    async def _answered(self, request_id: str, said: str) -> bool:
        """Send an answer; false if the run refuses it and waits for another."""
        try:
            ack = await self._handle.answer(request_id, said)
        except (ProtocolError, ContinuityUnknown, RPCError) as fault:
            self._screen.note(complaint(fault).sentence)
            return True
        if not isinstance(ack.state, AckRejected):
            return True
        self._screen.note(ack.state.message)
        return False
