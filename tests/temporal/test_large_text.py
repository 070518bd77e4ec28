"""Texts of a model that no history could hold: they lie in the artifact store, and all readers have them (F010)."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload

from orchestral_temporal import AgentClient, ArtifactMissing, LocalArtifacts
from orchestral_temporal.core.limits import MODEL_STREAM_BYTES, MODEL_TURN_BYTES, SESSION_BATCH_BYTES
from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.events import AgentJournalRecord, OutputCommitted
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.state import AgentRunStatus, AgentRunView
from orchestral_temporal.protocol.wal import ModelAttemptObserved
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.shell import ROOT, Shell
from tests.temporal.world import RecordingTool, World, calls, plan, says, until

PAYLOAD_BYTES = 1_000_000
"""What one payload must stay below (decision 28)."""

PIECES = 100
"""Deltas in which a large text is streamed."""

ASCII = "tea " * 650_000
EMOJI = "🍵" * 650_000
"""2,600,000 bytes each (F010)."""

LARGE = 'A leaf of "tea".\n' * 20_000
"""Large enough for the store, quick to look at."""


def streams(text: str, finish: str = "stop") -> list[Json]:
    """A round in which the model says a text piece by piece."""
    step = -(-len(text) // PIECES)
    return [*({"text": text[at : at + step]} for at in range(0, len(text), step)), {"finish": finish}]


def payload_sizes(message: Message) -> Iterator[int]:
    """The size of each payload inside a message."""
    if isinstance(message, Payload):
        yield message.ByteSize()
        return
    for _, value in message.ListFields():
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, Sequence) else (value,)
        for each in inner:
            if isinstance(each, Message):
                yield from payload_sizes(each)


class Resting(MemoryArtifacts):
    """A store that is away for its first tries."""

    tries = 0

    async def put(self, data: bytes) -> str:
        """Keep bytes, from the third try on."""
        self.tries += 1
        if self.tries < 3:
            raise OSError("the disk is away")
        return await super().put(data)


async def test_a_store_that_is_away_costs_no_second_turn(world: World) -> None:
    """A large turn was paid for: the store is asked again, the model is not."""
    store = Resting()
    there = replace(world, artifacts=store)
    model = ScriptedModel([streams(LARGE)])
    async with there.serving(plan(model)):
        turn = await there.runs.run_text("tell", run_id=world.id("r"))

    assert turn.status is AgentRunStatus.DELIVERED
    assert await store.get(artifact_of(final_response(turn))) == LARGE.encode()
    assert store.tries >= 3
    assert len(model.requests) == 1


async def largest_payload(world: World, workflow_id: str) -> int:
    """The size of the largest payload in a history."""
    return max(size for event in (await world.history(workflow_id)).events for size in payload_sizes(event))


def artifact_of(content: Json) -> str:
    """The digest in a content that names a text in the store."""
    assert isinstance(content, dict)
    body = content["body"]
    assert isinstance(body, dict)
    assert (content["media_type"], body["kind"]) == ("text/plain", "artifact")
    reference = body["value"]
    assert isinstance(reference, dict)
    assert reference["artifact_ref"] == reference["digest"]
    return str(reference["digest"])


def final_response(turn: Turn) -> Json:
    """The content that a delivery names."""
    delivery = turn.result["delivery"]
    assert isinstance(delivery, dict)
    return delivery["final_response"]


@pytest.mark.parametrize("text", [ASCII, EMOJI], ids=["ascii", "four bytes a character"])
async def test_an_answer_of_any_size_is_delivered_whole(world: World, text: str) -> None:
    """2,600,000 bytes arrive byte for byte, though no payload on the way has 1 MB (F010)."""
    run_id, session = world.id("r"), world.id("s")
    async with world.serving(plan(ScriptedModel([streams(text)]))):
        turn = await world.runs.run_text("tell", run_id=run_id, session_id=session)
        view = await world.runs.run(run_id).inspect()
        batches = (await world.session(session))["batches"]

    assert turn.status is AgentRunStatus.DELIVERED
    assert turn.text == text
    assert turn.result["text"] is None
    stored = artifact_of(final_response(turn))
    assert await world.artifacts.get(stored) == text.encode()
    assert view == turn.view
    for workflow_id in (run_id, names.session_workflow_id(session)):
        assert await largest_payload(world, workflow_id) < PAYLOAD_BYTES

    assert isinstance(batches, list)
    segments = [str(batch["segment"]) for batch in batches if isinstance(batch, dict) and batch["segment"]]
    records = [record for segment in segments for record in json.loads(await world.artifacts.get(segment))]
    assert records[-1]["payload"]["message"]["content"] == [{"type": "text", "text": text}]


async def test_the_log_of_a_run_names_the_whole_text(world: World) -> None:
    """Journal and WAL hold the digest of the text, so that whoever verifies them verifies the text with them (F010)."""
    run_id = world.id("r")
    async with world.serving(plan(ScriptedModel([streams(LARGE)]))):
        turn = await world.runs.run_text("tell", run_id=run_id)
    read = await world.read(run_id)

    assert read.journal == tuple([each async for each in world.runs.run(run_id).events()])
    (observed,) = [each.payload.observation for each in read.wal if isinstance(each.payload, ModelAttemptObserved)]
    assert observed.response.startswith(LARGE[:100])
    assert artifact_of(final_response(turn)) in observed.response
    assert str(len(LARGE)) in observed.response


async def test_another_worker_goes_on_after_a_large_text(world: World) -> None:
    """A worker that never saw the text asks its model with all of it, byte for byte (F010, decision 7)."""
    at_work = asyncio.Event()

    async def wait(_arguments: JsonObject, _call: object) -> Json:
        at_work.set()
        await asyncio.Event().wait()
        return None

    rounds = [[*streams(ASCII)[:-1], *calls(("wait", {}))], streams(EMOJI, "length")]
    before, after = ScriptedModel(rounds), ScriptedModel(rounds)
    async with world.serving(plan(before, RecordingTool("wait", wait))):
        run = await world.runs.start("work", run_id=world.id("r"))
        await at_work.wait()
    async with world.serving(plan(after, RecordingTool("wait"))):
        turn = await run.wait()

    assert len(after.requests) == 1
    said = after.requests[0].messages[2].content
    assert [part.type for part in said] == ["text", "tool_call"]
    assert said[0].type == "text"
    assert said[0].text == ASCII
    assert (turn.status, turn.text) == (AgentRunStatus.INCOMPLETE, EMOJI)
    assert await largest_payload(world, run.run_id) < PAYLOAD_BYTES


async def test_a_limit_keeps_a_large_text(world: World) -> None:
    """What was said before a limit is a partial delivery, also when it lies in the store; later words replace it."""
    large: list[Json] = [*streams(LARGE)[:-1], *calls(("echo", {}))]
    short: list[Json] = [{"text": "short"}, *calls(("echo", {}))]
    silent, turns = calls(("echo", {})), list[Turn]()
    for rounds in ([large, silent], [large, short]):
        async with world.serving(plan(ScriptedModel([*rounds, silent]), RecordingTool("echo"))):
            limits = RunLimits(max_tool_calls=2)
            turns.append(await (await world.runs.start("work", limits=limits)).wait())

    assert [turn.status for turn in turns] == [AgentRunStatus.INCOMPLETE] * 2
    assert [turn.text for turn in turns] == [LARGE, "short"]
    assert [turn.result["text"] for turn in turns] == [None, "short"]


async def test_a_reader_without_the_store_is_told_which_artifact_it_lacks(world: World, tmp_path: Path) -> None:
    """Everything but the text can be read; asking for that says in one sentence what is missing and what to do."""
    run_id = world.id("r")
    async with world.serving(plan(ScriptedModel([streams(LARGE)]))):
        turn = await world.runs.run_text("tell", run_id=run_id)
    stored = artifact_of(final_response(turn))

    class Forged(MemoryArtifacts):
        async def get(self, digest: str) -> bytes:
            return digest.encode()

    (tmp_path / stored[:2] / stored[2:]).mkdir(parents=True)
    stores = {
        "give `artifacts`": None,
        "does not hold": MemoryArtifacts(),
        "use the store of the workers": Forged(),
        "cannot be read": LocalArtifacts(tmp_path),
    }
    for said, store in stores.items():
        handle = AgentClient(world.client, artifacts=store).run(run_id)
        for turn in (await handle.wait(), await handle.closed()):
            assert turn is not None
            assert turn.status is AgentRunStatus.DELIVERED
            with pytest.raises(ArtifactMissing, match=said) as caught:
                _ = turn.text
            assert stored in str(caught.value)


async def test_a_store_that_lost_a_text_ends_the_run_with_a_reason(world: World) -> None:
    """A context whose text nobody has any more is not made up: the run fails and names the artifact (F010)."""
    at_work = asyncio.Event()

    async def wait(_arguments: JsonObject, _call: object) -> Json:
        at_work.set()
        await asyncio.Event().wait()
        return None

    # Large enough for the store, and not for a batch of its own, which would end the run the same way.
    rounds = [[*streams(LARGE[: SESSION_BATCH_BYTES * 3 // 4])[:-1], *calls(("wait", {}))], says("never")]
    after = ScriptedModel(rounds)
    async with world.serving(plan(ScriptedModel(rounds), RecordingTool("wait", wait))):
        run = await world.runs.start("work", run_id=world.id("r"))
        await at_work.wait()
    world.artifacts = MemoryArtifacts()
    async with world.serving(plan(after, RecordingTool("wait"))):
        turn = await run.wait()

    assert turn.failure is not None
    assert turn.failure["code"] == "session_context"
    assert "does not hold" in str(turn.failure["message"])
    assert after.requests == []


async def test_an_attempt_beats_while_its_text_is_stored(world: World) -> None:
    """However long the store takes, the attempt is not taken for lost, and the model is asked once."""
    storing, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryArtifacts):
        async def put(self, data: bytes) -> str:
            storing.set()
            await go_on.wait()
            return await super().put(data)

    world.artifacts, model = Slow(), ScriptedModel([streams(LARGE)])
    async with world.serving(plan(model), timeouts=world.timeouts(heartbeat_ms=1_000)):
        run = await world.runs.start("tell", run_id=world.id("r"))
        await storing.wait()
        beats: set[datetime] = set()

        async def beaten() -> bool:
            described = await world.client.get_workflow_handle(run.run_id).describe()
            (pending,) = described.raw_description.pending_activities
            assert pending.attempt == 1
            if pending.HasField("last_heartbeat_time"):
                beats.add(pending.last_heartbeat_time.ToDatetime())
            return bool(beats) and max(beats) - min(beats) > timedelta(seconds=1.5)

        await until(beaten, "beats go on for longer than the time-out")
        go_on.set()
        turn = await run.wait()

    assert turn.text == LARGE
    assert len(model.requests) == 1


async def test_a_watcher_sees_a_window_and_then_the_whole(world: World) -> None:
    """Live text is a window on a large stream; the event at its end names the text, which the turn has (F010)."""
    step = len(LARGE) // PIECES
    pieces: list[Json] = [
        {"type": "text_delta", "delta": LARGE[at : at + step], "delay_ms": 10} for at in range(0, len(LARGE), step)
    ]
    model = ScriptedModel([[*pieces, {"finish": "stop"}]])
    timeouts = world.timeouts(heartbeat_ms=2_000).model_copy(update={"live_text_ms": 100})
    async with world.serving(plan(model), timeouts=timeouts):
        run = await world.runs.start("tell", run_id=world.id("r"))
        frames = [frame async for frame in run.watch()]
        turn = await run.wait()

    live = [frame.text for frame in frames if frame.kind == "text"]
    assert live
    assert all(text in LARGE for text in live)
    (output,) = [each.event.payload for each in (frame.event for frame in frames) if each and is_output(each)]
    assert isinstance(output, OutputCommitted)
    assert artifact_of(dump(output.content[0])) == artifact_of(final_response(turn))
    assert turn.text == LARGE


def is_output(record: AgentJournalRecord) -> bool:
    """Whether a record holds what the run has to say."""
    return isinstance(record.event.payload, OutputCommitted)


async def test_a_stream_without_an_end_is_cut_off(world: World) -> None:
    """A turn above the bound of a stream ends the run with a code of its own, and what it used counts (F010)."""
    usage: Json = {"type": "usage", "usage": {"input_tokens": 7, "output_tokens": 5}}
    endless: list[Json] = [usage, *({"text": "x" * 1_000_000} for _ in range(18)), {"finish": "stop"}]
    async with world.serving(plan(ScriptedModel([endless]))):
        turn = await world.runs.run_text("tell", run_id=world.id("r"))

    assert turn.failure is not None
    assert (turn.failure["code"], turn.failure["retryable"]) == ("model_output_too_large", False)
    assert str(MODEL_STREAM_BYTES) in str(turn.failure["message"])
    assert turn.result["usage"] == {"input_tokens": 7, "output_tokens": 5, "tool_calls": None, "cost": None}


async def test_what_stands_beside_a_text_is_bounded(world: World) -> None:
    """Arguments and provider state stay in history: too much of them ends the run, and nothing is stored."""
    state: Json = {"type": "continuation", "namespace": "vendor/state", "value": "x" * MODEL_TURN_BYTES}
    async with world.serving(plan(ScriptedModel([[{"text": "so"}, state, {"finish": "stop"}]]))):
        turn = await world.runs.run_text("tell", run_id=world.id("r"))

    assert turn.failure is not None
    assert turn.failure["code"] == "model_output_too_large"
    assert str(MODEL_TURN_BYTES) in str(turn.failure["message"])


SETTINGS = """
temporal: {{address: {address}}}
queues: {{runs: {queue}, models: {queue}, tools: {queue}}}
timeouts: {{heartbeat: 2s}}
artifacts: file://{artifacts}
agents: {{default: {{model: {{adapter: scripted, script: tells.yaml}}}}}}
"""


async def test_the_command_line_has_the_whole_text(server: DevServer, tmp_path: Path, alone: Path) -> None:
    """`run`, `inspect` and `watch --json` give all of it, `artifacts get` its bytes; without the store they say so."""
    (tmp_path / "tells.yaml").write_text(json.dumps([streams(LARGE)]))
    for name in ("kept", "other"):
        text = SETTINGS.format(address=server.address, queue=f"q-{tmp_path.name}-cli", artifacts=tmp_path / name)
        (tmp_path / f"{name}.yaml").write_text(text)
    shell = Shell(tmp_path, {**os.environ, "TMPDIR": str(alone), "PYTHONPATH": str(ROOT)})
    ran = await shell.run("run", "tell", "--run-id", "r-large", "--config", "kept.yaml")
    again, seen, wire = await asyncio.gather(
        shell.run("watch", "r-large", "--json", "--config", "kept.yaml"),
        shell.run("inspect", "r-large", "--config", "kept.yaml"),
        shell.run("inspect", "r-large", "--json", "--config", "kept.yaml"),
    )
    stored = artifact_of(parse_value(AgentRunView, wire.lines[0]).model_dump(mode="json")["delivery"]["final_response"])
    got, lost, elsewhere, unwritten = await asyncio.gather(
        shell.run("artifacts", "get", stored, "text.txt", "--config", "kept.yaml"),
        shell.run("artifacts", "get", stored, "none.txt", "--config", "other.yaml"),
        shell.run("watch", "r-large", "--config", "other.yaml"),
        shell.run("artifacts", "get", stored, "no/where.txt", "--config", "kept.yaml"),
    )

    assert (ran.code, ran.out) == (0, LARGE + "\n")
    assert (again.code, again.lines[-1]["text"]) == (0, LARGE)
    assert (seen.code, f"\ntext: {LARGE}" in seen.out) == (0, True)
    assert (got.code, got.out, (tmp_path / "text.txt").read_bytes()) == (0, f"{len(LARGE)} bytes\n", LARGE.encode())
    assert (lost.code, unwritten.code) == (64, 64)
    assert stored in lost.err
    assert "cannot be copied" in unwritten.err
    assert elsewhere.code == 0
    assert stored in elsewhere.err
    assert artifact_of(json.loads(elsewhere.out)["final_response"]) == stored
