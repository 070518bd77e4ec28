"""SIGTERM: a worker that has to go hands on what it has in hand, and nothing counts as lost."""

import json
import signal
import subprocess
from collections.abc import Sequence

import pytest

from orchestral_temporal.protocol.state import AgentRunStatus
from tests.crash.model_process import HALF, REST
from tests.crash.scene import Scene, its_end, now
from tests.crash.story import ROUNDS, TASK, after
from tests.crash.test_fence import KEY, SETTLED, rounds
from tests.crash.worker_process import LEDGER
from tests.temporal.world import until


async def stop(scene: Scene, process: subprocess.Popen[bytes]) -> float:
    """Stop a worker gracefully; returns when that was."""
    when = now()
    process.send_signal(signal.SIGTERM)
    await until(lambda: process.poll() is not None, "the worker leaves")
    assert process.returncode == 0, scene.log()
    return when


async def test_a_stream_is_handed_on(scene: Scene) -> None:
    """Stopped in mid-stream: another worker takes the attempt up again, on record, without a loss (I1, I2)."""
    signs, how = scene.signs, {"base_url": await scene.model()}
    first = await scene.worker(**how)
    run = await scene.world.runs.start("Look once.", run_id=scene.world.id("stream"))
    await until(lambda: len(signs.notes("asked")) == 2, "the model writes its answer")
    await scene.worker(**how)
    stopped = await stop(scene, first)
    ended = await its_end(run.wait())
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, HALF + REST)
    assert await scene.steps(run.run_id) == [
        *("run_accepted", "run_started", "model 1.1", "tool v1.1"),
        *("model 2.1", "model 2.2", "output_committed", "delivery_committed", "append"),
    ]
    _, given_back, again = [json.loads(each) for each in signs.notes("asked")]
    assert given_back == again
    await scene.check_recovery(run, stopped)


@pytest.mark.parametrize(
    ("place", "steps"),
    [("tool-v2", after("tool v2.1", "tool v2.2")), ("model-3", after("model 3.1", "model 3.2"))],
)
async def test_work_is_handed_on(scene: Scene, place: str, steps: Sequence[str]) -> None:
    """Stopped while a tool or a model is silent: the same, and the newcomer knows nothing but the history (I2)."""
    scene.signs.hold(place)
    first = await scene.worker(rounds=ROUNDS)
    run = await scene.world.runs.start(TASK, run_id=scene.world.id("stopped"))
    await until(lambda: bool(scene.signs.arrivals(place)), f"the worker comes to {place}")
    second = await scene.worker(rounds=ROUNDS)
    stopped = await stop(scene, first)
    scene.signs.release(place)
    ended = await its_end(run.wait())
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    assert await scene.steps(run.run_id) == steps
    assert scene.signs.arrivals(place) == [first.pid, second.pid]
    await scene.check_recovery(run, stopped)


@pytest.mark.parametrize(
    ("tool", "after", "effects"),
    [
        ("pure", ["tool v1.2", *SETTLED], 1),
        ("keyed", ["tool v1.2", *SETTLED], 1),
        ("asked", ["wait for grace", "tool v1.2", *SETTLED], 1),
        ("once", ["run_failed", "append"], 0),
    ],
)
async def test_a_call_with_effects_is_given_back_with_its_fence(
    scene: Scene, tool: str, after: Sequence[str], effects: int
) -> None:
    """What may run again does so at once, what can tell is asked after the grace, else nobody knows (F088, E4)."""
    place = f"before-{KEY}"
    scene.signs.hold(place)
    first = await scene.worker(rounds=rounds(tool))
    run = await scene.world.runs.start("Leave a line.", run_id=scene.world.id("stopped"))
    await until(lambda: bool(scene.signs.arrivals(place)), "the tool is at work")
    await scene.worker(rounds=rounds(tool))
    stopped = await stop(scene, first)
    scene.signs.release(place)
    await its_end(run.wait())
    assert await scene.steps(run.run_id) == ["run_accepted", "run_started", "model 1.1", "tool v1.1", *after]
    assert scene.signs.notes(LEDGER) == [f"{run.run_id}/m1/c1"] * effects
    await scene.check_recovery(run, stopped)


async def test_a_call_that_ends_within_the_grace_is_no_loss(scene: Scene) -> None:
    """Stopped while a tool needs less than the grace: its result is committed, and it ran once (F088)."""
    place = f"before-{KEY}"
    scene.signs.hold(place)
    first = await scene.worker(rounds=rounds("once"), grace_ms=10_000)
    run = await scene.world.runs.start("Leave a line.", run_id=scene.world.id("graceful"))
    await until(lambda: bool(scene.signs.arrivals(place)), "the tool is at work")
    first.send_signal(signal.SIGTERM)
    await until(lambda: bool(scene.signs.notes("stopping")), "the worker has begun to stop")
    await scene.worker(rounds=rounds("once"))
    scene.signs.release(place)
    ended = await its_end(run.wait())
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    assert scene.signs.notes(LEDGER) == [f"{run.run_id}/m1/c1"]
    await until(lambda: first.poll() is not None, "the worker leaves")
    assert first.returncode == 0, scene.log()
