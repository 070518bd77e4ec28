"""The scripted model: it passes the contract, reads every form of script, and needs no memory to go on."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orchestral_temporal.core.assembly import Breach
from orchestral_temporal.ports import ModelBackend, ModelFault
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.model import (
    ModelErrorCode,
    ModelFinishReason,
    ModelObservation,
    ModelRequest,
    ModelStreamEvent,
    ModelUsage,
    TextDelta,
)
from orchestral_temporal.testing.model_contract import MODEL_CONTRACT, REQUEST, ModelCheck, Turn, assembled
from orchestral_temporal.testing.scripted import ScriptedModel, load_scenario, load_script

STOP: Json = {"finish": "stop"}


def _script(turn: Turn, number: int) -> list[Json]:
    """The turn of a contract check as a round of a script; ids are the script's, so they differ by round."""
    if turn.refusal is not None:
        retryable = turn.refusal in {ModelErrorCode.RATE_LIMITED, ModelErrorCode.UNAVAILABLE}
        return [{"error": {"code": turn.refusal.value, "message": "no", "retryable": retryable}}]
    items: list[Json] = [{"text": delta} for delta in turn.text]
    for index, call in enumerate(turn.calls):
        items.append({"type": "tool_call_start", "call_id": f"c{number}-{index}", "name": call.name, "extensions": {}})
        items.extend(
            {"type": "tool_call_arguments_delta", "call_id": f"c{number}-{index}", "delta": delta}
            for delta in call.arguments
        )
        items.append({"type": "tool_call_end", "call_id": f"c{number}-{index}"})
    if turn.usage is not None:
        items.append({"type": "usage", "usage": turn.usage.model_dump(mode="json")})
    if turn.silent:
        items.append({"hang": True})
    elif turn.finish is not None:
        items.append({"finish": turn.finish.value})
    return items


@asynccontextmanager
async def _serve(turn: Turn) -> AsyncIterator[ModelBackend]:
    yield ScriptedModel([_script(turn, number) for number in (1, 2, 3)])


def _request(number: int, run_id: str = "r-1") -> ModelRequest:
    return REQUEST.model_copy(update={"request_id": f"model-{run_id}-{number}"})


async def _turn(model: ScriptedModel, number: int = 1, run_id: str = "r-1") -> ModelObservation:
    request = _request(number, run_id)
    turn = await assembled(model.stream(request), request)
    assert isinstance(turn, ModelObservation)
    return turn


async def _events(model: ScriptedModel, request: ModelRequest) -> list[ModelStreamEvent]:
    return [event async for event in model.stream(request)]


@pytest.mark.parametrize("check", MODEL_CONTRACT, ids=lambda check: check.__name__)
async def test_contract(check: ModelCheck) -> None:
    """The fake passes what every backend must."""
    await check(_serve)


async def test_the_round_comes_from_the_request() -> None:
    """A fresh process goes on with the round that is asked for, and requests are remembered."""
    script: list[Json] = [[{"text": "one"}, STOP], [{"text": "two"}, STOP]]
    model = ScriptedModel(script)
    assert [(await _turn(model, number)).response for number in (2, 1, 2)] == ["two", "one", "two"]
    assert [request.request_id for request in model.requests] == ["model-r-1-2", "model-r-1-1", "model-r-1-2"]
    assert (await _turn(ScriptedModel(script), 2)).response == "two"


async def test_shorthand_makes_whole_calls() -> None:
    """Arguments become JSON text, raw text stays as it is, ids are given where none is."""
    model = ScriptedModel(
        [
            [
                {"call": {"name": "search", "arguments": {"q": "Tee ☕"}}},
                {"call": {"name": "read", "arguments": "{'path'", "id": "x"}},
                {"call": {"name": "now", "arguments": ""}},
                {"type": "usage", "usage": {"input_tokens": 9, "output_tokens": 3}},
                {"finish": "tool_calls"},
            ]
        ]
    )
    turn = await _turn(model)
    assert [(call.call_id, call.name, call.arguments, call.ended) for call in turn.tool_calls] == [
        ("call-1", "search", '{"q": "Tee ☕"}', True),
        ("x", "read", "{'path'", True),
        ("call-3", "now", "", True),
    ]
    assert (turn.finish_reason, turn.usage) == (
        ModelFinishReason.TOOL_CALLS,
        ModelUsage(input_tokens=9, output_tokens=3),
    )


async def test_nothing_is_added_to_a_round() -> None:
    """A round without finish is a stream that was cut."""
    assert isinstance(await assembled(ScriptedModel([[{"text": "half"}]]).stream(_request(1)), _request(1)), Breach)


async def test_a_script_can_hold_a_lone_surrogate() -> None:
    """Text that no wire carries can be played, for tests of what becomes of it (F041)."""
    assert (await _turn(ScriptedModel([[{"text": "half \ud835 end"}, STOP]]))).response == "half \ufffd end"


async def test_an_error_may_follow_text() -> None:
    """Events before an error arrive, then the fault with its details."""
    error: Json = {"code": "unavailable", "message": "gone", "retryable": True, "details": {"status": 502}}
    stream = ScriptedModel([[{"text": "The"}, {"error": error}]]).stream(_request(1))
    assert (await anext(stream)).payload == TextDelta(delta="The")
    with pytest.raises(ModelFault) as caught:
        await anext(stream)
    assert caught.value.error.model_dump(mode="json") == error


async def test_attempts_answer_retries_one_by_one() -> None:
    """The n-th request of one id gets the n-th attempt, then the last again; other runs count for themselves."""
    busy: Json = [{"error": {"code": "rate_limited", "message": "busy", "retryable": True}}]
    model = ScriptedModel([{"attempts": [busy, [{"text": "ok"}, STOP]]}])
    for run_id in ("a", "b"):
        with pytest.raises(ModelFault, match="busy"):
            await _turn(model, run_id=run_id)
        for _ in range(2):
            assert (await _turn(model, run_id=run_id)).response == "ok"


async def test_items_wait_as_long_as_they_say() -> None:
    """`delay_ms` comes before its item."""
    model = ScriptedModel([[{"text": "a", "delay_ms": 60}, {"type": "finish", "reason": "stop", "delay_ms": 60}]])
    began = time.monotonic()
    await _turn(model)
    assert time.monotonic() - began > 0.1


async def test_a_hang_lasts_until_it_is_cancelled() -> None:
    """A model that never answers is left only by cancelling."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await _turn(ScriptedModel([[{"hang": True}]]))


@pytest.mark.parametrize("request_id", ["model-r-2", "model-r-0", "other"])
async def test_a_script_that_ran_out_says_so(request_id: str) -> None:
    """A request beyond the script is an internal fault that names it."""
    request = REQUEST.model_copy(update={"request_id": request_id})
    with pytest.raises(ModelFault, match=f"no answer to request '{request_id}'; its rounds are \\[1\\]") as caught:
        await _events(ScriptedModel([[STOP]]), request)
    assert caught.value.error.code is ModelErrorCode.INTERNAL


async def test_identity_and_redispatch_can_be_set() -> None:
    """A test says what its backend is."""
    other = ScriptedModel([]).descriptor.model_copy(update={"backend_id": "other"})
    model = ScriptedModel([], descriptor=other, redispatchable=False)
    assert (model.descriptor.backend_id, model.redispatchable) == ("other", False)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ([{"text": "hi"}], "round 1 of the script must be a list"),
        ([[STOP], {"attempts": []}], "round 2 of the script must be a list"),
        ([[STOP, "hi"]], "round 1, item 2 of the script cannot be read: it must be a mapping"),
        ([[{"text": 1}]], "give one of text, call, finish"),
        ([[{"text": "hi", "delay": 5}]], "give one of text, call, finish"),
        ([[{"text": "hi", "delay_ms": -1}]], "`delay_ms` must be"),
        ([[{"text": "hi", "delay_ms": "5"}]], "`delay_ms` must be"),
        ([[{"call": {"name": "n"}}]], "`call` needs `name` and `arguments`"),
        ([[{"call": {"name": "n", "arguments": {}, "args": {}}}]], "`call` needs `name` and `arguments`"),
        ([[{"finish": "done"}]], "round 1, item 1 of the script cannot be read: ModelStreamEvent: `payload.finish"),
        ([[{"error": {"code": "unavailable"}}]], "ModelError: `message` is missing"),
        ([[{"type": "text_delta"}]], "ModelStreamEvent: `payload.text_delta.delta` is missing"),
        ([[{"type": "thought"}]], "has an unknown 'type'"),
    ],
)
def test_a_faulty_script_is_refused_with_its_place(script: list[Json], fault: str) -> None:
    """A script that cannot be played is refused when it is read, with round and item."""
    with pytest.raises(ValueError, match=fault):
        ScriptedModel(script)


TRANSCRIPT = {
    "test": "x",
    "model_requests": [
        {
            "order": 1,
            "run_id": "run-a",
            "round": 1,
            "attempt": 1,
            "events": [{"order": 2, "event_id": "u", "sequence": 1, "payload": {"type": "usage", "usage": {}}}],
            "error": {
                "order": 3,
                "where": "stream",
                "code": "unavailable",
                "message": "m",
                "retryable": True,
                "details": None,
            },
        },
        {
            "order": 4,
            "run_id": "run-a",
            "round": 1,
            "attempt": 2,
            "events": [
                {"event_id": "t", "sequence": 1, "payload": {"type": "text_delta", "delta": "hi"}},
                {
                    "event_id": "f",
                    "sequence": 3,
                    "request_id": "wrong",
                    "payload": {"type": "finish", "reason": "stop"},
                },
            ],
            "error": None,
        },
        {"order": 5, "run_id": "run-a", "round": 2, "attempt": 1, "events": [], "error": None},
    ],
}


def _transcript(folder: Path, **changes: object) -> Path:
    path = folder / "transcript.json"
    path.write_text(json.dumps(TRANSCRIPT | changes), "utf-8")
    return path


async def test_a_scenario_is_replayed_to_the_letter(tmp_path: Path) -> None:
    """Attempts come in order, with recorded ids, sequences and wrong envelopes; one run's answers serve any run."""
    model = ScriptedModel(load_scenario(_transcript(tmp_path)))
    with pytest.raises(ModelFault, match="unavailable: m"):
        await _events(model, _request(1))
    events = await _events(model, _request(1))
    assert [(event.event_id, event.sequence, event.request_id) for event in events] == [
        ("t", 1, "model-r-1-1"),
        ("f", 3, "wrong"),
    ]


async def test_a_scenario_answer_that_never_came_hangs(tmp_path: Path) -> None:
    """A recorded request without any answer waits for ever, as the source's backend did."""
    model = ScriptedModel(load_scenario(_transcript(tmp_path)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await _events(model, _request(2))


async def test_runs_of_a_scenario_keep_their_own_answers(tmp_path: Path) -> None:
    """A transcript of several runs answers each by its id, and no other."""
    requests = [
        {
            "run_id": run_id,
            "round": 1,
            "events": [{"event_id": "t", "sequence": 1, "payload": {"type": "text_delta", "delta": run_id}}],
            "error": None,
        }
        for run_id in ("run-a", "run-b-1")
    ]
    model = ScriptedModel(load_scenario(_transcript(tmp_path, model_requests=requests)))
    (event,) = await _events(model, _request(1, "run-b-1"))
    assert event.payload == TextDelta(delta="run-b-1")
    with pytest.raises(ModelFault, match="no answer"):
        await _events(model, _request(1, "run-c"))


async def test_a_yaml_file_holds_rounds_or_names_a_scenario(tmp_path: Path) -> None:
    """Both forms of a script file load; the path of a scenario counts from the file."""
    rounds = tmp_path / "rounds.yaml"
    rounds.write_text("- - text: Hello\n  - {type: text_delta, delta: ' you'}\n  - finish: stop\n", "utf-8")
    assert (await _turn(ScriptedModel(load_script(rounds)))).response == "Hello you"
    _transcript(tmp_path)
    named = tmp_path / "named.yaml"
    named.write_text("scenario: transcript.json\n", "utf-8")
    with pytest.raises(ModelFault, match="unavailable: m"):
        await _events(ScriptedModel(load_script(named)), _request(1))


@pytest.mark.parametrize("text", ["", "hello", "scenario: 5", "scenario: x.json\nmore: 1"])
def test_a_file_that_is_no_script_is_refused(tmp_path: Path, text: str) -> None:
    """What a file must hold is said by the error."""
    path = tmp_path / "rounds.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"rounds\.yaml must hold a list of rounds"):
        load_script(path)


def test_a_file_that_is_no_transcript_is_refused(tmp_path: Path) -> None:
    """Another JSON file is not taken for a scenario."""
    path = tmp_path / "other.json"
    path.write_text("{}", "utf-8")
    with pytest.raises(ValueError, match=r"other\.json is no transcript: Field required"):
        load_scenario(path)
