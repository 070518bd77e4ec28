"""What a model may do wrong, or slowly, and what the run makes of it."""

import asyncio
from dataclasses import replace

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.delivery import LimitReached
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle
from orchestral_temporal.temporal.watch import Frame
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.one_call import Away, behind
from tests.temporal.world import RecordingTool, World, calls, events_of, plan, says, until

BROKEN: dict[str, tuple[list[Json], str]] = {
    "nothing at all": ([], "model_unavailable"),
    "an empty turn": ([{"finish": "stop"}], "model_incomplete"),
    "calls announced, none made": ([{"finish": "tool_calls"}], "model_incomplete"),
    "broken off in the text": ([{"text": "Hello wor"}], "model_stream_ended"),
    "broken off in a call": ([{"type": "tool_call_start", "call_id": "c", "name": "echo"}], "model_stream_ended"),
    "an error after text": (
        [{"text": "Hello"}, {"error": {"code": "unavailable", "message": "gone", "retryable": True}}],
        "model_unavailable",
    ),
    "a refused key": ([{"error": {"code": "authentication", "message": "no key"}}], "model_authentication"),
    "a call never ended": (
        [{"type": "tool_call_start", "call_id": "c", "name": "echo"}, {"finish": "tool_calls"}],
        "model_protocol",
    ),
    "the same call twice": (calls(("echo", {}), ("echo", {}), ids=["c", "c"]), "model_protocol"),
    "filtered": ([{"text": "Hel"}, {"finish": "content_filter"}], "model_incomplete"),
    "cancelled by nobody": ([{"finish": "cancelled"}], "unexpected_model_cancellation"),
}


async def test_broken_models_fail_their_run_by_code(world: World) -> None:
    """A model that sends nothing, half, too much or an error fails its run by code, and no half answer is delivered."""
    models = {name: ScriptedModel([items]) for name, (items, _) in BROKEN.items()}
    tool = RecordingTool("echo")
    async with world.serving(*(plan(model, tool, name=name) for name, model in models.items())):
        runs = {name: await world.runs.start("ask", run_id=world.id(name), agent=name) for name in BROKEN}
        turns = dict(zip(runs, await asyncio.gather(*(run.wait() for run in runs.values())), strict=True))

    codes = {name: turn.failure and turn.failure["code"] for name, turn in turns.items()}
    assert codes == {name: code for name, (_, code) in BROKEN.items()}
    assert {turn.text for turn in turns.values()} == {None}
    assert {await world.closed(run.run_id) for run in runs.values()} == {WorkflowExecutionStatus.FAILED}
    assert tool.calls == []


async def test_turn_cut_by_length_is_a_partial_answer(world: World) -> None:
    """A turn that ends at the output cap is incomplete, its text a partial delivery, its calls dropped."""
    tool = RecordingTool("echo")
    items = [{"text": "As far as I"}, *calls(("echo", {}))[:-1], {"finish": "length"}]
    async with world.serving(plan(ScriptedModel([items]), tool)):
        turn = await world.runs.run_text("ask", run_id=world.id("r"))

    assert (turn.status, turn.text) == (AgentRunStatus.INCOMPLETE, "As far as I")
    assert turn.result["reason"] == dump(LimitReached(limit=RunLimitKind.OUTPUT_TOKENS))
    assert tool.calls == []


async def test_a_beat_that_cannot_be_encoded_voids_no_attempt(world: World) -> None:
    """The key service of a payload codec is away while a model answers: it is asked once, and its answer counts."""
    codec = Away(b'"offset"')
    there = replace(world, client=behind(codec, world.client))
    model = ScriptedModel([[{"type": "text_delta", "delta": "slowly", "delay_ms": 1_500}, {"finish": "stop"}]])
    async with there.serving(plan(model), timeouts=world.timeouts(4_000)):
        turn = await there.runs.run_text("ask", run_id=world.id("r"))

    assert codec.failed > 0
    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "slowly")
    assert len(model.requests) == 1


THREE_TIMEOUTS = 1.5
"""Seconds that a slow tool takes here: its slowness is what the test is about, and nothing waits for it in vain."""


async def test_slow_first_byte_and_slow_tool_are_no_loss(world: World) -> None:
    """A model silent for three heartbeat time-outs and a tool as slow to begin: one attempt each (F085)."""

    async def slow(_arguments: JsonObject, _call: ToolCall) -> Json:
        await asyncio.sleep(THREE_TIMEOUTS)
        return "ready"

    model = ScriptedModel([[{"delay_ms": 1_500, "text": "Hm."}, *calls(("slow", {}))], says("done")])
    async with world.serving(plan(model, RecordingTool("slow", slow)), timeouts=world.timeouts(heartbeat_ms=500)):
        turn = await world.runs.run_text("ask", run_id=world.id("r"))
        history = await world.history(world.id("r"))

    assert turn.text == "done"
    assert events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT) == []
    assert len(model.requests) == 2
    started = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    assert {event.activity_task_started_event_attributes.attempt for event in started} == {1}


@pytest.mark.parametrize("redispatchable", [True, False])
async def test_model_on_a_stopping_worker_is_taken_up_by_the_next(world: World, *, redispatchable: bool) -> None:
    """A worker that stops gives its attempt back on record, whatever the backend; the next worker delivers."""
    first = ScriptedModel([[{"text": "Hello wor"}, {"hang": True}]], redispatchable=redispatchable)
    second = ScriptedModel([says("Hello world")], redispatchable=redispatchable)
    async with world.serving(plan(first)):
        run = await world.runs.start("greet", run_id=world.id("r"))
        await until(lambda: bool(first.requests), "the model is asked")
    async with world.serving(plan(second)):
        turn = await run.wait()
        history = await world.read(run.run_id)

    assert turn.text == "Hello world"
    assert first.requests[0].request_id == second.requests[0].request_id
    attempts = [each.event_id for each in history.wal if each.payload.type == "model_attempt_started"]
    assert len(attempts) == len(set(attempts)) == 2
    assert [each.event.payload.type for each in history.journal].count("output_committed") == 1


async def test_live_text_is_shown_while_the_model_speaks(world: World) -> None:
    """A watcher sees text while the attempt is open, then the committed output; deltas never enter the history."""
    model = ScriptedModel([[{"text": "Hello "}, {"text": "world"}, {"delay_ms": 1_500, "finish": "stop"}]])
    timeouts = world.timeouts(heartbeat_ms=2_000).model_copy(update={"live_text_ms": 100})
    async with world.serving(plan(model), timeouts=timeouts):
        run = await world.runs.start("greet", run_id=world.id("r"))
        frames = [frame async for frame in run.watch()]
        history = await world.history(run.run_id)

    shown = "".join(frame.text for frame in frames if frame.kind == "text")
    assert shown == "Hello world"
    events = [frame.event.event.payload.type for frame in frames if frame.event is not None]
    assert events == ["run_accepted", "run_started", "output_committed", "delivery_committed"]
    scheduled = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    assert [each.activity_task_scheduled_event_attributes.activity_type.name for each in scheduled].count(
        names.CALL_MODEL
    ) == 1


async def test_a_void_attempt_is_cleared_before_the_next_one_speaks(world: World) -> None:
    """Stopped in mid-stream: the watcher hears that the half text is void before it gets the whole (F013)."""
    first = ScriptedModel([[{"text": "Hello wor"}, {"hang": True}]])
    second = ScriptedModel([[{"text": "Hello world"}, {"delay_ms": 800, "finish": "stop"}]])
    timeouts = world.timeouts(heartbeat_ms=2_000).model_copy(update={"live_text_ms": 50})
    frames: list[Frame] = []

    async def watch(run: RunHandle) -> None:
        async for frame in run.watch():
            frames.append(frame)  # noqa: PERF401 -- what has come so far is looked at meanwhile

    async with world.serving(plan(first), timeouts=timeouts):
        run = await world.runs.start("greet", run_id=world.id("r"))
        watching = asyncio.create_task(watch(run))
        await until(lambda: any(frame.text == "Hello wor" for frame in frames), "the half text is shown")
    async with world.serving(plan(second), timeouts=timeouts):
        turn = await run.wait()
        await watching
        history = await world.read(run.run_id)

    told = [(frame.kind, frame.text) for frame in frames if frame.kind in ("text", "clear")]
    assert told == [("text", "Hello wor"), ("clear", ""), ("text", "Hello world")]
    void, cleared, whole = (frame.attempt for frame in frames if frame.kind in ("text", "clear"))
    assert void == cleared != whole
    assert turn.text == "Hello world"
    assert [each.event.payload.type for each in history.journal].count("output_committed") == 1
