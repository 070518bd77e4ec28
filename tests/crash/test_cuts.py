"""Cuts at which nothing may be lost or doubled: the named places of `spec/behaviours.md`, each a SIGKILL."""

from collections.abc import Sequence

import pytest

from orchestral_temporal.protocol.state import AgentRunStatus
from tests.crash.scene import Scene, its_end
from tests.crash.test_fence import KEY, SETTLED, rounds
from tests.crash.worker_process import LEDGER
from tests.temporal.world import calls, says, until

CALM = ["run_accepted", "run_started", "model 1.1", "tool v1.1", *SETTLED]


async def killed_at(scene: Scene, place: str, script: Sequence[object]) -> str:
    """A run whose only worker is killed when it comes to a place, and another in its stead; the run's id."""
    signs = scene.signs
    signs.hold(place)
    first = await scene.worker(rounds=script)
    run = await scene.world.runs.start("Leave a line.", run_id=scene.world.id("cut"))
    await until(lambda: bool(signs.arrivals(place)), f"the worker comes to {place}")
    scene.kill(first)
    signs.release(place)
    second = await scene.worker(rounds=script)
    ended = await its_end(run.wait())
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    await scene.check_recovery(run, second)
    return run.run_id


async def test_a_registered_input_is_committed_once(scene: Scene) -> None:
    """K0: killed before the first boundary, the run takes its input once and starts its model once (I3)."""
    run_id = await killed_at(scene, "bound", rounds("once"))
    assert await scene.steps(run_id) == CALM
    records = await scene.world.records(run_id)
    assert [each["payload"]["type"] for each in records].count("run_input_committed") == 1
    assert [len(attempts) for attempts in scene.requests(run_id).values()] == [1, 1]


@pytest.mark.parametrize("tool", ["pure", "keyed", "once"])
async def test_a_call_observed_and_not_yet_run_runs_once(scene: Scene, tool: str) -> None:
    """K3: the turn is in the history, the run has not seen it; after the kill the call runs exactly once (E3)."""
    run_id = await killed_at(scene, "observed", rounds(tool))
    assert await scene.steps(run_id) == CALM
    assert scene.signs.notes(LEDGER) == [f"{run_id}/m1/c1"]


async def test_a_committed_call_is_served_from_the_history(scene: Scene) -> None:
    """K9: the outcome is recorded, the exchange not; after the kill nothing runs again (E3)."""
    script = [calls(("once", {"key": KEY})), calls(("once", {"key": "v2"})), says("Done.")]
    run_id = await killed_at(scene, "dispatch-2", script)
    assert scene.signs.notes(LEDGER) == [f"{run_id}/m1/c1", f"{run_id}/m2/c1"]
    exchanges = [each for each in await scene.world.records(run_id) if "exchange" in str(each["payload"]["type"])]
    assert len(exchanges) == 2
