"""Halves of surrogate pairs: one replacement everywhere, said on record, and nobody stumbles over it (F041)."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType

from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.protocol.activities import ModelResult, ToolObservation
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.digest import canonical, sha256
from orchestral_temporal.protocol.model import ToolCallPart, ToolResultPart
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.wal import ModelAttemptObserved
from orchestral_temporal.protocol.words import dump, parse
from orchestral_temporal.runtime.model_call import LiveText
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.shell import ROOT, Shell
from tests.temporal.world import RecordingTool, World, calls, events_of, plan, says

CASE = Path(__file__).parent.parent / "cases" / "F041.json"


def case() -> JsonObject:
    """The input file of the given case, in which halves are escaped."""
    value: JsonObject = json.loads(CASE.read_text("utf-8"))
    return value


GIVEN = case()
TEXT = str(GIVEN["model_text"])
CLEAN = "half a letter: \ufffd end"
RESULT: JsonObject = {"title": "\ufffd start", "ok": "\U0001f600"}
RAW = '{"q": "\ud800"}'
"""An argument text that holds the half itself, where the case's own escapes it."""


async def look(_arguments: JsonObject, _call: object) -> Json:
    """Give back what the case says a tool returns."""
    return GIVEN["tool_result"]


def script() -> list[Json]:
    """Text and two calls, one with an escaped half, one with a bare one; then the answer, whose own mark is no half."""
    asked = calls(("look", GIVEN["argument_text"]), ("look", RAW))
    return [[{"text": TEXT}, *asked], says(f"{TEXT}\ufffd")]


async def test_halves_of_pairs_become_one_replacement_everywhere(world: World) -> None:
    """Journal, session, next request and every digest hold U+FFFD; what was replaced stands in the history (F041)."""
    run_id, session = world.id("r"), world.id("s")
    model, tool = ScriptedModel(script()), RecordingTool("look", look)
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("go", run_id=run_id, session_id=session)
        records = await world.records(session)
    read = await world.read(run_id)

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, f"{CLEAN}\ufffd")
    assert tool.calls == [{"q": "\ufffd"}]
    asked, answered = model.requests[1].messages[-2:]
    assert [part.text for part in asked.content if part.type == "text"] == [CLEAN]
    escaped, bare = [part for part in answered.content if isinstance(part, ToolResultPart)]
    assert (escaped.is_error, "surrogate pair" in str(escaped.result)) == (True, True)
    assert (bare.is_error, bare.result) == (False, RESULT)
    assert [part.arguments for part in asked.content if isinstance(part, ToolCallPart)][1] == {"q": "\ufffd"}

    exchange, output = records[1]["payload"], records[2]["payload"]
    assert isinstance(exchange, dict)
    assert isinstance(output, dict)
    assert (exchange["assistant"], exchange["tool"]) == (dump(asked), dump(answered))
    assert output["message"] == {"role": "assistant", "content": [{"type": "text", "text": turn.text}]}
    observed = [each.payload for each in read.wal if isinstance(each.payload, ModelAttemptObserved)]
    assert [each.observation.response for each in observed] == [CLEAN, turn.text]
    assert read.journal == tuple([each async for each in world.runs.run(run_id).events()])
    sent = [each.payload.request_digest for each in read.wal if each.payload.type == "model_attempt_started"]
    assert sent == [sha256(canonical(request)) for request in model.requests]

    history = await world.history(run_id)
    done = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    answers = [event.activity_task_completed_event_attributes.result.payloads[0].data for event in done]
    turns = [parse(ModelResult, data) for data in answers if b'"observation"' in data]
    results = [parse(ToolObservation, data) for data in answers if b'"outcome"' in data]
    assert [each.notes for each in turns] == [
        ("2 characters of the turn were not Unicode and became U+FFFD.",),
        ("1 characters of the turn were not Unicode and became U+FFFD.",),
    ]
    assert [each.notes for each in results] == [("1 characters of the output were not Unicode and became U+FFFD.",)]


async def test_plain_text_needs_no_note(world: World) -> None:
    """Nothing is said where nothing was changed, also not of a U+FFFD that the model wrote itself."""
    run_id = world.id("r")
    async with world.serving(plan(ScriptedModel([says("\ufffd \U0001f600")]))):
        await world.runs.run_text("go", run_id=run_id)
    done = events_of(await world.history(run_id), EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    answers = [event.activity_task_completed_event_attributes.result.payloads[0].data for event in done]
    assert [parse(ModelResult, data).notes for data in answers if b'"observation"' in data] == [()]
    assert not any(b'"notes"' in data for data in answers)


SETTINGS = """
temporal: {{address: {address}}}
queues: {{runs: {queue}, models: {queue}, tools: {queue}}}
agents: {{default: {{model: {{adapter: offline}}}}}}
"""


async def test_the_command_line_prints_what_became_of_halves(
    server: DevServer, world: World, tmp_path: Path, alone: Path
) -> None:
    """`watch`, `inspect` and `events` end with exit code 0 and show the replacement (F041)."""
    run_id = world.id("r")
    async with world.serving(plan(ScriptedModel(script()), RecordingTool("look", look))):
        await world.runs.run_text("go", run_id=run_id)
    (tmp_path / "temporal-dev.yaml").write_text(SETTINGS.format(address=server.address, queue=world.queue))
    shell = Shell(tmp_path, {**os.environ, "TMPDIR": str(alone), "PYTHONPATH": str(ROOT)})
    watched, inspected, events = await asyncio.gather(
        shell.run("watch", run_id), shell.run("inspect", run_id), shell.run("events", run_id, "--json")
    )

    assert [each.code for each in (watched, inspected, events)] == [0, 0, 0]
    assert watched.out == f"{CLEAN}\ufffd\n"
    assert f"text: {CLEAN}\ufffd\n" in inspected.out
    assert CLEAN in json.dumps(events.lines, ensure_ascii=False)


@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        (("a\ud83d", "\ude00b"), ("a", "a\U0001f600b")),
        (("a\ud83d", "b"), ("a", "a\ufffdb")),
        (("\ude00", ""), ("\ufffd", "\ufffd")),
        (("\ud83d", "\ud83d"), ("", "\ufffd")),
    ],
)
def test_live_text_joins_halves_that_come_apart(deltas: tuple[str, str], shown: tuple[str, str]) -> None:
    """A window never shows half a pair as something else than what it will be (F041)."""
    live = LiveText()
    for delta, text in zip(deltas, shown, strict=True):
        live.add(delta)
        assert live.beat().text == text
