"""The command line, as processes against a real server: answers, exit codes, signals, and what people do wrong."""

import asyncio
import os
import re
import signal
import socket
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.worker import Worker

from orchestral_temporal import AgentClient, RunHandle
from orchestral_temporal.cli.follow import Asked, Following
from orchestral_temporal.cli.screen import JsonScreen, note
from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.hosting.loading import load_settings
from orchestral_temporal.hosting.running import place_for_runs
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.state import AgentRunView
from orchestral_temporal.protocol.words import parse_value
from orchestral_temporal.temporal.run_workflow import AgentRun
from orchestral_temporal.temporal.session_workflow import AgentSession
from tests.temporal.shell import DEAF, ROOT, Printed, Shell, gone, offspring
from tests.temporal.world import until

SETTINGS = """
temporal: {{address: {address}, server: {{ui_port: false, db: kept.db}}}}
queues: {{runs: {queue}, models: {queue}, tools: {queue}}}
timeouts: {{heartbeat: 2s}}
live_text: 100ms
agents:
  default: {{model: {{adapter: offline}}, tools: [file_read, search], policy: {{workspaces: ["."]}}}}
  says: {{model: {{adapter: scripted, script: says.yaml, price: {{currency: USD,
          input_microunits_per_million_tokens: 1000000, output_microunits_per_million_tokens: 2000000}}}}}}
  loops: {{model: {{adapter: scripted, script: loops.yaml}}, tools: [file_read], policy: {{workspaces: ["."]}},
          run_limits: {{max_model_steps: 1}}}}
  breaks: {{model: {{adapter: scripted, script: breaks.yaml}}}}
  hangs: {{model: {{adapter: scripted, script: hangs.yaml}}}}
  steers: {{model: {{adapter: scripted, script: steers.yaml}}}}
  turns: {{model: {{adapter: scripted, script: turns.yaml}}}}
  asks: {{model: {{adapter: scripted, script: asks.yaml}}, input_requests: true}}
  fails: {{model: {{adapter: scripted, script: fails.yaml}}, tools: ["python:waiting:fail"]}}
  waits: {{model: {{adapter: scripted, script: waits.yaml}}, tools: ["python:waiting:until_told"]}}
  sends: {{model: {{adapter: scripted, script: sends.yaml}}, tools: ["python:waiting:send"]}}
"""

QUICK_FENCE = "{heartbeat: 1s, fenced_heartbeat: 1s, uncertainty_grace: 3s}"

SCRIPTS = {
    "says.yaml": '- - {text: "Grüße, "}\n  - {text: "Welt"}\n'
    "  - {type: usage, usage: {input_tokens: 9, output_tokens: 3}}\n  - {finish: stop}\n",
    "loops.yaml": "- - call: {name: file_read, arguments: {path: tea.md}}\n  - finish: tool_calls\n",
    "breaks.yaml": "- - error: {code: invalid_request, message: 'the key is no good'}\n",
    "hangs.yaml": '- - {text: "Let me think"}\n  - {hang: true}\n',
    "steers.yaml": '- - {text: "Let me \\e[2Jthink"}\n  - {hang: true}\n',
    "turns.yaml": '- - {text: "Let me think"}\n  - {hang: true}\n- - {text: "As you say."}\n  - {finish: stop}\n',
    "asks.yaml": "- - call: {name: orchestral_request_input, arguments: {prompt: 'Which customer?'}}\n"
    '  - finish: tool_calls\n- - {text: "Number 7, then."}\n  - {finish: stop}\n',
    "fails.yaml": "- - call: {name: fail, arguments: {}}\n  - finish: tool_calls\n"
    "- - {text: sorry}\n  - {finish: stop}\n",
    "waits.yaml": "- - call: {name: until_told, arguments: {}}\n  - finish: tool_calls\n"
    "- - {text: later}\n  - {finish: stop}\n",
    "sends.yaml": "- - call: {name: send, arguments: {}}\n  - finish: tool_calls\n",
    "waiting.py": """
import time
from pathlib import Path
from orchestral_temporal import tool

@tool(idempotency="pure")
def until_told() -> str:
    while not Path(__file__).with_name("told").exists():
        time.sleep(0.05)
    return "told"

@tool
def send() -> str:
    Path(__file__).with_name("sending").touch()
    return until_told()

@tool(idempotency="pure")
def fail() -> str:
    raise ValueError("the pot is empty")
""",
    "tea.md": "# Tea\n\nGreen tea steeps for two minutes at 70 degrees.\n",
}


def free_address() -> str:
    """An address on this machine that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def typed_in(folder: Path, address: str, alone: Path, *, settings: bool = True) -> Shell:
    """A folder of files with or without a settings file of its own."""
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    if settings:
        text = SETTINGS.format(address=address, queue=f"q-{uuid.uuid4().hex[:8]}")
        (folder / "temporal-dev.yaml").write_text(text)
    kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "ORCHESTRAL_DEBUG")}
    return Shell(folder, {**kept, "TMPDIR": str(alone), "PYTHONPATH": str(ROOT), "COLUMNS": "200"})


@pytest.fixture
def shell(server: DevServer, tmp_path: Path, alone: Path) -> Shell:
    """A shell whose settings name the server of this room, and a queue that nobody serves yet."""
    return typed_in(tmp_path, server.address, alone)


@pytest.fixture
def far(tmp_path: Path, alone: Path) -> Shell:
    """A shell whose settings name an address where nothing is."""
    return typed_in(tmp_path, free_address(), alone)


def clean(printed: Printed, code: int) -> None:
    """The exit code, one error sentence at the most, and no trace of Python."""
    assert printed.code == code, printed.err
    assert "Traceback" not in printed.err + printed.out
    assert len([line for line in printed.err.splitlines() if line.startswith("Error:")]) <= 1


def logged(alone: Path) -> str:
    """What commands wrote to their log."""
    (log,) = alone.glob("orchestral-temporal-*/orchestral.log")
    return log.read_text()


# -- one run ------------------------------------------------------------------------------------------------------


async def test_a_question_about_the_folder_is_answered_with_nothing_there(tmp_path: Path, alone: Path) -> None:
    """In any folder, with nothing there, one command answers, cites the line and leaves nothing running (A1)."""
    shell = typed_in(tmp_path, "", alone, settings=False)
    shell = Shell(shell.folder, {**shell.environment, "TEMPORAL_ADDRESS": free_address()})
    async with shell.start("run", "How long does green tea steep?") as running:
        await running.says("Nothing answers at", "run run-")
        started = await offspring(running.process.pid)
        printed = await running.ended()

    clean(printed, 0)
    assert "two minutes" in printed.out
    assert "tea.md:3" in printed.out
    assert "file_read tea.md" in printed.err
    assert "delivered · " in printed.err
    assert len(started) >= 2  # the watchdog and the server
    await gone(started)
    assert (tmp_path / ".orchestral" / "temporal.db").is_file()


async def test_one_run_is_the_same_whoever_looks(shell: Shell, client: Client) -> None:
    """`run --json`, `inspect --json`, `events --json`, `list --json`, `watch` and the Python client agree (A2, A3)."""
    ran = await shell.run("run", "greet", "--agent", "says", "--run-id", "r-same", "--session", "s-same", "--json")
    clean(ran, 0)
    result = ran.lines[-1]
    assert ran.lines[0] == {"type": "started", "run_id": "r-same", "session_id": "s-same"}
    assert (result["type"], result["status"], result["text"]) == ("result", "delivered", "Grüße, Welt")
    streamed = [line["event"] for line in ran.lines if line["type"] == "event"]

    inspected, events, listed, watched, plain = await asyncio.gather(
        shell.run("inspect", "r-same", "--json"),
        shell.run("events", "r-same", "--json"),
        shell.run("list", "--session", "s-same", "--json"),
        shell.run("watch", "r-same"),
        shell.run("inspect", "r-same"),
    )
    for each in (inspected, events, listed, watched, plain):
        clean(each, 0)
    turn = await AgentClient(client).run("r-same").wait()
    assert {"type": "result", **turn.result} == result
    assert parse_value(AgentRunView, inspected.lines[0]) == turn.view
    assert events.lines == streamed == result["journal"]
    assert [line["event"]["run_seq"] for line in events.lines] == [1, 2, 3, 4]  # type: ignore[index,call-overload]
    assert watched.out == "Grüße, Welt\n"
    assert "delivered · 9 tokens in, 3 tokens out, 0.000015 USD\n" in watched.err
    assert {**listed.lines[0], "started": None, "closed": None} == {
        "run_id": "r-same",
        "status": "delivered",
        "session_id": "s-same",
        "agent": "says",
        "model": "scripted",
        "waiting": [],
        "started": None,
        "closed": None,
    }
    assert "status: delivered" in plain.out


async def test_the_exit_code_says_how_a_run_ended(shell: Shell) -> None:
    """Incomplete is 2 and failed is 4, with the reason on standard error and whatever there is of an answer."""
    incomplete, failed = await asyncio.gather(
        shell.run("run", "go", "--agent", "loops"), shell.run("run", "go", "--agent", "breaks")
    )

    clean(incomplete, 2)
    clean(failed, 4)
    assert incomplete.out == ""
    assert "model_steps" in incomplete.err
    assert "the key is no good" in failed.err


async def test_a_queue_that_is_served_in_part_is_served_whole(shell: Shell, client: Client) -> None:
    """Of a process that comes up beside us only the first poller may be seen; whoever joins it serves all roles."""
    queue = load_settings(shell.folder / "temporal-dev.yaml").queues.runs
    async with Worker(client, task_queue=queue, workflows=[AgentRun, AgentSession]):
        failed = await shell.run("run", "go", "--agent", "breaks")

    clean(failed, 4)
    assert f"No worker serves {queue}" in failed.err


async def test_a_task_comes_from_standard_input_too(shell: Shell) -> None:
    """A dash reads the task, and what is not text is refused."""
    told, blank, noise = await asyncio.gather(
        shell.run("run", "-", "--json", stdin="How is grün tea steeped?\n".encode()),
        shell.run("run", "-", stdin=b"\n"),
        shell.run("run", "-", stdin=b"\xff\xfe"),
    )

    clean(told, 0)
    clean(blank, 64)
    clean(noise, 64)
    assert told.lines[-1]["status"] == "delivered"
    assert "UTF-8" in noise.err


async def test_a_folder_can_be_added_for_a_run_of_ones_own_workers(
    shell: Shell, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`--workspace` is where the run works, although the policy does not name it; one that is not there is refused."""
    other = tmp_path_factory.mktemp("other")
    (other / "coffee.md").write_text("Coffee is brewed at 93 degrees.\n")
    inside = await shell.run("run", "At how many degrees is coffee brewed?", "--workspace", str(other))
    nowhere = await shell.run("run", "anything", "--workspace", "not-there")

    clean(inside, 0)
    assert "93 degrees" in inside.out
    clean(nowhere, 64)
    assert "does not exist" in nowhere.err
    assert nowhere.out == ""


async def outlived(shell: Shell, said: str, *, at_once: bool) -> None:
    """A command borrows what another one started; that one is interrupted; the first goes on with its own."""
    async with shell.start("run", "go", "--agent", "hangs") as lender:
        await lender.says("workers are started", "run run-")
        async with shell.start("run", "go", "--agent", "waits") as borrower:
            await borrower.says("until_told")
            assert "workers are started" not in "".join(borrower.seen)
            lender.interrupt()
            await lender.says("Cancelling the run")
            if at_once:
                lender.interrupt()
            await borrower.says(said)
            shell.write("told", "")
            printed = await borrower.ended()

    clean(printed, 0)
    assert printed.out == "later\n"


async def test_a_run_outlives_the_workers_of_another_command(shell: Shell) -> None:
    """The workers that a run uses stop with the command that started them: the run's own command starts others."""
    await outlived(shell, "The workers have gone", at_once=False)


async def test_a_run_outlives_the_server_of_another_command(far: Shell) -> None:
    """The server goes as well, at once: the run's own command starts one on the same database and the run goes on."""
    await outlived(far, "The server has gone", at_once=True)


async def test_a_traceback_goes_to_the_log(shell: Shell, alone: Path) -> None:
    """What a tool raises is the model's to see; a person finds the traceback in the log."""
    printed = await shell.run("run", "go", "--agent", "fails")

    clean(printed, 0)
    assert printed.out == "sorry\n"
    assert 'raise ValueError("the pot is empty")' in logged(alone)


async def test_text_streams_on_a_terminal_and_cannot_steer_it(shell: Shell) -> None:
    """On a terminal the text is there while the model still writes, without the control characters that it holds.

    The cursor is never hidden, since a second Ctrl-C would leave it so.
    """
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orchestral_temporal", "run", "go", "--agent", "steers"),
        cwd=shell.folder,
        env={**shell.environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    seen = b""
    try:
        async with asyncio.timeout(30):
            while b"think" not in seen:
                seen += await asyncio.to_thread(os.read, ours, 4096)
            shown = (seen.rfind(b"\x1b[?25l"), seen.rfind(b"\x1b[?25h"))
            process.send_signal(signal.SIGINT)
            code = await process.wait()
    finally:
        os.close(theirs)
        os.close(ours)

    assert b"Let me [2Jthink" in seen
    assert b"\x1b[2J" not in seen
    assert shown[0] < shown[1]
    assert code == 3


async def test_an_effect_that_nobody_knows_is_shown_and_settled(shell: Shell, client: Client) -> None:
    """A worker dies behind a fence: `effects` says what is known at each step, `settle` puts the rest on record."""
    text = (shell.folder / "temporal-dev.yaml").read_text()
    shell.write("temporal-dev.yaml", text.replace("{heartbeat: 2s}", QUICK_FENCE))
    run = AgentClient(client).run(f"r-{uuid.uuid4().hex[:8]}")

    async def stands(standing: str) -> bool:
        return [each.standing for each in await run.effects()] == [standing]

    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        clean(await shell.run("start", "go", "--agent", "sends", "--run-id", run.run_id), 0)
        await until((shell.folder / "sending").exists, "the tool is at work")
        at_work = await shell.run("effects", run.run_id)
        worker.process.kill()
        await worker.process.wait()
    await until(lambda: stands("uncertain: waits up to 3 s for its outcome"), "the call is lost")
    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        await run.wait()
        unknown = await shell.run("effects", run.run_id)
        settled = await shell.run("effects", "settle", run.run_id, "m1/c1", "--happened", "it is sent", "--by", "ada")
        again, shown, lines = await asyncio.gather(
            shell.run(
                *("effects", "settle", run.run_id, "m1/c1", "--happened", "it is sent"),
                *("--session", run.run_id, "--json"),
            ),
            shell.run("effects", run.run_id),
            shell.run("effects", "--json", run.run_id),
        )

    call = f"{run.run_id}/m1/c1"
    said = {"call": call, "happened": "it is sent", "by": "ada"}
    clean(at_work, 0)
    assert at_work.out.splitlines()[1].split("\t") == [call, "send", "non_idempotent", "Invoked", "1", "yes", "-"]
    clean(unknown, 0)
    assert "\tUnknownEffect\t1\t-\t" in unknown.out
    assert f"`orchestral effects settle {run.run_id} m1/c1 --happened TEXT`, or `--did-not`" in unknown.err
    clean(settled, 0)
    assert settled.out == f"{call} is settled, by ada: it happened: it is sent\n"
    clean(again, 0)
    assert again.lines == [{"settlement": said, "repeated": True}]
    assert "settled by ada: it happened: it is sent" in shown.out
    assert shown.err == ""
    assert {**lines.lines[0], "reason": None} == {
        "call": call,
        "tool": "send",
        "idempotency": "non_idempotent",
        "state": "unknown_effect",
        "attempts": 1,
        "outcome": None,
        "reason": None,
        "fenced": None,
        "waits_ms": None,
        "settlement": said,
        "settlement_unknown": None,
    }


# -- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_cancels_and_leaves_nothing(far: Shell, times: int) -> None:
    """The first Ctrl-C cancels and ends with 3, a second one ends at once with 130; all that was started is gone."""
    async with far.start("run", "go", "--agent", "hangs") as running:
        await running.says("run run-")
        started = await offspring(running.process.pid)
        running.interrupt()
        await running.says("Cancelling the run")
        if times == 2:
            running.interrupt()
        printed = await running.ended()

    clean(printed, 3 if times == 1 else 130)
    assert printed.out == ""
    assert len(started) >= 2
    await gone(started)


async def test_ctrl_c_while_nobody_answers_gives_up(far: Shell) -> None:
    """The server is frozen: `watch` ends with 130, and `run` with 5 when it has waited for the end of its run."""
    async with far.start("dev") as dev:
        await dev.says("Ctrl-C stops everything")
        kept = await offspring(dev.process.pid)
        async with far.start("run", "go", "--agent", "hangs", "--run-id", "r-frozen") as running:
            await running.says("run r-frozen")
            async with far.start("watch", "r-frozen", "--json") as watching:
                await watching.prints("Let me think")
                for pid in kept:
                    os.kill(pid, signal.SIGSTOP)
                try:
                    watching.interrupt()
                    left = await watching.ended()
                    running.interrupt()
                    given_up = await running.ended()
                finally:
                    for pid in kept:
                        os.kill(pid, signal.SIGCONT)
        dev.interrupt()
        ended = await dev.ended()

    clean(left, 130)
    clean(given_up, 5)
    assert "`orchestral watch r-frozen` shows how it goes on" in given_up.err
    clean(ended, 0)
    await gone(kept)


async def test_a_cancel_that_no_worker_hears_waits_for_one(shell: Shell, client: Client) -> None:
    """Ctrl-C when the worker was killed: `run` ends with 5, and the next worker finds the run cancelled."""
    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        async with shell.start("run", "go", "--agent", "hangs", "--run-id", "r-unheard") as running:
            await running.says("run r-unheard")
            worker.process.kill()
            await worker.process.wait()
            running.interrupt()
            printed = await running.ended()
    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        turn = await AgentClient(client).run("r-unheard").wait()

    clean(printed, 5)
    assert turn.status == "cancelled"


@dataclass(frozen=True)
class Late(Asked):
    """A task whose start has begun, and of which the command hears late."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, runs: AgentClient, workspace: str | None) -> RunHandle:
        """Start it, and say so when that is wanted."""
        handle = await super().start(runs, workspace)
        self.begun.set()
        await self.heard.wait()
        return handle


async def test_ctrl_c_while_the_start_is_on_its_way_cancels_the_run(
    shell: Shell, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that may have begun is not left alone: its start is heard of, and then it is cancelled as any other."""
    asked, stop = Late("go", "hangs", None, None, f"r-{uuid.uuid4().hex[:8]}"), asyncio.Event()
    settings = load_settings(shell.folder / "temporal-dev.yaml")

    async def followed() -> int:
        async with place_for_runs(settings, None, note) as place:
            return await Following(place, asked, JsonScreen()).until(stop)

    code = asyncio.create_task(followed())
    await asked.begun.wait()
    stop.set()
    await until(lambda: "Cancelling the run" in capsys.readouterr().err, "the command has heard")
    asked.heard.set()

    assert await code == 3
    assert (await AgentClient(client).run(str(asked.run_id)).wait()).status == "cancelled"


@pytest.mark.parametrize("command", [["watch"], ["events", "--follow"]])
async def test_ctrl_c_ends_what_a_script_runs_in_the_background(shell: Shell, command: list[str]) -> None:
    """A script's background processes begin with SIGINT ignored; one that is sent to them ends them all the same."""
    run_id = f"r-{uuid.uuid4().hex[:8]}"
    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        clean(await shell.run("start", "go", "--agent", "hangs", "--run-id", run_id), 0)
        async with replace(shell, before=DEAF).start(*command, "--json", run_id) as running:
            await running.prints('"type"')
            running.interrupt()
            printed = await running.ended()
        clean(await shell.run("cancel", run_id), 0)

    clean(printed, 130)


SLOW = """
import sys, threading
print("loading", file=sys.stderr, flush=True)
try:
    threading.Event().wait()
except BaseException as error:
    raise ImportError("half of it") from error
"""


@pytest.mark.parametrize("module", ["typer", "temporalio"])
async def test_ctrl_c_while_the_program_loads_ends_it_at_once(far: Shell, module: str) -> None:
    """No traceback, no complaint about an installation whose loading was interrupted, and 130."""
    far.write(f"{module}.py", SLOW)
    slow = replace(far, environment={**far.environment, "PYTHONPATH": f"{far.folder}{os.pathsep}{ROOT}"})
    async with slow.start("watch", "r") as running:
        await running.says("loading")
        running.interrupt()
        printed = await running.ended()

    assert (printed.code, printed.out, printed.err) == (130, "", "loading\n")


async def test_ctrl_c_before_the_run_begins_leaves_nothing(far: Shell) -> None:
    """Interrupted while the server starts, the command ends with 3 and the server with it."""
    async with far.start("run", "go", "--agent", "hangs") as running:
        started = set[int]()

        async def begun() -> bool:
            started.update(await offspring(running.process.pid))
            return bool(started)

        await until(begun, "a server is started")
        running.interrupt()
        printed = await running.ended()

    clean(printed, 3)
    await gone(started)


async def test_a_run_is_not_started_a_second_time(far: Shell) -> None:
    """SIGKILL of an embedded server without a database: the run is lost, said as such, and never begins anew (I3)."""
    text = (far.folder / "temporal-dev.yaml").read_text()
    far.write("temporal-dev.yaml", text.replace(", db: kept.db", ""))
    async with far.start("run", "go", "--agent", "hangs") as running:
        await running.says("run run-")
        for pid in await offspring(running.process.pid):
            os.kill(pid, signal.SIGKILL)
        printed = await running.ended()

    clean(printed, 5)
    assert "The server has gone" in printed.err
    assert "went with its server" in printed.err


async def test_dev_keeps_everything_until_ctrl_c(far: Shell) -> None:
    """`dev` says where it is, serves other commands, is healthy to `doctor`, and ends with all that it started."""
    async with far.start("dev") as dev:
        line = await dev.prints("Server")
        await dev.says("Ctrl-C stops everything")
        started = await offspring(dev.process.pid)
        ran, checked = await asyncio.gather(
            far.run("run", "greet", "--agent", "says", "--run-id", "r-dev"), far.run("doctor", "--json")
        )
        started_hang = await far.run("start", "go", "--agent", "hangs", "--run-id", "r-hang", "--json")
        async with far.start("watch", "r-hang") as leaving:
            await leaving.says("run r-hang")
            leaving.interrupt()
            left = await leaving.ended()
        async with far.start("watch", "r-hang", "--json") as watching:
            await watching.prints("Let me think")
            cancelled = await far.run("cancel", "r-hang", "--reason", "enough")
            watched = await watching.ended()
        again = await far.run("cancel", "r-hang")
        dev.interrupt()
        ended = await dev.ended()

    assert "127.0.0.1" in line
    clean(ran, 0)
    assert "workers are started" not in ran.err
    clean(checked, 0)
    assert all(finding["good"] for finding in checked.lines)
    assert started_hang.lines == [{"run_id": "r-hang", "session_id": "r-hang"}]
    clean(cancelled, 0)
    assert cast("JsonObject", cancelled.lines[0]["state"])["state"] in ("accepted", "applied")
    clean(left, 130)
    assert watched.code == 3
    clean(again, 64)
    assert "has ended" in again.err
    clean(ended, 0)
    await gone(started)


async def test_dev_ends_when_its_server_does(far: Shell) -> None:
    """The server of `dev` dies: it says so with the log to look at, and ends too instead of waiting for nothing."""
    async with far.start("dev") as dev:
        await dev.says("Ctrl-C stops everything")
        for pid in await offspring(dev.process.pid):
            os.kill(pid, signal.SIGKILL)
        ended = await dev.ended()

    clean(ended, 70)
    assert "The server has ended. Its log is" in ended.err


async def test_a_worker_ends_gracefully_on_sigterm(shell: Shell) -> None:
    """`worker` serves until SIGTERM, ends with 0, and `run` sees at once that nobody serves any more."""
    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        served = await shell.run("run", "greet", "--agent", "says")
        worker.interrupt(signal.SIGTERM)
        ended = await worker.ended()
    alone = await shell.run("run", "greet", "--agent", "says")

    clean(served, 0)
    assert "workers are started" not in served.err
    clean(ended, 0)
    clean(alone, 0)
    assert "workers are started for the time of this run" in alone.err


async def test_a_run_that_nobody_takes_is_served_here(shell: Shell) -> None:
    """A worker that was killed still counts as one for the server: the run is taken up by its own command."""
    async with shell.start("worker") as worker:
        await worker.says("Serving all on")
        clean(await shell.run("run", "greet", "--agent", "says"), 0)
        worker.process.kill()
        await worker.process.wait()
    printed = await shell.run("run", "greet", "--agent", "says")

    clean(printed, 0)
    assert "No worker has taken the run" in printed.err
    assert printed.out == "Grüße, Welt\n"


# -- what people do wrong -----------------------------------------------------------------------------------------

BAD = "the file with these settings"

WRONG: dict[str, tuple[Sequence[str], str, str]] = {
    "no such command": (["frobnicate"], "", "No such command"),
    "no task": (["start"], "", "Missing argument"),
    "one run id for many runs": (["run", "--run-id", "r"], "", "it names one run"),
    "no answer": (["answer", "r", "q"], "", "one of the three"),
    "two answers": (["answer", "r", "q", "yes", "--json", "true"], "", "one of the three"),
    "an answer that is no JSON": (["answer", "r", "q", "--json", "{n: NaN}"], "", "it is no JSON value"),
    "a number that JSON has not": (["answer", "r", "q", "--json", "NaN"], "", "it is no JSON value"),
    "an empty task": (["run", ""], "", "it is empty"),
    "an unknown option": (["run", "x", "--colour"], "", "No such option"),
    "no such settings file": (["agents", "--config", "none.yaml"], "", "there is no such file"),
    "an unknown key": (["agents", "--config", BAD], "agents: {default: {modl: {}}}", "is no key here; allowed"),
    "a broken file": (["agents", "--config", BAD], "agents: [", "is not valid YAML"),
    "a missing module": (
        ["agents", "--config", BAD],
        "agents: {default: {tools: ['python:nowhere:f']}}",
        "names a module that is not there",
    ),
    "a workspace that is not there": (
        ["agents", "--config", BAD],
        "agents: {default: {policy: {workspaces: [nowhere]}}}",
        "which is no folder",
    ),
    "an unknown role": (["worker", "--role", "cook"], "", "There is no role 'cook'"),
    "an unknown status": (["list", "--status", "great"], "", "use one of accepted, running"),
    "no run to show": (["effects"], "", "Missing argument 'RUN'"),
    "both settlements": (["effects", "settle", "r", "m1/c1", "--happened", "x", "--did-not"], "", "say one of the two"),
    "nothing to wait for": (["list", "--waiting", "godot"], "", "use one of input, approval"),
}


async def test_a_wrong_command_gets_one_sentence(far: Shell) -> None:
    """What is wrong on the command line or in the file ends with 64, one sentence that says what, nothing else."""
    turn = asyncio.Semaphore(3)

    async def told(name: str) -> None:
        arguments, settings, sentence = WRONG[name]
        bad = far.write(f"{name}.yaml", settings)
        async with turn:
            printed = await far.run(*[str(bad) if each == BAD else each for each in arguments])
        clean(printed, 64)
        assert sentence in printed.err, name
        assert printed.out == "", name

    await asyncio.gather(*[told(name) for name in WRONG])


async def test_what_only_the_server_knows_is_refused_as_clearly(shell: Shell, client: Client) -> None:
    """An unknown agent, a task of 10 MB, an id in use, a run that is not there, a namespace that is not there: 64."""
    large = b"a" * 10_000_000
    agent, size, unknown, effects, namespace = await asyncio.gather(
        shell.run("run", "x", "--agent", "nobody"),
        shell.run("start", "-", stdin=large),
        shell.run("inspect", "no-such-run"),
        shell.run("effects", "no-such-run"),
        Shell(shell.folder, {**shell.environment, "TEMPORAL_NAMESPACE": "elsewhere"}).run("run", "x"),
    )
    clean(agent, 64)
    assert "There is no agent named 'nobody'" in agent.err
    clean(size, 64)
    assert "10000" in size.err
    assert "at most 1000000" in size.err
    for printed in (unknown, effects):
        clean(printed, 64)
        assert "There is no such run" in printed.err
    clean(namespace, 64)
    assert "orchestral setup --namespace elsewhere" in namespace.err
    assert client.namespace == "default"


async def test_a_model_without_its_key_is_named(shell: Shell) -> None:
    """A missing key is one sentence with the variable to set; `agents` does without it, `doctor` says where."""
    key = "model: {adapter: openai, model: m, api_key: env:KEY_THAT_IS_NOT_SET}"
    text = (shell.folder / "temporal-dev.yaml").read_text().replace("model: {adapter: offline}", key)
    shell.write("temporal-dev.yaml", text)
    ran, agents, doctor = await asyncio.gather(
        shell.run("run", "x"), shell.run("agents", "--json"), shell.run("doctor")
    )

    clean(ran, 64)
    assert "env:KEY_THAT_IS_NOT_SET is not there" in ran.err
    clean(agents, 0)
    assert agents.lines[0]["binding"] == "temporal:default/default"
    assert len(cast("str", agents.lines[0]["descriptor_digest"])) == 64
    clean(doctor, 1)
    assert "KEY_THAT_IS_NOT_SET" in doctor.out


async def test_a_port_of_somebody_else_is_not_taken_for_a_server(far: Shell) -> None:
    """Something that is not Temporal listens at the address: one sentence, and nothing is started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = {"TEMPORAL_ADDRESS": f"127.0.0.1:{listener.getsockname()[1]}"}
        printed = await Shell(far.folder, {**far.environment, **taken}).run("run", "x")

    clean(printed, 64)
    assert "Something that is not Temporal listens at" in printed.err


async def test_nothing_there_is_said_with_what_to_do(far: Shell) -> None:
    """Where no server is, a command ends with 64 and the way to one, a traceback only with --debug; `doctor` with 1."""
    start, debug, doctor = await asyncio.gather(
        far.run("start", "x"), far.run("start", "x", "--debug"), far.run("doctor")
    )

    clean(start, 64)
    assert "Nothing answers at" in start.err
    assert "orchestral dev" in start.err
    assert debug.code == 64
    assert "Traceback" in debug.err
    assert debug.err.endswith(start.err)
    clean(doctor, 1)
    assert "orchestral dev" in doctor.out


async def test_attributes_that_are_not_registered_only_cost_the_list(shell: Shell, client: Client) -> None:
    """Without our search attributes runs are delivered and say what is missing; `setup` registers them, once (F094)."""
    bare = f"bare-{uuid.uuid4().hex[:8]}"
    day = Duration(seconds=24 * 3600)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=bare, workflow_execution_retention_period=day)
    )
    there = Shell(shell.folder, {**shell.environment, "TEMPORAL_NAMESPACE": bare})
    ran = await there.run("run", "greet", "--agent", "says", "--run-id", "r-bare")
    plain, by_status = await asyncio.gather(there.run("list", "--json"), there.run("list", "--status", "delivered"))
    first = await there.run("setup", "--json")
    second = await there.run("setup", "--json")
    after = await there.run("list", "--status", "delivered", "--json")

    clean(ran, 0)
    assert f"orchestral setup --namespace {bare}" in ran.err
    clean(plain, 0)
    assert [line["run_id"] for line in plain.lines] == ["r-bare"]
    clean(by_status, 64)
    assert "orchestral setup" in by_status.err
    clean(first, 0)
    clean(second, 0)
    assert "OrchestralStatus" in cast("list[str]", first.lines[0]["attributes_added"])
    assert second.lines[0]["attributes_added"] == []
    assert second.lines[0]["retention_changed"] is False
    clean(after, 0)


# -- the program itself -------------------------------------------------------------------------------------------


async def test_help_and_version_load_nothing_heavy(far: Shell) -> None:
    """`--version` and `--help` are there at once: neither Temporal's SDK nor pydantic is imported for them."""
    code = (
        "import sys; from orchestral_temporal.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print({'temporalio', 'pydantic', 'yaml'} & set(sys.modules))"
    )
    for option, shown in (("--version", "orchestral 0."), ("--help", "Exit codes")):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, option),
            cwd=far.folder,
            env=far.environment,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert shown in out.decode()
        assert out.decode().endswith("set()\n")


async def test_the_shell_completes_commands(far: Shell) -> None:
    """Completion offers the commands that begin with what was typed."""
    asking = {"_ORCHESTRAL_COMPLETE": "complete_bash", "COMP_WORDS": "orchestral in", "COMP_CWORD": "1"}
    printed = await Shell(far.folder, {**far.environment, **asking}).run()

    assert printed.out.split() == ["inspect"]


async def test_a_reader_that_goes_away_ends_the_command(shell: Shell) -> None:
    """`orchestral … | head`: no traceback when nobody reads the answer any more."""
    async with shell.start("doctor") as running:
        transport = cast("asyncio.ReadTransport", running.process._transport.get_pipe_transport(1))  # type: ignore[attr-defined]
        transport.close()
        assert running.process.stderr is not None
        err = (await running.process.stderr.read()).decode()
        code = await running.process.wait()

    assert code == 141
    assert "Traceback" not in err
    assert "Exception" not in err


async def test_an_installation_that_is_broken_says_so(far: Shell) -> None:
    """A library that cannot be imported is one sentence and 70, the traceback is there with --debug only."""
    (far.folder / "temporalio").mkdir()
    far.write("temporalio/__init__.py", "raise ImportError('built for another machine')")
    broken = Shell(far.folder, {**far.environment, "PYTHONPATH": f"{far.folder}{os.pathsep}{ROOT}"})
    quiet, shown = await asyncio.gather(broken.run("list"), broken.run("list", "--debug"))

    clean(quiet, 70)
    assert "built for another machine" in quiet.err
    assert "Traceback" in shown.err


async def test_the_entry_points_serve_their_roles(shell: Shell) -> None:
    """`workers/all.py` and its three parts serve until SIGTERM, and complain as the command line does."""
    settings = (shell.folder / "temporal-dev.yaml").read_text()
    queues = "queues: {runs: QR, models: QM, tools: QT}"
    queue = uuid.uuid4().hex
    shell.write("split.yaml", re.sub(r"queues: .*", queues.replace("Q", queue), settings))

    async def entry(role: str) -> None:
        async with shell.begin(str(ROOT / "workers" / f"{role}.py"), "split.yaml") as running:
            await running.says(f"Serving {role} on {queue}")
            running.interrupt(signal.SIGTERM)
            clean(await running.ended(), 0)

    await asyncio.gather(*[entry(role) for role in ("all", "runs", "models", "tools")])
    async with shell.begin(str(ROOT / "workers" / "all.py"), "none.yaml") as running:
        refused = await running.ended()
    clean(refused, 64)
    assert "there is no such file" in refused.err
