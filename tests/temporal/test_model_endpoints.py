"""What endpoints send, whole or broken, and what a run makes of it: the adapter, the run and a real server together."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from orchestral_temporal.adapters.models.openai import OpenAIModel
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.retry import ModelRetryPolicy
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolConcurrency, ToolIdempotency
from orchestral_temporal.protocol.wal import ModelAttemptStarted, ModelContextRejected, ModelRetryScheduled
from orchestral_temporal.runtime.agents import AgentPlan
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.temporal.history import RunHistory
from tests.contracts.openai_endpoint import (
    DONE,
    KEY,
    adapter_at,
    call_chunk,
    case_data,
    case_message,
    case_stream,
    chunk,
    error_reply,
    frame,
    only_short_ids,
    sent_ids,
    text_reply,
    usage_chunk,
    whole_reply,
)
from tests.contracts.sse_server import Asked, Endpoint, Reply, serving
from tests.temporal.world import RecordingTool, World, events_of, give_back, plan

SOON: Final = ModelRetryPolicy(max_retries=2, base_delay_ms=20, max_delay_ms=20)
"""Retries that a test need not wait for."""

FINISHED: Final = text_reply("done")

THREE_TIMEOUTS: Final = 1.5
"""Seconds that a slow endpoint and a slow tool take: their slowness is what the test is about."""

LAST: Final[JsonObject] = {"choices": []}
"""The chunk that carries usage."""


@dataclass(frozen=True)
class Told:
    """One run: what its endpoint was asked, how it ended, and its history."""

    asked: Sequence[Asked]
    turn: Turn
    history: RunHistory

    @property
    def code(self) -> object:
        """The failure code."""
        return self.turn.failure["code"] if self.turn.failure else None

    @property
    def usage(self) -> JsonObject:
        """What the run used."""
        usage = self.turn.result["usage"]
        assert isinstance(usage, dict)
        return usage

    def wal(self, kind: type[Any]) -> list[Any]:
        """The WAL records of one kind."""
        return [each.payload for each in self.history.wal if isinstance(each.payload, kind)]


async def told(
    world: World, stories: Mapping[str, Sequence[Reply]], *tools: RecordingTool, settings: Any = None, **options: Any
) -> dict[str, Told]:
    """Let one run ask each endpoint, side by side."""
    async with AsyncExitStack() as life:
        endpoints: dict[str, Endpoint] = {}
        plans: list[AgentPlan] = []
        for name, replies in stories.items():
            endpoints[name] = await life.enter_async_context(serving(list(replies)))
            model: OpenAIModel = await life.enter_async_context(adapter_at(endpoints[name], **(settings or {})))
            plans.append(plan(model, *tools, name=name, **{"retry": SOON, **options}))
        async with world.serving(*plans):
            runs = {name: await world.runs.start("ask", run_id=world.id(name), agent=name) for name in stories}
            turns = dict(zip(runs, await asyncio.gather(*(run.wait() for run in runs.values())), strict=True))
        return {name: Told(endpoints[name].asked, turns[name], await world.read(runs[name].run_id)) for name in stories}


def failing(row: JsonObject) -> Reply:
    """The error of a row of a case."""
    return error_reply(int(str(row["status"])), row["body"])


async def test_a_bad_request_after_a_tool_fails_the_run_once(world: World) -> None:
    """A refusal that no retry heals: one tool call, one request a round, one execution of the workflow (F002)."""
    tool = RecordingTool("notes_append", idempotency=ToolIdempotency.NON_IDEMPOTENT)
    called = Reply([call_chunk(0, "n1", "notes_append", '{"value": 1}'), chunk(finish="tool_calls"), DONE])
    refused = error_reply(400, {"error": {"message": "No.", "type": "invalid_request_error"}})
    story = (await told(world, {"F002": [called, refused]}, tool))["F002"]
    assert (len(tool.calls), len(story.asked), story.code) == (1, 2, "model_invalidrequest")
    assert [each.event.payload.type for each in story.history.journal].count("run_failed") == 1
    history = await world.history(world.id("F002"))
    (began,) = events_of(history, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED)
    assert began.workflow_execution_started_event_attributes.attempt == 1
    assert not began.workflow_execution_started_event_attributes.HasField("retry_policy")


SOFT: Final = "soft"
HARD: Final = "hard"


async def test_errors_of_quota_and_key_are_told_from_a_busy_engine(world: World) -> None:
    """Hard refusals end the run with what the provider said, soft ones are asked again, on record (F065)."""
    rows = case_data("F065")["cases"]
    stories = {f"row{number}": [failing(row), FINISHED] for number, row in enumerate(rows)}
    found = await told(world, stories)
    for number, row in enumerate(rows):
        story, soft = found[f"row{number}"], row["expect"].startswith(SOFT)
        assert (len(story.asked), story.turn.status) == ((2, "delivered") if soft else (1, "failed")), row
        assert len(story.wal(ModelRetryScheduled)) == soft, row
        if not soft:
            assert story.turn.failure is not None
            assert str(story.code).startswith("model_"), row
            said = str(story.turn.failure)
            error = row["body"]["error"]
            assert str(row["status"]) in said, row
            assert error.get("code", error.get("type", error["message"])) in said, row


async def test_a_context_that_is_too_long_gets_more_room(world: World) -> None:
    """What providers say of a long context is on record and leads to a smaller cap; all else does not (F067)."""
    rows = case_data("F067")
    stories = {
        f"{kind}{number}": [failing(row), FINISHED]
        for kind in ("positive", "negative")
        for number, row in enumerate(rows[kind])
    }
    found = await told(world, stories)
    for name, story in found.items():
        rejected = story.wal(ModelContextRejected)
        if name.startswith("positive"):
            assert (story.turn.status, len(rejected), len(story.asked)) == ("delivered", 1, 2), name
            first, second = (each.body["max_tokens"] for each in story.asked)
            assert second < first
        else:
            assert rejected == [], name
    codes = [found[f"negative{number}"].code for number in range(len(rows["negative"]))]
    assert codes == [None, *["model_invalidrequest"] * 3, "model_authentication"]


BROKEN: Final[Mapping[str, tuple[Sequence[Reply], str | None, int]]] = {
    "F061": ([case_stream("F061")], "model_incomplete", 1),
    "F070": ([case_stream("F070"), FINISHED], "model_stream_ended", 1),
    "F070b": ([case_stream("F070b"), FINISHED], "model_stream_ended", 1),
    "F070c": ([case_stream("F070c"), FINISHED], "model_stream_ended", 1),
    "cut before any output": ([Reply([]), Reply([], cut=True), FINISHED], None, 3),
    "F071": ([Reply([case_data("F071")["stream"].encode()]), FINISHED], "model_incomplete", 1),
    "F071 refused": ([failing(case_data("F071")["http_400"]), FINISHED], "model_invalidrequest", 1),
}
"""Name → what the endpoint answers, the failure code of the run (none: delivered), and how often it is asked."""


async def test_half_answers_are_never_delivered(world: World) -> None:
    """Empty, cut and filtered answers fail the run, nothing is repeated after output, no call runs (F061 F070 F071)."""
    tools = [RecordingTool(name) for name in ("notes_append", "file_read")]
    found = await told(world, {name: replies for name, (replies, _, _) in BROKEN.items()}, *tools)
    ends = {name: (story.code, len(story.asked)) for name, story in found.items()}
    assert ends == {name: (code, asked) for name, (_, code, asked) in BROKEN.items()}
    assert [tool.calls for tool in tools] == [[], []]
    delivered = {name for name, story in found.items() if story.turn.text is not None}
    assert delivered == {"cut before any output"}
    kinds = [each.event.payload.type for story in found.values() for each in story.history.journal]
    assert kinds.count("output_committed") == 1


async def test_an_error_inside_a_stream_keeps_its_words(world: World) -> None:
    """The provider's message and code are in the failure; what was said before it is delivered nowhere (F068)."""
    story = (await told(world, {"F068": [case_stream("F068"), FINISHED]}))["F068"]
    assert story.turn.failure is not None
    assert "no free place" in str(story.turn.failure["message"])
    assert "502" in str(story.turn.failure)
    assert (story.turn.text, len(story.asked)) == (None, 1)
    assert "The answer is" not in str(story.turn.result)


async def test_an_endpoint_that_asks_for_a_pause_gets_it(world: World) -> None:
    """Retry-after is a durable timer with its record before it, cut to the cap (F064)."""
    busy = {"error": {"message": "busy", "code": "rate_limit_exceeded"}}
    stories = {
        name: [error_reply(429, busy, headers), FINISHED]
        for name, headers in {
            "seconds": {"Retry-After": "1"},
            "milliseconds": {"Retry-After": "10", "retry-after-ms": "250"},
            "capped": {"Retry-After": "999999999"},
            "nonsense": {"Retry-After": "soon"},
            "forbidden": {"Retry-After": "2", "x-should-retry": "false"},
        }.items()
    }
    found = await told(world, stories, retry_after_cap_ms=1_200)
    delays = {name: [each.delay_ms for each in story.wal(ModelRetryScheduled)] for name, story in found.items()}
    assert delays == {
        "seconds": [1_000], "milliseconds": [250], "capped": [1_200], "nonsense": [20], "forbidden": []
    }  # fmt: skip
    assert {len(story.asked) for name, story in found.items() if name != "forbidden"} == {2}
    for name, story in found.items():
        history = await world.history(world.id(name))
        timers = events_of(history, EventType.EVENT_TYPE_TIMER_STARTED)
        waits = [each.timer_started_event_attributes.start_to_fire_timeout.ToMilliseconds() for each in timers]
        assert waits == delays[name]
        assert len(story.wal(ModelAttemptStarted)) == 1


async def test_usage_is_read_in_every_convention_and_added_up(world: World) -> None:
    """Inclusive and additive forms give the same sums and costs; a failed attempt's usage counts too (F118, F119)."""
    rows = case_data("F119")["cases"]
    stories: dict[str, Sequence[Reply]] = {
        f"row{number}": [Reply([chunk({"content": "x"}), chunk(finish="stop"), frame({**LAST, "usage": row["usage"]})])]
        for number, row in enumerate(rows)
    }
    failed = Reply([usage_chunk(700, 50), frame({"error": {"message": "again later", "code": 503}})])
    called = Reply(
        [call_chunk(0, "c1", "echo", '{"value": 1}'), chunk(finish="tool_calls"), usage_chunk(710, 60), DONE]
    )
    done = Reply([chunk({"content": "done"}), chunk(finish="stop"), usage_chunk(800, 20), DONE])
    price = ModelCostPolicy(
        currency="USD", input_microunits_per_million_tokens=1_000_000, output_microunits_per_million_tokens=4_000_000
    )
    found = await told(world, {**stories, "F118": [failed, called, done]}, RecordingTool("echo"), price=price)
    for number, (row, cost) in enumerate(zip(rows, (1_400, 1_400, 1_700, 1_320, 800, 800), strict=True)):
        usage = found[f"row{number}"].usage
        assert usage["cost"] == {"currency": "USD", "microunits": cost}
        assert (usage["input_tokens"], usage["output_tokens"]) == (row["expect"]["input"], row["expect"]["output"])
    usage = found["F118"].usage
    assert (usage["input_tokens"], usage["output_tokens"], usage["tool_calls"]) == (2_210, 130, 1)


CALLS: Final[Mapping[str, tuple[str, list[JsonObject]]]] = {
    "F059": ("notes_append", [{"text": text} for text in ("1", "2", "3", "4")]),
    "F073": ("file_read", [{"path": "a.txt"}, {"path": "b.txt"}]),
    "F074": ("weather", [{"city": "Bern"}, {"city": "Oslo"}]),
}


@pytest.mark.parametrize("case", CALLS)
async def test_calls_with_poor_ids_run_once_each(world: World, case: str) -> None:
    """Repeated, empty, missing ids: an invocation each, in call order, and an id of its own (F059 F073 F074)."""
    name, expected = CALLS[case]
    once, lone = ToolIdempotency.NON_IDEMPOTENT, ToolConcurrency.PER_RUN_SERIAL
    tool = RecordingTool(name, give_back, idempotency=once, concurrency=lone)
    story = (await told(world, {case: [case_stream(case), FINISHED]}, tool))[case]
    assert (tool.calls, story.turn.text) == (expected, "done")
    run_id = world.id(case)
    assert tool.keys == [f"{run_id}/m1/c{number}" for number in range(1, len(expected) + 1)]
    given, answered = sent_ids(story.asked[1])
    assert given == answered
    assert len(set(given)) == len(expected)
    assert all(given)
    results = [message for message in story.asked[1].body["messages"] if message["role"] == "tool"]
    assert [json.loads(message["content"]) for message in results] == expected


async def test_a_call_that_was_cut_never_runs(world: World) -> None:
    """Output ends at the cap inside the second call: the first runs once, the second is refused as it is (F058)."""
    whole, cut = RecordingTool("notes_read"), RecordingTool("file_write")
    story = (await told(world, {"F058": [case_stream("F058"), FINISHED]}, whole, cut, max_output_tokens=64))["F058"]
    assert (whole.calls, cut.calls, story.turn.text) == ([{"id": 7}], [], "done")
    assert "invalid_tool_arguments" in str(story.asked[1].body["messages"][-1]["content"])


async def test_whole_messages_are_calls_like_streamed_ones(world: World) -> None:
    """Four ways to write one call in an answer that is not streamed give the same arguments and digest (F076)."""
    expected = case_data("F076")["expect"]
    tool = RecordingTool("search")
    stories = {f"message{number}": [case_message(number), FINISHED] for number in range(4)}
    found = await told(world, stories, tool)
    assert tool.calls == [expected["arguments"]] * 4
    assert {digest(arguments) for arguments in tool.calls} == {expected["arguments_sha256_jcs"]}
    assert {story.turn.text for story in found.values()} == {"done"}


async def test_ids_fit_an_endpoint_that_wants_short_ones(world: World) -> None:
    """Outgoing ids fit, pair up and stay the same in every later request; the journal keeps the originals (F077)."""
    originals = [call["id"] for call in case_data("F077")["history"][1]["tool_calls"]]
    pieces = [call_chunk(number, each, "search", f'{{"value": "{number}"}}') for number, each in enumerate(originals)]
    rounds = [Reply([*pieces, chunk(finish="tool_calls"), DONE])] * 2 + [FINISHED]
    tool = RecordingTool("search")
    async with AsyncExitStack() as life:
        endpoint: Endpoint

        def reply(number: int) -> Reply:
            return only_short_ids(endpoint.asked[number - 1], rounds[number - 1])

        endpoint = await life.enter_async_context(serving(reply))
        model = await life.enter_async_context(adapter_at(endpoint, call_ids="short9"))
        async with world.serving(plan(model, tool)):
            turn = await world.runs.run_text("ask", run_id=world.id("F077"))
    assert turn.text == "done"
    second, third = (sent_ids(asked)[0] for asked in endpoint.asked[1:])
    assert third[:3] == second
    assert len(set(third)) == 6
    history = await world.read(world.id("F077"))
    observed = [each.payload.observation for each in history.wal if each.payload.type == "model_attempt_observed"]
    assert [call.call_id for call in observed[0].tool_calls] == originals


async def test_text_beside_a_call_is_kept(world: World) -> None:
    """The text of a tool round is in the next request, the WAL and the session, whatever the end is (F062)."""
    data = case_data("F062")
    message = {key: data["round_1"][key] for key in ("content", "tool_calls")}
    first = whole_reply({"role": "assistant", **message}, "tool_calls")
    story = (await told(world, {"F062": [first, whole_reply({"content": ""}, "stop")]}, RecordingTool("notes_append")))[
        "F062"
    ]
    text = data["round_1"]["content"]
    assert (story.code, story.turn.text) == ("model_incomplete", None)
    assert text in str(story.asked[1].body["messages"])
    observed = [each.payload.observation for each in story.history.wal if each.payload.type == "model_attempt_observed"]
    assert observed[0].response == text
    session = await world.history(names.session_workflow_id(world.id("F062")))
    assert text in plain(session)


def plain(history: WorkflowHistory) -> str:
    """Everything a history holds, payloads as they are."""
    return b"".join(event.SerializeToString() for event in history.events).decode("utf-8", "replace")


async def test_the_key_stands_nowhere(world: World) -> None:
    """An endpoint that quotes the key finds it masked in failure, history, attributes and result (F112, F113)."""
    quoting = case_data("F113")["model_error"]
    body = {"error": {"message": f"Incorrect key given: {KEY}. See the key page.", "code": "invalid_api_key"}}
    inside = Reply([frame({"error": {"message": f"Bearer {KEY} failed", "code": 500}})])
    found = await told(world, {"F113": [error_reply(quoting["status"], body)], "stream": [inside]})
    spellings = (KEY, base64.b64encode(KEY.encode()).decode().rstrip("="), quote(KEY, safe=""))
    for name, story in found.items():
        history = await world.history(world.id(name))
        described = await world.client.get_workflow_handle(world.id(name)).describe()
        shown = [plain(history), str(story.turn.result), str(described.raw_description), str(await described.memo())]
        assert story.turn.status is AgentRunStatus.FAILED
        assert not [spelling for spelling in spellings for text in shown if spelling in text]


async def test_an_attempt_that_failed_before_it_spoke_shows_nothing(world: World) -> None:
    """A 503 before any output: the next attempt's text is all that is delivered, and the retry is on record (F013)."""
    busy = error_reply(503, {"error": {"message": "starting"}})
    story = (await told(world, {"F013": [busy, text_reply("Hello ", "world")]}))["F013"]
    assert (story.turn.text, len(story.asked)) == ("Hello world", 2)
    assert [each.retry_number for each in story.wal(ModelRetryScheduled)] == [1]
    outputs = [each for each in story.history.journal if each.event.payload.type == "output_committed"]
    assert len(outputs) == 1


async def test_silence_is_no_loss_while_somebody_is_there(world: World) -> None:
    """A first byte after three time-outs, a tool with effects that takes as long to begin: an attempt each (F085)."""

    async def slow(_arguments: JsonObject, _call: ToolCall) -> Json:
        await asyncio.sleep(THREE_TIMEOUTS)
        return "ready"

    call = [call_chunk(0, "c1", "slow", "{}"), chunk(finish="tool_calls"), DONE]
    replies = [Reply(call, first_byte_after=THREE_TIMEOUTS), FINISHED]
    tool = RecordingTool("slow", slow, idempotency=ToolIdempotency.NON_IDEMPOTENT)
    timeouts = world.timeouts(heartbeat_ms=500)
    async with (
        serving(replies) as endpoint,
        adapter_at(endpoint) as model,
        world.serving(plan(model, tool), timeouts=timeouts),
    ):
        turn = await world.runs.run_text("ask", run_id=world.id("F085"))
    history = await world.history(world.id("F085"))
    assert (turn.text, len(tool.calls), len(endpoint.asked)) == ("done", 1, 2)
    assert events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT) == []
    started = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    assert {event.activity_task_started_event_attributes.attempt for event in started} == {1}
