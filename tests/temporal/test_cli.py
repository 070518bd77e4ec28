"""The command line, as processes against a real server: answers, exit codes, signals, and what people do wrong."""

import asyncio
import json
import os
import signal
import socket
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from orchestral_temporal import AgentClient
from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.state import AgentRunView
from orchestral_temporal.protocol.words import parse_value
from tests.temporal.shell import ROOT, Printed, Shell, gone, offspring

SETTINGS = """
temporal: {{address: {address}, server: {{ui_port: false}}}}
queues: {{runs: {queue}, models: {queue}, tools: {queue}}}
timeouts: {{heartbeat: 2s}}
live_text: 100ms
agents:
  default: {{model: {{adapter: offline}}, tools: [file_read, search], policy: {{workspaces: ["."]}}}}
  says: {{model: {{adapter: scripted, script: says.yaml}}}}
  loops: {{model: {{adapter: scripted, script: loops.yaml}}, tools: [file_read], policy: {{workspaces: ["."]}},
          run_limits: {{max_model_steps: 1}}}}
  breaks: {{model: {{adapter: scripted, script: breaks.yaml}}}}
  hangs: {{model: {{adapter: scripted, script: hangs.yaml}}}}
"""

SCRIPTS = {
    "says.yaml": '- - {text: "Grüße, "}\n  - {text: "Welt"}\n  - {finish: stop}\n',
    "loops.yaml": "- - call: {name: file_read, arguments: {path: tea.md}}\n  - finish: tool_calls\n",
    "breaks.yaml": "- - error: {code: invalid_request, message: 'the key is no good'}\n",
    "hangs.yaml": '- - {text: "Let me think"}\n  - {hang: true}\n',
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
    assert printed.err.count("Error:") <= 1


# -- one run ------------------------------------------------------------------------------------------------------


async def test_a_question_about_the_folder_is_answered_with_nothing_there(tmp_path: Path, alone: Path) -> None:
    """In a folder of files, without settings and without a server: one command, the answer alone on standard output,
    where it stands cited, and nothing left running (A1).
    """
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


async def test_a_task_comes_from_standard_input_too(shell: Shell) -> None:
    """A dash reads the task, and what is not text is refused."""
    told, blank, noise = await asyncio.gather(
        shell.run("run", "-", "--json", stdin="steep grün\n".encode()),
        shell.run("run", "-", stdin=b"\n"),
        shell.run("run", "-", stdin=b"\xff\xfe"),
    )

    clean(told, 0)
    clean(blank, 64)
    clean(noise, 64)
    view = cast("JsonObject", told.lines[-1]["view"])
    assert "steep grün" in json.dumps(view, ensure_ascii=False) or told.lines[-1]["status"] == "delivered"
    assert "UTF-8" in noise.err


async def test_a_folder_can_be_added_for_a_run_of_ones_own_workers(shell: Shell, tmp_path: Path) -> None:
    """`--workspace` is where the run works, although the policy does not name it; one that is not there is refused."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "coffee.md").write_text("Coffee is brewed at 93 degrees.\n")
    inside, nowhere = await asyncio.gather(
        shell.run("run", "At how many degrees is coffee brewed?", "--workspace", "other"),
        shell.run("run", "anything", "--workspace", "not-there"),
    )

    clean(inside, 0)
    assert "93 degrees" in inside.out
    clean(nowhere, 64)
    assert "does not exist" in nowhere.err
    assert nowhere.out == ""


# -- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_cancels_and_leaves_nothing(far: Shell, times: int) -> None:
    """The first Ctrl-C cancels the run and ends with 3, a second one ends at once with 130; either way every process
    that was started is gone.
    """
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


async def test_ctrl_c_before_the_run_begins_leaves_nothing(far: Shell) -> None:
    """Interrupted while the server starts, the command ends with 3 and the server with it."""
    async with far.start("run", "go", "--agent", "hangs") as running:

        async def begun() -> set[int]:
            while not (found := await offspring(running.process.pid)):
                await asyncio.sleep(0.01)
            return found

        started = await asyncio.wait_for(begun(), 30)
        running.interrupt()
        printed = await running.ended()

    clean(printed, 3)
    await gone(started)


async def test_dev_keeps_everything_until_ctrl_c(far: Shell) -> None:
    """`dev` prints where it is, serves other commands' runs without workers of theirs, is healthy to `doctor`, and ends
    cleanly; what was on it is there again the next time.
    """
    async with far.start("dev") as dev:
        line = await dev.prints("Server")
        await dev.says("Ctrl-C stops everything")
        started = await offspring(dev.process.pid)
        ran, checked = await asyncio.gather(
            far.run("run", "greet", "--agent", "says", "--run-id", "r-dev"), far.run("doctor", "--json")
        )
        started_hang = await far.run("start", "go", "--agent", "hangs", "--run-id", "r-hang", "--json")
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
    assert watched.code == 3
    clean(again, 64)
    assert "has ended" in again.err
    clean(ended, 0)
    await gone(started)


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

AGENT = "agents: {default: {}}\n"

WRONG: dict[str, tuple[Sequence[str], str, str]] = {
    "no such command": (["frobnicate"], "", "No such command"),
    "no task": (["run"], "", "Missing argument"),
    "an empty task": (["run", ""], "", "it is empty"),
    "an unknown option": (["run", "x", "--colour"], "", "No such option"),
    "no such settings file": (["agents", "--config", "none.yaml"], "", "there is no such file"),
    "an unknown key": (["agents", "--config", "bad.yaml"], "agents: {default: {modl: {}}}", "is no key here; allowed"),
    "a broken file": (["agents", "--config", "bad.yaml"], "agents: [", "is not valid YAML"),
    "a missing module": (
        ["agents", "--config", "bad.yaml"],
        "agents: {default: {tools: ['python:nowhere:f']}}",
        "names a module that is not there",
    ),
    "a workspace that is not there": (
        ["agents", "--config", "bad.yaml"],
        "agents: {default: {policy: {workspaces: [nowhere]}}}",
        "which is no folder",
    ),
    "an unknown role": (["worker", "--role", "cook"], "", "There is no role 'cook'"),
    "an unknown status": (["list", "--status", "great"], "", "use one of accepted, running"),
    "nothing to wait for": (["list", "--waiting", "godot"], "", "use one of input, approval"),
}


@pytest.mark.parametrize(("arguments", "settings", "sentence"), WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_command_gets_one_sentence(
    far: Shell, arguments: Sequence[str], settings: str, sentence: str
) -> None:
    """What is wrong on the command line or in the file ends with 64, one sentence that says what, nothing else."""
    far.write("bad.yaml", settings)
    printed = await far.run(*arguments)

    clean(printed, 64)
    assert sentence in printed.err
    assert printed.out == ""


async def test_what_only_the_server_knows_is_refused_as_clearly(shell: Shell, client: Client) -> None:
    """An unknown agent, a task of 10 MB, an id in use, a run that is not there, a namespace that is not there: 64."""
    shell.write("bad.yaml", (shell.folder / "temporal-dev.yaml").read_text() + "\n")
    large = b"a" * 10_000_000
    agent, size, unknown, namespace = await asyncio.gather(
        shell.run("run", "x", "--agent", "nobody"),
        shell.run("start", "-", stdin=large),
        shell.run("inspect", "no-such-run"),
        Shell(shell.folder, {**shell.environment, "TEMPORAL_NAMESPACE": "elsewhere"}).run("run", "x"),
    )
    clean(agent, 64)
    assert "There is no agent named 'nobody'" in agent.err
    clean(size, 64)
    assert "10000" in size.err
    assert "at most 1000000" in size.err
    clean(unknown, 64)
    assert "There is no such run" in unknown.err
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
    address = json.loads(json.dumps((far.folder / "temporal-dev.yaml").read_text())).split("address: ")[1].split(",")[0]
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        printed = await far.run("run", "x")

    clean(printed, 64)
    assert "Something that is not Temporal listens at" in printed.err


async def test_nothing_there_is_said_with_what_to_do(far: Shell) -> None:
    """Commands that need a server end with 64 and the way to one; `doctor` with 1."""
    start, doctor = await asyncio.gather(far.run("start", "x"), far.run("doctor"))

    clean(start, 64)
    assert "Nothing answers at" in start.err
    assert "orchestral dev" in start.err
    clean(doctor, 1)
    assert "orchestral dev" in doctor.out


async def test_attributes_that_are_not_registered_only_cost_the_list(shell: Shell, client: Client) -> None:
    """In a namespace without our search attributes a run is delivered and says what is missing; `list` by status says
    it too; `setup` registers them, and a second time changes nothing.
    """
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
    code = "import sys; from orchestral_temporal.cli.main import app; sys.argv = ['orchestral', {!r}]\n" + (
        "try:\n    app()\nexcept SystemExit:\n    print(sorted({'temporalio', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    for option, shown in (("--version", "orchestral 0."), ("--help", "Exit codes")):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code.format(option)),
            cwd=far.folder,
            env=far.environment,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert shown in out.decode()
        assert out.decode().endswith("[]\n")


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


async def test_debug_shows_where_it_went_wrong(far: Shell) -> None:
    """The traceback that nobody sees otherwise is there with --debug, before the same sentence."""
    printed = await far.run("start", "x", "--debug")

    assert printed.code == 64
    assert "Traceback" in printed.err
    assert "Error: Nothing answers at" in printed.err
