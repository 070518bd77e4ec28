"""A tool call before its server: the fence, the outcome on record, and what a worker does that lost its call.

What fails around it, a payload codec, a line, an artifact store, is in `test_fence_faults`.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import PauseActivityRequest, ResetActivityRequest, UnpauseActivityRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.adapters.tools.functions import function_tool
from orchestral_temporal.api import Happened, Reconciled, tool
from orchestral_temporal.ports import NotStarted, ToolCall
from orchestral_temporal.protocol.activities import (
    Fence,
    Heartbeat,
    Item,
    Timeouts,
    ToolObservation,
    ToolRequest,
)
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.digest import sha256
from orchestral_temporal.protocol.tools import (
    Cancelled,
    Completed,
    InlineOutput,
    Rejected,
    ToolIdempotency,
    UnknownEffect,
)
from orchestral_temporal.protocol.words import to_json
from orchestral_temporal.runtime.context_items import ContextItems, WrittenItem
from orchestral_temporal.temporal import fencing, names
from orchestral_temporal.temporal.answering import answered
from orchestral_temporal.temporal.fencing import Lease, since_boot
from orchestral_temporal.temporal.recorded import fence_of
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from tests.temporal.one_call import (
    BARE,
    BIG,
    ECHO,
    KEYED,
    NON_IDEMPOTENT,
    OUTCOME,
    PURE,
    Call,
    Gate,
    Held,
    OneCall,
    behind,
    big,
    one_activity,
    serving,
)
from tests.temporal.world import RecordingTool, until

pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")


# -- the plain path --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotency", [NON_IDEMPOTENT, KEYED])
async def test_the_fence_is_on_record_while_the_tool_works(client: Client, idempotency: ToolIdempotency) -> None:
    """Before the tool begins the server knows call, attempt and exact arguments; its outcome is the call's (E4)."""
    gate = Gate(idempotency)
    async with serving(client, gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        assert await call.beat() == Heartbeat(fence=BARE)
        gate.open.set()
        assert (await call.ended()).outcome == ECHO
        assert await call.signalled() == []


async def test_a_call_that_may_run_again_has_no_fence(client: Client) -> None:
    """A pure call beats without a fence."""
    gate = Gate(PURE)
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await until(call.beats, "a beat arrives")
        assert await call.beat() == Heartbeat()
        gate.open.set()
        assert (await call.ended()).outcome == ECHO


async def test_the_outcome_is_on_record_before_the_activity_returns(client: Client) -> None:
    """Once an outcome is recorded the server has it, whatever becomes of the worker (K8)."""
    recorded, may_return = asyncio.Event(), asyncio.Event()

    @activity.defn(name=names.INVOKE_TOOL)
    async def slow_to_return(request: ToolRequest) -> ToolObservation:
        lease = Lease(fence_of(request), Timeouts(), timedelta(seconds=1), since_boot)
        await lease.put_up()
        await lease.record(ToolObservation(outcome=ECHO), MemoryArtifacts())
        recorded.set()
        await may_return.wait()
        return ToolObservation(outcome=ECHO)

    async with one_activity(client, slow_to_return) as stage:
        call = await stage.start()
        await recorded.wait()
        assert (await call.ended()).outcome == ECHO
        may_return.set()


# -- before the fence ------------------------------------------------------------------------------------------------


async def test_a_call_that_was_given_up_before_its_fence_does_not_begin(client: Client) -> None:
    """The server refuses the fence of a lost attempt: its tool does not run, and the run is told nothing (E4)."""
    gate = Gate(serial=True)
    async with serving(client, gate.tool) as stage:
        first = await stage.start()
        await gate.reached.wait()
        second = await stage.start()
        await until(second.at_worker, "the second call waits at the gate")
        await second.give_up()
        gate.open.set()
        assert (await first.ended()).outcome == ECHO
        assert (await second.ended()).failure == "ApplicationError"
        assert await second.signalled() == []
    assert len(gate.tool.calls) == 1


async def test_a_cancel_before_the_fence_is_certain(client: Client) -> None:
    """A call that its run cancels while it waits for its gate is cancelled, though its tool must not run twice."""
    gate = Gate(serial=True)
    async with serving(client, gate.tool) as stage:
        first = await stage.start()
        await gate.reached.wait()
        second = await stage.start()
        await until(second.at_worker, "the second call waits at the gate")
        await second.handle.signal(OneCall.cancel_call)
        assert (await second.ended()).outcome == Cancelled()
        gate.open.set()
        assert (await first.ended()).outcome == ECHO
    assert len(gate.tool.calls) == 1


# -- the last look ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_up", [True, False])
async def test_a_worker_that_was_frozen_looks_before_it_acts(client: Client, *, given_up: bool) -> None:
    """After a pause behind the fence the worker asks again: given up, nothing runs, and the run is told so (E4)."""
    looking, may_look, ran = threading.Event(), threading.Event(), list[int]()

    def clock() -> float:
        if threading.current_thread().name != "orchestral-tool":
            return 0.0
        looking.set()
        may_look.wait()
        return 11.0  # more than half of twenty seconds later

    @tool
    def effect(value: int) -> int:
        ran.append(value)
        return value

    async with serving(client, function_tool(effect), clock=clock) as stage:
        call = await stage.start()
        await asyncio.to_thread(looking.wait)
        assert await call.beat() == Heartbeat(fence=BARE)
        if given_up:
            await call.give_up()
        may_look.set()
        if given_up:
            told = await call.settled()
            assert told.outcome is not None
            assert isinstance(told.outcome.outcome, Rejected)
            assert told.outcome.outcome.code == "not_started"
        else:
            assert (await call.ended()).outcome == Completed(output=InlineOutput(value=1))
    assert ran == ([] if given_up else [1])


async def test_a_fence_that_meets_a_cancel_is_refused(client: Client) -> None:
    """A worker that learns of the cancel only by its fence runs nothing: the call is cancelled for certain."""
    at_work, refused = asyncio.Event(), list[object]()

    @activity.defn(name=names.INVOKE_TOOL)
    async def late(request: ToolRequest) -> ToolObservation:
        lease = Lease(fence_of(request), Timeouts(), timedelta(seconds=1), since_boot)
        at_work.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(NotStarted) as not_started:
                await lease.put_up()
            refused.append(not_started.value.outcome)
            assert not lease.stands
        return ToolObservation(outcome=Cancelled())

    async with one_activity(client, late) as stage:
        call = await stage.start()
        await at_work.wait()
        await call.handle.signal(OneCall.cancel_call)
        await call.ended()
    assert refused == [Cancelled()]


# -- a cancel by the run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("idempotency", "kind"), [(NON_IDEMPOTENT, UnknownEffect), (KEYED, Cancelled), (PURE, Cancelled)]
)
async def test_a_cancel_at_work_tells_the_tool(
    client: Client, idempotency: ToolIdempotency, kind: type[object]
) -> None:
    """The tool is told; what nobody can know is unknown, what may run again is cancelled (`spec/tools.md` §11)."""
    gate = Gate(idempotency)
    async with serving(client, gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        await call.handle.signal(OneCall.cancel_call)
        assert isinstance((await call.ended()).outcome, kind)
        await gate.told.wait()


async def test_a_cancel_while_the_tool_is_asked_leaves_the_effect_unknown(client: Client) -> None:
    """A run that is cancelled while it asks for a lost effect has not learned what became of it (divergence 3)."""
    asked, release = threading.Event(), threading.Event()

    def ask(value: int) -> Reconciled:
        asked.set()
        release.wait()
        return Happened(value)

    @tool(reconcile=ask)
    def effect(value: int) -> int:
        return value

    async with serving(client, function_tool(effect)) as stage:
        call = await stage.start(attempt=2, reconcile=True)
        await asyncio.to_thread(asked.wait)
        await call.handle.signal(OneCall.cancel_call)
        assert isinstance((await call.ended()).outcome, UnknownEffect)
    release.set()


async def test_a_result_before_the_cancel_wins(client: Client) -> None:
    """A cancel that comes while the outcome is put on record changes nothing."""
    held = Held(OUTCOME)
    async with serving(behind(held, client), RecordingTool("big", big, idempotency=NON_IDEMPOTENT)) as stage, held:
        call = await stage.start()
        await held.asked.wait()
        await call.handle.signal(OneCall.cancel_call)
        await until(lambda: _cancel_requested(call), "the cancel has reached the activity")
        held.open.set()
        assert (await call.ended()).outcome == BIG


async def _cancel_requested(call: Call) -> bool:
    described = await call.handle.describe()
    state = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
    return any(each.state == state for each in described.raw_description.pending_activities)


async def test_a_cancel_reaches_a_call_that_was_paused_before(client: Client) -> None:
    """The SDK cancels an activity once, for the pause; the run's cancel is read from the answer to a beat."""
    gate = Gate(KEYED)
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await _pause(call)
        await _three_beats(call)
        assert not gate.told.is_set()
        await call.handle.signal(OneCall.cancel_call)
        assert (await call.ended()).outcome == Cancelled()


# -- an attempt that the server has given up ---------------------------------------------------------------------------


@pytest.mark.parametrize("idempotency", [NON_IDEMPOTENT, KEYED])
async def test_a_lost_call_works_on_and_tells_its_run(client: Client, idempotency: ToolIdempotency) -> None:
    """The run hears that the call is at work, again and again, and then its outcome (decision 15)."""
    gate = Gate(idempotency)
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await call.give_up()
        await until(partial(_told, call, 3), "the run hears three times that the call is at work")
        words = [BARE.model_copy(update={"next_ms": ms}) for ms in (300, 600, 1_200)]
        assert (await call.signalled())[:3] == words
        assert not gate.told.is_set()
        gate.open.set()
        assert await call.settled() == BARE.model_copy(update={"outcome": (await call.settled()).outcome})
        told = (await call.settled()).outcome
        assert told is not None
        assert told.outcome == ECHO
        assert told.item is not None


async def _told(call: Call, wanted: int) -> bool:
    return len(await call.signalled()) >= wanted


async def test_words_of_a_call_at_work_come_ever_more_rarely(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses double up to a bound, so that a call of a day does not use up its run's history."""
    monkeypatch.setattr(fencing, "REPORT_PAUSE_MS", 500)
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await call.give_up()
        await until(partial(_told, call, 4), "the run hears four times that the call is at work")
        assert [each.next_ms for each in (await call.signalled())[:4]] == [300, 500, 500, 500]
        gate.open.set()
        await call.settled()


async def test_a_lost_call_that_may_run_again_is_stopped(client: Client) -> None:
    """Without a fence the tool is told to stop, and the run, which runs it again, hears nothing."""
    gate = Gate(PURE)
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await call.give_up()
        await gate.told.wait()
        assert await call.signalled() == []


async def test_an_outcome_that_the_server_does_not_take_goes_to_the_run(client: Client) -> None:
    """Given up between two beats, the worker learns it with the outcome, and signals that alone."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        await call.give_up()
        gate.open.set()
        told = await call.settled()
        assert told.outcome is not None
        assert told.outcome.outcome == ECHO
        assert await call.signalled() == [told]


async def test_a_long_outcome_is_stored_and_named(client: Client) -> None:
    """What is too long for a heartbeat lies in the artifact store, exactly as it is."""
    release, artifacts = asyncio.Event(), MemoryArtifacts()
    reached = asyncio.Event()

    async def work(arguments: JsonObject, call: ToolCall) -> Json:
        reached.set()
        await release.wait()
        return await big(arguments, call)

    async with serving(client, RecordingTool("big", work, idempotency=NON_IDEMPOTENT), artifacts=artifacts) as stage:
        call = await stage.start()
        await reached.wait()
        await call.give_up()
        release.set()
        told = await call.settled()
        assert told.outcome is None
        assert told.stored is not None
        recorded = await stage.start(recorded=told.stored)
        assert (await recorded.ended()).outcome == BIG


async def test_a_call_whose_run_is_gone_is_stopped(client: Client) -> None:
    """After a terminate nobody can be told: the tool is stopped, and the worker is free."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await call.handle.terminate("pulled the plug")
        await gate.told.wait()


async def test_an_outcome_for_a_run_that_is_gone_is_let_go(client: Client) -> None:
    """After a terminate the outcome is stored, goes nowhere, and holds up no worker."""
    held, artifacts = Held(OUTCOME), MemoryArtifacts()
    tool = RecordingTool("big", big, idempotency=NON_IDEMPOTENT)
    async with serving(behind(held, client), tool, artifacts=artifacts) as stage, held:
        call = await stage.start()
        await held.asked.wait()
        await call.handle.terminate("pulled the plug")
        held.open.set()
        await until(lambda: bool(artifacts._kept), "the outcome is stored")
        await stage.worker.shutdown()


async def test_a_lost_call_ends_with_its_worker(client: Client) -> None:
    """A call that works on unheard is stopped after the grace of a worker that stops."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await call.give_up()
        await until(call.told, "the run hears that the call is at work")
        begun = time.monotonic()
        await stage.worker.shutdown()
        assert gate.told.is_set()
        assert 0.2 <= time.monotonic() - begun < 5


async def test_a_tool_sees_that_its_lease_has_run_out(client: Client) -> None:
    """`should_yield` becomes true when no beat was confirmed for a time-out, and false again with the next one."""
    gate, now = Gate(), [0.0]
    async with serving(client, gate.tool, clock=lambda: now[0]) as stage:
        call = await stage.start(heartbeat_ms=2_000)
        await gate.reached.wait()
        assert not gate.yielding()
        now[0] = 2.5
        assert gate.yielding()
        await until(lambda: not gate.yielding(), "a beat is confirmed")
        gate.open.set()
        assert (await call.ended()).outcome == ECHO


# -- a worker that stops -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("idempotency", "fence"), [(NON_IDEMPOTENT, BARE), (KEYED, BARE), (PURE, None)])
async def test_a_stopping_worker_gives_the_call_back(
    client: Client, idempotency: ToolIdempotency, fence: Fence | None
) -> None:
    """What will not end within the grace is given back on record, and whether its fence stood (F088)."""
    gate = Gate(idempotency)
    async with serving(client, gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        await stage.worker.shutdown()
        await gate.told.wait()
        ended = await call.ended()
    assert ended.failure == names.ERROR_ABANDONED
    assert ended.fence == fence


async def test_a_call_that_had_not_begun_is_given_back_without_a_fence(client: Client) -> None:
    """A call at its gate has certainly not begun, and the run may run it again."""
    gate = Gate(serial=True)
    async with serving(client, gate.tool) as stage:
        await stage.start()
        await gate.reached.wait()
        second = await stage.start(heartbeat_ms=2_000)
        await until(second.beats, "the second call waits at the gate")
        await stage.worker.shutdown()
        ended = await second.ended()
    assert ended.failure == names.ERROR_ABANDONED
    assert ended.fence is None
    assert len(gate.tool.calls) == 1


async def test_a_call_that_ends_within_the_grace_is_a_result(client: Client) -> None:
    """A stopping worker lets calls end that can (F088)."""
    gate = Gate()
    async with serving(client, gate.tool, grace_ms=10_000) as stage:
        call = await stage.start()
        await gate.reached.wait()
        stopping = asyncio.create_task(stage.worker.shutdown())
        gate.open.set()
        assert (await call.ended()).outcome == ECHO
        await stopping


# -- asking the server -------------------------------------------------------------------------------------------------


async def test_the_server_is_asked_until_it_answers() -> None:
    """An outage is waited for, with short pauses."""
    faults = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED]

    async def ask() -> str:
        if faults:
            raise RPCError("not now", faults.pop(), b"")
        return "answer"

    assert await answered(ask) == "answer"


async def test_a_question_that_is_wrong_is_not_asked_again() -> None:
    """What the server refuses as invalid it refuses for ever."""

    async def ask() -> str:
        raise RPCError("too large", RPCStatusCode.INVALID_ARGUMENT, b"")

    with pytest.raises(RPCError, match="too large"):
        await answered(ask)


# -- what is on record -------------------------------------------------------------------------------------------------


async def _again(call: Call, beat: Heartbeat) -> None:
    """Let the server try the activity again, with the details of a heartbeat."""
    fault = ApplicationError("try again", next_retry_delay=timedelta(milliseconds=1))
    await call.activity.fail(fault, last_heartbeat_details=[beat])


async def test_a_second_try_behind_a_fence_does_not_run(client: Client) -> None:
    """A try that finds a fence says that the effect is unknown; one that finds an outcome returns it (E4)."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        await _again(call, Heartbeat(fence=BARE))
        assert isinstance((await call.ended()).outcome, UnknownEffect)
        gate.open.set()
    assert len(gate.tool.calls) == 1


@pytest.mark.parametrize("stored", [True, False])
async def test_a_second_try_returns_what_the_first_one_recorded(client: Client, *, stored: bool) -> None:
    """An outcome on record, in the heartbeat or stored, is returned and nothing runs."""
    gate, artifacts = Gate(), MemoryArtifacts()
    observation = ToolObservation(outcome=ECHO)
    place = await artifacts.put(to_json(observation).encode())
    fence = BARE.model_copy(update={"stored": place} if stored else {"outcome": observation})
    async with serving(client, gate.tool, artifacts=artifacts) as stage:
        call = await stage.start()
        await gate.reached.wait()
        await _again(call, Heartbeat(fence=fence))
        assert (await call.ended()).outcome == ECHO
        gate.open.set()
    assert len(gate.tool.calls) == 1


async def test_a_second_try_without_a_fence_runs(client: Client) -> None:
    """A try that finds a beat without a fence knows that nothing began."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        await _again(call, Heartbeat())
        gate.open.set()
        assert (await call.ended()).outcome == ECHO
    assert len(gate.tool.calls) == 2


async def test_a_second_try_that_cannot_read_the_record_does_not_run(client: Client) -> None:
    """Details that nobody understands may hide a fence."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        fault = ApplicationError("try again", next_retry_delay=timedelta(milliseconds=1))
        await call.activity.fail(fault, last_heartbeat_details=[{"v": 9}])
        assert isinstance((await call.ended()).outcome, UnknownEffect)
        gate.open.set()
    assert len(gate.tool.calls) == 1


class OddArtifacts(MemoryArtifacts):
    """A store that gives other bytes for one digest, and is away when it is first asked for another."""

    away_once = ""

    async def get(self, digest: str) -> bytes:
        """What the digest stands for here."""
        if digest == sha256(b"other"):
            return b"something else"
        if digest == self.away_once:
            self.away_once = ""
            raise OSError("the disk is away")
        return await super().get(digest)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"missing", "does not hold"), (b"other", "other bytes"), (b"no outcome", "is no outcome")],
)
async def test_an_outcome_that_cannot_be_read_is_unknown(client: Client, content: bytes, sentence: str) -> None:
    """What is stored nowhere, or is something else, is an unknown effect that names it, and nothing runs."""
    gate, artifacts = Gate(), OddArtifacts()
    await artifacts.put(b"no outcome")
    async with serving(client, gate.tool, artifacts=artifacts) as stage:
        outcome = (await (await stage.start(recorded=sha256(content))).ended()).outcome
    assert isinstance(outcome, UnknownEffect)
    assert sentence in outcome.message
    assert sha256(content) in outcome.message
    assert gate.tool.calls == []


async def test_a_store_that_is_away_is_asked_again(client: Client) -> None:
    """A store that cannot be read now is asked again by the server."""
    gate, artifacts = Gate(), OddArtifacts()
    observation = ToolObservation(outcome=ECHO)
    stored = artifacts.away_once = await artifacts.put(to_json(observation).encode())
    async with serving(client, gate.tool, artifacts=artifacts) as stage:
        call = await stage.start(recorded=stored)
        assert (await call.ended()).outcome == ECHO
    assert artifacts.away_once == ""
    assert gate.tool.calls == []


# -- what people do to activities --------------------------------------------------------------------------------------


async def _pause(call: Call) -> None:
    execution = WorkflowExecution(workflow_id=call.handle.id)
    request = PauseActivityRequest(namespace=call.client.namespace, execution=execution, id="call", reason="a test")
    await call.client.workflow_service.pause_activity(request)


async def _reset(call: Call) -> None:
    execution = WorkflowExecution(workflow_id=call.handle.id)
    request = ResetActivityRequest(namespace=call.client.namespace, execution=execution, id="call")
    await call.client.workflow_service.reset_activity(request)


async def _three_beats(call: Call) -> None:
    """Time for the SDK to hear of a pause or reset, which it does with a beat."""
    for _ in range(3):
        last = await _last_beat(call)
        await until(partial(_beaten_after, call, last), "another beat is recorded")


async def _last_beat(call: Call) -> int:
    (pending,) = (await call.handle.describe()).raw_description.pending_activities
    return pending.last_heartbeat_time.ToNanoseconds()


async def _beaten_after(call: Call, moment: int) -> bool:
    return await _last_beat(call) > moment


@pytest.mark.parametrize("interfere", [_pause, _reset])
async def test_a_call_behind_its_fence_is_not_stopped_by_a_pause_or_reset(
    client: Client, interfere: Callable[[Call], Awaitable[None]]
) -> None:
    """A person who pauses or resets the activity does not make its effect unknown: the call ends, once."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await interfere(call)
        await _three_beats(call)
        assert not gate.told.is_set()
        gate.open.set()
        assert (await call.ended()).outcome == ECHO
    assert len(gate.tool.calls) == 1


async def test_a_call_without_a_fence_is_paused(client: Client) -> None:
    """A call that may run again stops when somebody pauses the activity, and runs again when it goes on."""
    gate = Gate(PURE)
    async with serving(client, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await _pause(call)
        await gate.told.wait()
        gate.open.set()
        execution = WorkflowExecution(workflow_id=call.handle.id)
        await client.workflow_service.unpause_activity(
            UnpauseActivityRequest(namespace=client.namespace, execution=execution, id="call")
        )
        assert (await call.ended()).outcome == ECHO
    assert len(gate.tool.calls) == 2


# -- our own faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("idempotency", "fence"), [(NON_IDEMPOTENT, BARE), (PURE, None)])
async def test_an_error_of_ours_tells_the_fence(
    client: Client, idempotency: ToolIdempotency, fence: Fence | None
) -> None:
    """Whatever breaks in the worker itself, the run learns whether the effect may have happened."""

    class Broken(ContextItems):
        def put(self, item: Item) -> WrittenItem:
            raise ZeroDivisionError(f"no {item.kind}")

    async with serving(client, RecordingTool("echo", idempotency=idempotency), items=Broken()) as stage:
        ended = await (await stage.start()).ended()
    assert ended.failure == names.ERROR_BROKEN
    assert ended.fence == fence
