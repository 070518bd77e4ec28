"""What a host puts on every run, such as where its conversation began (`spec/session-context.md` §13.2)."""

import pytest
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.api import SessionOrigin, origin_extensions, session_origin
from orchestral_temporal.core.start import START_EXTENSION, StartRefused, read_start
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.errors import AgentRejectionCode
from orchestral_temporal.protocol.recall import ORIGIN_KEY
from orchestral_temporal.protocol.run import seal
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal.client import AgentClient
from orchestral_temporal.temporal.names import session_workflow_id
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import World, plan, says

HERE = SessionOrigin(workspace="/workspace/project", additional_workspaces=("/lib",), model="host-model")
ELSEWHERE = SessionOrigin(workspace="/workspace/project", model="another model")

HERE_TOO: JsonObject = {"input": "go", "extensions": origin_extensions(HERE)}
CONFLICTING: JsonObject = {"input": "go", "extensions": origin_extensions(ELSEWHERE)}


def hosted(world: World) -> AgentClient:
    """A client whose runs all say where they began."""
    return AgentClient(world.client, task_queue=world.queue, extensions=origin_extensions(HERE))


def sealed(value: JsonObject, run_id: str) -> JsonObject:
    """The full envelope of a short form."""
    return dump(read_start(value, run_id).envelope)


async def exists(world: World, workflow_id: str) -> bool:
    """Whether the server knows such a workflow, open or closed."""
    try:
        await world.client.get_workflow_handle(workflow_id).describe()
    except RPCError as fault:
        if fault.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def test_the_origin_reaches_every_run_and_is_read_back(world: World) -> None:
    """In any form of start, beside the run's own; any client reads it, without a worker and after the end (A4)."""
    client, ids = hosted(world), [world.id(name) for name in ("short", "raw", "full")]
    await client.start("go", run_id=ids[0], extensions={"acme/flag": True})
    await client.start_raw({"input": "go", "extensions": None}, ids[1])
    await client.start_raw(sealed(HERE_TOO, ids[2]), ids[2])
    before = [await world.runs.run(run_id).spec() for run_id in ids]
    async with world.serving(plan(ScriptedModel([says("done")]))):
        turns = [await world.runs.run(run_id).wait() for run_id in ids]
    after = [await world.runs.run(run_id).spec() for run_id in ids]

    assert [session_origin(spec.extensions) for spec in before] == [HERE] * 3
    plain = {START_EXTENSION, ORIGIN_KEY}
    assert [set(spec.extensions) for spec in before] == [{"acme/flag", *plain}, plain, plain]
    assert after == before
    executions = [turn.view.execution for turn in turns if turn.view is not None]
    assert [each.spec_digest for each in executions] == [seal(spec).spec_digest for spec in after]


async def test_a_run_with_conflicting_metadata_is_not_created(world: World) -> None:
    """Another origin, or a sealed start without it, is refused by its name; there is no run, no session (A4)."""
    client, run_id = hosted(world), world.id("r")
    wrong: list[JsonObject] = [
        CONFLICTING,
        {"input": "go", "extensions": {ORIGIN_KEY: None}},
        sealed(CONFLICTING, run_id),
        sealed({"input": "go"}, run_id),
    ]
    for value in wrong:
        with pytest.raises(StartRefused, match=ORIGIN_KEY) as refused:
            await client.start_raw(value, run_id)
        assert refused.value.rejection.code is AgentRejectionCode.INVALID_SPEC
    with pytest.raises(StartRefused, match=ORIGIN_KEY):
        await client.start("go", run_id=run_id, extensions=origin_extensions(ELSEWHERE))

    assert not await exists(world, run_id)
    assert not await exists(world, session_workflow_id(run_id))


async def test_a_finished_run_is_found_as_it_was(world: World) -> None:
    """Started again it is the same run and nothing is added; from another session or origin it is refused (A4)."""
    model, run_id = ScriptedModel([says("once")]), world.id("r")
    client, session_id, other = hosted(world), world.id("s"), world.id("other")
    async with world.serving(plan(model)):
        first = await client.run_text("go", run_id=run_id, session_id=session_id)
        history, records = await world.history(run_id), await world.records(session_id)
        again = await client.run_text("go", run_id=run_id, session_id=session_id)
        for runs, session in ((client, other), (world.runs, session_id)):
            with pytest.raises(StartRefused) as refused:
                await runs.start("go", run_id=run_id, session_id=session)
            assert refused.value.rejection.code is AgentRejectionCode.RUN_ID_CONFLICT
        same_history, same_records = await world.history(run_id), await world.records(session_id)

    assert again.result == first.result
    assert (same_history.run_id, same_history.events) == (history.run_id, history.events)
    assert same_records == records
    assert len(model.requests) == 1
    assert not await exists(world, session_workflow_id(other))
