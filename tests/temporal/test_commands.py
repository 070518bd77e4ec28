"""Commands as people send them: more than once, out of order, at the last moment, too late, over a line that breaks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest
from temporalio.client import Client
from temporalio.service import RetryConfig, RPCError, RPCStatusCode

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import (
    INPUT_QUEUE,
    AgentCommandEnvelope,
    Cancel,
    ResolveRequest,
    seal_command,
)
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.model import ModelRequest, ToolCallPart, ToolResultPart
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolConcurrency, ToolIdempotency
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import commanding, names
from orchestral_temporal.temporal.client import AgentClient, ContinuityUnknown, RunHandle, Turn
from orchestral_temporal.temporal.converter import DATA_CONVERTER
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.held import HeldModel
from tests.temporal.relay import Relay
from tests.temporal.test_delivery import types
from tests.temporal.test_questions import ASK, listed, pending
from tests.temporal.test_signals import Gate, refused
from tests.temporal.test_steering import envelope, heard, inputs, submit
from tests.temporal.world import RecordingTool, World, calls, case, plan, says, until

TERMINAL = AgentProtocolErrorCode.TERMINAL_RUN


def acks(turn: Turn) -> dict[str, str]:
    """How each command of a run stands in its result."""
    return {each["command_id"]: each["state"]["state"] for each in turn.result["acks"]}  # type: ignore[union-attr, index, call-overload] -- JSON of ours


def queue_operation(run: RunHandle, command_id: str, op: str, text: str = "-", target: str | None = None) -> JsonObject:
    """A command of the input queue, in its full form."""
    operation: JsonObject = {"operation": op} if target is None else {"operation": op, "target": target}
    return dump(envelope(run, command_id, text, {INPUT_QUEUE: operation}))


def changed(command: AgentCommandEnvelope) -> AgentCommandEnvelope:
    """Another command under the same id."""
    return seal_command(
        command.command_id,
        command.run_id,
        command.payload,
        request_id=command.request_id,
        extensions={"test/changed": True},
    )


class Stubborn:
    """A tool that was told to stop and goes on until it is let go."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.tool = RecordingTool("stubborn", self._work, timeout_ms=None)

    async def _work(self, _arguments: JsonObject, _call: ToolCall) -> Json:
        self.reached.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            await self.open.wait()
        return "at last"


async def test_a_signal_is_one_command_however_often_it_is_sent(world: World) -> None:
    """Steer, answer and cancel, each twice and once with other content: three commands, three refusals (C1)."""
    tool = Stubborn()
    model = ScriptedModel([calls(ASK), calls(("stubborn", {})), says("never")])
    async with world.serving(plan(model, tool.tool, input_requests=True)):
        run = await world.runs.start("go", run_id=world.id("r"))
        handle = world.client.get_workflow_handle(run.run_id)

        async def send(command: AgentCommandEnvelope, refusals: int) -> None:
            for each in (command, command, changed(command)):
                await handle.signal(names.SIGNAL_COMMAND, dump(each))
            await until(lambda: _refused(run, refusals), "the changed one is refused")

        await until(lambda: listed(world, [run.run_id]), "the run asks")
        (asked,) = await pending(run)
        await send(envelope(run, "s1", "hurry"), 1)
        answer = ResolveRequest(response=InputResolution(content=(text_content("Number 7."),)))
        await send(seal_command("a1", run.run_id, answer, request_id=asked), 2)
        await until(tool.reached.is_set, "the tool is at work")
        await send(seal_command("c1", run.run_id, Cancel(reason="enough")), 3)
        shown = await refused(run)
        tool.open.set()
        turn = await run.wait()

    assert turn.status is AgentRunStatus.CANCELLED
    assert acks(turn) == dict.fromkeys(("s1", "a1", "c1"), "applied")
    assert all(str(each["reason"]).startswith("duplicate_conflict") for each in shown)
    once = ("command_received", "command_disposition_recorded")
    assert [types(turn.result["journal"]).count(kind) for kind in once] == [3, 3]
    assert inputs(turn) == [("hurry", "s1")]


async def _refused(run: RunHandle, count: int) -> bool:
    return len(await refused(run)) == count


async def test_fifty_steers_sent_three_times_are_fifty(world: World) -> None:
    """Shuffled, by signal and update: committed in the order of first arrival, each with one ack (C1, B7, F032)."""
    gate = Gate()
    model = ScriptedModel([calls(("gate", {})), says("done")])
    steers = 50 if world.cached else 15
    numbers = [number for number in range(steers) for _ in range(3)]
    Random(32).shuffle(numbers)  # noqa: S311 -- the same order each time
    told: dict[str, list[JsonObject]] = {}
    async with world.serving(plan(model, gate.tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(gate.reached.is_set, "the tool is at work")
        handle = world.client.get_workflow_handle(run.run_id)
        for number in numbers:
            command = envelope(run, f"s{number}", f"step {number}")
            if number < 5:
                told.setdefault(command.command_id, []).append(await submit(world, run, command))
            else:
                await handle.signal(names.SIGNAL_COMMAND, dump(command))
        with pytest.raises(ProtocolError) as odd:
            await run.steer("something else", command_id="s7")
        gate.open.set()
        turn = await run.wait()

    arrived = [(f"step {number}", f"s{number}") for number in dict.fromkeys(numbers)]
    assert inputs(turn) == arrived
    assert heard(model.requests[-1]) == ["go", *(text for text, _ in arrived)]
    assert odd.value.error.code is AgentProtocolErrorCode.DUPLICATE_CONFLICT
    for first, *others in told.values():
        assert first["duplicate"] is False
        assert others == [{**first, "duplicate": True}] * 2
    assert types(turn.result["journal"]).count("command_received") == steers


async def test_an_acknowledgement_can_be_asked_for_later(world: World) -> None:
    """Accepted, applied and rejected: while the run goes on by query, and when it has ended from the result (C2)."""
    model = HeldModel(says("So far."), says("done"))
    async with world.serving(plan(model)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await model.holds(run.run_id)
        handle = world.client.get_workflow_handle(run.run_id)
        for operation in (
            queue_operation(run, "q1", "enqueue", "more"),
            queue_operation(run, "w1", "withdraw", target="q9"),
        ):
            await handle.signal(names.SIGNAL_COMMAND, operation)
        before = [(await run.ack(name)).state for name in ("q1", "w1")]
        model.let_go(run.run_id)
        await model.holds(run.run_id, 2)
        between = [(await run.ack(name)).state for name in ("q1", "w1")]
        model.let_go(run.run_id, 2)
        await run.wait()
        after = [(await run.ack(name)).state for name in ("q1", "w1")]
        with pytest.raises(ProtocolError) as never:
            await run.ack("q9")

    assert [each.state for each in before] == ["accepted", "rejected"]
    assert [each.state for each in between] == ["applied", "rejected"]
    assert before[0].recorded_seq == between[0].recorded_seq
    assert (before[1], between) == (after[1], after)
    assert never.value.error.code is AgentProtocolErrorCode.COMMAND_NOT_FOUND


async def test_the_input_queue_waits_for_the_boundary(world: World) -> None:
    """Each operation twice: the open attempt goes on, places are kept, late edits are rejected (C7, F035)."""
    given = case("F035")
    model = HeldModel(says("So far."), says("done"))
    first: dict[str, JsonObject] = {}
    async with world.serving(plan(model)):
        run = await world.runs.start("go", run_id=world.id("r"))
        handle = world.client.get_workflow_handle(run.run_id)
        for number, operations in enumerate((given["during_attempt"], given["after_boundary"]), 1):
            await model.holds(run.run_id, number)
            for each in operations:
                command = queue_operation(run, **each)
                sent = [
                    await handle.execute_update(names.UPDATE_SUBMIT, command, result_type=dict)
                    for _ in range(given["each_sent"])
                ]
                first[each["command_id"]] = sent[0]
                assert sent[1:] == [{**sent[0], "duplicate": True}]
            model.let_go(run.run_id, number)
        turn = await run.wait()

    wanted = given["expect"]["inputs"]
    assert inputs(turn) == [(each["text"], each["cause"]) for each in wanted]
    assert [heard(each) for each in model.requests] == [["go"], ["go", *(each["text"] for each in wanted)]]
    assert types(turn.result["journal"]).count("output_committed") == 1
    accepted, applied, late = ("c1", "c2", "c3", "c5"), ("c4", "c6"), ("c7", "c8", "c9")
    assert acks(turn) == {
        **dict.fromkeys(accepted, "accepted"),
        **dict.fromkeys(applied, "applied"),
        **dict.fromkeys(late, "rejected"),
    }
    assert [first[each]["state"]["code"] for each in late] == ["invalid_transition"] * 3  # type: ignore[index, call-overload] -- JSON of ours


RACES = 14
"""Runs in which a steer meets the last answer; the first is steered before the answer, the last after the end."""

STEP = 0.004
"""Seconds between the instants at which the others are steered, from that of the answer on."""


async def test_a_steer_at_the_last_moment_is_heard_or_refused(world: World) -> None:
    """Sent around the instant of the last answer it is in a later request, or its sender hears of the end (F031)."""
    model = HeldModel(says("So far."), says("done"))

    async def race(number: int) -> tuple[Turn, bool]:
        run = await world.runs.start("go", run_id=world.id(f"r{number}"))
        model.let_go(run.run_id, 2)
        await model.holds(run.run_id)
        if number == 0:
            assert await steered(world, run, by_signal=False)
        model.let_go(run.run_id)
        if number == 0:
            return await run.wait(), True
        await asyncio.sleep(STEP * number)
        if number == RACES - 1:
            await run.wait()
        taken = await steered(world, run, by_signal=number % 2 == 1)
        return await run.wait(), taken

    async with world.serving(plan(model)):
        ends = await asyncio.gather(*map(race, range(RACES)))

    for turn, taken in ends:
        asked = [each for each in model.asked if each.request_id.startswith(f"model-{turn.run_id}-")]
        was_heard = "wait" in heard(asked[-1])
        assert turn.status is AgentRunStatus.DELIVERED
        assert (acks(turn), inputs(turn)) == (({"s1": "applied"}, [("wait", "s1")]) if was_heard else ({}, []))
        assert taken or not was_heard
        if taken and not was_heard:  # a signal that came between the end and the last word
            state = (await world.read(turn.run_id)).state
            assert state is not None
            assert [each.reason.partition(":")[0] for each in state.refusals] == [TERMINAL]
    assert acks(ends[0][0]) == {"s1": "applied"}
    assert not ends[-1][1]


async def steered(world: World, run: RunHandle, *, by_signal: bool) -> bool:
    """Whether a steer was taken, as far as its sender hears; a signal that arrives is only left with the server."""
    try:
        if by_signal:
            value: JsonObject = {"command_id": "s1", "text": "wait"}
            await world.client.get_workflow_handle(run.run_id).signal(names.SIGNAL_STEER, value)
        else:
            await run.steer("wait", command_id="s1")
    except ProtocolError as fault:
        return fault.error.code is not TERMINAL
    except RPCError as fault:
        return fault.status is not RPCStatusCode.NOT_FOUND
    return True


async def test_a_cancel_that_comes_late_is_no_news(world: World) -> None:
    """Again after the end it is the same command, a new one is refused, and the session's next run delivers (F020)."""
    model = ScriptedModel([[{"hang": True}]])
    async with world.serving(plan(model), plan(ScriptedModel([says("next")]), name="other")):
        run = await world.runs.start("think", run_id=world.id("r1"), session_id=world.id("s"))
        await until(lambda: bool(model.requests), "the model is asked")
        await run.cancel("enough", command_id="c1")
        turn = await run.wait()
        known = await run.ack("c1")
        again = [await run.cancel("enough", command_id="c1") for _ in range(2)]
        refusals = []
        for reason, command_id in (("another reason", "c1"), ("enough", "c2")):
            with pytest.raises(ProtocolError) as refusal:
                await run.cancel(reason, command_id=command_id)
            refusals.append(refusal.value.error.code)
        follows = await world.runs.start("go", run_id=world.id("r2"), session_id=world.id("s"), agent="other")
        assert (await follows.wait()).text == "next"
        events = [each async for each in run.events()]

    assert turn.status is AgentRunStatus.CANCELLED
    assert (known.state.state, known.duplicate) == ("applied", True)
    assert again == [known, known]
    assert refusals == [AgentProtocolErrorCode.DUPLICATE_CONFLICT, TERMINAL]
    assert [dump(each) for each in events] == turn.result["journal"]


def unanswered(request: ModelRequest) -> list[str]:
    """The calls in a request that have not exactly one result directly after their message."""
    found = []
    for message, follows in zip(request.messages, [*request.messages[1:], None], strict=True):
        told = [each.call_id for each in follows.content if isinstance(each, ToolResultPart)] if follows else []
        made = [each.call_id for each in message.content if isinstance(each, ToolCallPart)]
        found.extend(each for each in made if told.count(each) != 1)
    return found


@pytest.mark.parametrize("idempotency", [ToolIdempotency.PURE, ToolIdempotency.NON_IDEMPOTENT])
async def test_a_cancelled_turn_leaves_the_session_whole(world: World, idempotency: ToolIdempotency) -> None:
    """One call done, one at work, one waiting: cancelled, and the next run sees no call without its result (F016)."""
    at_work = asyncio.Event()

    async def work(arguments: JsonObject, _call: ToolCall) -> Json:
        if arguments["n"] == 2:
            at_work.set()
            await asyncio.Event().wait()
        return "done"

    tool = RecordingTool("work", work, idempotency=idempotency, concurrency=ToolConcurrency.PER_RUN_SERIAL)
    model = ScriptedModel([calls(*(("work", {"n": number}) for number in (1, 2, 3))), says("never")])
    other = ScriptedModel([says("next")])
    async with world.serving(plan(model, tool), plan(other, tool, name="other")):
        run = await world.runs.start("go", run_id=world.id("r1"), session_id=world.id("s"))
        await until(at_work.is_set, "the tool is at work")
        await run.cancel("enough")
        turn = await run.wait()
        kinds = [record["payload"]["type"] for record in await world.records(world.id("s"))]  # type: ignore[index, call-overload] -- JSON of ours
        follows = await world.runs.start("and now", run_id=world.id("r2"), session_id=world.id("s"), agent="other")
        assert (await follows.wait()).text == "next"

    assert turn.status is AgentRunStatus.CANCELLED
    assert tool.calls == [{"n": 1}, {"n": 2}]
    unknown = ["effect_uncertainty_committed"] if idempotency is ToolIdempotency.NON_IDEMPOTENT else []
    assert kinds == ["run_input_committed", *unknown]
    assert unanswered(other.requests[0]) == []


@asynccontextmanager
async def far_away(world: World, way: Relay) -> AsyncGenerator[AgentClient]:
    """A client that reaches the server over a way, and soon hears that it does not."""
    async with way.serving() as address:
        hasty = RetryConfig(max_elapsed_time_millis=100, max_retries=1)
        client = await Client.connect(
            address, namespace=world.client.namespace, data_converter=DATA_CONVERTER, retry_config=hasty
        )
        yield AgentClient(client)


@pytest.mark.parametrize("arrives", [False, True], ids=["nothing passes", "no answer passes"])
async def test_a_command_over_a_broken_line_is_not_reported_as_done(
    world: World, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """Its sender hears that nobody knows: it has no effect unless it is on record, and sent again is one (B5)."""
    soon = timedelta(seconds=0.5)
    monkeypatch.setattr(commanding, "SIGNAL_TIMEOUT", soon)
    way, tool = Relay(world.address), Stubborn()
    model = ScriptedModel([calls(("stubborn", {})), says("never")])
    async with world.serving(plan(model, tool.tool)), far_away(world, way) as client:
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(tool.reached.is_set, "the tool is at work")
        far = client.run(run.run_id)
        await far.inspect()
        (way.silence if arrives else way.cut)()
        with pytest.raises(ContinuityUnknown, match="Nobody knows"):
            await far.cancel("enough", command_id="c1", patience=soon)
        received = [each.event.causation_id async for each in run.events()]
        way.mend()
        again = await far.cancel("enough", command_id="c1")
        tool.open.set()
        turn = await run.wait()

    assert ("c1" in received) is again.duplicate is arrives
    assert turn.status is AgentRunStatus.CANCELLED
    assert acks(turn) == {"c1": "applied"}
