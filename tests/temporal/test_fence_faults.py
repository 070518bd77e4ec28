"""What fails around a tool call: a payload codec, the line to the server, the artifact store, the worker itself."""

import asyncio
import time
from functools import partial

import pytest
from temporalio.client import Client
from temporalio.service import RPCStatusCode

from orchestral_temporal.core.limits import CALLS_PER_TURN, FENCE_OUTCOME_BYTES
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.activities import Heartbeat
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.tools import Rejected, UnknownEffect
from orchestral_temporal.temporal import names
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from tests.temporal.one_call import (
    A_FENCE,
    BARE,
    BIG,
    ECHO,
    NO_FENCE,
    NON_IDEMPOTENT,
    OUTCOME,
    PURE,
    Away,
    Call,
    Gate,
    Held,
    Line,
    behind,
    big,
    serving,
)
from tests.temporal.world import RecordingTool, until

pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")

BEAT, LOOK, COMPLETE = (
    "record_activity_task_heartbeat",
    "describe_workflow_execution",
    "respond_activity_task_completed",
)


# -- the payload codec -------------------------------------------------------------------------------------------------


async def test_a_codec_that_is_away_while_the_tool_works_stops_nothing(client: Client) -> None:
    """The call goes on past the SDK's own patience of five seconds, and its server waits: our beats need no codec."""
    codec, gate = Away(A_FENCE, away=False), Gate()
    async with serving(behind(codec, client), gate.tool) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        codec.away = True
        await until(lambda: codec.failed >= 28, "four beats a second fail for seven seconds")
        assert not gate.told.is_set()
        assert not gate.yielding()
        gate.open.set()
        assert (await call.ended()).outcome == ECHO
        assert await call.signalled() == []
    assert len(gate.tool.calls) == 1


async def test_a_call_that_was_stopped_though_its_codec_is_away_still_stops(client: Client) -> None:
    """After beats that could not be encoded, a stopping worker gives the call back as ever (F088)."""
    codec, gate = Away(A_FENCE, away=False), Gate()
    async with serving(behind(codec, client), gate.tool) as stage:
        call = await stage.start(heartbeat_ms=2_000)
        await gate.reached.wait()
        codec.away = True
        await until(lambda: codec.failed >= 2, "two beats fail")
        codec.away = False
        await stage.worker.shutdown()
        assert gate.told.is_set()
        ended = await call.ended()
    assert (ended.failure, ended.fence) == (names.ERROR_ABANDONED, BARE)


async def test_an_outcome_waits_for_its_codec(client: Client) -> None:
    """An outcome that cannot be encoded is encoded again, and nobody takes the call for broken."""
    codec, gate = Away(OUTCOME), Gate()
    async with serving(behind(codec, client), gate.tool) as stage:
        call = await stage.start()
        await gate.reached.wait()
        gate.open.set()
        await until(lambda: codec.failed >= 2, "the outcome is encoded again")
        codec.away = False
        assert (await call.ended()).outcome == ECHO
    assert len(gate.tool.calls) == 1


async def test_a_fence_waits_for_its_codec(client: Client) -> None:
    """A key service that is away for a moment before the fence delays the call."""
    codec, gate = Away(A_FENCE), Gate()
    async with serving(behind(codec, client), gate.tool) as stage:
        call = await stage.start()
        await until(lambda: codec.failed >= 2, "the fence is encoded again")
        assert not gate.reached.is_set()
        codec.away = False
        gate.open.set()
        assert (await call.ended()).outcome == ECHO
    assert len(gate.tool.calls) == 1


async def test_a_codec_that_is_broken_for_ever_lets_nothing_run(client: Client) -> None:
    """Where a fence can never be encoded the call is broken, for certain without an effect (E4)."""
    codec, gate = Away(A_FENCE), Gate()
    async with serving(behind(codec, client), gate.tool) as stage:
        ended = await (await stage.start(heartbeat_ms=6_000)).ended()
    assert (ended.failure, ended.fence) == (names.ERROR_BROKEN, None)
    assert codec.failed >= 2
    assert gate.tool.calls == []


async def test_a_call_without_a_fence_goes_on_without_its_codec(client: Client) -> None:
    """Beats that cannot be encoded are late beats: the call is not run a second time."""
    codec, gate = Away(NO_FENCE), Gate(PURE)
    async with serving(behind(codec, client), gate.tool) as stage:
        call = await stage.start(heartbeat_ms=4_000)
        await until(lambda: codec.failed >= 2, "two beats fail")
        assert not gate.told.is_set()
        codec.away = False
        gate.open.set()
        assert (await call.ended()).outcome == ECHO
    assert len(gate.tool.calls) == 1


# -- the line to the server --------------------------------------------------------------------------------------------


async def _waiting(stage_call: Call, gate: Gate, held: Held, line: Line) -> None:
    """The gate opens while a beat without the fence is still on its way; the worker looks what the server has."""
    await held.asked.wait()
    gate.reached.clear()
    assert await stage_call.at_worker()
    looks = line.asked[LOOK]
    gate.open.set()
    await until(lambda: line.asked[LOOK] >= looks + 3, "the worker looks three times what the server has")
    assert not gate.reached.is_set()


async def test_a_beat_before_the_fence_cannot_take_it_back(client: Client) -> None:
    """Where beats went out before the fence, the tool begins only when none of them is left on its way."""
    (line, lined), held, gate = Line.of(client), Held(NO_FENCE), Gate(serial=True)
    async with serving(behind(held, lined), gate.tool) as stage, held:
        first = await stage.start()
        await gate.reached.wait()
        second = await stage.start(heartbeat_ms=4_000)
        await _waiting(second, gate, held, line)
        held.open.set()
        await gate.reached.wait()
        assert (await first.ended()).outcome == ECHO
        assert (await second.ended()).outcome == ECHO
        assert await second.signalled() == []
    assert len(gate.tool.calls) == 2


async def test_a_call_that_is_given_up_while_its_fence_overtakes_does_not_begin(client: Client) -> None:
    """Given up before the fence is seen on record, nothing runs, and the run is told so (E4)."""
    (line, lined), held, gate = Line.of(client), Held(NO_FENCE), Gate(serial=True)
    async with serving(behind(held, lined), gate.tool) as stage, held:
        await stage.start()
        await gate.reached.wait()
        second = await stage.start(heartbeat_ms=4_000)
        await _waiting(second, gate, held, line)
        await second.give_up()
        assert await _nothing_ran(second)
    assert len(gate.tool.calls) == 1


async def _nothing_ran(call: Call) -> bool:
    told = await call.settled()
    assert told.outcome is not None
    outcome = told.outcome.outcome
    return isinstance(outcome, Rejected) and outcome.code == "not_started"


@pytest.mark.parametrize("heartbeat_ms", [20_000, 1_000], ids=["our beat is refused", "the SDK is refused first"])
async def test_a_fence_whose_answer_is_lost_leaves_nothing_unknown(client: Client, heartbeat_ms: int) -> None:
    """The server has the fence, its worker does not know, and then it is given up: the run hears that nothing ran."""
    (line, lined), gate = Line.of(client), Gate()
    line.faults[BEAT] = RPCStatusCode.UNAVAILABLE
    async with serving(lined, gate.tool) as stage:
        call = await stage.start(heartbeat_ms=heartbeat_ms)
        await until(lambda: line.asked[BEAT] >= 1, "the fence is sent")
        assert await call.beat() == Heartbeat(fence=BARE)
        await call.give_up()
        if heartbeat_ms == 1_000:
            await until(call.told, "the run hears that the call is not done with")
        line.faults.clear()
        assert await _nothing_ran(call)
    assert gate.tool.calls == []


async def test_an_outcome_that_is_refused_as_it_is_stands_in_the_failure(client: Client) -> None:
    """What the server does not take as a result reaches the run as the fence of a broken call."""
    line, lined = Line.of(client)
    line.faults[COMPLETE] = RPCStatusCode.INVALID_ARGUMENT
    async with serving(lined, RecordingTool("big", big, idempotency=NON_IDEMPOTENT)) as stage:
        ended = await (await stage.start()).ended()
    assert ended.failure == names.ERROR_BROKEN
    assert ended.fence is not None
    assert ended.fence.stored is not None


# -- the artifact store ------------------------------------------------------------------------------------------------


def test_late_outcomes_of_a_turn_fit_one_request() -> None:
    """All calls of a turn may report late, and the next model request carries what they said: half of 2 MiB."""
    assert CALLS_PER_TURN * FENCE_OUTCOME_BYTES <= 2**20


class Store(MemoryArtifacts):
    """A store that takes nothing while it is away."""

    away, tries = True, 0

    async def put(self, data: bytes) -> str:
        """Take it, or not."""
        if self.away:
            self.tries += 1
            raise OSError("the disk is away")
        return await super().put(data)


class LongAnswer(Gate):
    """A tool with a long answer, whose work waits until the test lets it go on."""

    async def _work(self, arguments: JsonObject, call: ToolCall) -> Json:
        await super()._work(arguments, call)
        return await big(arguments, call)


async def test_a_long_outcome_waits_for_its_store(client: Client) -> None:
    """While the store is away the run hears that the call is at work, and then where its outcome is."""
    gate, store = LongAnswer(), Store()
    async with serving(client, gate.tool, artifacts=store) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        await call.give_up()
        gate.open.set()
        await until(partial(_at_work_twice, call), "the run hears twice that the call is at work")
        assert store.tries >= 2
        store.away = False
        told = await call.settled()
        assert told.outcome is None
        recorded = await stage.start(recorded=told.stored)
        assert (await recorded.ended()).outcome == BIG


async def _at_work_twice(call: Call) -> bool:
    return [each.told for each in await call.signalled()] == [False, False]


@pytest.mark.parametrize("lost", [True, False], ids=["lost call", "server away"])
async def test_a_worker_stops_though_a_store_is_away(client: Client, *, lost: bool) -> None:
    """An outcome that cannot be kept holds up no worker that stops, and nothing of the call is left behind in it."""
    (line, lined), gate, store = Line.of(client), LongAnswer(), Store()
    async with serving(lined, gate.tool, artifacts=store) as stage:
        call = await stage.start()
        await gate.reached.wait()
        if lost:
            await call.give_up()
        else:
            line.faults[COMPLETE] = RPCStatusCode.UNAVAILABLE
        gate.open.set()
        await until(lambda: bool(store.tries if lost else line.asked[COMPLETE]), "the outcome is on its way")
        begun = time.monotonic()
        await stage.worker.shutdown()
        assert time.monotonic() - begun < 5
        assert [each for each in asyncio.all_tasks() if "_attempt" in repr(each)] == []


# -- the worker itself -------------------------------------------------------------------------------------------------


async def test_whatever_breaks_beside_a_call_leaves_no_tool_at_work(client: Client) -> None:
    """A fault of the heartbeat itself ends the call on record, behind its fence, and its tool is told (E4)."""
    gate, broken = Gate(), asyncio.Event()

    def clock() -> float:
        if broken.is_set():
            raise ZeroDivisionError
        return 0.0

    async with serving(client, gate.tool, clock=clock) as stage:
        call = await stage.start(heartbeat_ms=1_000)
        await gate.reached.wait()
        broken.set()
        ended = await call.ended()
        assert gate.told.is_set()
    assert (ended.failure, ended.fence) == (names.ERROR_BROKEN, BARE)


async def test_a_tool_without_a_deadline_gets_its_activitys(client: Client) -> None:
    """Ten seconds before start-to-close the worker ends the call itself, and says that nobody knows (decision 15)."""
    gate = Gate()
    async with serving(client, gate.tool) as stage:
        outcome = (await (await stage.start(seconds=11)).ended()).outcome
        assert gate.told.is_set()
    assert isinstance(outcome, UnknownEffect)
    assert "did not answer within" in outcome.message
