"""What a model gets back from its tools, whatever they do; and what it asked that cannot be done."""

import asyncio
import json
import subprocess
import time
from collections.abc import Sequence

import pytest
from temporalio.api.enums.v1 import EventType

from orchestral_temporal.ports import ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.model import ModelRequest, ToolCallPart, ToolResultPart
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.temporal import names
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import (
    PATIENCE,
    TEMPORAL,
    RecordingTool,
    Work,
    World,
    calls,
    case,
    events_of,
    plan,
    says,
    until,
)


def results(request: ModelRequest) -> list[ToolResultPart]:
    """The results in the last message of a request."""
    return [part for part in request.messages[-1].content if isinstance(part, ToolResultPart)]


async def fails(_arguments: JsonObject, _call: ToolCall) -> Json:
    """A failure of the tool's own."""
    raise ToolFailed("no_tea", "There is no tea.", retryable=True)


async def rejects(_arguments: JsonObject, _call: ToolCall) -> Json:
    """A refusal before anything was done."""
    raise ToolRejected("too_late", "The kitchen is closed.")


async def hangs(_arguments: JsonObject, _call: ToolCall) -> Json:
    """No answer at all."""
    await asyncio.Event().wait()
    return None


async def raises(_arguments: JsonObject, _call: ToolCall) -> Json:
    """A bug."""
    raise ZeroDivisionError("division by tea")


async def not_json(_arguments: JsonObject, _call: ToolCall) -> Json:
    """A value that JSON does not have."""
    return {"tea": {1, 2, 3}}  # type: ignore[dict-item] -- that is the point


async def huge(_arguments: JsonObject, _call: ToolCall) -> Json:
    """Fifty million bytes."""
    return "tea " * 12_500_000


async def nested(_arguments: JsonObject, _call: ToolCall) -> Json:
    """Five thousand arrays in one another."""
    value: Json = []
    for _ in range(5_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("work", "status", "code"),
    [(fails, "failed", "no_tea"), (rejects, "rejected", "too_late"), (hangs, "failed", "timeout")],
)
async def test_model_goes_on_after_a_tool_that_did_not_work(world: World, work: Work, status: str, code: str) -> None:
    """A failed, rejected or timed-out call is a structured error result; another tool helps, usage counts both (E2)."""
    bad, good = RecordingTool("bad", work, timeout_ms=300), RecordingTool("good")
    model = ScriptedModel([calls(("bad", {})), calls(("good", {"value": 1})), says("made do")])
    async with world.serving(plan(model, bad, good)):
        turn = await world.runs.run_text("try", run_id=world.id("r"))

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "made do")
    (result,) = results(model.requests[1])
    assert result.is_error
    assert isinstance(result.result, dict)
    assert (result.result["status"], result.result["code"]) == (status, code)
    assert results(model.requests[2]) == [
        ToolResultPart(call_id="call-1", result={"result": 1}, is_error=False),
    ]
    assert (len(bad.calls), len(good.calls)) == (1, 1)
    usage = turn.result["usage"]
    assert isinstance(usage, dict)
    assert usage["tool_calls"] == 2


async def test_retryable_failure_is_not_repeated_by_run_or_server(world: World) -> None:
    """A call that failed as retryable ran once: neither run nor server repeats it, the model decides (F019)."""
    tool = RecordingTool("bad", fails)
    model = ScriptedModel([calls(("bad", {})), says("gave up")])
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("try", run_id=world.id("r"))
        history = await world.history(world.id("r"))

    (result,) = results(model.requests[1])
    assert isinstance(result.result, dict)
    assert result.result["retryable"] is True
    assert turn.text == "gave up"
    assert len(tool.calls) == 1
    started = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    assert {event.activity_task_started_event_attributes.attempt for event in started} == {1}


@pytest.mark.parametrize(
    ("work", "status", "code"),
    [
        (raises, "failed", "tool_error"),
        (not_json, "failed", "output_serialization_failed"),
        (nested, "failed", "output_serialization_failed"),
    ],
)
async def test_broken_tool_becomes_a_result(world: World, work: Work, status: str, code: str) -> None:
    """A tool that raises, returns no JSON or 5,000 nested arrays gives a failed result with its reason (F046)."""
    model = ScriptedModel([calls(("bad", {})), says("went on")])
    async with world.serving(plan(model, RecordingTool("bad", work))):
        turn = await world.runs.run_text("try", run_id=world.id("r"))

    (result,) = results(model.requests[1])
    assert isinstance(result.result, dict)
    assert (result.result["status"], result.result["code"]) == (status, code)
    assert turn.text == "went on"


async def test_fifty_megabytes_are_cut_and_say_so(world: World) -> None:
    """A result of 50 MB is cut to its beginning with a note; the run goes on and no payload grows large."""
    model = ScriptedModel([calls(("huge", {})), says("went on")])
    async with world.serving(plan(model, RecordingTool("huge", huge))):
        turn = await world.runs.run_text("try", run_id=world.id("r"))
        history = await world.history(world.id("r"))

    (result,) = results(model.requests[1])
    assert not result.is_error
    assert isinstance(result.result, dict)
    assert (result.result["truncated"], result.result["original_bytes"]) == (True, 50_000_002)
    assert turn.text == "went on"
    assert max(event.ByteSize() for event in history.events) < 300_000


async def test_hostile_arguments_become_a_result_quickly(world: World) -> None:
    """Arguments 5,000 deep or with 200,000 keys are rejected with a reason in a second; the worker lives (F046)."""
    given = case("F046")
    many = json.dumps({f"key{number}": number for number in range(200_000)})
    tool = RecordingTool("echo")
    model = ScriptedModel(
        [calls(("echo", given["argument_text_deep"])), calls(("echo", {"value": 1})), calls(("echo", many)), says("ok")]
    )
    begun = time.monotonic()
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("try", run_id=world.id("r"))

    assert turn.text == "ok"
    assert [results(request)[0].is_error for request in model.requests[1:]] == [True, False, True]
    assert tool.calls == [{"value": 1}]
    assert time.monotonic() - begun < 20


async def each_in_its_own_run(world: World, firsts: Sequence[list[Json]], *tools: RecordingTool) -> list[ModelRequest]:
    """One run for each first turn; all are delivered. Returns what the model was asked after that turn."""
    models = [ScriptedModel([first, says("went on")]) for first in firsts]
    agents = [plan(model, *tools, name=f"agent-{number}") for number, model in enumerate(models)]
    async with world.serving(*agents):
        runs = [await world.runs.start("try", run_id=world.id(each.name), agent=each.name) for each in agents]
        turns = await asyncio.gather(*(run.wait() for run in runs))
    assert [turn.text for turn in turns] == ["went on"] * len(firsts)
    assert [turn.result["usage"]["tool_calls"] for turn in turns] == [1] * len(firsts)  # type: ignore[index] -- JSON
    return [model.requests[1] for model in models]


async def test_unreadable_arguments_run_nothing(world: World) -> None:
    """Of twelve argument texts only the JSON object runs; the rest are rejected and never repaired (F055)."""
    texts = case("F055")["cases"]
    assert isinstance(texts, list)
    schema: JsonObject = {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}
    tool = RecordingTool("read", schema=schema)
    requests = await each_in_its_own_run(world, [calls(("read", each["text"])) for each in texts], tool)

    assert tool.calls == [{"path": "a.txt"}]
    for each, request in zip(texts, requests, strict=True):
        (result,), asked = results(request), request.messages[-2].content[0]
        assert isinstance(asked, ToolCallPart)
        assert isinstance(asked.arguments, dict)
        assert result.is_error is (each["expect"] == "rejected, not run")
        if result.is_error:
            assert isinstance(result.result, dict)
            assert (result.result["status"], result.result["code"]) == ("rejected", "invalid_tool_arguments")


@pytest.mark.parametrize(("strict", "rounds"), [(False, 4), (True, 1)])
async def test_unreadable_turns_in_a_row_end_the_run(world: World, rounds: int, *, strict: bool) -> None:
    """Three unreadable turns in a row are answered, the fourth fails the run; with `strict_calls` the first (F055)."""
    model = ScriptedModel([calls(("echo", "{'value': 1}"))] * 6)
    async with world.serving(plan(model, RecordingTool("echo"), strict_calls=strict)):
        turn = await world.runs.run_text("try", run_id=world.id("r"))

    assert turn.failure is not None
    assert turn.failure["code"] == "invalid_tool_arguments"
    assert len(model.requests) == rounds


async def test_only_the_exact_name_runs(world: World) -> None:
    """Of the names only the exact one runs; a near miss is unknown, and the result lists what exists (F056)."""
    given = case("F056")
    named = given["names"]
    assert isinstance(named, list)
    tried = [str(name) for name in named if name]
    append, read = RecordingTool("notes_append"), RecordingTool("notes_read")
    firsts = [calls((name, given["wrapper_arguments"])) for name in tried]
    requests = await each_in_its_own_run(world, firsts, append, read)

    assert (len(append.calls), len(read.calls)) == (1, 0)
    for name, request in zip(tried, requests, strict=True):
        (result,) = results(request)
        assert result.is_error is (name != "notes_append")
        if result.is_error:
            assert isinstance(result.result, dict)
            assert (result.result["status"], result.result["code"]) == ("rejected", "tool_not_found")
            assert "notes_append, notes_read" in str(result.result["message"])


async def test_call_without_a_name_fails_the_run(world: World) -> None:
    """The empty name, which the rules of the stream do not admit, fails the run as model_protocol (F056)."""
    model = ScriptedModel([calls(("", {}))])
    async with world.serving(plan(model, RecordingTool("echo"))):
        turn = await world.runs.run_text("try", run_id=world.id("r"))

    assert turn.failure is not None
    assert turn.failure["code"] == "model_protocol"


async def test_call_ids_are_not_what_a_call_is_known_by(world: World) -> None:
    """The same call id in two rounds is two calls under two keys; twice in one turn the stream rules forbid it."""
    tool = RecordingTool("echo")
    model = ScriptedModel([calls(("echo", {"value": 1})), calls(("echo", {"value": 2})), says("two")])
    twice = ScriptedModel([calls(("echo", {}), ("echo", {}), ids=["same", "same"])])
    async with world.serving(plan(model, tool), plan(twice, tool, name="twice")):
        turn = await world.runs.run_text("try", run_id=world.id("r1"))
        other = await (await world.runs.start("try", run_id=world.id("r2"), agent="twice")).wait()

    assert turn.text == "two"
    assert tool.calls == [{"value": 1}, {"value": 2}]
    assert tool.keys == [f"{world.id('r1')}/m1/c1", f"{world.id('r1')}/m2/c1"]
    assert other.failure is not None
    assert other.failure["code"] == "model_protocol"


async def test_several_calls_of_a_turn_answer_in_order(world: World) -> None:
    """Calls of one turn run one after another, and their results stand in call order in one message."""
    tool = RecordingTool("echo")
    model = ScriptedModel([calls(*(("echo", {"value": number}) for number in range(4))), says("four")])
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("try", run_id=world.id("r"))

    assert turn.text == "four"
    assert [part.result for part in results(model.requests[1])] == [{"result": number} for number in range(4)]
    assert [part.call_id for part in results(model.requests[1])] == [f"call-{number}" for number in range(1, 5)]


def freeze_until_lost(world: World, run_id: str) -> None:
    """Hold up the worker, which then neither works nor beats, until the server has given up one of its calls."""
    show = [str(TEMPORAL), "workflow", "show", "-w", run_id, "-o", "json", "--address", world.address]
    begun = time.monotonic()
    while (
        "EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT"
        not in subprocess.run(show, capture_output=True, text=True, check=True).stdout
    ):
        assert time.monotonic() - begun < PATIENCE


@pytest.mark.parametrize("idempotency", [ToolIdempotency.PURE, ToolIdempotency.IDEMPOTENT_WITH_KEY])
async def test_lost_call_is_repeated_by_the_run_and_not_by_the_server(
    world: World, idempotency: ToolIdempotency
) -> None:
    """A call whose worker falls silent is scheduled again on record, under the same key, each activity once."""

    async def freeze(_arguments: JsonObject, _call: ToolCall) -> Json:
        if len(tool.calls) == 1:
            freeze_until_lost(world, world.id("r"))
        return "thawed"

    tool = RecordingTool("freeze", freeze, idempotency=idempotency)
    model = ScriptedModel([calls(("freeze", {})), says("done")])
    timeouts = world.timeouts(heartbeat_ms=500)
    async with world.serving(plan(model, tool), timeouts=timeouts):
        turn = await world.runs.run_text("try", run_id=world.id("r"))
        history = await world.history(world.id("r"))
        events = [each async for each in world.runs.run(world.id("r")).events()]

    assert turn.text == "done"
    assert tool.keys == [f"{world.id('r')}/m1/c1"] * 2
    scheduled = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    named = [each.activity_task_scheduled_event_attributes.activity_type.name for each in scheduled]
    assert named.count(names.INVOKE_TOOL) == 2
    assert len(events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT)) == 1
    started = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    assert {each.activity_task_started_event_attributes.attempt for each in started} == {1}
    types = [each.event.payload.type for each in events]
    assert types[2:4] == ["continuity_lost", "continuity_restored"]


async def test_lost_call_that_must_not_run_twice_is_heard_late(world: World) -> None:
    """A non-idempotent call whose worker was silent for too long is not repeated: its own late outcome is taken."""

    async def freeze(_arguments: JsonObject, _call: ToolCall) -> Json:
        freeze_until_lost(world, world.id("r"))
        return "thawed"

    tool = RecordingTool("freeze", freeze, idempotency=ToolIdempotency.NON_IDEMPOTENT)
    model = ScriptedModel([calls(("freeze", {})), says("went on")])
    async with world.serving(plan(model, tool), timeouts=world.timeouts(heartbeat_ms=500)):
        turn = await world.runs.run_text("try", run_id=world.id("r"))
        history = await world.history(world.id("r"))

    assert (turn.text, len(tool.calls)) == ("went on", 1)
    assert [each.result for each in results(model.requests[1])] == ["thawed"]
    assert len(events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT)) == 1


async def test_worker_of_another_authority_leaves_the_call_to_one_that_matches(world: World) -> None:
    """A worker whose tools differ refuses the call, the server offers it again, and a matching worker takes it."""
    wrong, right = RecordingTool("echo", timeout_ms=4_000), RecordingTool("echo", timeout_ms=5_000)
    at_work, go_on = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedModel):
        async def stream(self, request: ModelRequest):  # noqa: ANN202 -- as its base
            at_work.set()
            await go_on.wait()
            async for event in super().stream(request):
                yield event

    rounds = [calls(("echo", {"value": 1})), says("matched")]
    async with world.serving(plan(Slow(rounds), right)):
        run = await world.runs.start("try", run_id=world.id("r"))
        await at_work.wait()
    go_on.set()
    async with world.serving(plan(Slow(rounds), wrong)):
        await until(lambda: _refused_once(world, run.run_id), "the call is refused")
    async with world.serving(plan(Slow(rounds), right)):
        turn = await run.wait()

    assert turn.text == "matched"
    assert (len(wrong.calls), len(right.calls)) == (0, 1)


async def _refused_once(world: World, run_id: str) -> bool:
    described = await world.client.get_workflow_handle(run_id).describe()
    waiting = described.raw_description.pending_activities
    return any(each.last_failure.application_failure_info.type == "run_id_conflict" for each in waiting)
