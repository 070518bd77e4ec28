"""Starts by strangers: an argument either begins the run it describes or fails the workflow at once, typed."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from orchestral_temporal.core.start import StartRefused, read_start
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.run import AgentRunSpec, seal
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import World, events_of, json_payload, payload, plan, says

DEEP = "[" * 5_000 + "]" * 5_000

Mutate = Callable[[JsonObject], Json]


def put(**fields: Json) -> Mutate:
    """Add or replace fields; an underscore stands for a hyphen."""
    return lambda start: {**start, **{key.replace("_x_", "x-"): value for key, value in fields.items()}}


def limit(value: Json) -> Mutate:
    """Set one limit."""
    return put(limits={"max_model_steps": value})


def without(name: str) -> Mutate:
    """Leave a field out."""
    return lambda start: {key: value for key, value in start.items() if key != name}


SHORT: Mapping[str, tuple[Mutate, str | None]] = {
    "every optional null": (put(agent=None, workspace=None, limits=None, tenant=None, extensions=None), None),
    "a default written out": (put(agent="default", limits={"max_cost": None}), None),
    "an unknown field": (put(_x_note="hi"), "x-note"),
    "camel case": (put(sessionId="s"), "sessionId"),
    "3.0": (limit(3.0), None),
    "text for a number": (limit("3"), "max_model_steps"),
    "3.5": (limit(3.5), "max_model_steps"),
    "a required field missing": (without("input"), "input"),
    "an empty object": (lambda _: {}, "input"),
    "an array": (lambda start: [start], "a list"),
    "keys in reverse order": (lambda start: dict(reversed(start.items())), None),
    "an accent of its own": (put(input="cafe\u0301"), None),
}
"""Mutations of a short form, and what a refusal must name (F133)."""

FULL: Mapping[str, tuple[Mutate, str | None]] = {
    "null where it is allowed": (put(output_schema=None), None),
    "null where it is not": (put(resources=None), "resources"),
    "a default written out": (put(resources=[], limits={"max_cost": None}, extensions={}), None),
    "an unknown field": (put(_x_note="hi"), "x-note"),
    "camel case": (put(outputSchema=None), "outputSchema"),
    "3.0": (limit(3.0), "max_model_steps"),
    "text for a number": (limit("3"), "max_model_steps"),
    "a required field missing": (without("input"), "input"),
    "an empty object": (lambda _: {}, "protocol_version"),
    "an array": (lambda start: [start], "a list"),
    "keys in reverse order": (lambda start: dict(reversed(start.items())), None),
}
"""Mutations of the spec in a full envelope, under the digest of the unmutated one."""

GOOD = '{"input": "do it"}'
OTHER_FORMS: Mapping[str, Sequence[Payload]] = {
    "none": (),
    "two": (payload(GOOD), payload(GOOD)),
    "a JSON string": (payload(json.dumps(GOOD)),),
    "a number": (payload("7"),),
    "null": (payload("null"),),
    "not JSON": (payload("do it"),),
    "nothing": (payload(""),),
    "half an object": (payload('{"input": "do'),),
    "not UTF-8": (payload(b'{"input": "\xff\xfe"}'),),
    "half a surrogate pair": (payload('{"input": "\\ud800"}'),),
    "half a pair in an extension": (payload('{"input": "x", "extensions": {"a/b": "\\udc00"}}'),),
    "NaN": (payload('{"input": "x", "extensions": {"a/b": NaN}}'),),
    "infinity": (payload('{"input": "x", "extensions": {"a/b": -Infinity}}'),),
    "a number beyond a double": (payload('{"input": "x", "extensions": {"a/b": 1e999}}'),),
    "an integer of 5000 digits": (payload('{"input": "x", "extensions": {"a/b": ' + "9" * 5_000 + "}}"),),
    "5000 arrays": (payload(DEEP),),
    "5000 arrays in an extension": (payload('{"input": "x", "extensions": {"a/b": ' + DEEP + "}}"),),
    "another encoding": (payload(GOOD, "binary/plain"),),
    "an unknown encoding": (payload(GOOD, "text/made-up"),),
    "no encoding": (payload(GOOD, None),),
    "an encrypted one": (payload(b"\x00\x01\x02", "binary/encrypted"),),
    "bytes for null": (payload(b"", "binary/null"),),
}
"""Payloads that are no start argument at all (F134)."""


ADMISSION: Mapping[str, tuple[JsonObject, str]] = {
    "an unknown agent": ({"input": "x", "agent": "nobody"}, "invalid_spec"),
    "a workspace that does not exist": ({"input": "x", "workspace": "/no/such/folder"}, "invalid_spec"),
    "an extension without a namespace": ({"input": "x", "extensions": {"bare": 1}}, "invalid_spec"),
    "a limit of zero": ({"input": "x", "limits": {"max_model_steps": 0}}, "invalid_spec"),
    "a limit that is not declared": (
        {"input": "x", "limits": {"max_cost": {"currency": "EUR", "microunits": 9}}},
        "unsupported_capability",
    ),
    "an empty task": ({"input": ""}, "invalid_spec"),
    "an image": (
        {"input": [{"media_type": "image/png", "body": {"kind": "inline", "value": "x"}}]},
        "unsupported_capability",
    ),
    "another run's id": ({"run": {}}, "invalid_spec"),
    "a session id of the server's own": ({"input": "x", "session_id": "session/s"}, "invalid_spec"),
}
"""Well-formed starts that nothing here can serve, and the code of each refusal."""


async def test_short_forms_are_taken_or_refused_by_field(world: World) -> None:
    """Mutations of the short form, started raw, are delivered under the right spec or fail naming the field (F133)."""
    forms = {name: mutate({"input": "do it"}) for name, (mutate, _) in SHORT.items()}
    turns = await ended(world, {name: [json_payload(form)] for name, form in forms.items()})

    for name, (_, refused) in SHORT.items():
        if refused is not None:
            check_refused(turns[name], refused)
        else:
            check_delivered(turns[name], read_start(forms[name], world.id(name)).envelope.spec_digest)


async def test_full_envelopes_are_taken_or_refused_by_field(world: World) -> None:
    """Mutations of a full envelope follow the wire: null where it may be, no 3.0, defaults change no digest (F133)."""
    specs = {name: spec(world.id(name)) for name in FULL}
    digests = {name: sealed(value) for name, value in specs.items()}
    turns = await ended(
        world,
        {
            name: [json_payload({"spec": mutate(specs[name]), "spec_digest": digests[name]})]
            for name, (mutate, _) in FULL.items()
        },
    )

    for name, (_, refused) in FULL.items():
        if refused is not None:
            check_refused(turns[name], refused)
        else:
            check_delivered(turns[name], digests[name])


async def test_other_forms_fail_within_one_task(world: World) -> None:
    """No argument, two, a JSON string, no JSON, no UTF-8, NaN, strange encodings: Failed, typed, in one task (F134)."""
    turns = await ended(world, OTHER_FORMS)
    histories = [await world.history(world.id(name)) for name in OTHER_FORMS]

    for turn in turns.values():
        check_refused(turn, "start")
    tasks = [len(events_of(each, EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED)) for each in histories]
    assert tasks == [1] * len(OTHER_FORMS)
    assert {await world.closed(world.id(name)) for name in OTHER_FORMS} == {WorkflowExecutionStatus.FAILED}


async def test_temporal_cli_is_told_what_is_wrong(world: World) -> None:
    """With the Temporal CLI no input, two inputs and a JSON string end as a readable failure (F134)."""
    inputs = {"none": [], "two": ["--input", GOOD, "--input", GOOD], "text": ["--input", json.dumps(GOOD)]}
    async with world.serving(plan(ScriptedModel([says("never")]))):
        for name, given in inputs.items():
            world.started.add((world.id(name), None))
            command = ["workflow", "execute", "--type", "AgentRun", "--task-queue", world.queue]
            printed = await world.cli(*command, "--workflow-id", world.id(name), *given)
            assert printed.code == 1
            assert "JSON object" in printed.out


async def test_starts_that_cannot_be_served_fail_typed(world: World) -> None:
    """An unknown agent, a missing workspace, an undeclared limit and their like: Failed by code, and no journal."""
    turns = await ended(world, {name: [json_payload(value)] for name, (value, _) in ADMISSION.items()})

    for name, (_, code) in ADMISSION.items():
        check_refused(turns[name], "", code)


@pytest.mark.parametrize("task", ["", "x" * 10_000_000, "half a pair \ud800"], ids=["empty", "10 MB", "no Unicode"])
async def test_client_refuses_a_task_that_cannot_be(world: World, task: str) -> None:
    """An empty task, one of 10 MB and one that is no Unicode are refused before anything is started."""
    with pytest.raises(StartRefused):
        await world.runs.start(task, run_id=world.id("r"))

    with pytest.raises(RPCError, match="not found"):
        await world.client.get_workflow_handle(world.id("r")).describe()


async def test_raw_start_above_our_bound_is_refused(world: World) -> None:
    """A raw start of 1.9 MB, which the server's own bound lets in, fails typed and says what to do instead (F133)."""
    task = json.dumps({"input": "\u00e4" * 950_000}, ensure_ascii=False)
    turns = await ended(world, {"large": [payload(task)]})

    check_refused(turns["large"], "put the text into a file")


async def ended(world: World, starts: Mapping[str, Sequence[Payload]]) -> dict[str, Turn]:
    """Start all of them raw, and wait for each end."""
    async with world.serving(plan(ScriptedModel([says("done")]))):
        runs = {name: await world.start_payloads(world.id(name), *given) for name, given in starts.items()}
        turns = await asyncio.gather(*(run.wait() for run in runs.values()))
    return dict(zip(runs, turns, strict=True))


def spec(run_id: str) -> JsonObject:
    """A spec with every key that the wire does not require left out."""
    whole = dump(read_start({"input": "do it"}, run_id).envelope.spec)
    return {key: whole[key] for key in ("protocol_version", "session_id", "run_id", "input")}


def sealed(given: JsonObject) -> str:
    """The digest of a spec."""
    return seal(parse_value(AgentRunSpec, given)).spec_digest


def check_delivered(turn: Turn, spec_digest: str) -> None:
    """The run was delivered under this spec."""
    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "done")
    assert turn.view is not None
    assert turn.view.execution.spec_digest == spec_digest


def check_refused(turn: Turn, named: str, code: str = "invalid_spec") -> None:
    """Nothing was created, and one sentence says why."""
    failure = turn.failure
    assert failure is not None
    assert failure["code"] == code
    message = failure["message"]
    assert isinstance(message, str)
    assert named in message
    assert "\n" not in message
    assert turn.status is AgentRunStatus.FAILED
    assert (turn.result["view"], turn.result["journal"], turn.result["head_digest"]) == (None, None, None)
