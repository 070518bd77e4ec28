"""What became of a run's tool calls, and operators who settle what nobody knows (divergence 30)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.worker import Worker

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.activities import EffectSettlement, SessionBatch, SessionOpen
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import effects, names
from orchestral_temporal.temporal.client import AgentClient, CallEffect, ContinuityUnknown, RunHandle
from orchestral_temporal.temporal.session_workflow import AgentSession
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.locked import Locked
from tests.temporal.world import RecordingTool, World, calls, plan, says, until

ONCE = ToolIdempotency.NON_IDEMPOTENT


async def never(_arguments: JsonObject, _call: ToolCall) -> Json:
    """Work that has no end."""
    await asyncio.Event().wait()
    return None


def table(found: Sequence[CallEffect]) -> list[tuple[object, ...]]:
    """Call, tool, state, attempts, fence and outcome of each row."""
    return [
        (each.call.split("/", 1)[1], each.tool, each.standing, each.attempts, each.fenced, each.outcome)
        for each in found
    ]


@asynccontextmanager
async def at_work(world: World, tool: RecordingTool, *first: list[Json], task: str = "go") -> AsyncGenerator[RunHandle]:
    """A run whose call of a tool goes on until the block ends; its worker then gives the call up."""
    script = [*first, calls((tool.descriptor.model_schema.name, {})), says("never")]
    async with world.serving(plan(ScriptedModel(script), RecordingTool("echo"), tool)):
        run = await world.runs.start(task, run_id=world.id("r"), session_id=world.id("s"))
        await until(lambda: len(tool.calls) == 1, "the tool is at work")
        yield run


@asynccontextmanager
async def lost(world: World, *, task: str = "go") -> AsyncGenerator[RunHandle]:
    """A run that has ended, since nobody knows what became of its last call; a second model serves its session."""
    once = RecordingTool("once", never, idempotency=ONCE)
    async with at_work(world, once, calls(("echo", {})), task=task) as run:
        pass
    async with world.serving(plan(ScriptedModel([says("later")]), name="later"), plan(ScriptedModel([]))):
        failure = (await run.wait()).failure
        assert failure is not None
        assert failure["code"] == "tool_unknown_effect"
        yield run


async def test_calls_of_a_run_that_goes_on_and_of_one_that_has_ended(world: World) -> None:
    """Every call has a row, from the first attempt to the last; reading a run that has ended takes no worker."""
    tell = asyncio.Event()

    async def told(_arguments: JsonObject, _call: ToolCall) -> Json:
        await tell.wait()
        return "told"

    keyed = RecordingTool("keyed", told, idempotency=ToolIdempotency.IDEMPOTENT_WITH_KEY)
    pure = RecordingTool("pure", told)
    script = [calls(("echo", {}), ("nobody", {})), calls(("keyed", {})), calls(("pure", {})), says("done")]
    async with world.serving(plan(ScriptedModel(script), RecordingTool("echo"), keyed, pure)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(lambda: len(keyed.calls) == 1, "the keyed tool is at work")
        behind_its_fence = await run.effects()
        tell.set()
        await until(lambda: len(pure.calls) == 1, "the pure tool was called")
        turn = await run.wait()
    ended = await run.effects()

    committed = [
        ("m1/c1", "echo", "Committed", 1, None, "completed"),
        ("m1/c2", "nobody", "Committed", 1, None, "rejected"),
    ]
    assert turn.text == "done"
    assert table(behind_its_fence) == [*committed, ("m2/c1", "keyed", "Invoked", 1, True, None)]
    assert table(ended) == [
        *committed,
        ("m2/c1", "keyed", "Committed", 1, None, "completed"),
        ("m3/c1", "pure", "Committed", 1, None, "completed"),
    ]
    assert [each.idempotency for each in ended] == ["pure", None, "idempotent_with_key", "pure"]


async def test_a_call_without_a_fence_says_so_while_it_is_at_work(world: World) -> None:
    """A pure call has none, and its server holds no heartbeat of one; a run that was cut off says nothing of it."""
    async with at_work(world, RecordingTool("pure", never)) as run:
        running = await run.effects()
        await world.client.get_workflow_handle(run.run_id).terminate()
        await world.closed(run.run_id)
        cut_off = await run.effects()

    assert table(running) == [("m1/c1", "pure", "Prepared", 1, False, None)]
    assert table(cut_off) == [("m1/c1", "pure", "Prepared", 1, None, None)]


async def test_a_run_that_nobody_serves_has_made_no_call(world: World) -> None:
    """Before the first worker has come there is a history, and nothing in it."""
    run = await world.runs.start("go", run_id=world.id("r"))
    assert list(await run.effects()) == []
    await world.client.get_workflow_handle(run.run_id).terminate()


@pytest.mark.parametrize("happened", ["the mail was sent", None])
async def test_an_operator_settles_an_unknown_effect_on_record(world: World, happened: str | None) -> None:
    """Who says what stands in the session for good, by the short id or the long, and later runs can read it."""
    async with lost(world) as run:
        unknown = (await run.effects())[-1]
        first = await run.settle("m2/c1", happened=happened, did_not=happened is None, by="ada")
        again = await run.settle(unknown.call, happened=happened, did_not=happened is None, by="bob")
        with pytest.raises(ProtocolError, match="'ada' has settled") as conflict:
            await run.settle("m2/c1", happened="something else")
        settled = (await run.effects())[-1]
        later = await world.runs.start("and?", run_id=world.id("later"), session_id=world.id("s"), agent="later")
        turn = await later.wait()
        answer = await world.session(world.id("s"))
        history = await world.history(names.session_workflow_id(world.id("s")))

    said = EffectSettlement(call=f"{run.run_id}/m2/c1", happened=happened, by="ada")
    assert (unknown.standing, unknown.call, unknown.settlement) == ("UnknownEffect", said.call, None)
    assert unknown.remedy == f"orchestral effects settle {run.run_id} m2/c1 --happened TEXT"
    assert (first.settlement, first.repeated) == (said, False)
    assert (again.settlement, again.repeated) == (said, True)
    assert conflict.value.code == "duplicate_conflict"
    assert (settled.settlement, settled.remedy) == (said, None)
    assert turn.text == "later"
    assert answer["settlements"] == [dump(said)]
    assert history.to_json().count('"name": "settle"') == 2


async def test_an_effect_whose_record_lies_in_the_store_can_be_settled(world: World) -> None:
    """The entity knows its uncertain calls also when a batch is a segment that it never reads."""
    async with lost(world, task="tea " * 20_000) as run:
        settled = await run.settle("m2/c1", did_not=True)
        answer = await world.session(world.id("s"))

    (batch,) = answer["batches"]  # type: ignore[misc] -- JSON of ours
    assert batch["records"] == []
    assert batch["uncertain"] == [f"{run.run_id}/m2/c1"]
    assert settled.settlement.by


async def test_only_an_unknown_effect_is_settled(world: World) -> None:
    """A known effect, an open one, no call at all, half a sentence and a broken text are refused with what is wrong."""
    async with lost(world) as run:
        for call, happened, did_not, sentence in (
            ("m1/c1", "x", False, "is Committed; only an UnknownEffect can be settled"),
            ("m9/c1", "x", False, "has made no call 'm9/c1'"),
            ("m2/c1", "x", True, "exactly one of the two"),
            ("m2/c1", None, False, "exactly one of the two"),
            ("m2/c1", " ", False, "`happened` is blank"),
            ("m2/c1", "x" * 1_025, False, "`happened` is longer than 1024 bytes"),
            ("m2/c1", "\ud800", False, "half a surrogate pair"),
        ):
            with pytest.raises(ProtocolError, match=sentence):
                await run.settle(call, happened=happened, did_not=did_not)
        with pytest.raises(ProtocolError, match="is no run but 'AgentSession'"):
            await world.runs.run(names.session_workflow_id(world.id("s"))).effects()
        answer = await world.session(world.id("s"))

    assert answer["settlements"] == []


async def test_an_open_call_is_not_settled(world: World) -> None:
    """While a call is at work its outcome is still to come."""
    async with at_work(world, RecordingTool("once", never, idempotency=ONCE)) as run:
        with pytest.raises(ProtocolError, match="is Invoked; only an UnknownEffect can be settled"):
            await run.settle("m1/c1", did_not=True)


async def test_a_session_that_does_not_answer_is_said_to_be_silent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a worker the calls are still read, and that nobody knows their settlement; settling is for later."""
    async with lost(world) as run:
        pass
    monkeypatch.setattr(effects, "RPC_TIMEOUT", timedelta(seconds=1))
    unknown = (await run.effects())[-1]
    with pytest.raises(ContinuityUnknown, match="does not answer"):
        await run.settle("m2/c1", did_not=True)
    with pytest.raises(TimeoutError):  # who gives up asking is no answer either
        async with asyncio.timeout(0.3):
            await run.settle("m2/c1", did_not=True)

    assert unknown.settlement is None
    assert unknown.settlement_unknown is not None
    assert "cannot be asked for settlements" in unknown.settlement_unknown
    assert unknown.remedy is None


async def test_a_session_that_was_ended_settles_nothing(world: World) -> None:
    """Its journal is closed for good; that is a refusal and no outage."""
    async with lost(world) as run:
        await world.client.get_workflow_handle(names.session_workflow_id(world.id("s"))).terminate()
        await world.closed(names.session_workflow_id(world.id("s")))
        with pytest.raises(ProtocolError, match="was closed from outside"):
            await run.settle("m2/c1", did_not=True)


@workflow.defn(name=names.AGENT_RUN, sandboxed=False)
class OtherVersion:
    """What another version of a run could have been."""

    @workflow.run
    async def run(self, _start: JsonObject) -> None:
        """Do something that today's does not."""
        await workflow.sleep(timedelta(milliseconds=10))


async def test_the_history_of_another_version_is_said_to_be_one(world: World) -> None:
    """It is no fault of ours, so it gets one sentence, which does not quote the whole of what the SDK says."""
    handle = await world.client.start_workflow(
        names.AGENT_RUN, {"input": "go"}, id=world.id("old"), task_queue=world.queue
    )
    world.started.clear()  # which the world would replay
    async with Worker(world.client, task_queue=world.queue, workflows=[OtherVersion]):
        await handle.result()
    run = world.runs.run(world.id("old"))
    for asked in (run.effects, lambda: world.read(run.run_id)):
        with pytest.raises(ContinuityUnknown, match="cannot be replayed here, but only by the version") as fault:
            await asked()
        assert len(str(fault.value)) < 500
        assert "\n" not in str(fault.value)


@pytest.mark.parametrize("locked", ["m2", "session_id"])
async def test_a_history_that_nobody_can_replay_does_not_keep_an_effect_from_being_settled(
    world: World, caplog: pytest.LogCaptureFixture, locked: str
) -> None:
    """Without the key of its texts the session decides; which one it is stands in the start, or in an attribute."""
    caplog.set_level(logging.CRITICAL, "temporalio")  # which logs what it cannot decode, and the world looks at that
    codec = Locked(lambda data: locked.encode() in data and b"settlement" not in data)
    async with lost(world) as run:
        unread = AgentClient(codec.used_by(world.client), task_queue=world.queue).run(run.run_id)
        with pytest.raises(ContinuityUnknown, match=r"cannot be replayed here.*the key is gone"):
            await unread.effects()
        with pytest.raises(ProtocolError, match="no unknown effect of the call"):
            await unread.settle("m1/c1", did_not=True)
        settled = await unread.settle("m2/c1", did_not=True, by="ada")
        (known,) = [each for each in await run.effects() if each.settlement is not None]

    assert codec.refused
    assert known.settlement == settled.settlement


@pytest.mark.parametrize("session", ["s", "r"])
async def test_an_effect_of_a_run_that_is_there_no_more_can_be_settled(world: World, session: str) -> None:
    """Retention takes the run and not its session: one of the run's name is found, any other has to be named."""
    run, call = world.runs.run(world.id("r")), f"{world.id('r')}/m2/c1"
    entity = await world.client.start_workflow(
        AgentSession.run, id=names.session_workflow_id(world.id(session)), task_queue=world.queue
    )
    opened = SessionOpen(session_id=world.id(session), run_id=run.run_id, spec_digest="0" * 64, execution="gone")
    ended = SessionBatch(
        run_id=run.run_id, number=1, expected_head=None, head="1" * 64, first_seq=1, last_seq=0, uncertain=(call,)
    )
    async with world.serving(plan(ScriptedModel([]))):
        await entity.execute_update(names.SESSION_OPEN, opened)
        await entity.execute_update(names.SESSION_APPEND, ended)
        for wrong in ("m1/c1",) if session == "r" else ("m1/c1", "m2/c1"):
            with pytest.raises(ProtocolError, match="name the session that it belonged to, with --session") as fault:
                await run.settle(wrong, did_not=True)
            assert fault.value.code == "run_not_found"
        named = None if session == "r" else world.id(session)
        settled = await run.settle("m2/c1", did_not=True, by="ada", session_id=named)
        answer = await world.session(world.id(session))

    assert settled.settlement.call == call
    assert answer["settlements"] == [dump(settled.settlement)]


async def test_a_beat_that_cannot_be_decoded_says_nothing_of_a_fence(world: World) -> None:
    """The call has its row, and nobody can see whether its fence stands."""
    codec = Locked(lambda data: b'"fence"' in data)
    async with at_work(world, RecordingTool("once", never, idempotency=ONCE)) as run:
        plain = await run.effects()
        unread = await AgentClient(codec.used_by(world.client)).run(run.run_id).effects()

    assert [each.fenced for each in plain] == [True]
    assert table(unread) == [("m1/c1", "once", "Prepared", 1, None, None)]
    assert codec.refused
