"""A model that follows a script: for tests, and for trying a run without any vendor.

A script is a list of rounds, a round a list of items, done in order:

    - - text: "Let me look."                                # a text delta
      - call: {name: search, arguments: {q: tea}}           # a whole call; arguments may be raw text, `id` is optional
      - {type: usage, usage: {input_tokens: 9, output_tokens: 3}}
      - finish: tool_calls
    - - {type: text_delta, delta: "Found ", delay_ms: 50}   # any wire payload; any item may wait first
      - error: {code: unavailable, message: "gone", retryable: true}
    - - hang: true                                          # waits for ever

Nothing is added: a round without `finish` is a stream that was cut. A round may also be `attempts: [round, round]`, for
a backend that answers a retry differently. Instead of a list a file may hold `scenario: PATH`, a transcript of
`vectors/scenarios` whose answers are replayed.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import yaml
from pydantic import BaseModel, ValidationError

from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.model import (
    ModelCapabilities,
    ModelDescriptor,
    ModelError,
    ModelErrorCode,
    ModelEvent,
    ModelRequest,
    ModelStreamEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from orchestral_temporal.protocol.words import parse_value

DESCRIPTOR = ModelDescriptor(
    backend_id="scripted",
    capabilities=ModelCapabilities(
        streaming=True,
        tool_calls=True,
        parallel_tool_calls=True,
        structured_output=False,
        max_context_tokens=8_000_000,
    ),
)
"""What the model says it is, unless a test says otherwise; the window has room for any test."""

ANY_RUN = ""
"""The key of rounds that serve every run."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing the model does, `delay_ms` milliseconds after the one before.

    It sends an event (without a request id: that of the request), fails with an error, or (None) waits for ever.
    """

    does: ModelStreamEvent | ModelError | None
    delay_ms: int = 0


Attempt = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """The attempts of each round, from 1, of each run."""

    runs: Mapping[str, Mapping[int, Sequence[Attempt]]]


class ScriptedModel:
    """A backend that does what its script says.

    The round comes from the request id `model-<run>-<round>`, so a worker that takes over after a death goes on where
    the script stands. Only retries are counted: the n-th request of one id in this process gets the n-th attempt of its
    round, and the last one again from there on.

    Args:
        script: Rounds as the module says, or a script that was read before.
        descriptor: What the model says it is.
        redispatchable: Whether it says that a lost request may be sent again.

    Raises:
        ValueError: the script is none; names the round and the item.
    """

    def __init__(
        self,
        script: Sequence[Json] | Script,
        *,
        descriptor: ModelDescriptor = DESCRIPTOR,
        redispatchable: bool = True,
    ) -> None:
        self._script = script if isinstance(script, Script) else _written(script)
        self.descriptor = descriptor
        self.redispatchable = redispatchable
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """Do what the script says for this request, and remember the request.

        Raises:
            ModelFault: the script says so, or has no such round (`internal`).
        """
        self.requests.append(request)
        for item in self._attempt(request.request_id):
            await asyncio.sleep(item.delay_ms / 1000)
            match item.does:
                case ModelStreamEvent() as event:
                    yield event.model_copy(update={"request_id": event.request_id or request.request_id})
                case ModelError() as error:
                    raise ModelFault(error)
                case None:
                    await asyncio.Event().wait()
                case _:
                    assert_never(item.does)

    def _attempt(self, request_id: str) -> Attempt:
        run_id, _, number = request_id.removeprefix("model-").rpartition("-")
        rounds = self._script.runs.get(run_id) or self._script.runs.get(ANY_RUN) or {}
        attempts = rounds.get(int(number)) if number.isdecimal() else None
        if not attempts:
            message = f"the script has no answer to request {request_id!r}; its rounds are {sorted(rounds)}."
            raise ModelFault(ModelError(code=ModelErrorCode.INTERNAL, message=message))
        asked = sum(request.request_id == request_id for request in self.requests)
        return attempts[min(asked, len(attempts)) - 1]


def load_script(path: Path) -> Script:
    """Read a script from a YAML file; the path of a scenario counts from that file's folder.

    Raises:
        ValueError: the file holds no script; names what is wrong.
        OSError: a file cannot be read.
    """
    script: Json = yaml.safe_load(path.read_text("utf-8"))
    match script:
        case list():
            return _written(script)
        case {"scenario": str(transcript), **rest} if not rest:
            return load_scenario(path.parent / transcript)
        case _:
            raise ValueError(f"{path.name} must hold a list of rounds, or `scenario:` and the path of a transcript.")


def load_scenario(path: Path) -> Script:
    """Read the answers of a transcript of `vectors/scenarios`; if it knows one run only, they serve every run.

    An answer without any event or error is one that never came: the source's backend was waiting.

    Raises:
        ValueError: the file is no transcript.
        OSError: the file cannot be read.
    """
    try:
        transcript = _Transcript.model_validate_json(path.read_bytes())
    except ValidationError as fault:
        raise ValueError(f"{path.name} is no transcript: {fault.errors()[0]['msg']}.") from None
    runs: dict[str, dict[int, list[Attempt]]] = {}
    for recorded in transcript.model_requests:
        runs.setdefault(recorded.run_id, {}).setdefault(recorded.round, []).append(_recorded(recorded))
    if len(runs) == 1:
        runs[ANY_RUN] = runs.popitem()[1]
    return Script(runs)


class _RecordedEvent(BaseModel):
    event_id: str
    sequence: int
    payload: JsonObject
    request_id: str = ""


class _RecordedError(BaseModel):
    code: str
    message: str
    retryable: bool
    details: Json


class _Recorded(BaseModel):
    run_id: str
    round: int
    events: list[_RecordedEvent]
    error: _RecordedError | None


class _Transcript(BaseModel):
    """The keys of a transcript that matter here; it has many more."""

    model_requests: list[_Recorded]


def _recorded(recorded: _Recorded) -> Attempt:
    items = [Item(parse_value(ModelStreamEvent, event.model_dump())) for event in recorded.events]
    if recorded.error is not None:
        items.append(Item(parse_value(ModelError, recorded.error.model_dump())))
    return tuple(items) or (Item(None),)


def _written(script: Sequence[Json]) -> Script:
    rounds: dict[int, Sequence[Attempt]] = {}
    for number, written in enumerate(script, 1):
        match written:
            case {"attempts": list(attempts)} if len(written) == 1 and attempts:
                rounds[number] = [_attempt(each, f"round {number}") for each in attempts]
            case _:
                rounds[number] = [_attempt(written, f"round {number}")]
    return Script({ANY_RUN: rounds})


def _attempt(written: Json, where: str) -> Attempt:
    if not isinstance(written, list):
        message = f"{where} of the script must be a list of items, or `attempts:` and a list of such lists."
        raise ValueError(message)  # noqa: TRY004 -- a fault of the script, like all others here
    items: list[Item] = []
    events = 0
    for number, item in enumerate(written, 1):
        try:
            delay_ms, actions = _read_item(item, number)
        except (WordError, ValueError) as fault:
            raise ValueError(f"{where}, item {number} of the script cannot be read: {fault}") from None
        for action in actions:
            if action is None or isinstance(action, ModelError):
                items.append(Item(action, delay_ms))
            else:
                events += 1
                event = ModelStreamEvent(request_id="", event_id=f"event-{events}", sequence=events, payload=action)
                items.append(Item(event, delay_ms))
            delay_ms = 0
    return tuple(items)


def _read_item(item: Json, number: int) -> tuple[int, list[ModelEvent | ModelError | None]]:
    if not isinstance(item, dict):
        raise ValueError("it must be a mapping")  # noqa: TRY004 -- a fault of the script, like all others here
    item = dict(item)
    delay_ms = item.pop("delay_ms", 0)
    if not isinstance(delay_ms, int) or delay_ms < 0:
        raise ValueError("`delay_ms` must be a number of milliseconds, 0 or more")
    return delay_ms, _actions(item, number)


def _actions(item: JsonObject, number: int) -> list[ModelEvent | ModelError | None]:
    # Texts are not read as wire payloads: a script must be able to hold what no wire carries, a lone surrogate (F041).
    match list(item.items()):
        case [("text", str(text))]:
            return [TextDelta(delta=text)]
        case [("call", dict(call))]:
            return _call(call, number)
        case [("finish", reason)]:
            return [_payload({"type": "finish", "reason": reason})]
        case [("error", dict(error))]:
            return [parse_value(ModelError, {"retryable": False, **error})]
        case [("hang", True)]:
            return [None]
        case _ if "type" in item:
            return [_payload(item)]
        case _:
            raise ValueError("give one of text, call, finish, error, `hang: true`, or a wire payload with its `type`")


def _call(call: JsonObject, number: int) -> list[ModelEvent | ModelError | None]:
    match call:
        case {"name": str(name), "arguments": arguments, **rest} if not rest.keys() - {"id"}:
            call_id = str(rest.get("id", f"call-{number}"))
        case _:
            raise ValueError("`call` needs `name` and `arguments`, and may have an `id`")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    delta = [ToolCallArgumentsDelta(call_id=call_id, delta=text)] if text else []
    return [ToolCallStart(call_id=call_id, name=name), *delta, ToolCallEnd(call_id=call_id)]


def _payload(payload: JsonObject) -> ModelEvent:
    envelope: JsonObject = {"request_id": "", "event_id": "", "sequence": 1, "payload": payload}
    return parse_value(ModelStreamEvent, envelope).payload
