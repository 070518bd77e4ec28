"""What a history holds: plain JSON with summaries for people, small however large a context grows."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType

from orchestral_temporal.core.limits import INLINE_RESULT_BYTES, SUMMARY_BYTES
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.model import TextPart
from orchestral_temporal.temporal import names
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.test_tools import case, results
from tests.temporal.world import RecordingTool, World, calls, events_of, plan, says


def payloads_in(message: Message) -> Iterator[Payload]:
    """Every payload inside a protobuf message, however deep."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        values: list[Any] = list(value.values()) if is_map else list(value) if field.is_repeated else [value]
        for each in values:
            if isinstance(each, Message):
                yield from payloads_in(each)


async def test_histories_are_plain_json(world: World) -> None:
    """All payloads of run and session are json/plain, UTF-8 JSON; each activity's summary names its work (F097)."""
    model = ScriptedModel([calls(("echo", {"value": "grüner Tee"})), says("done")])
    async with world.serving(plan(model, RecordingTool("echo"))):
        await world.runs.run_text("Summarise the notes\nand be brief", run_id=world.id("r"))
        run = await world.history(world.id("r"))
        session = await world.history(names.session_workflow_id(world.id("r")))
        shown = await world.cli("workflow", "show", "-w", world.id("r"), "-o", "json")

    found = [payload for history in (run, session) for event in history.events for payload in payloads_in(event)]
    assert len(found) > 20
    for payload in found:
        assert payload.metadata["encoding"] == b"json/plain"
        json.loads(payload.data.decode("utf-8"))
    assert json.loads(shown.out)["events"]
    summaries = {
        event.activity_task_scheduled_event_attributes.activity_type.name: json.loads(event.user_metadata.summary.data)
        for event in events_of(run, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    }
    assert summaries == {
        names.BIND: "bind",
        names.OPEN_SESSION: "open session",
        names.APPEND_SESSION: "append session",
        names.CALL_MODEL: "round 2 · model scripted",
        names.INVOKE_TOOL: "round 1 · echo grüner Tee",
    }
    assert json.loads(run.events[0].user_metadata.summary.data) == "Summarise the notes"


async def test_summaries_are_short_clean_and_keep_secrets(world: World) -> None:
    """Long, multi-byte, multi-line, secret: a summary has 200 bytes, no control character, no secret (F098)."""
    given = case("F098")
    tool_names, arguments = given["tool_names"], given["arguments"]
    assert isinstance(tool_names, list)
    assert isinstance(arguments, list)
    tools = [RecordingTool(str(name)) for name in tool_names]
    turns = [calls(*((str(name), each) for name in tool_names)) for each in arguments]
    async with world.serving(plan(ScriptedModel([*turns, says("done")]), *tools)):
        turn = await world.runs.run_text("x" * 5_000 + "\n" + "y" * 5_000, run_id=world.id("r"))
        history = await world.history(world.id("r"))

    assert turn.text == "done"
    assert [len(tool.calls) for tool in tools] == [len(arguments)] * len(tool_names)
    summaries = [
        json.loads(event.user_metadata.summary.data) for event in history.events if event.user_metadata.summary.data
    ]
    assert len(summaries) > len(arguments) * len(tool_names)
    for summary in summaries:
        assert 0 < len(summary.encode("utf-8")) <= SUMMARY_BYTES
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", summary)
        assert "\ufffd" not in summary
        assert "SENTINEL-7f3a91" not in summary


async def test_context_of_megabytes_stays_out_of_the_tasks(world: World) -> None:
    """Eight results just under the inline cap after 900 KB of input: round 9 has all of them, byte for byte (F008)."""
    task = "ä" * 450_000

    def text(number: int) -> str:
        return str(number) * (INLINE_RESULT_BYTES - 2)

    async def large(arguments: JsonObject, _call: ToolCall) -> Json:
        number = arguments["number"]
        assert isinstance(number, int)
        return text(number)

    model = ScriptedModel([*(calls(("large", {"number": number})) for number in range(8)), says("all read")])
    async with world.serving(plan(model, RecordingTool("large", large))):
        turn = await world.runs.run_text(task, run_id=world.id("r"))
        history = await world.history(world.id("r"))

    assert turn.text == "all read"
    assert len(canonical(text(1))) == INLINE_RESULT_BYTES
    last = model.requests[8]
    assert last.messages[1].content == (TextPart(text=task),)
    found = [part.result for message in last.messages[3::2] for part in results_of(message.content)]
    assert found == [text(number) for number in range(8)]
    assert results(last)[0].result == text(7)
    assert max(len(payload.data) for event in history.events for payload in payloads_in(event)) < 1_000_000


def results_of(content: Any) -> list[Any]:
    """The result parts of a message."""
    return [part for part in content if part.type == "tool_result"]


@pytest.mark.parametrize("rounds", [4, 8])
async def test_round_adds_a_constant_to_the_history(world: World, rounds: int) -> None:
    """A round of 10 KB adds that result once to the history, however many rounds came before."""

    async def page(_arguments: JsonObject, _call: ToolCall) -> Json:
        return "x" * 10_000

    model = ScriptedModel([*([calls(("page", {}))] * rounds), says("read")])
    async with world.serving(plan(model, RecordingTool("page", page))):
        await world.runs.run_text("read on", run_id=world.id("r"))
        history = await world.history(world.id("r"))

    sizes = [event.ByteSize() for event in history.events]
    assert sum(size > 9_000 for size in sizes) == rounds
    assert sum(sizes) < rounds * 16_000 + 20_000
