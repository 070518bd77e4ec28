"""Transcripts of whole runs of the source (`tests/vectors/scenarios`), and what is asked, answered and sent in them.

Ids are ours: the transcript's run and session ids are replaced before anything is compared. Not compared, as the page
of the transcripts says: times, wording, used tokens, digests that depend on the system message.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestral_temporal.core.items import REQUEST_INPUT
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, command_digest
from orchestral_temporal.protocol.run import AgentStartRequest
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.protocol.wal import GenericCheckpointRecord
from orchestral_temporal.protocol.words import parse_value
from tests.golden import Row, scenario

MOMENT = "<t:1>"
"""The one time in a start: its deadline."""

FAR = 4_102_444_800_000
"""A deadline that no test sees, in milliseconds since 1970."""


@dataclass(frozen=True)
class RecordedRequest:
    """A model request of a transcript, the `number`-th of its run from 1.

    Of `messages` the first `unknown` ones are not in the file.
    """

    number: int
    row: Row
    messages: list[Any]
    unknown: int
    tools: list[Row]


@dataclass(frozen=True)
class RecordedCommand:
    """A command as a transcript has it: when it was sent, and how it was acknowledged, if it was."""

    sent: int
    envelope: Row
    ack: Row | None


def sealed(command: Row) -> AgentCommandEnvelope:
    """A recorded command under our ids: its digest covers the run's id, so it is made anew."""
    ours = parse_value(AgentCommandEnvelope, command)
    return ours.model_copy(update={"command_digest": command_digest(ours)})


def _written_out(number: int, row: Row, before: Mapping[int, RecordedRequest]) -> RecordedRequest:
    """A request whose messages or tools the file may have given by reference to an earlier one."""
    messages, tools, unknown = row["request"]["messages"], row["request"]["tools"], 0
    if isinstance(messages, dict):  # the first messages of an earlier request, then these
        base = before.get(messages["as_request"])
        whole = base is not None and not base.unknown
        unknown = 0 if whole else messages["first"]
        messages = [*(base.messages[: messages["first"]] if base and whole else []), *messages["then"]]
    if isinstance(tools, dict):
        tools = before[0].tools
    return RecordedRequest(number, row, messages, unknown, tools)


@dataclass(frozen=True)
class RecordedRun:
    """One run of a transcript; its stores are the `store`-th of each kind, its facts those before `end`."""

    folder: Path
    content: Row
    registered: Row
    end: float

    @cached_property
    def request(self) -> AgentStartRequest:
        """What it was started with; the moment of a deadline is not in the file, so it is far away."""
        text = json.dumps(self.registered["registration"]["request"]).replace(f'"{MOMENT}"', str(FAR))
        return parse_value(AgentStartRequest, json.loads(text))

    @property
    def run_id(self) -> str:
        """Its id in the transcript."""
        return self.request.run.spec.run_id

    @property
    def session_id(self) -> str:
        """Its session's id in the transcript."""
        return self.request.run.spec.session_id

    @property
    def store(self) -> str:
        """The number of its stores: two runs of one name have different ones."""
        number: str = self.registered["store"][1:]
        return number

    def _mine(self, run_id: str, order: int) -> bool:
        return run_id == self.run_id and self.registered["order"] <= order < self.end

    @cached_property
    def requests(self) -> list[RecordedRequest]:
        """The model requests that the file kept, their messages written out as far as it allows."""
        found: dict[int, RecordedRequest] = {}
        thinned = self.content.get("thinned", {}).get("model_requests")
        mine: list[RecordedRequest] = []
        for place, row in enumerate(self.content["model_requests"]):
            known = row["round"] - 1 if thinned else place
            found[known] = _written_out(row["round"] if thinned else len(mine) + 1, row, found)
            if self._mine(row["run_id"], row["order"]):
                mine.append(found[known])
        return mine

    @property
    def asks_people(self) -> bool:
        """Whether its host offers the model to ask people."""
        return any(tool["name"] == REQUEST_INPUT.name for request in self.requests for tool in request.tools)

    @cached_property
    def tool_calls(self) -> list[Row]:
        """The tool calls that the file kept."""
        rows = self.content["tool_calls"]
        return [row for row in rows if self._mine(row["invocation"]["run_id"], row["order"])]

    @cached_property
    def commands(self) -> list[RecordedCommand]:
        """The commands that it was sent, in order; one that came twice is there twice."""
        received = [record["event"]["payload"] for record in self.journal()]
        payloads = [*received, *(record["payload"] for record in self.rows("wal"))]
        known = {each["command"]["command_id"]: each["command"] for each in payloads if "command" in each}
        rows = [row for row in self.content["commands"] if self._mine(row["run_id"], row["order"])]
        # Driven without a controller a run has no acknowledgements, only what was decided.
        through = [row for row in rows if row["at"] == "controller"] or rows
        return [
            RecordedCommand(row.get("sent_order", row["order"]), known[row["command_id"]], row.get("ack"))
            for row in through
            if row["command_id"] in known  # else the file left it out
        ]

    def sequence(self, kind: str) -> list[str]:
        """The complete list of types of its `run_journal`, `wal` or `session_journal`; none where it had none."""
        mine = [f"{kind[0].upper()}{self.store}/{each}" for each in (self.run_id, self.session_id)]
        found = self.content["sequences"].get(kind, {}).items()
        return next((types for name, types in found if name in mine), [])

    def effects(self) -> dict[str, list[str]]:
        """The steps of each of its tool calls."""
        mine = f"E{self.store}/{self.run_id}/"
        found = self.content["sequences"].get("effects", {}).items()
        return {name.removeprefix(mine): steps for name, steps in found if name.startswith(mine)}

    @property
    def idempotency(self) -> dict[str, ToolIdempotency]:
        """The class of each tool that it called."""
        records = [row["record"]["payload"] for row in self.content["effects"]]
        effects = [each["effect"] for each in records if each["type"] == "prepared"]
        return {each["invocation"]["tool_id"]: ToolIdempotency(each["idempotency"]) for each in effects}

    def rows(self, kind: str) -> list[Row]:
        """The records that the file kept of it."""
        store = f"{kind[0].upper()}{self.store}"
        records = [row["record"] for row in self.content[kind] if "record" in row and row["store"] == store]
        return [record for record in records if record.get("run_id", self.run_id) == self.run_id]

    def journal(self) -> list[Row]:
        """The records of its run journal."""
        return [record for record in self.rows("run_journal") if record["event"]["run_id"] == self.run_id]

    def final(self) -> Row:
        """How it ended."""
        found = self.content["final_status"]
        return next(found[name] for name in (f"{kind}{self.store}/{self.run_id}" for kind in "RW") if name in found)

    def answers(self, requests: Sequence[RecordedRequest]) -> Path:
        """A transcript of its model's answers alone, for `load_scenario`."""
        path = self.folder / f"{self.registered['store']}-{self.registered['order']}.json"
        path.write_text(json.dumps({"model_requests": [request.row for request in requests]}))
        return path

    def under_our_ids(self, value: Any, run_id: str, session_id: str) -> Any:
        """A value of the transcript with our ids in place of its own, wherever they stand as words."""
        text = json.dumps(value, ensure_ascii=False)
        for theirs, ours in ((self.run_id, run_id), (self.session_id, session_id)):
            # One transcript calls its run `run`, which is a word of `host-run-accepted-` too.
            text = re.sub(rf"(?<!\w)(?<!host-){re.escape(theirs)}(?!\w)", ours, text)
        return json.loads(text)


def recorded_runs(name: str, folder: Path) -> list[RecordedRun]:
    """The runs of a transcript, in order; what the scripted model reads of them is written into the folder."""
    content = scenario(name)
    created = [row for row in content["run_journal"] if row.get("op") == "create"]
    if not created:  # driven without a controller: only the WAL knows the run
        created = [row for row in content["wal"] if row.get("op") == "create"]

    def end(number: int) -> float:
        """Runs of one name come one after another."""
        ids = [row["registration"]["request"]["run"]["spec"]["run_id"] for row in created]
        again = (row["order"] for row, id_ in zip(created, ids, strict=True) if id_ == ids[number])
        return next((order for order in again if order > created[number]["order"]), float("inf"))

    return [RecordedRun(folder, content, row, end(number)) for number, row in enumerate(created)]


def without_wording(value: Any) -> Any:
    """A value without the message that stands beside a code: the source's wording there, ours here (divergence 27)."""
    if isinstance(value, list | tuple):
        return [without_wording(each) for each in value]
    if not isinstance(value, dict):
        return value
    wording = {"message"} if "code" in value or value.get("status") in ("failed", "rejected") else set()
    return {key: without_wording(each) for key, each in value.items() if key not in wording}


def wal_line(record: GenericCheckpointRecord) -> str:
    """A WAL record as the transcripts' sequences write it."""
    payload = record.payload
    match payload.type:
        case "loop_boundary_committed":
            detail = str(payload.next_model_round)
        case "model_attempt_started" | "model_attempt_observed" | "model_retry_scheduled":
            detail = str(payload.round)
        case "command_committed":
            detail = payload.command.payload.type
        case "provider_events_committed":
            detail = "+".join(event.payload.type for event in payload.events)
        case other:
            raise AssertionError(f"this version writes no {other}")
    return f"{payload.type}({detail})"
