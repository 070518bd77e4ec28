"""What stands in the history before something happens, and how it reads as a WAL."""

from collections.abc import AsyncGenerator

from temporalio.client import Client

from orchestral_temporal.core.state import Ended, ModelOpen
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.model import ModelRequest, ModelStreamEvent
from orchestral_temporal.protocol.session import SessionSourceRange
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.protocol.wal import (
    LoopBoundaryCommitted,
    ModelAttemptObserved,
    ModelAttemptStarted,
    ProviderEventsCommitted,
)
from orchestral_temporal.temporal.history import RunHistory, read_history
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.wal_fold import fold
from tests.temporal.world import RecordingTool, World, calls, plan, says


class CuriousModel(ScriptedModel):
    """Reads the history of its own run before it answers."""

    def look_at(self, client: Client, run_id: str) -> None:
        """Say which run it is asked for."""
        self._client, self._run_id = client, run_id
        self.seen: list[RunHistory] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """Look, then answer."""
        self.seen.append(await read_history(self._client, self._run_id))
        async for event in super().stream(request):
            yield event


async def test_attempt_is_written_before_the_backend_starts(world: World) -> None:
    """The backend, when called, finds the phase open for round 1 in the run's own history, with provenance (B1)."""
    model = CuriousModel([says("I looked")])
    model.look_at(world.client, world.id("r"))
    async with world.serving(plan(model)):
        await world.runs.run_text("look", run_id=world.id("r"))

    (seen,) = model.seen
    assert fold(seen.wal) == "open(1)"
    assert seen.state is not None
    assert isinstance(seen.state.phase, ModelOpen)
    assert (seen.state.phase.attempt, seen.state.round) == (1, 1)
    attempt = seen.wal[-1].payload
    assert isinstance(attempt, ModelAttemptStarted)
    assert attempt.round == 1
    context = attempt.context
    assert context.config_digest == seen.state.config_digest
    assert len(context.config_digest) == 64
    assert context.through_session_seq == 1
    assert context.included_ranges == (SessionSourceRange(first_session_seq=1, last_session_seq=1),)
    assert 0 < context.used_input_tokens <= context.input_budget_tokens


async def test_a_tool_runs_only_after_its_turn_is_written(world: World) -> None:
    """The tool, when it works, finds the phase observed in the run's own history, with its call ended (B6)."""
    seen: list[RunHistory] = []

    async def look(_arguments: JsonObject, _call: ToolCall) -> Json:
        seen.append(await read_history(world.client, world.id("r")))
        return "seen"

    once = ToolIdempotency.NON_IDEMPOTENT
    tools = [RecordingTool("look", look), RecordingTool("act", look, idempotency=once)]
    script = [calls(("look", {}), ("act", {})), says("done")]
    async with world.serving(plan(ScriptedModel(script), *tools)):
        await world.runs.run_text("look", run_id=world.id("r"))

    assert len(seen) == 2
    for history in seen:
        assert fold(history.wal) == "observed(1)"
        observed = history.wal[-1].payload
        assert isinstance(observed, ModelAttemptObserved)
        assert [(call.name, call.ended) for call in observed.observation.tool_calls] == [("look", True), ("act", True)]


async def test_delivered_run_folds_to_terminal(world: World) -> None:
    """After delivery the WAL begins at boundary 1, ends terminal, and holds the provider's events in order (B2)."""
    model = ScriptedModel([calls(("echo", {"value": "a"})), says("done")])
    async with world.serving(plan(model, RecordingTool("echo"))):
        await world.runs.run_text("work", run_id=world.id("r"))
        history = await world.read(world.id("r"))

    first = history.wal[0].payload
    assert isinstance(first, LoopBoundaryCommitted)
    assert first.next_model_round == 1
    assert fold(history.wal) == "terminal"
    assert history.state is not None
    assert history.state.phase == Ended()
    written = [
        digest(event)
        for record in history.wal
        if isinstance(record.payload, ProviderEventsCommitted)
        for event in record.payload.events
    ]
    published = [each.draft_digest for each in history.journal if each.authority.authority == "provider"]
    assert written == published
    assert len(written) == 3
