"""Transcripts of the source in which people talk to a run: bursts, queued input, yields, cancels (part 3)."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.activities import Queues, Role
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.runtime.agents import host
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.worker import build_workers
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.golden import Row, scenario
from tests.temporal.scenario_checks import (
    NAMES,
    check,
    check_outcome,
    check_start,
    steps_of,
)
from tests.temporal.scenario_play import Played, cast, outcome_of
from tests.temporal.scenarios import RecordedCommand, RecordedRun, recorded_runs, sealed, wal_line
from tests.temporal.test_steering import heard
from tests.temporal.wal_fold import fold
from tests.temporal.world import RecordingTool, World, calls, events_of, plan, says, until

QUEUED = "queued_input.queued_input_edits_wait_for_the_model_boundary_and_consumption_is_final"
STEERS = "one_hundred_steers_are_committed_in_order_without_crossing_the_run"
YIELD = "steer_yields_a_dispatched_tool_and_commits_its_observation_without_replay"
RACE = "cancellation_race.accepted_host_cancel_wins_over_a_ready_model_error_or_eof"
TOOL_CANCELS = (
    "tool_runtime.post_dispatch_non_idempotent_cancellation_is_unknown_effect",
    "tool_runtime.run_cancellation_reaches_executor_and_closes_the_call",
)

UNCERTAIN = "effect_uncertainty_committed"


async def test_queued_input_waits_for_the_boundary(world: World, tmp_path: Path) -> None:
    """Six operations, each sent twice, leave two inputs in the next request; a late edit is refused (C1, C2, C7)."""
    (recorded,) = recorded_runs(QUEUED, tmp_path)
    check(await cast(world, recorded).play())


async def test_steer_makes_a_working_tool_yield(world: World, tmp_path: Path) -> None:
    """The tool returns what it has, once, and the steer follows its observation (C4).

    Not ours: the call that the source's test makes after the end, and that its effect journal answers. Here nobody can
    call a tool of a run that has ended.
    """

    async def when_asked(row: Row, call: ToolCall) -> Json:
        await until(call.should_yield, "the tool is asked to yield")
        return await outcome_of(row, call)

    (recorded,) = recorded_runs(YIELD, tmp_path)
    ended = await cast(world, recorded, ending=when_asked).play()
    check(ended)
    assert len(ended.played.tools[0].calls) == 1


@pytest.mark.parametrize("world", [True], ids=["cached"], indirect=True)
async def test_a_hundred_steers_stay_in_order(world: World, tmp_path: Path) -> None:
    """All are accepted, committed in order, and heard by the last request; one terminal (B7, C3).

    How many share a round is the scheduler's, there as here: so the numbers of rounds, attempts and requests differ,
    and where an input stands among the commands after it. Attempts that a steer voids are charged (divergence 8).
    """
    (recorded,) = recorded_runs(STEERS, tmp_path)
    first, *_, last = recorded.requests
    rounds = [first, *(replace(last, number=each, row={**last.row, "round": each}) for each in range(2, 103))]
    played = cast(world, recorded, commands=a_hundred(recorded, first.row["order"]), requests=rounds)
    ended = await played.play()

    check_start(ended)
    check_outcome(ended, usage=False)
    assert [given["duplicate"] for given in played.acks] == [False] * 100
    journal: Any = ended.turn.result["journal"]
    events = [(each["event"]["payload"]["type"], each["event"]["causation_id"]) for each in journal]
    sent = [command.envelope["command_id"] for command in played.commands]
    for type_ in ("command_received", "command_disposition_recorded", "input_committed"):
        assert [cause for each, cause in events if each == type_] == sent
    theirs = Counter(line.partition(":")[2] for line in recorded.sequence("run_journal"))
    assert Counter(type_ for type_, _ in events) == theirs
    wal = [wal_line(record) for record in ended.history.wal]
    assert fold(ended.history.wal) == "terminal"
    assert Counter(map(without_round, wal)) - ROUNDS == Counter(map(without_round, recorded.sequence("wal"))) - ROUNDS
    assert [record["payload"]["type"] for record in ended.records] == recorded.sequence("session_journal")  # type: ignore[index, call-overload] -- JSON of ours
    assert heard(played.model.requests[0]) == ["initial input"]
    assert heard(played.model.requests[-1]) == ["initial input", *(f"steer-{number:03}" for number in range(100))]


ROUNDS = Counter({"loop_boundary_committed": 1_000, "model_attempt_started": 1_000})
"""What there is of each round."""


def without_round(line: str) -> str:
    """A line of a WAL's sequence, where it counts rounds without their number."""
    name, _, detail = line.partition("(")
    return name if detail.rstrip(")").isdecimal() else line


def a_hundred(recorded: RecordedRun, after: int) -> list[RecordedCommand]:
    """The steers, all sent while the first attempt is open; those that the file left out are made like the first."""
    pattern = json.dumps(recorded.commands[0].envelope)
    envelopes = [
        json.loads(pattern.replace("<id:1>", f"<id:{number + 1}>").replace("steer-000", f"steer-{number:03}"))
        for number in range(100)
    ]
    made = {each["command_id"]: sealed(each) for each in envelopes}
    assert all(made[each.envelope["command_id"]] == sealed(each.envelope) for each in recorded.commands)
    return [RecordedCommand(after + 1 + number, each, None) for number, each in enumerate(envelopes)]


async def test_an_accepted_cancel_wins_over_a_model_that_ends_with_it(world: World, tmp_path: Path) -> None:
    """Error, end of stream or finish in the same instant: the run is cancelled, and nothing else is on record (C6).

    The instant is a workflow task that finds both: between the start and the end nobody serves workflows.
    """
    played = [cast(world, each, number, name=f"a{number}") for number, each in enumerate(recorded_runs(RACE, tmp_path))]
    assert len(played) == 3
    async with serving_apart(world, played, Role.MODEL):
        async with serving_apart(world, played, Role.RUN, Role.TOOLS):
            runs = [await each.start() for each in played]
            for each in played:
                await each.pace.command(each.commands[0].sent)
        for each in played:
            (command,) = each.commands
            handle = world.client.get_workflow_handle(each.run_id)
            await handle.signal(names.SIGNAL_COMMAND, dump(sealed(each.ours(command.envelope))))
            each.pace.answered(command.sent)
            await until(lambda run_id=each.run_id: model_ended(world, run_id), "the model has ended too")
        async with serving_apart(world, played, Role.RUN, Role.TOOLS):
            for each, run in zip(played, runs, strict=True):
                ended = await each.end(run)
                check(ended)
                assert ended.turn.status is AgentRunStatus.CANCELLED
                assert (await run.ack(each.commands[0].envelope["command_id"])).state.state == "applied"


@asynccontextmanager
async def serving_apart(world: World, played: Sequence[Played], *roles: Role) -> AsyncGenerator[None]:
    """Serve some roles, models on a queue of their own."""
    agents = {each.plan.name: host(each.plan, world.client.namespace) for each in played}
    queues = Queues(runs=world.queue, models=f"{world.queue}-models", tools=world.queue)
    settings = replace(world.settings(), queues=queues)
    (worker,) = build_workers(world.client, agents, settings=settings, artifacts=world.artifacts, roles=roles)
    async with worker:
        yield


async def model_ended(world: World, run_id: str) -> bool:
    """Whether the server has the end of the model's attempt."""
    history = await world.history(run_id)
    scheduled = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    kind = {each.event_id: each.activity_task_scheduled_event_attributes.activity_type.name for each in scheduled}
    completed = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    failed = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED)
    ends = [each.activity_task_completed_event_attributes.scheduled_event_id for each in completed]
    ends += [each.activity_task_failed_event_attributes.scheduled_event_id for each in failed]
    return names.CALL_MODEL in [kind[each] for each in ends]


@pytest.mark.parametrize("name", TOOL_CANCELS)
async def test_a_cancel_reaches_the_tool_at_work(world: World, name: str) -> None:
    """The call ends cancelled, or nobody knows its effect if it cannot be repeated; it ran once (C5, E4).

    The source's tests call the tool alone; here a run does, that is cancelled meanwhile. A cancelled call has no
    `invoked` in our notes (`steps_of`).
    """
    content = scenario(name)
    (recorded,) = content["tool_calls"]
    invocation, outcome = recorded["invocation"], recorded["result"]["outcome"]
    effect = content["effects"][0]["record"]["payload"]["effect"]
    at_work = asyncio.Event()

    async def wait(_arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await asyncio.Event().wait()
        return None

    tool = RecordingTool(
        "echo", wait, tool_id=invocation["tool_id"], idempotency=ToolIdempotency(effect["idempotency"]), timeout_ms=None
    )
    model = ScriptedModel([calls(("echo", invocation["arguments"]), ids=[invocation["call_id"]]), says("never")])
    async with world.serving(plan(model, tool)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await at_work.wait()
        await run.cancel("enough")
        turn = await run.wait()
        history, records = await world.read(run.run_id), await world.records(run.run_id)

    assert turn.status is AgentRunStatus.CANCELLED
    assert tool.calls == [invocation["arguments"]]
    (steps,) = content["sequences"]["effects"].values()
    assert [NAMES.get(note.at, note.at) for note in history.notes] == steps_of(steps, outcome["status"])
    said = next((note.said for note in history.notes if note.at == "observed"), None)
    assert said == (outcome["status"] if "observed" in steps else None)
    uncertain: list[Any] = [each["payload"] for each in records if each["payload"]["type"] == UNCERTAIN]  # type: ignore[index, call-overload] -- JSON of ours
    unknown = [invocation["call_id"]] if outcome["status"] == "unknown_effect" else []
    assert [each["model_call_id"] for each in uncertain] == unknown
