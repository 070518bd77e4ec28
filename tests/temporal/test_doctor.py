"""`doctor`: what it finds in each state of the world, and that it names what to do."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestral_temporal.hosting.devserver import DevServer, dev_server
from orchestral_temporal.hosting.doctor import Finding, examine
from orchestral_temporal.hosting.loading import load_settings
from orchestral_temporal.hosting.settings import Settings, TemporalSettings
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal.listing import Stuck, stuck_runs
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.conftest import a_server_of_its_own
from tests.temporal.world import RecordingTool, World, calls, plan, says, until


@pytest.fixture(scope="module")
def temporal_settings(alone: Path) -> TemporalSettings:
    """Of a server of this module's own: `doctor` looks at all that is in the namespace."""
    assert alone.is_dir()
    return a_server_of_its_own()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(temporal_settings: TemporalSettings) -> AsyncGenerator[DevServer]:
    """The server, with our search attributes registered."""
    async with dev_server(temporal_settings) as running:
        yield running


def declared(folder: Path, temporal: TemporalSettings, text: str) -> Settings:
    """Settings of that text, on the server of this room."""
    path = folder / "s.yaml"
    path.write_text(text)
    return load_settings(path).model_copy(update={"temporal": temporal})


async def findings(settings: Settings) -> dict[str, Finding]:
    """All findings, by what they are about."""
    return {each.about: each async for each in examine(settings)}


class BrokenArtifacts(MemoryArtifacts):
    """A store whose disk is full until somebody makes room."""

    full = True

    async def put(self, data: bytes) -> str:
        """Refuse, as long as there is no room."""
        if self.full:
            raise OSError("No space left on device")
        return await super().put(data)


async def test_a_run_that_cannot_hand_over_its_records_is_found(world: World) -> None:
    """Its status is terminal, its workflow open: `doctor` names it with the reason, and it ends once that is mended."""
    world.artifacts = store = BrokenArtifacts()

    async def large(_arguments: JsonObject, _call: ToolCall) -> Json:
        return "x" * 40_000

    model = ScriptedModel([calls(("large", {})), says("done")])
    found: list[Stuck] = []
    async with world.serving(plan(model, RecordingTool("large", large))):
        run = await world.runs.start("go", run_id=world.id("r"))

        async def stuck() -> bool:
            found[:] = [each async for each in stuck_runs(world.client, 10) if each.workflow_id == run.run_id]
            return bool(found)

        await until(stuck, "the run is found")
        listed = [each async for each in world.runs.find(status=AgentRunStatus.DELIVERED, session_id=run.run_id)]
        store.full = False
        turn = await run.wait()

    assert "No space left on device" in found[0].why
    assert [each.run_id for each in listed] == [run.run_id]
    assert turn.status is AgentRunStatus.DELIVERED


async def test_a_healthy_world_is_all_good(world: World, temporal_settings: TemporalSettings, tmp_path: Path) -> None:
    """Server, namespace, attributes, queues, model, workspaces and tools: each is named and good."""
    text = (
        f"queues: {{runs: {world.queue}, models: {world.queue}, tools: {world.queue}}}\n"
        "agents: {default: {tools: [file_read], policy: {workspaces: [.]}}}\n"
    )
    settings = declared(tmp_path, temporal_settings, text)
    async with world.serving(plan(ScriptedModel([]))):

        async def all_good() -> bool:
            return all(each.good for each in (await findings(settings)).values())

        await until(all_good, "the worker polls")
        found = await findings(settings)

    assert list(found) == [
        "model of default",
        "workspaces of default",
        "tools",
        "server",
        "namespace",
        "attributes",
        "queues",
        "runs",
    ]
    assert all(each.remedy is None for each in found.values())


async def test_what_is_missing_comes_with_a_remedy(
    world: World, temporal_settings: TemporalSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker, no key, no workspace, a tool that cannot be loaded, no namespace: each says what to do about it."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    text = (
        f"queues: {{runs: {world.queue}-r, models: {world.queue}-m, tools: {world.queue}-m}}\n"
        "agents:\n"
        "  bare: {model: {adapter: openai, model: m}, tools: [file_read]}\n"
        "  keyed: {model: {adapter: openai, model: m, api_key: env:NO_KEY_HERE}, tools: ['python:nowhere:f']}\n"
    )
    found = await findings(declared(tmp_path, temporal_settings, text))
    wrong = {about: each.remedy for about, each in found.items() if not each.good}
    assert set(wrong) == {"model of bare", "workspaces of bare", "model of keyed", "tools", "queues"}
    assert all(wrong.values())
    assert "Nobody serves model, tools" in found["queues"].says

    elsewhere = temporal_settings.model_copy(update={"namespace": "nowhere"})
    last = list((await findings(declared(tmp_path, elsewhere, "agents: {default: {}}\n"))).values())[-1]
    assert (last.about, last.good) == ("namespace", False)
    assert last.remedy is not None
    assert "orchestral setup --namespace nowhere" in last.remedy
