"""`steer`, `queue`, `answer` and `pending` as processes: what people at a terminal say to a run."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client

from orchestral_temporal import AgentClient
from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal.client import ContinuityUnknown
from tests.temporal.shell import Printed, Shell
from tests.temporal.test_cli import clean, typed_in
from tests.temporal.world import until


@pytest.fixture
async def served(server: DevServer, tmp_path: Path, alone: Path) -> AsyncGenerator[Shell]:
    """A shell whose queue a worker serves."""
    shell = typed_in(tmp_path, server.address, alone)
    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        yield shell


def state(printed: Printed) -> str:
    """The state of the acknowledgement that a command printed."""
    clean(printed, 0)
    (ack,) = printed.lines
    return str(cast("JsonObject", ack["state"])["state"])


async def ended(shell: Shell, run_id: str) -> Printed:
    """How a run ended, as `watch` shows it."""
    return await shell.run("watch", run_id)


async def test_a_steer_is_acknowledged_and_heard(served: Shell, client: Client) -> None:
    """Its acknowledgement is one JSON line; sent again it is the same; the run goes on with it (C1, C2)."""
    clean(await served.run("start", "go", "--agent", "turns", "--run-id", "r-steer"), 0)
    await until(lambda: _thinks(client, "r-steer"), "the model is asked")
    first = await served.run("steer", "r-steer", "-", "--id", "s1", stdin="übers Wasser".encode())
    again = await served.run("steer", "r-steer", "übers Wasser", "--id", "s1")
    other = await served.run("steer", "r-steer", "by air", "--id", "s1")
    watched = await ended(served, "r-steer")
    late = await served.run("steer", "r-steer", "too late")

    assert state(first) in ("accepted", "applied")
    assert again.code in (0, 64)  # the run may have ended by then
    clean(other, 64)
    clean(watched, 0)
    assert "As you say." in watched.out
    clean(late, 64)
    assert "has ended" in late.err


async def test_queued_input_is_replaced_and_withdrawn(served: Shell, client: Client) -> None:
    """Each operation prints its acknowledgement, whose id names the input for the next one (C7)."""
    clean(await served.run("start", "go", "--agent", "turns", "--run-id", "r-queue"), 0)
    await until(lambda: _thinks(client, "r-queue"), "the model is asked")
    queued = await served.run("queue", "r-queue", "one", "--id", "q1")
    replaced = await served.run("queue", "r-queue", "--replace", "q1", "ONE", "--id", "q2")
    withdrawn = await served.run("queue", "r-queue", "--withdraw", "q2")
    gone = await served.run("queue", "r-queue", "--withdraw", "q2")
    both = await served.run("queue", "r-queue", "text", "--withdraw", "q2")
    clean(await served.run("cancel", "r-queue"), 0)

    assert [state(each) for each in (queued, replaced, withdrawn, gone)] == ["accepted"] * 3 + ["rejected"]
    clean(both, 64)


async def test_what_waits_for_a_person_is_one_command(served: Shell, client: Client) -> None:
    """`pending` shows the question and the command that answers it; after the answer nothing waits (D1)."""
    clean(await served.run("start", "bill", "--agent", "asks", "--run-id", "r-ask"), 0)
    await until(lambda: _waits(client, "r-ask"), "the question is listed")
    shown = await served.run("pending")
    (asked,) = [each for each in (await served.run("pending", "--json")).lines if each["run_id"] == "r-ask"]
    request = str(cast("JsonObject", asked["request"])["request_id"])
    (served.folder / "answer.txt").write_text("Number 7.\n")
    wrong = await served.run("answer", "r-ask", "input:another", "x")
    empty = await served.run("answer", "r-ask", request, "-", stdin=b" ")
    answered = await served.run("answer", "r-ask", request, "--file", "answer.txt")
    watched = await ended(served, "r-ask")
    after = await served.run("pending", "--json")

    assert "Which customer?" in shown.out
    assert f"orchestral answer r-ask {request} TEXT" in shown.out
    clean(wrong, 64)
    assert "request" in wrong.err
    clean(empty, 64)
    assert state(answered) == "applied"
    clean(watched, 0)
    assert "Number 7, then." in watched.out
    assert [each for each in after.lines if each["run_id"] == "r-ask"] == []


async def _thinks(client: Client, run_id: str) -> bool:
    with suppress(ContinuityUnknown):  # it is not accepted yet
        events = AgentClient(client).run(run_id).events()
        return "run_started" in [each.event.payload.type async for each in events]
    return False


async def _waits(client: Client, run_id: str) -> bool:
    waiting = AgentClient(client).find(status=AgentRunStatus.WAITING, waiting="input")
    return run_id in [each.run_id async for each in waiting]
