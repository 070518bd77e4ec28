"""What is said to runs: how long an acknowledgement takes, what a burst takes, and whether a crowd loses anything.

The counts are checked here: a command that is lost, doubled or out of order ends the benchmark.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import raw
import raw_told
from held import LAST, THINKS, WORKS, Held
from measures import LONGEST
from server import connect, own_server
from table import Row, ratios, spread
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from orchestral_temporal.temporal import converter, names
from orchestral_temporal.temporal.client import ContinuityUnknown, RunHandle

OURS, BARE = "orchestral_temporal", "raw activities"
"""The columns."""

GOAL_RATIO: Final = 1.25

BURST: Final = 100

EACH: Final = 20
"""Commands to each run of a crowd."""

TERMINALS: Final = ("delivery_committed", "run_incomplete", "run_failed", "run_cancelled")

WORDS: Final = "use the staging database"


class Lost(Exception):  # noqa: N818 -- a result, not an error of ours
    """A run does not hold what was said to it, once and in order; the message says which and how."""


@dataclass(frozen=True)
class Talk:
    """How much is said: runs, steers to each of them, bursts, runs of a crowd."""

    runs: int
    steers: int
    bursts: int
    crowd: int


MUCH: Final = Talk(runs=5, steers=40, bursts=3, crowd=50)
A_LITTLE: Final = Talk(runs=2, steers=30, bursts=2, crowd=20)

Say = Callable[[str], None]


@dataclass(frozen=True)
class _Place:
    """A server, and runs of both kinds on it."""

    client: Client
    held: Held

    async def bare(self, name: str, *, replaces: bool = False) -> WorkflowHandle[Any, Any]:
        """A workflow that nothing but Temporal stands behind."""
        told = raw_told.RawTold.run
        return await self.client.start_workflow(told, replaces, id=name, task_queue=names.DEFAULT_QUEUE)


async def talk(how: Talk, say: Say) -> list[Row]:
    """Measure it all.

    Raises:
        Lost: a run does not hold what was said to it.
    """
    async with _place() as place:
        for agent in (WORKS, THINKS):
            await _steers(place, agent, f"warm-{agent}", 10)
        rows = [*await _acknowledged(place, how, say), await _bursts(place, how, say)]
    async with _place() as place:
        rows.append(await _crowd(place, how, say))
    return rows


@asynccontextmanager
async def _place() -> AsyncGenerator[_Place]:
    async with AsyncExitStack() as entered:
        address = await entered.enter_async_context(own_server())
        client = await connect(address, data_converter=converter.DATA_CONVERTER, plugins=[raw_told.PLUGIN])
        held = Held(client)
        for worker in held.workers():
            await entered.enter_async_context(worker)
        yield _Place(client, held)


async def _acknowledged(place: _Place, how: Talk, say: Say) -> list[Row]:
    """While a tool works, nothing but the acknowledgement follows; while a model thinks, its attempt is replaced."""
    found: dict[str, list[_Times]] = {WORKS: [], THINKS: []}
    for number in range(how.runs):
        say(f"steers: {number + 1} of {how.runs}")
        for agent in found:
            found[agent] += await _steers(place, agent, f"{agent}-{number}", how.steers)
    goal = f"at most {GOAL_RATIO} times raw"
    works, thinks = found.values()
    rows = [
        Row("ms until a steer is acknowledged, while a tool works", goal),
        Row("ms until a steer is acknowledged that replaces the model's attempt"),
        Row("the same, raw: an update that replaces an activity", goal),
    ]
    for row, times, other in ((rows[0], works, "bare"), (rows[1], thinks, "bare"), (rows[2], thinks, "replacing")):
        ours, others = [each["ours"] for each in times], [each[other] for each in times]
        row.cells = {OURS: spread(ours), BARE: spread(others)}
        row.verdict = ratios(ours, others)
    return rows


_Times = dict[str, float]
"""Milliseconds until neighbours in time were acknowledged: a steer, a bare update, one that replaces an activity."""


async def _steers(place: _Place, agent: str, name: str, steers: int) -> list[_Times]:
    """Steers of ours, as our client sends them, beside bare updates."""
    run, sent = await place.held.start(agent, name), [f"s{number}" for number in range(steers)]
    bare = await place.bare(f"bare-{name}")
    words = raw.text(raw_told.COMMAND_SIZE)
    ways: dict[str, Callable[[str], Awaitable[object]]] = {
        "ours": lambda command_id: run.steer(WORDS, command_id=command_id),
        "bare": lambda _: bare.execute_update(raw_told.RawTold.tell, words),
    }
    handles = [bare]
    if agent == THINKS:
        replacing = await place.bare(f"replacing-{name}", replaces=True)
        ways["replacing"] = lambda _: replacing.execute_update(raw_told.RawTold.tell, words)
        handles.append(replacing)
    found: list[_Times] = []
    for number, command_id in enumerate(sent):
        order = list(ways)[:: -1 if number % 2 else 1]
        times: _Times = {}
        for which in order:
            times[which] = await _took(lambda tell=ways[which], command_id=command_id: tell(command_id))
            await _settled(place, agent, name, which, number + 2)
        found.append(times)
    await _finish(place.held, run, sent)
    for handle in handles:
        await handle.signal(raw_told.RawTold.end)
    return found


async def _settled(place: _Place, agent: str, name: str, which: str, times: int) -> None:
    """What an update has set off is under way, and does not weigh on its neighbour."""
    if which == "ours" and agent == THINKS:
        await place.held.asked(name, times)
    if which == "replacing":
        await raw_told.begun(f"replacing-{name}", times)


async def _took(action: Callable[[], Awaitable[object]]) -> float:
    began = perf_counter()
    await action()
    return (perf_counter() - began) * 1e3


async def _bursts(place: _Place, how: Talk, say: Say) -> Row:
    """Signals one after another as fast as the server takes them, until the run and the bare workflow know all."""
    sent = [f"s{number}" for number in range(BURST)]
    ours: list[float] = []
    bare: list[float] = []
    for number in range(how.bursts):
        say(f"bursts: {number + 1} of {how.bursts}")
        run, handle = await place.held.start(THINKS, f"burst-{number}"), await place.bare(f"bare-burst-{number}")
        signals = place.client.get_workflow_handle(run.run_id)

        async def to_ours(run: RunHandle = run, signals: WorkflowHandle[Any, Any] = signals) -> None:
            for command_id in sent:
                await signals.signal(names.SIGNAL_STEER, {"command_id": command_id, "text": WORDS})
            await run.ack(sent[-1])

        async def to_bare(handle: WorkflowHandle[Any, Any] = handle) -> None:
            for _ in sent:
                await handle.signal(raw_told.RawTold.note, WORDS)
            await handle.query(raw_told.RawTold.kept)

        bare.append(await _took(to_bare))
        ours.append(await _took(to_ours))
        await _finish(place.held, run, sent)
        await handle.signal(raw_told.RawTold.end)
    row = Row(f"ms until a burst of {BURST} steers is acknowledged", goal="applied in order, one terminal")
    row.cells = {OURS: spread(ours), BARE: spread(bare)}
    row.verdict = f"{how.bursts} of {how.bursts} bursts"
    return row


async def _crowd(place: _Place, how: Talk, say: Say) -> Row:
    """Steers and queued input to many runs at once, by update; then the last word to each, so that all is heard."""
    say(f"a crowd of {how.crowd} runs")
    names_ = [f"crowd-{number}" for number in range(how.crowd)]
    runs = await asyncio.gather(*(place.held.start(THINKS, name) for name in names_))
    handles = await asyncio.gather(*(place.bare(f"bare-{name}") for name in names_))
    sent = [f"c{number}" for number in range(EACH)]
    words = raw.text(raw_told.COMMAND_SIZE)
    late = {OURS: 0, BARE: 0}

    async def tell(run: RunHandle, number: int) -> None:
        try:
            await (run.enqueue if number % 2 else run.steer)(WORDS, command_id=sent[number])
        except ContinuityUnknown:  # left with the server as a signal
            late[OURS] += 1

    async def tell_bare(handle: WorkflowHandle[Any, Any]) -> None:
        try:
            await handle.execute_update(raw_told.RawTold.tell, words)
        except RPCError:  # the SDK has asked often enough whether one more update may be under way
            late[BARE] += 1

    bare = await _took(lambda: asyncio.gather(*(tell_bare(each) for _ in sent for each in handles)))
    ours = await _took(lambda: asyncio.gather(*(tell(run, number) for number in range(EACH) for run in runs)))
    for run in runs:
        await _finish(place.held, run, sent, ordered=False)
    count = how.crowd * EACH
    row = Row(f"commands per second, {how.crowd} runs, {EACH} at once to each", goal="none lost")
    row.cells = {
        OURS: f"{count / ours * 1e3:.0f}, {late[OURS]} of {count:,} not at once",
        BARE: f"{count / bare * 1e3:.0f}, {late[BARE]} of {count:,} not at all",
    }
    row.verdict = f"{count:,} of {count:,} acknowledged and heard"
    return row


async def _finish(held: Held, run: RunHandle, sent: Sequence[str], *, ordered: bool = True) -> None:
    """Bring a run to its end, and see that it holds what was said to it.

    Raises:
        Lost: it does not.
    """
    with suppress(ContinuityUnknown):  # then it waits with the server as a signal
        await run.steer(LAST, command_id="last")
    held.let_go(run.run_id)
    async with asyncio.timeout(LONGEST):
        turn = await run.wait()
    events = [record.event async for record in run.events()]
    kinds = [event.payload.type for event in events]
    received = [event.causation_id for event in events if event.payload.type == "command_received"]
    heard = [event.causation_id for event in events if event.payload.type == "input_committed"]
    wanted = [*sent, "last"]
    acks = {ack["command_id"]: ack["state"]["state"] for ack in turn.result["acks"]}  # type: ignore[index, call-overload, union-attr] -- JSON of ours
    for found in (received, heard):
        if (found if ordered else sorted(map(str, found))) != (wanted if ordered else sorted(wanted)):
            message = f"{run.run_id} was told {wanted} and holds {found}"
            raise Lost(message)
    ends = [kind for kind in kinds if kind in TERMINALS]
    if ends != ["delivery_committed"] or kinds[-1] != ends[0] or acks != dict.fromkeys(wanted, "applied"):
        message = f"{run.run_id} ended with {ends}, and acknowledged {acks}"
        raise Lost(message)
