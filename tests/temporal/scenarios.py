"""Transcripts of whole runs of the source (`tests/vectors/scenarios`), and the model and tools that act them again.

Ids are ours: the transcript's run and session ids are replaced before anything is compared. Not compared, as the page
of the transcripts says: times, wording, used tokens, digests that depend on the system message.
"""

import asyncio
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestral_temporal.ports import ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.run import AgentStartRequest
from orchestral_temporal.protocol.wal import GenericCheckpointRecord
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.testing.scripted import ANY_RUN, Item, Script, ScriptedModel, load_scenario
from tests.temporal.world import RecordingTool, Work

FOLDER = Path(__file__).parent.parent / "vectors" / "scenarios"

NOT_YET_OFFERED = "orchestral_request_input"
"""The source offers it to every run; here it comes in part 3 (`answers.md` 15)."""

Row = dict[str, Any]


@dataclass(frozen=True)
class RecordedRequest:
    """A model request of a transcript; of `messages` the first `unknown` ones are not in the file."""

    row: Row
    messages: list[Any]
    unknown: int
    tools: list[Row]


def _written_out(row: Row, before: Mapping[int, RecordedRequest]) -> RecordedRequest:
    """A request whose messages or tools the file may have given by reference to an earlier one."""
    messages, tools, unknown = row["request"]["messages"], row["request"]["tools"], 0
    if isinstance(messages, dict):  # the first messages of an earlier request, then these
        base = before.get(messages["as_request"])
        whole = base is not None and not base.unknown
        unknown = 0 if whole else messages["first"]
        messages = [*(base.messages[: messages["first"]] if base and whole else []), *messages["then"]]
    if isinstance(tools, dict):
        tools = before[0].tools
    return RecordedRequest(row, messages, unknown, [each for each in tools if each["name"] != NOT_YET_OFFERED])


@dataclass(frozen=True)
class RecordedRun:
    """One run of a transcript."""

    path: Path
    content: Row
    request: AgentStartRequest

    @property
    def run_id(self) -> str:
        """Its id in the transcript."""
        return self.request.run.spec.run_id

    @property
    def session_id(self) -> str:
        """Its session's id in the transcript."""
        return self.request.run.spec.session_id

    @cached_property
    def requests(self) -> list["RecordedRequest"]:
        """The model requests that the file kept, their messages written out as far as it allows."""
        found: dict[int, RecordedRequest] = {}
        thinned = "long arrays thinned (sequences stay complete)" in self.content.get("reduced", [])
        for place, row in enumerate(self.content["model_requests"]):
            number = row["round"] - 1 if thinned else place
            found[number] = _written_out(row, found)
        return [each for each in found.values() if each.row["run_id"] == self.run_id]

    @cached_property
    def tool_calls(self) -> list[Row]:
        """The tool calls that the file kept."""
        return [row for row in self.content["tool_calls"] if row["invocation"]["run_id"] == self.run_id]

    def sequence(self, kind: str) -> list[str]:
        """The complete list of types of its `run_journal`, `wal` or `session_journal`; none where it had none."""
        mine = (self.run_id, self.session_id)
        found = self.content["sequences"].get(kind, {}).items()
        return next((types for name, types in found if name.partition("/")[2] in mine), [])

    def rows(self, kind: str) -> list[Row]:
        """The records that the file kept of it."""
        records = [row["record"] for row in self.content[kind] if "record" in row]
        return [record for record in records if record.get("run_id", self.run_id) == self.run_id]

    def journal(self) -> list[Row]:
        """The records of its run journal."""
        return [record for record in self.rows("run_journal") if record["event"]["run_id"] == self.run_id]

    def final(self) -> Row:
        """How it ended."""
        found = self.content["final_status"].items()
        return next(value for name, value in found if name.partition("/")[2] == self.run_id)

    def model(self) -> ScriptedModel:
        """A model that answers as the source's did; rounds that the file left out follow the pattern of round 1."""
        runs = load_scenario(self.path).runs
        kept = runs[self.run_id] if self.run_id in runs else runs[ANY_RUN]
        rounds = {
            number: kept.get(number) or [tuple(_counted_on(item, number) for item in each) for each in kept[1]]
            for number in range(1, max(kept) + 1)
        }
        return ScriptedModel(Script({ANY_RUN: rounds}))

    def tools(self) -> list[RecordingTool]:
        """Tools that answer as the recorded ones did, under their ids and schemas."""
        begun = [event["payload"] for request in self.requests for event in request.row["events"]]
        names = {each["call_id"]: each["name"] for each in begun if each["type"] == "tool_call_start"}
        calls = [row["invocation"] for row in self.tool_calls if row["invocation"]["call_id"] in names]
        ids = {names[each["call_id"]]: each["tool_id"] for each in calls}
        return [
            RecordingTool(
                tool["name"],
                _acting([row for row in self.tool_calls if row["invocation"]["tool_id"] == ids.get(tool["name"])]),
                tool_id=ids.get(tool["name"]),
                schema=tool["input_schema"],
                timeout_ms=500,
            )
            for tool in self.requests[0].tools
        ]

    def under_our_ids(self, value: Any, run_id: str, session_id: str) -> Any:
        """A value of the transcript with our ids in place of its own."""
        text = json.dumps(value, ensure_ascii=False)
        return json.loads(text.replace(self.run_id, run_id).replace(self.session_id, session_id))


def recorded_runs(name: str, folder: Path) -> list[RecordedRun]:
    """The runs of a transcript, in order; its file is unpacked into the folder, where the scripted model reads it."""
    path = folder / f"{name}.json"
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    content: Row = json.loads(path.read_bytes())
    registered = [row["registration"]["request"] for row in content["run_journal"] if row.get("op") == "create"]
    if not registered:  # driven without a controller: only the WAL knows the run
        registered = [row["registration"]["request"] for row in content["wal"] if row.get("op") == "create"]
    return [RecordedRun(path, content, parse_value(AgentStartRequest, each)) for each in registered]


def _counted_on(item: Item, number: int) -> Item:
    """An item of round 1 in another round: its call id ends in the number of the call, from 0."""
    assert item.does is not None
    value = json.dumps(dump(item.does)).replace("-call-0", f"-call-{number - 1}")
    return Item(type(item.does).model_validate_json(value))


def _acting(recorded: Sequence[Row]) -> Work:
    """Give the recorded outcomes, one after another."""
    waiting = iter(recorded)

    async def act(arguments: JsonObject, _call: ToolCall) -> Json:
        row = next(waiting, None)
        match row and row["result"]["outcome"]:
            case None:  # the file left the call out; this tool returns what it was given
                return {"result": arguments["value"]}
            case {"status": "completed", "output": {"value": value}}:
                return value
            case {"status": "failed", "code": "timeout"}:
                await asyncio.Event().wait()
                return None
            case {"status": "failed", "code": code, "message": message, "retryable": retryable}:
                raise ToolFailed(code, message, retryable=retryable)
            case {"status": "rejected", "code": code, "message": message}:
                raise ToolRejected(code, message)
            case other:
                raise AssertionError(f"no tool of ours ends as {other}")

    return act


def without_wording(value: Any) -> Any:
    """A value without the message of an error result: the source's wording there, ours here (divergence 27)."""
    if isinstance(value, list | tuple):
        return [without_wording(each) for each in value]
    if not isinstance(value, dict):
        return value
    wording = {"message"} if value.get("status") in ("failed", "rejected") else set()
    return {key: without_wording(each) for key, each in value.items() if key not in wording}


def wal_line(record: GenericCheckpointRecord) -> str:
    """A WAL record as the transcripts' sequences write it."""
    payload = record.payload
    match payload.type:
        case "loop_boundary_committed":
            detail = str(payload.next_model_round)
        case "model_attempt_started" | "model_attempt_observed":
            detail = str(payload.round)
        case "provider_events_committed":
            detail = "+".join(event.payload.type for event in payload.events)
        case other:
            raise AssertionError(f"part 1 writes no {other}")
    return f"{payload.type}({detail})"
