"""The session: one active run, a journal in order, and nobody who can lock or break it from outside."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError, WorkflowUpdateFailedError

from orchestral_temporal.core.limits import SESSION_BATCH_BYTES
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.activities import Queues, Role
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.session import AgentSessionRecord
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import parse_value
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.runtime.session_records import next_head
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle, Turn
from orchestral_temporal.temporal.worker import build_workers
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.unshielded import replay_unshielded
from tests.temporal.world import RecordingTool, World, calls, payload, plan, says, until

LARGE = "x" * 90_000
"""A result that fills a small context."""


async def started_again(world: World, run_id: str, session: str) -> Turn:
    """What somebody gets who starts an ended run under its id once more."""
    given = payload(json.dumps({"input": "go", "session_id": session}))
    return await (await world.start_payloads(run_id, given)).wait()


class Forgetful(MemoryArtifacts):
    """A store that takes everything and has nothing."""

    async def get(self, digest: str) -> bytes:
        """Have nothing."""
        raise KeyError(digest)


@asynccontextmanager
async def without_memory(world: World, *plans: AgentPlan) -> AsyncGenerator[None]:
    """Serve agents; the worker that appends to sessions has seen none of the texts."""
    queues = Queues(runs=world.queue, models=f"{world.queue}-calls", tools=f"{world.queue}-calls")
    settings, agents = replace(world.settings(), queues=queues), {each.name: host(each, "default") for each in plans}
    async with AsyncExitStack() as stack:
        for roles in ((Role.RUN,), (Role.MODEL, Role.TOOLS)):
            (worker,) = build_workers(world.client, agents, settings=settings, artifacts=world.artifacts, roles=roles)
            await stack.enter_async_context(worker)
        yield


async def test_two_runs_are_read_back_in_order(world: World) -> None:
    """Two runs, one after another, stand in the session's journal without a gap, under a chain of digests."""
    session = world.id("s")
    first = ScriptedModel([calls(("echo", {"value": 1})), says("one")])
    second = ScriptedModel([says("two")])
    async with world.serving(plan(first, RecordingTool("echo"), name="first"), plan(second, name="second")):
        for name in ("first", "second"):
            await (await world.runs.start("go", run_id=world.id(name), session_id=session, agent=name)).wait()
        answer = await world.session(session)
        records = [parse_value(AgentSessionRecord, each) for each in await world.records(session)]

    for record in records:
        validate(record)
    assert [each.session_seq for each in records] == [1, 2, 3, 4, 5]
    assert [each.payload.type for each in records] == [
        "run_input_committed",
        "tool_exchange_committed",
        "run_output_committed",
        "run_input_committed",
        "run_output_committed",
    ]
    assert [each.run_id for each in records] == [world.id("first")] * 3 + [world.id("second")] * 2
    assert answer["head"] == next_head(None, records)
    assert (answer["active"], answer["last_seq"]) == (None, 5)


async def test_busy_session_refuses_a_second_run(world: World) -> None:
    """A second run, by client or raw, fails as session_conflict with no journal, and leaves the first one alone."""
    session = world.id("s")
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await go_on.wait()
        return None

    model = ScriptedModel([calls(("wait", {})), says("mine")])
    async with world.serving(plan(model, RecordingTool("wait", wait))):
        holder = await world.runs.start("go", run_id=world.id("holder"), session_id=session)
        await at_work.wait()
        by_client = await (await world.runs.start("go", run_id=world.id("second"), session_id=session)).wait()
        value = json.dumps({"input": "go", "session_id": session})
        by_raw = await (await world.start_payloads(world.id("raw"), payload(value))).wait()
        how = await world.closed(world.id("raw"))
        go_on.set()
        turn = await holder.wait()
        next_turn = await (await world.runs.start("go", run_id=world.id("next"), session_id=session)).wait()
        records = await world.records(session)

    for refused in (by_client, by_raw):
        assert refused.failure is not None
        assert refused.failure["code"] == "session_conflict"
        assert (refused.result["journal"], refused.view) == (None, None)
    assert how is WorkflowExecutionStatus.FAILED
    assert turn.text == "mine"
    assert next_turn.status is AgentRunStatus.DELIVERED
    assert {record["run_id"] for record in records} == {world.id("holder"), world.id("next")}


async def test_refused_start_locks_nothing(world: World) -> None:
    """A run that was refused for its agent gives the session back, and the next run gets it."""
    session = world.id("s")
    async with world.serving(plan(ScriptedModel([says("done")]))):
        refused = await world.runs.start("go", run_id=world.id("r1"), session_id=session, agent="nobody")
        failure = (await refused.wait()).failure
        turn = await (await world.runs.start("go", run_id=world.id("r2"), session_id=session)).wait()
        answer = await world.session(session)

    assert failure is not None
    assert failure["code"] == "invalid_spec"
    assert turn.text == "done"
    assert answer["active"] is None


async def test_failed_run_frees_its_session(world: World) -> None:
    """A run that failed leaves its input in the journal, and the session free."""
    session = world.id("s")
    async with world.serving(plan(ScriptedModel([[{"error": {"code": "authentication", "message": "no key"}}]]))):
        turn = await (await world.runs.start("go", run_id=world.id("r"), session_id=session)).wait()
        answer = await world.session(session)
        records = await world.records(session)

    assert turn.failure is not None
    assert turn.failure["code"] == "model_authentication"
    assert await world.closed(world.id("r")) is WorkflowExecutionStatus.FAILED
    assert answer["active"] is None
    assert [record["payload"]["type"] for record in records] == ["run_input_committed"]


async def test_strangers_cannot_break_a_session(world: World) -> None:
    """Malformed signals, updates and queries to the session itself are refused, and its next run is served."""
    session = world.id("s")
    forged = {"run_id": "nobody", "number": 1, "expected_head": None, "head": None, "first_seq": 1, "last_seq": 0}
    said = {"call": f"{world.id('r1')}/m1/c1", "happened": None, "by": "nobody"}
    async with world.serving(plan(ScriptedModel([says("done")]))):
        await (await world.runs.start("go", run_id=world.id("r1"), session_id=session)).wait()
        handle = world.client.get_workflow_handle(names.session_workflow_id(session))
        await handle.signal("anything", {"a": 1})
        await handle.signal("append", args=[1, 2])
        wrong = [
            ("open", []),
            ("open", [{}]),
            ("append", [forged]),
            ("append", [1]),
            ("settle", [said]),
            ("other", [{}]),
        ]
        for name, args in wrong:
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update(name, args=args)
        for name, value in (("read", {"after": "x"}), ("other", {})):
            with pytest.raises(WorkflowQueryFailedError):
                await handle.query(name, value)
        turn = await (await world.runs.start("go", run_id=world.id("r2"), session_id=session)).wait()
        answer = await world.session(session)

    assert turn.text == "done"
    assert (answer["last_seq"], answer["active"]) == (4, None)


async def test_records_that_are_too_large_for_the_entity_go_to_the_store(world: World) -> None:
    """A batch above 32 KB is a segment by digest: the entity's history keeps none of its text."""
    session, text = world.id("s"), "tea " * 20_000
    model = ScriptedModel([says(text)])
    async with world.serving(plan(model)):
        await (await world.runs.start("go", run_id=world.id("r"), session_id=session)).wait()
        answer = await world.session(session)
        history = await world.history(names.session_workflow_id(session))

    (batch,) = answer["batches"]  # type: ignore[misc] -- JSON of ours
    assert batch["records"] == []
    segment = json.loads(await world.artifacts.get(batch["segment"]))
    assert [record["payload"]["type"] for record in segment] == ["run_input_committed", "run_output_committed"]
    assert segment[1]["payload"]["message"]["content"] == [{"type": "text", "text": text}]
    assert "tea tea" not in history.to_json()
    assert answer["head"] == next_head(None, [parse_value(AgentSessionRecord, each) for each in segment])


@pytest.mark.parametrize("again", [False, True], ids=["at once", "another worker"])
async def test_what_only_the_run_wrote_reaches_the_session(world: World, again: bool) -> None:
    """A run that ends right after a call it refused leaves the refusal in the journal, whoever appends it (K14)."""
    session, at_work = world.id("s"), asyncio.Event()

    async def large(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        if again:
            await asyncio.Event().wait()
        return LARGE

    rounds = [calls(("nobody", {}), ("large", {}))]
    small = {"context_tokens": 20_000, "max_output_tokens": 100}
    async with world.serving(plan(ScriptedModel(rounds), RecordingTool("large", large), **small)):
        run = await world.runs.start("go", run_id=world.id("r"), session_id=session)
        await at_work.wait()
        if not again:
            await world.closed(run.run_id)
    again = False
    async with world.serving(plan(ScriptedModel(rounds), RecordingTool("large", large), **small)):
        assert await world.closed(run.run_id) is WorkflowExecutionStatus.FAILED
        failure, answer = (await run.wait()).failure, await world.session(session)
        batches = answer["batches"]

    assert failure is not None
    assert (failure["code"], answer["active"], answer["last_seq"]) == ("context_overflow", None, 2)
    (batch,) = batches  # type: ignore[misc] -- JSON of ours
    _, exchange = json.loads(await world.artifacts.get(batch["segment"]))
    told, kept = (part["result"] for part in exchange["payload"]["tool"]["content"])
    assert (told["code"], kept) == ("tool_not_found", LARGE)


async def test_records_that_nobody_can_make_leave_the_session_free(world: World) -> None:
    """A text that is gone for good costs the run its records, which it says; run and session are not held up (K14)."""
    session = world.id("s")
    agents = (plan(ScriptedModel([says("tea " * 60_000)])), plan(ScriptedModel([says("next")]), name="next"))
    kept, world.artifacts = world.artifacts, Forgetful()
    async with without_memory(world, *agents):
        run = await world.runs.start("go", run_id=world.id("r"), session_id=session)
        assert await world.closed(run.run_id) is WorkflowExecutionStatus.COMPLETED
        seen = await world.client.get_workflow_handle(run.run_id).query(names.QUERY_INSPECT, {}, result_type=dict)
        answer = await world.session(session)
    world.artifacts = kept
    async with world.serving(*agents):
        again = await started_again(world, run.run_id, session)
        turn = await (await world.runs.start("go", run_id=world.id("n"), session_id=session, agent="next")).wait()
        records = await world.records(session)

    assert seen["status"] == again.status == AgentRunStatus.DELIVERED
    ((name, reason),) = [each.values() for each in seen["refused"]]
    assert (name, "A text of the run is gone" in reason) == ("session", True)
    assert (answer["active"], answer["last_seq"], answer["batches"]) == (None, 0, [])
    assert turn.text == "next"
    assert [record["run_id"] for record in records] == [world.id("n")] * 2


WIDE = "x" * (SESSION_BATCH_BYTES // 2)
"""Half of what makes a batch go out."""


async def reset(world: World, run_id: str, name: str, nth: int = 0) -> str:
    """Reset a run to the workflow task that scheduled its nth activity of this name; the new execution."""
    history = await world.history(run_id)
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    asked = [each for each in scheduled if each.activity_type.name == name][nth]
    answer = await world.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=world.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run_id),
            reason="a person wants it again",
            workflow_task_finish_event_id=asked.workflow_task_completed_event_id,
            request_id=str(uuid.uuid4()),
        )
    )
    return answer.run_id


class Resettable:
    """A run with one appended batch, waiting in its second round."""

    def __init__(self, world: World) -> None:
        self._results = iter(f"{WIDE}{number}" for number in range(9))
        self.at_work, self.go_on = asyncio.Event(), asyncio.Event()
        rounds = [calls(("wide", {}), ("wide", {})), calls(("wait", {})), says("done")]
        tools = (RecordingTool("wide", self._wide), RecordingTool("wait", self._wait))
        self.agents = (plan(ScriptedModel(rounds), *tools), plan(ScriptedModel([says("next")]), name="next"))
        self._world, self.session = world, world.id("s")

    async def _wide(self, _arguments: JsonObject, _call: ToolCall) -> Json:
        return next(self._results)

    async def _wait(self, _arguments: JsonObject, _call: ToolCall) -> Json:
        self.at_work.set()
        await self.go_on.wait()
        return None

    async def started(self) -> RunHandle:
        """The run, once its first batch is in the journal and it only waits for its tool."""
        run = await self._world.runs.start("go", run_id=self._world.id("r"), session_id=self.session)
        await self.at_work.wait()
        await until(self._waits, "the first batch is appended")
        return run

    async def _waits(self) -> bool:
        described = (await self._world.client.get_workflow_handle(self._world.id("r")).describe()).raw_description
        idle = not described.HasField("pending_workflow_task")
        return idle and [each.activity_type.name for each in described.pending_activities] == [names.INVOKE_TOOL]

    async def journal(self) -> list[JsonObject]:
        """The records of the session, also those in the store."""
        batches = (await self._world.session(self.session))["batches"]
        assert isinstance(batches, list)
        return [record for batch in batches for record in await self._records(batch)]

    async def _records(self, batch: Any) -> list[JsonObject]:
        return batch["records"] or json.loads(await self._world.artifacts.get(batch["segment"]))


@pytest.mark.parametrize(("name", "nth"), [(names.APPEND_SESSION, 0), (names.INVOKE_TOOL, -1)], ids=["again", "after"])
async def test_a_reset_run_goes_on_where_its_batch_fits(world: World, name: str, nth: int) -> None:
    """A run that was reset to make its last batch again, or to after it, ends as usual, and no record stands twice."""
    made = Resettable(world)
    async with world.serving(*made.agents):
        run = await made.started()
        assert len(await made.journal()) == 2
        execution = await reset(world, run.run_id, name, nth)
        made.go_on.set()
        turn, records = await run.wait(), await made.journal()
        answer = await world.session(made.session)
        again = await started_again(world, run.run_id, made.session)

    await replay_unshielded(await world.history(run.run_id, execution))
    assert turn.text == again.text == "done"
    assert again.result == turn.result
    assert [record["session_seq"] for record in records] == [1, 2, 3, 4]
    assert len({record["event_id"] for record in records}) == 4
    assert answer["active"] is None


async def test_a_reset_run_whose_session_went_on_says_so(world: World) -> None:
    """Other results for a batch that the journal has: the run fails, the journal stays, the session is free."""
    made = Resettable(world)
    async with world.serving(*made.agents):
        run = await made.started()
        before = await made.journal()
        execution = await reset(world, run.run_id, names.CALL_MODEL)
        failure = (await run.wait()).failure
        made.go_on.set()
        assert await made.journal() == before
        turn = await (await world.runs.start("go", run_id=world.id("n"), session_id=made.session, agent="next")).wait()
        records, answer = await made.journal(), await world.session(made.session)

    await replay_unshielded(await world.history(run.run_id, execution))
    assert len(before) == 2
    assert failure is not None
    assert failure["code"] == "session_journal"
    assert "went on without it" in str(failure["message"])
    assert turn.text == "next"
    assert [record["run_id"] for record in records] == [run.run_id] * 2 + [world.id("n")] * 2
    assert answer["active"] is None


async def test_session_that_was_ended_is_an_error_and_not_a_new_session(world: World) -> None:
    """A terminated session entity is never replaced in silence: the next run fails and says what happened."""
    session = world.id("s")
    async with world.serving(plan(ScriptedModel([says("done")]))):
        await (await world.runs.start("go", run_id=world.id("r1"), session_id=session)).wait()
        entity = world.client.get_workflow_handle(names.session_workflow_id(session))
        await entity.terminate()
        await until(lambda: _over(world, session), "the entity is gone")
        failure = (await (await world.runs.start("go", run_id=world.id("r2"), session_id=session)).wait()).failure

    assert failure is not None
    message = failure["message"]
    assert isinstance(message, str)
    assert "closed from outside" in message


async def _over(world: World, session: str) -> bool:
    described = await world.client.get_workflow_handle(names.session_workflow_id(session)).describe()
    return described.status is WorkflowExecutionStatus.TERMINATED
