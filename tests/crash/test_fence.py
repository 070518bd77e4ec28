"""The effect fence under SIGKILL and SIGSTOP: how often an effect happens, and what the run says of it (E3, E4).

Effects are counted outside, as lines that the tools leave in a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from temporalio.api.enums.v1 import EventType

from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal.client import RunHandle
from tests.crash.scene import Process, Scene, its_end
from tests.crash.story import LOST
from tests.crash.worker_process import LEDGER
from tests.temporal.world import calls, events_of, says, until

KEY: Final = "v1"
DELIVERED: Final = ("output_committed", "delivery_committed", "append")
AGAIN: Final = (*LOST, "tool v1.2", "model 2.1", *DELIVERED)
UNKNOWN: Final = (*LOST, "wait for grace", "run_failed", "append")
ASKED: Final = (*LOST, "wait for grace", "tool v1.2", "model 2.1", *DELIVERED)
SETTLED: Final = ("model 2.1", *DELIVERED)


def rounds(tool: str) -> Sequence[object]:
    """One call of a tool, and an answer."""
    return [calls((tool, {"key": KEY})), says("Done.")]


@dataclass(frozen=True)
class Cell:
    """Where the worker of a tool dies, and what must come of it: the effects, and the run's steps after the first."""

    tool: str
    place: str
    effects: int
    after: Sequence[str]

    @property
    def name(self) -> str:
        """The name of the cell."""
        return f"{self.tool}-{self.place.partition('-')[0]}"


BEFORE_FENCE, AFTER_FENCE, AFTER_EFFECT = f"taken-{KEY}", f"before-{KEY}", f"after-{KEY}"

CELLS: Final = [
    *(Cell(tool, BEFORE_FENCE, 1, AGAIN) for tool in ("pure", "keyed", "asked", "once")),
    Cell("pure", AFTER_FENCE, 1, AGAIN),
    Cell("keyed", AFTER_FENCE, 1, AGAIN),
    Cell("asked", AFTER_FENCE, 1, ASKED),
    Cell("once", AFTER_FENCE, 0, UNKNOWN),
    Cell("pure", AFTER_EFFECT, 2, AGAIN),
    Cell("keyed", AFTER_EFFECT, 2, AGAIN),
    Cell("asked", AFTER_EFFECT, 1, ASKED),
    Cell("once", AFTER_EFFECT, 1, UNKNOWN),
]
"""Decision 16, cell by cell: K7 is after the fence, K8 after the effect."""


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
async def test_a_killed_tool_worker_doubles_no_effect(scene: Scene, cell: Cell) -> None:
    """Before the fence every call runs again; after it only what may, under the same key (E3, E4, F005)."""
    signs = scene.signs
    signs.hold(cell.place)
    await scene.worker(rounds=rounds(cell.tool), split=True, roles=("run", "model"))
    first = await scene.worker(split=True, roles=("tools",))
    run = await scene.world.runs.start("Leave a line.", run_id=scene.world.id("killed"))
    await until(lambda: bool(signs.arrivals(cell.place)), f"the worker comes to {cell.place}")
    scene.kill(first)
    signs.release(cell.place)
    second = await scene.worker(split=True, roles=("tools",))
    ended = await its_end(run.wait())

    ledger = signs.notes(LEDGER)
    assert (len(ledger), set(ledger) <= {f"{run.run_id}/m1/c1"}) == (cell.effects, True)
    assert await scene.steps(run.run_id) == ["run_accepted", "run_started", "model 1.1", "tool v1.1", *cell.after]
    records = await scene.world.records(run.run_id)
    uncertain = [each["payload"]["effect_call_id"] for each in records if "uncertainty" in str(each["payload"]["type"])]
    exchanges = [each for each in records if each["payload"]["type"] == "tool_exchange_committed"]
    if cell.after is UNKNOWN:
        assert (ended.status, ended.failure and ended.failure["code"]) == ("failed", "tool_unknown_effect")
        assert (uncertain, exchanges) == ([f"{run.run_id}/m1/c1"], [])
    else:
        assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
        assert (uncertain, len(exchanges)) == ([], 1)
        assert "line v1" in str(exchanges[0]["payload"]["tool"])
    if cell.after is AGAIN:
        await scene.check_recovery(run, second)


async def timed_out(scene: Scene, run_id: str) -> bool:
    """Whether the server has given a call up."""
    history = await scene.world.history(run_id)
    return bool(events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT))


async def frozen(scene: Scene, place: str, **how: Any) -> tuple[RunHandle, Process]:
    """A run whose worker is frozen at a place until the server has given the call up; another worker is there."""
    signs = scene.signs
    signs.hold(place)
    first = await scene.worker(rounds=rounds("once"), **how)
    run = await scene.world.runs.start("Leave a line.", run_id=scene.world.id("frozen"))
    await until(lambda: bool(signs.arrivals(place)), f"the worker comes to {place}")
    scene.freeze(first)
    signs.release(place)
    await scene.worker(rounds=rounds("once"), **how)
    await until(lambda: timed_out(scene, run.run_id), "the server gives the call up")
    return run, first


async def another_run(scene: Scene) -> None:
    """A run from beginning to end, while the thawed worker catches up."""
    run = await scene.world.runs.start("Leave a line.", run_id=scene.world.id("another"))
    assert (await its_end(run.wait())).text == "Done."


async def test_a_worker_frozen_before_its_fence_makes_no_late_effect(scene: Scene) -> None:
    """Its call has run elsewhere; thawed, it finds its fence refused and its tool does not begin (E4)."""
    run, first = await frozen(scene, BEFORE_FENCE)
    assert (await its_end(run.wait())).text == "Done."
    scene.thaw(first)
    # Its fence is refused, or the SDK has given the call up before: either way the call ends, and says so.
    ends = ("answer", "given-back")
    await until(
        lambda: any(first.pid in scene.signs.arrivals(end) for end in ends), "the thawed worker is done with it"
    )
    assert scene.signs.notes(LEDGER) == [f"{run.run_id}/m1/c1"]


async def test_a_worker_frozen_behind_its_fence_reports_that_nothing_happened(scene: Scene) -> None:
    """Thawed within the grace: the last look is refused, the run hears that the tool did not begin and goes on (E4)."""
    run, first = await frozen(scene, "between", uncertainty_grace_ms=30_000)
    scene.thaw(first)
    ended = await its_end(run.wait())
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    assert scene.signs.notes(LEDGER) == []
    (exchange,) = [each for each in await scene.world.records(run.run_id) if "exchange" in str(each["payload"]["type"])]
    assert "not_started" in str(exchange["payload"]["tool"])


async def test_a_worker_frozen_for_too_long_makes_no_late_effect(scene: Scene) -> None:
    """Thawed when the run has ended with an unknown effect: still nothing happens (E4)."""
    run, first = await frozen(scene, "between", uncertainty_grace_ms=500)
    ended = await its_end(run.wait())
    assert ended.failure is not None
    assert ended.failure["code"] == "tool_unknown_effect"
    scene.thaw(first)
    await until(lambda: "nobody waits" in scene.log(), "the thawed worker sees that nobody waits")
    await another_run(scene)
    assert scene.signs.notes(LEDGER) == [f"{scene.world.id('another')}/m1/c1"]
