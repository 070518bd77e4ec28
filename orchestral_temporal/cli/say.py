"""`steer`, `queue`, `answer` and `pending`: what people say to a run, and what a run waits for from them."""

from dataclasses import dataclass
from typing import Final

from orchestral_temporal.cli.look import runs_of
from orchestral_temporal.cli.screen import answer_json, answer_table, note
from orchestral_temporal.hosting.process import GOOD
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.protocol.requests import PendingRequest
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal.client import AgentClient, ContinuityUnknown
from orchestral_temporal.temporal.visibility import answer_command, question

COLUMNS: Final = ("RUN", "KIND", "QUESTION", "ANSWER WITH")


@dataclass(frozen=True)
class Queued:
    """A command of the input queue, as typed."""

    text: str | None
    replace: str | None
    withdraw: str | None
    command_id: str | None


async def steer_run(settings: Settings, run_id: str, text: str, command_id: str | None) -> int:
    """The acknowledgement as JSON."""
    answer_json(dump(await (await runs_of(settings)).run(run_id).steer(text, command_id=command_id)))
    return GOOD


async def queue_input(settings: Settings, run_id: str, said: Queued) -> int:
    """The acknowledgement as JSON."""
    run = (await runs_of(settings)).run(run_id)
    if said.withdraw is not None:
        ack = await run.withdraw(said.withdraw, command_id=said.command_id)
    elif said.replace is not None:
        ack = (await run.replace(said.replace, said.text or "", command_id=said.command_id)).ack
    else:
        ack = (await run.enqueue(said.text or "", command_id=said.command_id)).ack
    answer_json(dump(ack))
    return GOOD


async def answer_question(settings: Settings, run_id: str, request_id: str, text: str, command_id: str | None) -> int:
    """The acknowledgement as JSON."""
    run = (await runs_of(settings)).run(run_id)
    answer_json(dump(await run.answer(request_id, text, command_id=command_id)))
    return GOOD


async def show_pending(settings: Settings, *, as_json: bool) -> int:
    """A table, or a JSON object for each request: `run_id`, `command` and the wire request."""
    runs = await runs_of(settings)
    rows: list[tuple[str, ...]] = []
    async for found in runs.find(status=AgentRunStatus.WAITING):
        for request in await _requests(runs, found.run_id):
            command = answer_command(found.run_id, request.request_id)
            rows.append((found.run_id, request.payload.type, question(request), command))
            if as_json:
                answer_json({"run_id": found.run_id, "request": dump(request), "command": command})
    if not as_json:
        answer_table(COLUMNS, rows)
    return GOOD


async def _requests(runs: AgentClient, run_id: str) -> tuple[PendingRequest, ...]:
    try:
        return (await runs.run(run_id).inspect()).pending_requests
    except ContinuityUnknown as fault:  # the others can still be shown
        note(f"{run_id}: {fault}")
        return ()
