"""`run` and the person at its terminal: questions asked there, a run for each line, Ctrl-C and Ctrl-D."""

import asyncio
import json
import os
import re
import sys
import uuid
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from io import FileIO, TextIOWrapper

import pytest
from temporalio.client import Client

from orchestral_temporal import AgentClient, RunHandle
from orchestral_temporal.cli.lines import LINE_BYTES, Lines, NotText
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.protocol.requests import PendingRequest
from tests.temporal.shell import CTRL_C, CTRL_D, Shell
from tests.temporal.test_cli import clean, far, shell
from tests.temporal.world import until

__all__ = ["far", "shell"]  # fixtures


async def asked(run: RunHandle) -> PendingRequest:
    """The one question that a run asks, once it does."""
    found: list[PendingRequest] = []

    async def asks() -> bool:
        found[:] = (await run.inspect()).pending_requests
        return bool(found)

    await until(asks, "the run asks")
    (request,) = found
    return request


def named(client: Client, start: str = "r") -> RunHandle:
    """A run that nobody has started yet."""
    return AgentClient(client).run(f"{start}-{uuid.uuid4().hex[:8]}")


# -- questions ----------------------------------------------------------------------------------------------------


async def test_a_question_is_asked_and_answered_at_the_terminal(shell: Shell) -> None:
    """A blank line and one that is no text ask again; the answer is sent, and the same run goes on (D1)."""
    async with shell.sit("run", "bill", "--agent", "asks") as sitting:
        await sitting.shows("? Which customer?", "answer> ")
        sitting.types("  \n")
        await sitting.shows("answer> ")
        os.write(sitting.terminal, b"\xff\n")
        await sitting.shows("not text in UTF-8", "answer> ")
        sitting.types("Nummer 7, grüßen\n")
        printed = await sitting.ended()

    clean(printed, 0)
    assert printed.out == "Number 7, then.\n"


async def test_a_question_can_be_answered_or_its_run_cancelled_elsewhere(shell: Shell, client: Client) -> None:
    """The prompt ends by itself, what was typed at it is for nobody, and the run is followed to its end."""
    run, other = named(client), named(client)
    async with shell.sit("run", "bill", "--agent", "asks", "--run-id", run.run_id) as sitting:
        await sitting.shows("answer> ")
        async with shell.sit("run", "bill", "--agent", "asks", "--run-id", other.run_id) as neighbour:
            await neighbour.shows("answer> ")
            sitting.types("Numb")
            await sitting.shows("Numb")
            await run.answer((await asked(run)).request_id, "Number 7.")
            await sitting.shows("answered elsewhere")
            await other.cancel("enough")
            cancelled = await neighbour.ended()
        answered = await sitting.ended()

    clean(answered, 0)
    assert answered.out == "Number 7, then.\n"
    clean(cancelled, 3)
    assert "enough" in cancelled.err


async def test_a_question_that_is_left_open_is_answered_by_the_command_that_is_shown(
    shell: Shell, client: Client
) -> None:
    """Ctrl-D shows a command, which works as it stands though the run's id looks like an option."""
    run = named(client, "-r")
    async with shell.sit("run", "bill", "--agent", "asks", f"--run-id={run.run_id}") as sitting:
        await sitting.shows("answer> ")
        sitting.types(CTRL_D)
        await sitting.shows("The question stays open", "answers it")
        command = re.findall("`orchestral (.*) TEXT`", sitting.seen)[0]
        sitting.types("no answer any more\n")
        pasted = f'"{sys.executable}" -m orchestral_temporal {command} "Number 7."'
        told = await asyncio.create_subprocess_shell(
            pasted, cwd=shell.folder, env=shell.environment, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await told.communicate()
        printed = await sitting.ended()

    assert command.startswith(f"answer -- {run.run_id} ")
    assert json.loads(out)["state"]["state"] == "applied"
    clean(printed, 0)
    assert printed.out == "Number 7, then.\n"


async def test_where_no_terminal_is_a_question_is_shown_and_waited_for(shell: Shell, client: Client) -> None:
    """Standard input is not read: the question is on standard error, or a frame with `--json`, until it is answered."""
    run, other = named(client), named(client)
    async with shell.start("run", "bill", "--agent", "asks", "--run-id", run.run_id) as running:
        await running.says("? Which customer?", f"`orchestral answer {run.run_id} input:")
        typed = b"typed ahead\n"
        async with shell.start(
            "run", "bill", "--agent", "asks", "--run-id", other.run_id, "--json", stdin=typed
        ) as machine:
            line = await machine.prints("request_opened")
            command = ("answer", other.run_id, (await asked(other)).request_id)
            told = await shell.run(*command, "--json", '{"number": 7.0}')
            framed = await machine.ended()
        await run.answer((await asked(run)).request_id, "Number 7.")
        printed = await running.ended()

    assert json.loads(line)["event"]["event"]["payload"]["request"]["payload"]["prompt"][0]["body"]["value"] == (
        "Which customer?"
    )
    clean(told, 0)
    clean(framed, 0)
    assert '{\\"number\\": 7.0}' in framed.out
    assert "answer>" not in framed.err
    clean(printed, 0)
    assert printed.out == "Number 7, then.\n"


# -- a chat -------------------------------------------------------------------------------------------------------


async def test_a_chat_is_one_session_and_a_run_for_each_line(far: Shell) -> None:
    """Ctrl-C cancels the run and comes back, Ctrl-D leaves with 0; server and workers are started once."""
    async with far.sit("run", "--agent", "asks", "--session", "s-chat") as sitting:
        await sitting.shows("session s-chat", "> ")
        sitting.types("\n")
        await sitting.shows("> ")
        sitting.types("bill\n")
        await sitting.shows("answer> ")
        sitting.types("Numb" + CTRL_C)
        await sitting.shows("Cancelling the run", "cancelled", "\n> ")
        sitting.types("bill again\n")
        await sitting.shows("answer> ")
        sitting.types("Number 7.\n")
        await sitting.prints("Number 7, then.")
        await sitting.shows("> ")
        listed = await far.run("list", "--session", "s-chat", "--json")
        sitting.types(CTRL_D)
        printed = await sitting.ended()

    clean(printed, 0)
    clean(listed, 0)
    assert sorted(str(each["status"]) for each in listed.lines) == ["cancelled", "delivered"]
    assert printed.err.count("workers are started") == 1


async def test_ctrl_c_at_the_prompt_leaves_a_chat(shell: Shell) -> None:
    """Nothing runs, nothing was lost: the exit code is 0."""
    async with shell.sit("run", "--json") as sitting:
        await sitting.shows("> ")
        sitting.types("half a line" + CTRL_C)
        printed = await sitting.ended()

    clean(printed, 0)
    assert printed.out == ""


async def test_lines_can_be_piped_into_a_chat(shell: Shell) -> None:
    """A run for each line, the last one without its end too; one bad line spoils the exit code and no other line."""
    plain, bad, framed, none = await asyncio.gather(
        shell.run("run", "--agent", "says", stdin=b"one\n \ntwo"),
        shell.run("run", "--agent", "says", stdin=b"\xff\none\n"),
        shell.run("run", "--agent", "says", "--json", stdin=b"one\ntwo\n"),
        replace(shell, before=("sh", "-c", 'exec "$@" <&-', "sh")).run("run"),
    )

    clean(plain, 0)
    assert plain.out == "Grüße, Welt\n" * 2
    assert "> " not in plain.err
    clean(bad, 64)
    assert bad.out == "Grüße, Welt\n"
    clean(framed, 0)
    started = [each for each in framed.lines if each["type"] == "started"]
    assert [each["type"] for each in framed.lines].count("result") == 2
    assert len({str(each["run_id"]) for each in started}) == 2
    assert len({str(each["session_id"]) for each in started}) == 1
    clean(none, 0)


async def test_ctrl_c_ends_all_of_a_chat_that_nobody_types(shell: Shell) -> None:
    """The lines are piped in: the run is cancelled, and the next line does not begin."""
    async with shell.start("run", "--agent", "hangs", stdin=b"one\ntwo\n") as running:
        await running.says("run run-")
        running.interrupt()
        printed = await running.ended()

    clean(printed, 3)
    assert printed.err.count("run run-") == 1


# -- lines --------------------------------------------------------------------------------------------------------


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """A pipe into standard input: the end to write to."""
    theirs, ours = os.pipe()
    with TextIOWrapper(FileIO(theirs)) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield ours


async def test_a_line_comes_in_any_number_of_parts(piped: int) -> None:
    """It is whole when its end has come, or the end of the input; what is asked meanwhile waits."""
    lines, found = Lines(), list[str | None]()

    async def read() -> None:
        while found[-1:] != [None]:
            found.append(await lines.ask("no prompt for a pipe"))

    reading = asyncio.create_task(read())
    for part, count in ((b"gr", 0), ("ü".encode()[:1], 0), ("ü".encode()[1:] + b"n\n\nred\nbl", 2), (b"ue", 2)):
        os.write(piped, part)
        await until(lambda count=count: len(found) == count, f"{count} lines have come")
    os.close(piped)
    await reading

    assert found == ["grün", "red", "blue", None]


async def test_what_is_no_line_is_said(piped: int) -> None:
    """One that is not in UTF-8 is left out, one without an end does not fill the memory."""
    lines = Lines()
    os.write(piped, b"\xff\nred\n")
    with pytest.raises(NotText):
        await lines.ask("")
    red = await lines.ask("")
    writing = asyncio.create_task(asyncio.to_thread(os.write, piped, b"x" * (LINE_BYTES + 200_000)))
    with pytest.raises(SettingsError, match="longer than 1000000 bytes"):
        await lines.ask("")
    sys.stdin.close()
    with suppress(BrokenPipeError):  # what did not fit the pipe
        await writing
    os.close(piped)

    assert red == "red"
