"""The composition: from a settings file, or from agents in a user's own code, to workers that carry runs out."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

import orchestral_temporal
from orchestral_temporal import (
    Agent,
    AgentClient,
    OrchestralPlugin,
    Policy,
    RunLimits,
    ToolCall,
    build_worker,
    tool,
)
from orchestral_temporal.adapters.models.openai import OpenAIModel
from orchestral_temporal.hosting.compose import compose
from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.hosting.loading import load_settings
from orchestral_temporal.hosting.running import WorkersFailed, serving
from orchestral_temporal.hosting.settings import Settings, TemporalSettings
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.protocol.activities import Role
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import calls, says

ROOT = Path(__file__).parents[2]

READS = """
- - call: {name: file_read, arguments: {path: note.txt}}
  - finish: tool_calls
- - text: "read"
  - finish: stop
"""


def written(folder: Path, text: str, *, script: str = READS) -> Settings:
    """Settings from a file in that folder, next to a script and a note; `QUEUE` becomes a queue of the test's own."""
    (folder / "rounds.yaml").write_text(script)
    (folder / "note.txt").write_text("the note\n")
    path = folder / "s.yaml"
    path.write_text(dedent(text).replace("QUEUE", f"q-{folder.name}"))
    return load_settings(path)


def refusal(settings: Settings, **options: Sequence[Role]) -> str:
    """Why the settings cannot be composed, with the file's folder left out."""
    with pytest.raises(SettingsError) as caught:
        compose(settings, "default", **options)
    assert settings.path is not None
    return str(caught.value).replace(f"{settings.path.parent}/", "")


async def delivered(client: Client, queue: str, task: str = "go", agent: str = "default") -> Turn:
    """The end of a run on that queue."""
    handle = await AgentClient(client, task_queue=queue).start(task, agent=agent)
    async with asyncio.timeout(30):
        return await handle.wait()


async def history_of(client: Client, turn: Turn) -> str:
    """All that the run's history says, as text."""
    return str((await client.get_workflow_handle(turn.run_id).fetch_history()).events)


# -- from a settings file -----------------------------------------------------------------------------------------


async def test_a_settings_file_becomes_workers(client: Client, tmp_path: Path) -> None:
    """Model, tools, workspace, limits and instructions of the file are those of the run."""
    settings = written(
        tmp_path,
        """
        queues: {runs: QUEUE, models: QUEUE, tools: QUEUE}
        agents:
          default:
            model: {adapter: scripted, script: rounds.yaml, context_tokens: 9000, max_output_tokens: 77}
            tools: [file_read, search]
            instructions: "Read."
            policy: {workspaces: ["."]}
            limits: {max_model_steps: 20}
            run_limits: {max_model_steps: 5}
        """,
    )
    agent = compose(settings, "default").agents["default"]
    assert agent.run is not None
    assert agent.model is not None
    assert agent.tools is not None
    assert (agent.run.instructions, agent.run.max_model_steps) == ("Read.", 20)
    assert agent.run.run_limits == RunLimits(max_model_steps=5)
    assert (agent.model.part.max_context_tokens, agent.model.part.reserved_output_tokens) == (9000, 77)
    assert agent.tools.roots == (tmp_path,)

    async with serving(client, settings):
        turn = await delivered(client, settings.queues.runs)

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "read")
    assert "the note" in await history_of(client, turn)


async def test_roles_are_served_by_processes_of_their_own(client: Client, tmp_path: Path) -> None:
    """Three compositions, each with one role's part and queue, carry a run out together (decision 22)."""
    settings = written(
        tmp_path,
        """
        queues: {runs: QUEUE-r, models: QUEUE-m, tools: QUEUE-t}
        agents:
          default:
            model: {adapter: scripted, script: rounds.yaml}
            tools: [file_read]
            policy: {workspaces: ["."]}
        """,
    )
    parts = [compose(settings, "default", roles=(role,)).agents["default"] for role in Role]
    assert [(part.run is None, part.model is None, part.tools is None) for part in parts] == [
        (False, True, True),
        (True, False, True),
        (True, True, False),
    ]

    async with AsyncExitStack() as stack:
        for role in Role:
            await stack.enter_async_context(serving(client, settings, roles=(role,)))
        turn = await delivered(client, settings.queues.runs)

    assert turn.status is AgentRunStatus.DELIVERED


async def test_a_role_alone_needs_a_queue_alone(client: Client, tmp_path: Path) -> None:
    """A worker of one role on everybody's queue would fail the tasks of the others, so it is refused."""
    settings = written(tmp_path, "queues: {runs: q, models: q, tools: t}\nagents: {default: {}}\n")

    with pytest.raises(SettingsError, match=r"s\.yaml:1: queues must name a queue for each role .* q is shared"):
        async with serving(client, settings, roles=(Role.RUN,)):
            pass


def test_only_the_model_needs_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is resolved where the model is served and nowhere else; one that is missing is named by its reference."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("KEY_OF_TEST", raising=False)
    key = "agents: {default: {model: {adapter: openai, model: m, api_key: env:KEY_OF_TEST}, tools: [file_read]}}\n"
    settings = written(tmp_path, key)
    assert refusal(settings) == "The secret env:KEY_OF_TEST is not there: export KEY_OF_TEST."
    assert compose(settings, "default", roles=(Role.RUN, Role.TOOLS)).models == []

    monkeypatch.setenv("KEY_OF_TEST", "SENTINEL-1")
    composition = compose(settings, "default")
    assert isinstance(composition.models[0], OpenAIModel)
    assert "SENTINEL-1" not in repr(composition)

    bare = written(tmp_path, "agents:\n  default:\n    model: {adapter: openai, model: m}\n")
    assert refusal(bare).startswith("s.yaml:3: agents.default.model cannot be used. api_key of OpenAIModel is not set")


@pytest.mark.parametrize(
    ("tool_word", "sentence"),
    [
        ("python:not_there:f", "agents.default.tools[0] cannot be used. The tool 'python:not_there:f' names a module"),
        ("python:compose_tools:g", "names 'g', which 'compose_tools' does not have"),
        ("python:compose_tools:number", "is not a Python function"),
        ("python:compose_broken:f", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_tool_that_cannot_be_had_is_named(tmp_path: Path, tool_word: str, sentence: str) -> None:
    """A missing module or function is refused with file and line, never with a traceback."""
    (tmp_path / "compose_tools.py").write_text("number = 1\n")
    (tmp_path / "compose_broken.py").write_text("1 / 0\n")
    said = refusal(written(tmp_path, f"agents:\n  default:\n    tools:\n      - {tool_word}\n"))

    assert said.startswith("s.yaml:4: ")
    assert sentence in said


@pytest.mark.parametrize(
    ("script", "sentence"),
    [("- 5", "round 1 of the script must be a list"), ("[", "cannot be used"), ("{}", "must hold a list of rounds")],
)
def test_a_script_that_is_none_is_named(tmp_path: Path, script: str, sentence: str) -> None:
    """A scripted model's file is judged when the model is made, with file and line of the settings."""
    text = "agents:\n  default:\n    model: {adapter: scripted, script: rounds.yaml}\n"
    said = refusal(written(tmp_path, text, script=script))

    assert said.startswith("s.yaml:3: agents.default.model")
    assert sentence in said


async def test_the_policy_decides_who_is_asked(client: Client, tmp_path: Path) -> None:
    """`deny` and `ask` keep a built-in tool from running, `never` frees one whose author wants to be asked."""
    (tmp_path / "governed_tools.py").write_text(
        dedent("""
        from orchestral_temporal import tool

        @tool(name="shown_name", approval="ask", idempotency="pure")
        def mine() -> str:
            return "it ran"
        """)
    )
    script = """
    - - call: {name: file_read, arguments: {path: note.txt}}
      - finish: tool_calls
    - - call: {name: shown_name, arguments: {}}
      - finish: tool_calls
    - - text: "done"
      - finish: stop
    """
    settings = written(
        tmp_path,
        """
        queues: {runs: QUEUE, models: QUEUE, tools: QUEUE}
        agents:
          default:
            model: {adapter: scripted, script: rounds.yaml}
            tools: [file_read, "python:governed_tools:mine"]
            policy: {workspaces: ["."], approval: {file_read: deny, mine: never}}
        """,
        script=dedent(script),
    )
    async with serving(client, settings):
        turn = await delivered(client, settings.queues.runs)
        history = await history_of(client, turn)

    assert turn.status is AgentRunStatus.DELIVERED
    assert "policy_denied" in history
    assert "the note" not in history
    assert "it ran" in history


async def test_a_worker_that_breaks_says_so_in_one_sentence(
    server: DevServer, temporal_settings: TemporalSettings, tmp_path: Path
) -> None:
    """A worker that the server does not want ends the block with one sentence, and the block is cancelled."""
    stranger = await Client.connect(server.address, namespace="not-there")
    settings = written(tmp_path, "agents: {default: {}}\n").model_copy(update={"temporal": temporal_settings})

    with pytest.raises(WorkersFailed) as caught:
        async with serving(stranger, settings):
            await asyncio.Event().wait()

    assert "not-there" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_what_goes_wrong_in_the_block_is_not_the_workers_fault(client: Client, tmp_path: Path) -> None:
    """An error of the block itself comes out as it is, after the workers have stopped."""
    settings = written(tmp_path, "queues: {runs: QUEUE, models: QUEUE, tools: QUEUE}\nagents: {default: {}}\n")

    with pytest.raises(RuntimeError, match="my own"):
        async with serving(client, settings):
            raise RuntimeError("my own")


# -- from a user's own code ---------------------------------------------------------------------------------------


class ClosingModel(ScriptedModel):
    """A scripted model that holds something."""

    closed = 0

    async def close(self) -> None:
        """Count."""
        self.closed += 1


@tool(idempotency="pure")
async def shout(word: str, call: ToolCall) -> str:
    """Say it loud."""
    return f"{word.upper()} for {call.run_id}"


def agent(model: ScriptedModel | None = None, **options: object) -> Agent:
    """An agent that shouts once."""
    rounds: list[Json] = [calls(("shout", {"word": "tea"})), says("done")]
    return Agent(name="default", model=model or ScriptedModel(rounds), tools=[shout], **options)


async def test_one_worker_with_everything(server: DevServer, tmp_path: Path) -> None:
    """`build_worker` on a client without any of our settings carries a run out, and closes the model when it stops."""
    plain = await Client.connect(server.address)
    model = ClosingModel([calls(("shout", {"word": "tea"})), says("done")])
    worker = build_worker(plain, agents=[agent(model)], task_queue=f"q-{tmp_path.name}")
    async with worker:
        turn = await delivered(plain, worker.task_queue)
        history = await history_of(plain, turn)
        assert not model.closed

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "done")
    assert f"TEA for {turn.run_id}" in history
    assert model.closed == 1


async def test_the_client_finds_its_server_in_the_environment(
    server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`AgentClient.connect` goes where `TEMPORAL_ADDRESS` points, and speaks to a worker made from another client."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    runs = await AgentClient.connect(task_queue=f"q-{tmp_path.name}")
    worker = build_worker(runs.temporal, agents=[agent()], task_queue=f"q-{tmp_path.name}")
    async with worker, asyncio.timeout(30):
        turn = await runs.run_text("go", session_id="s")

    assert turn.text == "done"


@workflow.defn
class UsersOwn:
    """A workflow of the user's, beside ours."""

    @workflow.run
    async def run(self, word: str) -> str:
        """Ask the user's own activity."""
        return await workflow.execute_activity(users_own, word, start_to_close_timeout=timedelta(seconds=5))


@activity.defn
async def users_own(word: str) -> str:
    """Turn a word around."""
    return word[::-1]


class Veil(PayloadCodec):
    """Makes every payload unreadable without it."""

    async def encode(self, payloads: Iterable[Payload]) -> list[Payload]:
        """Hide."""
        return [
            Payload(metadata={"encoding": b"test/veil"}, data=base64.b64encode(each.SerializeToString()))
            for each in payloads
        ]

    async def decode(self, payloads: Iterable[Payload]) -> list[Payload]:
        """Show; what others wrote stays as it is."""
        return [
            Payload.FromString(base64.b64decode(each.data)) if each.metadata["encoding"] == b"test/veil" else each
            for each in payloads
        ]


async def test_a_plugin_given_to_the_client_is_enough(server: DevServer, tmp_path: Path) -> None:
    """Given once, the plugin makes client, worker and replayer ours; codec, workflows, activities of the user stay."""
    model = ClosingModel([calls(("shout", {"word": "tea"})), says("done")])
    plugin = OrchestralPlugin(agents=[agent(model)])
    veiled = replace(DataConverter.default, payload_codec=Veil())
    user = await Client.connect(server.address, plugins=[plugin], data_converter=veiled)
    queue = f"q-{tmp_path.name}"
    async with (
        Worker(user, task_queue=queue, workflows=[UsersOwn], activities=[users_own]),
        Worker(user, task_queue=f"{queue}-2"),
    ):
        turn = await delivered(user, queue)
        own = await user.execute_workflow(UsersOwn.run, "abc", id=f"own-{queue}", task_queue=queue)
        history = await user.get_workflow_handle(turn.run_id).fetch_history()
        assert not model.closed

    assert (turn.status, turn.text, own) == (AgentRunStatus.DELIVERED, "done", "cba")
    assert "test/veil" in str(history.events)
    assert "TEA" not in str(history.events)
    assert model.closed == 1
    await Replayer(workflows=[], plugins=[plugin], data_converter=veiled).replay_workflow(history)
    assert model.closed == 1


async def test_a_plugin_given_to_a_worker_is_enough(server: DevServer, tmp_path: Path) -> None:
    """A worker on a plain client becomes ours by the plugin alone, and what was chosen for it stays."""
    plain = await Client.connect(server.address)
    worker = Worker(
        plain,
        task_queue=f"q-{tmp_path.name}",
        plugins=[OrchestralPlugin(agents=[agent()])],
        workflow_runner=SandboxedWorkflowRunner(),
        graceful_shutdown_timeout=timedelta(seconds=1),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
        max_concurrent_workflow_tasks=3,
        build_id="mine",
    )
    async with worker:
        turn = await delivered(plain, worker.task_queue)

    kept = worker.config(active_config=True)
    assert turn.status is AgentRunStatus.DELIVERED
    assert kept.get("graceful_shutdown_timeout") == timedelta(seconds=1)
    assert kept.get("sticky_queue_schedule_to_start_timeout") == timedelta(seconds=2)
    assert kept.get("max_concurrent_workflow_tasks") == 3
    assert kept.get("deployment_config") is None


async def test_policy_and_instructions_of_an_agent_count(server: DevServer, tmp_path: Path) -> None:
    """A policy in code rules as one in a file does: the tool that it denies does not run."""
    plain = await Client.connect(server.address)
    denied = agent(policy=Policy(workspaces=[tmp_path], approval={"shout": "deny"}), instructions="Shout.")
    worker = build_worker(plain, agents=[denied], task_queue=f"q-{tmp_path.name}")
    async with worker:
        turn = await delivered(plain, worker.task_queue)
        history = await history_of(plain, turn)

    assert turn.status is AgentRunStatus.DELIVERED
    assert "policy_denied" in history
    assert "TEA" not in history
    assert "Shout." in history


def test_wrong_agents_are_refused_when_they_are_declared(tmp_path: Path) -> None:
    """Two of one name, a workspace that is no folder, a tool that cannot be one: said at once, in one sentence."""
    with pytest.raises(ValueError, match="Two agents have the same name"):
        OrchestralPlugin(agents=[agent(), agent()])
    with pytest.raises(ValueError, match=r"`workspaces` of agent 'default' names .* which is no folder"):
        OrchestralPlugin(agents=[agent(policy=Policy(workspaces=[tmp_path / "none"]))])
    with pytest.raises(WordError, match="shout"):
        OrchestralPlugin(agents=[Agent(name="a", model=ScriptedModel([]), tools=[shout, shout])])


# -- the package --------------------------------------------------------------------------------------------------


def test_the_public_names_are_few_and_there() -> None:
    """At most 25 public names, all of them can be had, and nothing else is."""
    assert len(orchestral_temporal.__all__) <= 25
    for name in orchestral_temporal.__all__:
        assert name in dir(orchestral_temporal)
        assert getattr(orchestral_temporal, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        orchestral_temporal.nonsense  # noqa: B018 -- the look-up is the test


def test_importing_the_package_loads_no_sdk() -> None:
    """`import orchestral_temporal` and the declarations of `api` load neither Temporal's SDK nor a vendor's."""
    code = "import sys, orchestral_temporal as o; o.Agent; print({'temporalio', 'openai'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
