"""A transcript acted again: model, tools and whoever sends commands do what they did there, in the same order."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestral_temporal.core.items import REQUEST_INPUT
from orchestral_temporal.ports import ModelFault, ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.model import ModelRequest, ModelStreamEvent
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.runtime.agents import AgentPlan
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import RunHandle, Turn
from orchestral_temporal.temporal.history import RunHistory
from orchestral_temporal.testing.scripted import ANY_RUN, Item, Script, ScriptedModel, load_scenario
from tests.golden import Row
from tests.temporal.scenarios import RecordedCommand, RecordedRequest, RecordedRun, sealed
from tests.temporal.world import PATIENCE, RecordingTool, Work, World, plan, until


class Pace:
    """Facts and commands of a transcript happen in its order: whoever comes too early waits."""

    def __init__(self, facts: Iterable[int], commands: Iterable[int]) -> None:
        self._facts = {order: asyncio.Event() for order in facts}
        self._commands = {order: asyncio.Event() for order in commands}

    async def fact(self, order: int) -> None:
        """Something happens, once all commands that were sent before it are answered."""
        await _last_before(self._commands, order)
        self._facts[order].set()

    async def command(self, order: int) -> None:
        """A command may be sent: what came before it has happened."""
        await _last_before(self._facts, order)

    def answered(self, order: int) -> None:
        """A command is acknowledged."""
        self._commands[order].set()


async def _last_before(gates: Mapping[int, asyncio.Event], order: int) -> None:
    last = max((each for each in gates if each < order), default=None)
    if last is not None:
        async with asyncio.timeout(PATIENCE):
            await gates[last].wait()


CUT = 1_000_000
"""The place of a stream's end where it was cut: after all that was sent."""


def orders_of(row: Row) -> list[int]:
    """The places of a model request: of the request itself, of each event, of the end where that is no event."""
    ended = any(event["payload"]["type"] == "finish" for event in row["events"])
    end = [row["error"]["order"]] if row["error"] is not None else [] if ended else [CUT]
    return [row["order"], *(event["order"] for event in row["events"]), *end]


class PacedModel(ScriptedModel):
    """A scripted model that answers no sooner than its transcript did; requests beyond the kept ones are not paced."""

    def __init__(self, script: Script, pace: Pace, requests: Sequence[RecordedRequest]) -> None:
        super().__init__(script)
        self._pace = pace
        self._paced = {each.number: orders_of(each.row) for each in requests}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """As the script says, each item when its turn has come."""
        orders = iter(self._paced.get(len(self.requests) + 1, []))
        await self._turn(orders)
        try:
            async for event in super().stream(request):
                await self._turn(orders)
                yield event
        except ModelFault:
            await self._turn(orders)
            raise
        await self._turn(orders)

    async def _turn(self, orders: Iterator[int]) -> None:
        order = next(orders, None)
        if order is not None:
            await self._pace.fact(order)


def scripted(answers: Path) -> Script:
    """What the source's model answered; rounds that the file left out follow the pattern of round 1."""
    kept = load_scenario(answers).runs
    if not kept:
        return Script(kept)
    known = kept[ANY_RUN]
    rounds = {
        number: known.get(number) or [tuple(_counted_on(item, number) for item in each) for each in known[1]]
        for number in range(1, max(known) + 1)
    }
    return Script({ANY_RUN: rounds})


def _counted_on(item: Item, number: int) -> Item:
    """An item of round 1 in another round: its call id ends in the number of the call, from 0."""
    assert item.does is not None
    value = json.dumps(dump(item.does)).replace("-call-0", f"-call-{number - 1}")
    return Item(type(item.does).model_validate_json(value))


Ending = Callable[[Row, ToolCall], Awaitable[Json]]
"""Ends a call as a recorded one ended."""


def offered_tools(recorded: RecordedRun, pace: Pace, ending: Ending) -> list[RecordingTool]:
    """Tools that answer as the recorded ones did, under their ids, schemas and classes."""
    begun = [event["payload"] for request in recorded.requests for event in request.row["events"]]
    called = {each["call_id"]: each["name"] for each in begun if each["type"] == "tool_call_start"}
    mine = [row for row in recorded.tool_calls if row["invocation"]["call_id"] in called]
    rows = {name: [row for row in mine if called[row["invocation"]["call_id"]] == name] for name in called.values()}
    offered = recorded.requests[0].tools if recorded.requests else []
    return [
        _tool(tool, rows.get(tool["name"], []), recorded.idempotency, _acting(rows.get(tool["name"], []), pace, ending))
        for tool in offered
        if tool["name"] != REQUEST_INPUT.name
    ]


def _tool(offered: Row, calls: Sequence[Row], classes: Mapping[str, ToolIdempotency], work: Work) -> RecordingTool:
    tool_id = calls[0]["invocation"]["tool_id"] if calls else None
    timed_out = any(row["result"]["outcome"].get("code") == "timeout" for row in calls)
    return RecordingTool(
        offered["name"],
        work,
        tool_id=tool_id,
        schema=offered["input_schema"],
        idempotency=classes.get(tool_id or "", ToolIdempotency.PURE),
        timeout_ms=500 if timed_out else 5_000,
    )


def _acting(recorded: Sequence[Row], pace: Pace, ending: Ending) -> Work:
    """Give the recorded outcomes, one after another."""
    waiting = iter(recorded)

    async def act(arguments: JsonObject, call: ToolCall) -> Json:
        row = next(waiting, None)
        if row is None:  # the file left the call out; this tool returns what it was given
            return {"result": arguments["value"]}
        await pace.fact(row["executed"][0]["order"])
        return await ending(row, call)

    return act


async def asked(run: RunHandle) -> bool:
    """Whether a run waits for an answer."""
    return bool((await run.inspect()).pending_requests)


async def outcome_of(row: Row, _call: ToolCall) -> Json:
    """End as a recorded call did."""
    match row["result"]["outcome"]:
        case {"status": "completed", "output": {"value": value}}:
            return value
        case {"status": "failed", "code": "timeout"}:
            await asyncio.Event().wait()
            return None
        case {"status": "failed", "code": code, "message": message, "retryable": retryable}:
            raise ToolFailed(code, message, retryable=retryable)
        case {"status": "rejected", "code": code, "message": message}:
            raise ToolRejected(code, message)
        case other:
            raise AssertionError(f"no tool of ours ends as {other}")


@dataclass
class Played:
    """A run of ours after the pattern of a transcript's, and what came of it."""

    world: World
    recorded: RecordedRun
    run_id: str
    session_id: str
    pace: Pace
    model: ScriptedModel
    tools: list[RecordingTool]
    commands: Sequence[RecordedCommand]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    acks: list[JsonObject] = field(default_factory=list[JsonObject])

    @property
    def plan(self) -> AgentPlan:
        """The agent that carries it out."""
        room = {"max_output_tokens": 4_096, "context_tokens": 131_072}
        asks = self.recorded.asks_people
        return plan(self.model, *self.tools, **{**room, "input_requests": asks, **self.options})

    def ours(self, value: Any) -> Any:
        """A value of the transcript under our ids."""
        return self.recorded.under_our_ids(value, self.run_id, self.session_id)

    async def play(self, limits: RunLimits | None = None) -> "Ended":
        """Start the run, send its commands, wait for its end; `limits` instead of the transcript's own."""
        async with self.world.serving(self.plan):
            run = await self.start(limits)
            await self.send(run)
            return await self.end(run)

    async def start(self, limits: RunLimits | None = None) -> RunHandle:
        """Start the run as it was started there."""
        spec = self.recorded.request.run.spec
        task = spec.input[0].body.value
        assert isinstance(task, str)
        return await self.world.runs.start(
            task,
            run_id=self.run_id,
            session_id=self.session_id,
            agent=self.plan.name,
            limits=limits or spec.limits,
            extensions=spec.extensions,
        )

    async def send(self, run: RunHandle) -> None:
        """Send the transcript's commands, each when its turn has come."""
        for command in self.commands:
            await self.pace.command(command.sent)
            envelope = sealed(self.ours(command.envelope))
            if envelope.request_id is not None:
                await until(lambda: asked(run), "the run asks")
            handle = self.world.client.get_workflow_handle(self.run_id)
            # Without an id of the update: the server itself would answer one that it knows.
            ack = await handle.execute_update(names.UPDATE_SUBMIT, dump(envelope), result_type=dict)
            self.acks.append(ack)
            self.pace.answered(command.sent)

    async def end(self, run: RunHandle) -> "Ended":
        """What came of it."""
        turn = await run.wait()
        history = await self.world.read(self.run_id)
        return Ended(self, turn, history, await self.world.records(self.session_id))


@dataclass(frozen=True)
class Ended:
    """The end of a played run: result, history, and the records of its session."""

    played: Played
    turn: Turn
    history: RunHistory
    records: list[JsonObject]


def cast(
    world: World,
    recorded: RecordedRun,
    number: int = 0,
    *,
    commands: Sequence[RecordedCommand] | None = None,
    requests: Sequence[RecordedRequest] | None = None,
    ending: Ending = outcome_of,
    **options: Any,
) -> Played:
    """Model and tools of a recorded run, ready to play it as the `number`-th of this world.

    `commands` and `requests` instead of those that the file kept, `ending` instead of the tools' ends, `options` of the
    agent.
    """
    commands = recorded.commands if commands is None else commands
    requests = recorded.requests if requests is None else requests
    executed = [each["order"] for row in recorded.tool_calls for each in row["executed"]]
    asked = [order for request in requests for order in orders_of(request.row)]
    pace = Pace([*executed, *asked], [command.sent for command in commands])
    return Played(
        world,
        recorded,
        world.id(f"r{number}"),
        world.id(f"s{number}"),
        pace,
        PacedModel(scripted(recorded.answers(requests)), pace, requests),
        offered_tools(recorded, pace, ending),
        commands,
        options,
    )
