"""One run, end to end: from a task to its answer, whoever asks and whoever looks."""

import asyncio
import json

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.delivery import AgentDelivery
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.run import AgentRunSpec, AgentStartRequest, ProtocolVersion, seal
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.runtime.agents import host
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import Turn
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, plan, says

PLAIN = ["run_accepted", "run_started", "output_committed", "delivery_committed"]


def types(journal: Json) -> list[str]:
    """The event types of a run journal in JSON."""
    assert isinstance(journal, list)
    return [record["event"]["payload"]["type"] for record in journal]


def without_empty_lists(value: Json) -> Json:
    """A JSON value as the Temporal CLI prints it: it shows every empty list as null."""
    if isinstance(value, dict):
        return {key: without_empty_lists(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_empty_lists(each) for each in value] or None
    return value


async def test_text_answer_is_delivered(world: World) -> None:
    """A streamed text answer becomes a delivery: four journal events, one inline text/plain string (A1)."""
    model = ScriptedModel([[{"text": "hello "}, {"text": "world"}, {"finish": "stop"}]])
    async with world.serving(plan(model)):
        run = await world.runs.start("greet", run_id=world.id("r"))
        turn = await run.wait()
        events = [each async for each in run.events()]

    assert turn.status is AgentRunStatus.DELIVERED
    assert [each.event.payload.type for each in events] == PLAIN
    assert [each.event.run_seq for each in events] == [1, 2, 3, 4]
    assert turn.view is not None
    assert turn.view.last_run_seq == 4
    assert isinstance(turn.view.delivery, AgentDelivery)
    assert turn.view.delivery.final_response == text_content("hello world")
    assert len(model.requests) == 1


async def test_client_cli_and_raw_reads_show_one_run(world: World) -> None:
    """The client's turn and view, the raw result and query, and what the Temporal CLI prints are the same run (A2)."""
    run_id = world.id("r")
    async with world.serving(plan(ScriptedModel([says("the answer")]))):
        turn = await world.runs.run_text("ask", run_id=run_id)
        view = await world.runs.run(run_id).inspect()
        raw = world.client.get_workflow_handle(run_id, result_type=dict)
        raw_result = await raw.result()
        raw_view = (await raw.query(names.QUERY_INSPECT, {}, result_type=dict))["view"]
        printed_result = await world.cli("workflow", "result", "-w", run_id, "-o", "json")
        printed_view = await world.cli("workflow", "query", "-w", run_id, "--type", "inspect", "-o", "json")
        described = await raw.describe()

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "the answer")
    assert view == turn.view
    assert raw_result == turn.result
    assert raw_view == turn.result["view"]
    closing = json.loads(printed_result.out)
    shown = closing["closeEvent"]["workflowExecutionCompletedEventAttributes"]["result"]
    assert shown == [without_empty_lists(turn.result)]
    assert json.loads(printed_view.out)["queryResult"][0]["view"] == without_empty_lists(turn.result["view"])
    assert closing["status"] == "COMPLETED"
    attributes = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert attributes[names.ATTRIBUTE_STATUS] == "delivered"
    assert attributes[names.ATTRIBUTE_SESSION] == run_id


async def test_client_and_raw_query_show_one_open_run(world: World) -> None:
    """While a tool works, the client's view equals that of a raw query, and both say the run goes on (A2)."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await go_on.wait()
        return "done"

    model = ScriptedModel([calls(("wait", {})), says("waited")])
    async with world.serving(plan(model, RecordingTool("wait", wait))):
        run = await world.runs.start("wait a little", run_id=world.id("r"))
        await at_work.wait()
        seen = await run.look()
        view = await run.inspect()
        handle = world.client.get_workflow_handle(run.run_id)
        raw = await handle.query(names.QUERY_INSPECT, result_type=dict)
        go_on.set()
        turn = await run.wait()

    assert raw == seen
    assert dump(view) == raw["view"]
    assert (raw["status"], raw["round"], raw["tool_calls"]) == ("running", 1, 1)
    assert turn.text == "waited"


async def test_every_surface_yields_the_same_run(world: World) -> None:
    """The client, the Temporal CLI and a full wire envelope yield the same event types, status and text (A3)."""
    agent = plan(ScriptedModel([calls(("echo", {"value": 1})), says("same")]), RecordingTool("echo"))
    hosted = host(agent, world.client.namespace).run
    assert hosted is not None
    full_id = world.id("full")
    spec = AgentRunSpec(
        protocol_version=ProtocolVersion(major=1, minor=0),
        session_id=full_id,
        run_id=full_id,
        input=(text_content("do it"),),
        limits=RunLimits(),
    )
    request = AgentStartRequest(
        run=seal(spec),
        provider_binding=hosted.binding_ref,
        expected_descriptor_digest=hosted.descriptor.descriptor_digest,
    )
    async with world.serving(agent):
        by_client = await world.runs.run_text("do it", run_id=world.id("client"))
        by_envelope = await (await world.runs.start_raw(dump(request), full_id)).wait()
        started = await start_by_cli(world, world.id("cli"), {"input": "do it"})
        by_cli = await world.runs.run(world.id("cli")).wait()

    assert started == 0
    turns: list[Turn] = [by_client, by_envelope, by_cli]
    assert [types(turn.result["journal"]) for turn in turns] == [PLAIN] * 3
    assert {turn.status for turn in turns} == {AgentRunStatus.DELIVERED}
    assert {turn.text for turn in turns} == {"same"}


async def test_temporal_cli_starts_a_run_and_reads_its_result(world: World) -> None:
    """`temporal workflow start --type AgentRun` with the short form runs an agent; its result is plain JSON."""
    run_id = world.id("r")
    async with world.serving(plan(ScriptedModel([says("a readable answer")]))):
        code = await start_by_cli(world, run_id, {"input": "Say something", "session_id": world.id("s")})
        printed = await world.cli("workflow", "result", "-w", run_id)

    assert (code, printed.code) == (0, 0)
    result = json.loads(printed.out[printed.out.index("{") : printed.out.rindex("}") + 1])
    assert (result["status"], result["text"]) == ("delivered", "a readable answer")
    assert (result["run_id"], result["session_id"]) == (run_id, world.id("s"))


async def start_by_cli(world: World, run_id: str, value: JsonObject) -> int:
    """Start a run as a person with the Temporal CLI would."""
    world.started.add((run_id, None))
    printed = await world.cli(
        "workflow",
        "start",
        *("--type", "AgentRun", "--task-queue", world.queue, "--workflow-id", run_id, "--input", json.dumps(value)),
    )
    return printed.code


async def test_run_without_limits_goes_on_as_long_as_it_is_useful(world: World) -> None:
    """Forty tool rounds take forty-one model rounds, and the usage says forty calls (A5)."""
    tool = RecordingTool("echo")
    model = ScriptedModel([*(calls(("echo", {"value": number})) for number in range(40)), says("finished")])
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("work long", run_id=world.id("r"))

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "finished")
    assert len(model.requests) == 41
    assert tool.calls == [{"value": number} for number in range(40)]
    usage = turn.result["usage"]
    assert isinstance(usage, dict)
    assert usage["tool_calls"] == 40
