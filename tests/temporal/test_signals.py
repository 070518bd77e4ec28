"""Signals, updates and queries by strangers: whatever comes, the run goes on and says what it refused."""

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.update.v1 import Input, Meta, Request
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest, UpdateWorkflowExecutionRequest
from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import Cancel, seal_command
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import ContinuityUnknown, RunHandle
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, json_payload, payload, plan, says, until

CANCEL = '{"command_id": "c1"}'
DEEP = "[" * 5_000 + "]" * 5_000


def malformed(run_id: str) -> Mapping[str, tuple[str, Sequence[Payload]]]:
    """Signals of every malformed kind: name and payloads."""
    good = dump(seal_command("c1", run_id, Cancel(reason="why")))
    foreign = dump(seal_command("c1", "another-run", Cancel(reason="why")))
    return {
        "no payload": ("cancel", ()),
        "two payloads": ("cancel", (payload(CANCEL), payload(CANCEL))),
        "text": ("cancel", (payload('"stop"'),)),
        "number": ("cancel", (payload("1"),)),
        "null": ("cancel", (payload("null"),)),
        "list": ("cancel", (payload(f"[{CANCEL}]"),)),
        "no JSON": ("cancel", (payload("stop!"),)),
        "no UTF-8": ("cancel", (payload(b'{"reason": "\xff\xfe"}'),)),
        "half a surrogate pair": ("cancel", (payload('{"reason": "\\ud800"}'),)),
        "the same in an id": ("cancel", (payload('{"command_id": "\\udfff"}'),)),
        "the same in bytes": ("steer", (payload(b'{"text": "\xed\xa0\x80"}'),)),
        "NaN": ("cancel", (payload('{"reason": NaN}'),)),
        "deep": ("cancel", (payload(DEEP),)),
        "too large": ("cancel", (payload(json.dumps({"reason": "x" * 1_900_000})),)),
        "empty id": ("cancel", (payload('{"command_id": ""}'),)),
        "long id": ("cancel", (payload(json.dumps({"command_id": "x" * 10_000})),)),
        "other encoding": ("cancel", (payload(CANCEL, "binary/plain"),)),
        "no encoding": ("cancel", (payload(CANCEL, None),)),
        "encrypted": ("cancel", (payload(b"\x00\x01", "binary/encrypted"),)),
        "unknown field": ("cancel", (payload('{"commandId": "c1"}'),)),
        "wrong type": ("cancel", (payload('{"command_id": 7}'),)),
        "blank reason": ("cancel", (payload('{"reason": " "}'),)),
        "unknown name": ("stop_now", (payload(CANCEL),)),
        "long name": ("x" * 900, (payload(CANCEL),)),
        "no text": ("steer", (payload('{"command_id": "c1"}'),)),
        "a steer's unknown field": ("steer", (payload('{"text": "go left", "words": "go left"}'),)),
        "an answer to nothing": ("resolve_request", (payload('{"answer": "left"}'),)),
        "no envelope": ("command", (payload(CANCEL),)),
        "an envelope's unknown field": ("command", (json_payload({**good, "urgent": True}),)),
        "wrong digest": ("command", (json_payload({**good, "command_digest": "0" * 64}),)),
        "another run's": ("command", (json_payload(foreign),)),
        "a tool worker's": ("outcome", (payload("{}"),)),
    }


async def send(world: World, run_id: str, name: str, payloads: Sequence[Payload]) -> None:
    """Send a signal as any other client would."""
    await world.client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=world.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run_id),
            signal_name=name,
            input=Payloads(payloads=payloads),
        )
    )


class Gate:
    """A tool that waits until it is let go, so that a run stays open."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.tool = RecordingTool("gate", self._wait, timeout_ms=None)

    async def _wait(self, _arguments: JsonObject, _call: ToolCall) -> Json:
        self.reached.set()
        await self.open.wait()
        return "open"


async def refused(run: RunHandle) -> list[JsonObject]:
    """What the run's view says it refused."""
    seen = (await run.look())["refused"]
    assert isinstance(seen, list)
    return [each for each in seen if isinstance(each, dict)]


async def test_malformed_signals_stand_as_refused_and_stop_nothing(world: World) -> None:
    """Every malformed signal is shown as refused, with a reason, and the run is delivered all the same (F134)."""
    gate = Gate()
    model = ScriptedModel([calls(("gate", {})), says("went on")])
    bad = malformed(world.id("r"))
    async with world.serving(plan(model, gate.tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(gate.reached.is_set, "the tool is at work")
        for name, payloads in bad.values():
            await send(world, run.run_id, name, payloads)
        await until(lambda: _count(run, len(bad)), "all refusals are shown")
        shown = await refused(run)
        gate.open.set()
        turn = await run.wait()

    assert [each["name"] for each in shown] == [name[:80] for name, _ in bad.values()]
    for each in shown:
        assert isinstance(each["reason"], str)
        assert 10 < len(each["reason"]) <= 500
        assert "\n" not in each["reason"]
    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "went on")
    assert turn.result["acks"] == []


async def _count(run: RunHandle, wanted: int) -> bool:
    return len(await refused(run)) == wanted


async def test_malformed_signals_with_the_temporal_cli(world: World) -> None:
    """By the Temporal CLI no argument, two and a JSON string are shown as refused; one that is right cancels (F134)."""
    gate = Gate()
    inputs = [[], ["--input", CANCEL, "--input", CANCEL], ["--input", json.dumps(CANCEL)]]
    async with world.serving(plan(ScriptedModel([calls(("gate", {})), says("never")]), gate.tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(gate.reached.is_set, "the tool is at work")
        for given in inputs:
            printed = await world.cli("workflow", "signal", "-w", run.run_id, "--name", "cancel", *given)
            assert printed.code == 0
        await until(lambda: _count(run, 3), "three refusals are shown")
        await world.cli("workflow", "signal", "-w", run.run_id, "--name", "cancel", "--input", CANCEL)
        turn = await run.wait()

    assert turn.status is AgentRunStatus.CANCELLED


async def test_signals_before_the_first_task_are_kept_in_order(world: World) -> None:
    """What arrives before any worker is there is judged when one comes, the good and the bad in their order."""
    model = ScriptedModel([says("never")])
    run = await world.start_payloads(world.id("r"), payload('{"input": "go"}'))
    await send(world, run.run_id, "cancel", [payload("stop!")])
    await send(world, run.run_id, "nonsense", [payload("{}")])
    await send(world, run.run_id, "cancel", [payload(CANCEL)])
    async with world.serving(plan(model)):
        turn = await run.wait()
        history = await world.read(run.run_id)

    assert turn.status is AgentRunStatus.CANCELLED
    assert history.state is not None
    assert [each.name for each in history.state.refusals] == ["cancel", "nonsense"]


async def test_malformed_updates_are_refused_without_a_trace(world: World) -> None:
    """An update that is no command of this run is rejected, typed, and leaves no event in the history."""
    gate = Gate()
    foreign = dump(seal_command("c1", "another-run", Cancel(reason="why")))
    bad: list[tuple[str, list[Json]]] = [
        ("submit", []),
        ("submit", [1]),
        ("submit", [{}, {}]),
        ("submit", [{"command_id": "c1"}]),
        ("submit", [foreign]),
        ("nonsense", [{}]),
    ]
    async with world.serving(plan(ScriptedModel([calls(("gate", {})), says("went on")]), gate.tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(gate.reached.is_set, "the tool is at work")
        handle = world.client.get_workflow_handle(run.run_id)
        before = (await handle.describe()).history_length
        for name, args in bad:
            with pytest.raises(WorkflowUpdateFailedError) as rejected:
                await handle.execute_update(name, args=args)
            assert isinstance(rejected.value.cause, ApplicationError)
            assert rejected.value.cause.type in ("invalid_spec", "run_id_conflict")
        after = (await handle.describe()).history_length
        gate.open.set()
        turn = await run.wait()

    assert after == before
    assert turn.text == "went on"


async def test_an_update_of_three_megabytes_is_refused(world: World) -> None:
    """The server refuses it at the door, our client before that; the run goes on."""
    gate = Gate()
    huge = json_payload({"text": "x" * 3_000_000})
    async with world.serving(plan(ScriptedModel([calls(("gate", {})), says("went on")]), gate.tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await until(gate.reached.is_set, "the tool is at work")
        with pytest.raises(RPCError) as raw:
            await world.client.workflow_service.update_workflow_execution(
                UpdateWorkflowExecutionRequest(
                    namespace=world.client.namespace,
                    workflow_execution=WorkflowExecution(workflow_id=run.run_id),
                    request=Request(
                        meta=Meta(update_id=str(uuid.uuid4())),
                        input=Input(name=names.UPDATE_SUBMIT, args=Payloads(payloads=[huge])),
                    ),
                )
            )
        with pytest.raises(ProtocolError) as ours:
            await run.steer("x" * 3_000_000)
        gate.open.set()
        turn = await run.wait()

    assert raw.value.status in (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.INVALID_ARGUMENT)
    assert ours.value.error.code is AgentProtocolErrorCode.INVALID_SPEC
    assert (turn.text, turn.result["acks"]) == ("went on", [])


async def test_a_command_to_a_run_that_takes_none_is_refused(world: World) -> None:
    """A run that never was, one whose start was refused, one that has ended: each has its code."""
    async with world.serving(plan(ScriptedModel([says("done")]))):
        await (await world.runs.start("go", run_id=world.id("refused"), agent="nobody")).wait()
        await world.runs.run_text("go", run_id=world.id("ended"))
        codes = {name: await code_of_a_cancel(world.runs.run(world.id(name))) for name in ("never", "refused", "ended")}

    assert codes == {
        "never": AgentProtocolErrorCode.RUN_NOT_FOUND,
        "refused": AgentProtocolErrorCode.TERMINAL_RUN,
        "ended": AgentProtocolErrorCode.TERMINAL_RUN,
    }


async def code_of_a_cancel(run: RunHandle) -> AgentProtocolErrorCode:
    """How a run refuses a cancel."""
    with pytest.raises(ProtocolError) as refusal:
        await run.cancel("enough")
    return refusal.value.error.code


async def test_malformed_queries_get_an_error_and_harm_nothing(world: World) -> None:
    """A query with a wrong name or argument fails for its sender alone; one before the run is accepted says so."""
    run = await world.start_payloads(world.id("r"), payload('{"input": "go", "agent": "slow"}'))
    handle = world.client.get_workflow_handle(run.run_id)
    bad: list[tuple[str, list[Json]]] = [
        ("nonsense", []),
        ("events", [{"after": "x"}]),
        ("events", [{"after": -1}]),
        ("events", [{"limit": 501}]),
        ("events", ["x"]),
        ("inspect", [{}, {}]),
        ("command_ack", [{"command_id": "unknown"}]),
    ]
    gate = Gate()
    async with world.serving(plan(ScriptedModel([calls(("gate", {})), says("went on")]), gate.tool, name="slow")):
        await until(gate.reached.is_set, "the tool is at work")
        for name, args in bad:
            with pytest.raises(WorkflowQueryFailedError) as failed:
                await handle.query(name, *args) if len(args) < 2 else await handle.query(name, args=args)
            assert "Traceback" not in str(failed.value)
        gate.open.set()
        turn = await run.wait()

    assert turn.text == "went on"


async def test_run_that_is_not_accepted_yet_says_so(world: World) -> None:
    """While nothing has bound the run, a query and the client's look say so; later the run is delivered."""
    run = await world.start_payloads(world.id("r"), payload('{"input": "go"}'))
    handle = world.client.get_workflow_handle(run.run_id)
    async with world.only_workflows():
        with pytest.raises(WorkflowQueryFailedError, match="not accepted yet"):
            await handle.query(names.QUERY_INSPECT)
        with pytest.raises(ContinuityUnknown, match="not accepted yet"):
            await run.look()
    async with world.serving(plan(ScriptedModel([says("done")]))):
        turn = await run.wait()

    assert turn.text == "done"
