"""The settings file: what it may say, and that every refusal names file, line, key and remedy."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from orchestral_temporal.hosting.loading import PACKAGED, find_config, load_settings, resolve_secret
from orchestral_temporal.hosting.settings import (
    AgentSettings,
    OpenAIModelSettings,
    PriceSettings,
    RetrySettings,
    ScriptedModelSettings,
    Settings,
    TemporalSettings,
    TimeoutSettings,
)
from orchestral_temporal.hosting.values import SecretRef
from orchestral_temporal.hosting.yaml_file import SettingsError, SettingsFile

SENTINEL = "SENTINEL-7f3a91"
AGENT = "agents: {default: {}}\n"
ALIASES = "".join(f"{each}: &{each} [{', '.join(['*' + last] * 9)}]\n" for last, each in ("ab", "bc", "cd", "de"))


def refused(path: Path) -> str:
    """The message of a refusal, with the file's folder left out."""
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    return str(caught.value).replace(f"{path.parent}{os.sep}", "")


def written(folder: Path, text: str) -> Path:
    """A settings file with that text."""
    path = folder / "s.yaml"
    path.write_text(text)
    return path


def test_the_development_file_says_what_decision_34_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The packaged file loads, has the tuned values, and its paths count from the working directory."""
    monkeypatch.chdir(tmp_path)
    settings = load_settings(find_config(None))
    server = settings.temporal.server
    assert server.db == tmp_path / ".orchestral/temporal.db"
    assert server.retention == timedelta(hours=720)
    assert server.sqlite_pragma == {"journal_mode": "WAL", "synchronous": "FULL"}
    assert server.dynamic_config["history.timerProcessorMaxTimeShift"] == "10ms"
    assert server.dynamic_config["history.maxInFlightUpdatePayloads"] == 1_500_000
    assert server.dynamic_config["frontend.WorkerCommandsEnabled"] is True
    assert settings.artifacts == tmp_path / ".orchestral/artifacts"
    assert settings.approvals.keys == {"dev": SecretRef("file", str(tmp_path / ".orchestral/approval.key"))}
    assert settings.timeouts.heartbeat == timedelta(seconds=2)
    assert settings.timeouts.fenced_heartbeat == timedelta(seconds=5)
    assert settings.timeouts.uncertainty_grace == timedelta(seconds=10)
    assert settings.timeouts.sticky == timedelta(seconds=0.5)
    assert settings.live_text == timedelta(seconds=0.25)
    agent = settings.agents["default"]
    assert agent.builtin_tools == ("file_read", "file_search", "text_search")
    assert agent.policy.workspaces == (tmp_path,)
    assert (agent.limits.max_model_steps, agent.run_limits.max_model_steps) == (200, 50)


def test_without_a_key_the_product_defaults_hold(tmp_path: Path) -> None:
    """A file with nothing but an agent gets the calm timeouts of decisions 16, 17 and 27 and an artifact folder."""
    settings = load_settings(written(tmp_path, AGENT))
    assert settings.timeouts == TimeoutSettings(
        heartbeat=timedelta(seconds=5),
        fenced_heartbeat=timedelta(seconds=10),
        uncertainty_grace=timedelta(seconds=30),
        sticky=timedelta(seconds=1),
    )
    assert settings.live_text == timedelta(seconds=1)
    assert settings.artifacts == tmp_path / ".orchestral/artifacts"
    assert settings.temporal == TemporalSettings()
    assert settings.queues.tools == "orchestral"


def test_the_working_directory_goes_before_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file is that of --config, else the one here, else the packaged one."""
    monkeypatch.chdir(tmp_path)
    assert find_config(None) == PACKAGED
    (tmp_path / "temporal-dev.yaml").write_text(AGENT)
    assert find_config(None) == Path("temporal-dev.yaml")
    assert find_config("other.yaml") == Path("other.yaml")


def test_paths_count_from_the_folder_of_the_file(tmp_path: Path) -> None:
    """Database, artifacts, workspaces, scripts and keys are found beside the file, wherever we stand (answer 12)."""
    (tmp_path / "work").mkdir()
    (tmp_path / "rounds.yaml").write_text("[]")
    text = """
temporal: {server: {db: ../x.db, ui_port: false}}
artifacts: file:///srv/artifacts
live_text: false
approvals: {keys: {a: file:keys/a, b: env:B_KEY}, sign_with: b}
agents:
  one:
    model: {adapter: scripted, script: rounds.yaml, redispatchable: true}
    policy: {workspaces: [work, .]}
"""
    settings = load_settings(written(tmp_path, text))
    assert settings.temporal.server.db == tmp_path.parent / "x.db"
    assert settings.temporal.server.ui_port is None
    assert settings.artifacts == Path("/srv/artifacts")
    assert settings.live_text is None
    assert settings.approvals.keys == {"a": SecretRef("file", str(tmp_path / "keys/a")), "b": SecretRef("env", "B_KEY")}
    agent = settings.agents["one"]
    assert agent.policy.workspaces == (tmp_path / "work", tmp_path)
    assert isinstance(agent.model, ScriptedModelSettings)
    assert agent.model.script == tmp_path / "rounds.yaml"
    assert agent.model.redispatchable


def test_tools_are_expanded_in_order_and_once(tmp_path: Path) -> None:
    """`search` stands for two tools, and a Python tool is module and function."""
    text = "agents: {a: {tools: [text_search, search, 'python:my.tools:send', 'python:my.tools:send'], \
policy: {approval: {send: ask}}}}"
    agent = load_settings(written(tmp_path, text)).agents["a"]
    assert agent.builtin_tools == ("text_search", "file_search")
    assert agent.python_tools == (("my.tools", "send"),)
    assert agent.policy.approval == {"send": "ask"}


def test_an_openai_model_keeps_its_key_as_a_reference(tmp_path: Path) -> None:
    """All keys of the OpenAI adapter are read, and the secret is none of them."""
    text = """
agents:
  a:
    model: {adapter: openai, model: m, base_url: "http://127.0.0.1:8000/v1", api_key: env:KEY,
            context_tokens: 128000, max_output_tokens: 8000, call_ids: short9,
            retry: {max_retries: 5, base_delay_ms: 200}, retry_after_cap_ms: 120000,
            price: {currency: EUR, input_microunits_per_million_tokens: 0,
                    output_microunits_per_million_tokens: 15000000}}
"""
    assert load_settings(written(tmp_path, text)).agents["a"].model == OpenAIModelSettings(
        model="m",
        base_url="http://127.0.0.1:8000/v1",
        api_key=SecretRef("env", "KEY"),
        context_tokens=128_000,
        max_output_tokens=8_000,
        call_ids="short9",
        retry=RetrySettings(max_retries=5, base_delay_ms=200, max_delay_ms=8_000),
        retry_after_cap_ms=120_000,
        price=PriceSettings(
            currency="EUR", input_microunits_per_million_tokens=0, output_microunits_per_million_tokens=15_000_000
        ),
    )


def test_settings_can_be_made_in_python() -> None:
    """Without a file the same models take plain values, and relative paths begin in the working directory."""
    settings = Settings(agents={"a": AgentSettings(tools=("search",))})
    assert settings.artifacts == Path.cwd() / ".orchestral/artifacts"
    assert str(settings.problem(("agents", "a"), "is wrong")) == "settings: agents.a is wrong."


BROKEN = [
    (b"", "s.yaml: is empty; the least it needs is an agent under agents."),
    (b"# nothing\n", "s.yaml: is empty; the least it needs is an agent under agents."),
    (b"\x89PNG\r\n\x1a\n\x00", "s.yaml: is not a text file in UTF-8."),
    (b"agents: \x00", "s.yaml: is not a text file."),
    (b"#" * 10_000_000, "s.yaml: is larger than 1048576 bytes, so it is no settings file."),
    (b"[" * 1_000, "s.yaml: is nested too deeply."),
    (f"a: &a [x, x, x, x]\n{ALIASES}".encode(), "s.yaml: holds more than 10000 values."),
    (b"a: &a [*a]", "s.yaml: is nested too deeply."),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_a_file_that_is_no_settings_file_is_named_as_such(tmp_path: Path, content: bytes, message: str) -> None:
    """Empty, binary, huge, bottomless and explosive files are refused in a moment."""
    path = tmp_path / "s.yaml"
    path.write_bytes(content)
    assert refused(path) == message


def test_a_missing_file_a_folder_and_an_unreadable_file_are_told_apart(tmp_path: Path) -> None:
    """What is no file at all is said in plain words."""
    assert refused(tmp_path / "none.yaml") == "none.yaml: there is no such file; name another with --config."
    (tmp_path / "sub").mkdir()
    assert refused(tmp_path / "sub") == "sub: is a folder, not a settings file."
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert refused(tmp_path / "loop.yaml") == "loop.yaml: cannot be read: Too many levels of symbolic links."


def test_all_faults_are_found_at_once_and_five_are_shown(tmp_path: Path) -> None:
    """One read of the message mends the file, also when there is much to mend."""
    text = AGENT + "".join(f"k{n}: 1\n" for n in range(7)) + "live_text: 5\nqueues: {runs: 1, models: 2}\n"
    with pytest.raises(SettingsError) as caught:
        load_settings(written(tmp_path, text))
    assert len(caught.value.problems) == 7
    assert [line.split(": ")[1].split(" ")[0] for line in str(caught.value).splitlines()[:5]] == [
        "k0", "k1", "k2", "k3", "k4",
    ]  # fmt: skip
    assert str(caught.value).endswith("\n… and 2 more.")
    with pytest.raises(SettingsError) as caught:
        load_settings(written(tmp_path, AGENT + "live_text: 5\nqueues: {runs: 1, models: 2}\n"))
    assert len(caught.value.problems) == 3


def test_a_later_fault_knows_its_line(tmp_path: Path) -> None:
    """Who finds after loading that a tool cannot be imported can still say where it was asked for."""
    settings = load_settings(written(tmp_path, "agents:\n  a:\n    tools:\n      - python:gone:f\n"))
    assert (settings.path, settings.folder) == (tmp_path / "s.yaml", tmp_path)
    error = settings.problem(("agents", "a", "tools", 0), "cannot be imported")
    assert str(error) == f"{tmp_path}/s.yaml:4: agents.a.tools[0] cannot be imported."
    assert SettingsFile(Path("f"), Path(), None, {}).sentence((), "is odd") == "f: the file is odd."


def test_a_secret_is_read_from_its_place_and_shows_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment and file give the value without its line end; no repr shows it."""
    monkeypatch.setenv("A_KEY", SENTINEL)
    (tmp_path / "key").write_text(f"{SENTINEL}\n")
    for ref in (SecretRef("env", "A_KEY"), SecretRef("file", str(tmp_path / "key"))):
        secret = resolve_secret(ref)
        assert secret.get_secret_value() == SENTINEL
        assert SENTINEL not in f"{secret!r} {secret} {ref!r} {ref}"


def test_a_secret_that_is_not_there_says_how_to_put_it_there(tmp_path: Path) -> None:
    """Unset, absent, empty, unreadable, binary and huge secrets are refused without a word of what is in them."""
    where = {name: SecretRef("file", str(tmp_path / name)) for name in ("gone", "empty", "folder", "binary", "huge")}
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe" + SENTINEL.encode())
    (tmp_path / "huge").write_text(SENTINEL * 10_000)
    expected = {
        SecretRef("env", "NOT_SET_HERE"): "The secret env:NOT_SET_HERE is not there: export NOT_SET_HERE.",
        where["gone"]: f"The secret {where['gone']} is not there: write the secret into the file.",
        where["empty"]: f"The secret {where['empty']} is not there: write the secret into the file.",
        where["folder"]: f"The secret {where['folder']} cannot be read: Is a directory.",
        where["binary"]: f"The secret {where['binary']} is not text in UTF-8: name another file.",
        where["huge"]: f"The secret {where['huge']} is larger than 65536 bytes: name another file.",
    }
    for ref, sentence in expected.items():
        with pytest.raises(SettingsError) as caught:
            resolve_secret(ref)
        assert str(caught.value) == sentence
