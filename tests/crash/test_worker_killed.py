"""SIGKILL of the only worker, and another process in its place that knows nothing but the history."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta

import pytest

from orchestral_temporal.core.limits import TASK_SECONDS
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.wal import ModelAttemptStarted
from orchestral_temporal.temporal.names import session_workflow_id
from orchestral_temporal.temporal.watch import Frame
from tests.crash.model_process import HALF, REST
from tests.crash.scene import Scene, its_end
from tests.crash.story import CALM, LOST, ROUNDS, TASK, after
from tests.temporal.world import json_payload, says, until


@pytest.mark.parametrize(
    ("place", "steps", "repeated"),
    [
        pytest.param("dispatch-3", CALM, [], id="between rounds"),
        pytest.param("tool-v2", after("tool v2.1", *LOST, "tool v2.2"), [], id="in a tool"),
        pytest.param("model-3", after("model 3.1", *LOST, "model 3.2"), [], id="in a model attempt"),
        pytest.param("append", CALM, ["append_session"], id="at the session"),
    ],
)
async def test_another_process_goes_on(scene: Scene, place: str, steps: Sequence[str], repeated: Sequence[str]) -> None:
    """The run moves on within 5 s and is delivered; only what was at work runs again, calls on record (I1, I4).

    The new process pulls the context from the history: its requests equal those of an undisturbed run, message for
    message, although neither the task nor a result fits the tail that an attempt carries.
    """
    signs = scene.signs
    signs.hold(place)
    first = await scene.worker(rounds=ROUNDS)
    run = await scene.world.runs.start(TASK, run_id=scene.world.id("killed"))
    await until(lambda: bool(signs.arrivals(place)), f"the worker comes to {place}")
    scene.kill(first)
    signs.release(place)
    second = await scene.worker(rounds=ROUNDS)
    ended = await its_end(run.wait())
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, "Done.")
    assert await scene.steps(run.run_id) == steps
    assert await scene.repeated(run.run_id) == repeated
    for key in ("v1", "v2", "v3"):
        assert len(signs.arrivals(f"tool-{key}")) == (2 if place == f"tool-{key}" else 1)
    await scene.check_recovery(run, second)

    calm = await scene.world.runs.start(TASK, run_id=scene.world.id("calm"))
    await its_end(calm.wait())
    assert await scene.steps(calm.run_id) == CALM
    asked, undisturbed = scene.requests(run.run_id), scene.requests(calm.run_id)
    assert [len(asked[number]) for number in (1, 2, 3, 4)] == [1, 1, 2 if place == "model-3" else 1, 1]
    assert {number: attempts[-1] for number, attempts in asked.items()} == {
        number: attempt for number, (attempt,) in undisturbed.items()
    }
    assert all(attempt == attempts[0] for attempts in asked.values() for attempt in attempts)


async def test_a_model_that_must_not_be_asked_twice_is_not(scene: Scene) -> None:
    """Killed with such a model at work, the run ends as interrupted and asks no more (I2)."""
    how = {"rounds": ROUNDS, "redispatchable": False}
    scene.signs.hold("model-2")
    first = await scene.worker(**how)
    run = await scene.world.runs.start(TASK, run_id=scene.world.id("interrupted"))
    await until(lambda: bool(scene.signs.arrivals("model-2")), "the second attempt is at work")
    scene.kill(first)
    second = await scene.worker(**how)
    ended = await its_end(run.wait())
    assert ended.status is AgentRunStatus.INCOMPLETE
    steps = await scene.steps(run.run_id)
    assert steps == [*CALM[: CALM.index("model 2.1") + 1], "run_incomplete", "append"]
    assert scene.signs.arrivals("model-2") == [first.pid]
    await scene.check_recovery(run, second)


async def test_a_lost_attempt_is_made_again_and_paid_for(scene: Scene) -> None:
    """Killed with a redispatchable model at work: the same request once more, and the lost one's reservation (I2)."""
    scene.signs.hold("model-2")
    first = await scene.worker(rounds=ROUNDS)
    run = await scene.world.runs.start(TASK, run_id=scene.world.id("paid"))
    await until(lambda: bool(scene.signs.arrivals("model-2")), "the second attempt is at work")
    scene.kill(first)
    scene.signs.release("model-2")
    second = await scene.worker(rounds=ROUNDS)
    ended = await its_end(run.wait())
    assert await scene.steps(run.run_id) == after("model 2.1", *LOST, "model 2.2")
    lost, again = scene.requests(run.run_id)[2]
    assert lost == again
    records = [each.payload for each in (await scene.world.read(run.run_id)).wal]
    charged = next(each for each in records if isinstance(each, ModelAttemptStarted) and each.round == 2)
    usage = ended.result["usage"]
    assert isinstance(usage, dict)
    reserved = (charged.context.used_input_tokens, charged.max_output_tokens)
    assert (usage["input_tokens"], usage["output_tokens"]) == reserved
    await scene.check_recovery(run, second)


async def test_nobody_may_hold_a_task_for_long(scene: Scene) -> None:
    """A worker that dies with a workflow task is noticed soon, whoever started the run; and so with the session's."""
    await scene.worker(rounds=[says("Done.")])
    ours = await scene.world.runs.start("Say it.", run_id=scene.world.id("ours"))
    theirs = await scene.world.start_payloads(scene.world.id("theirs"), json_payload({"input": "Say it."}))
    for run in (ours, theirs):
        await its_end(run.wait())
        for workflow_id in (run.run_id, session_workflow_id(run.run_id)):
            started = (await scene.world.history(workflow_id)).events[0].workflow_execution_started_event_attributes
            assert started.workflow_task_timeout.ToTimedelta() == timedelta(seconds=TASK_SECONDS)


async def test_a_stream_starts_again(scene: Scene) -> None:
    """Killed in the middle of a stream from `openai`: the same request once more, a new attempt on record (I1, I4).

    Who watches sees the half text, hears that it is void, and gets the whole answer.
    """
    signs, how = scene.signs, {"base_url": await scene.model()}
    first = await scene.worker(**how)
    run = await scene.world.runs.start("Look once.", run_id=scene.world.id("stream"))
    frames: list[Frame] = []

    async def watch() -> None:
        async for frame in run.watch():
            frames.append(frame)  # noqa: PERF401 -- what has come so far is looked at meanwhile

    watching = asyncio.create_task(watch())
    await until(lambda: HALF in shown(frames), "the half text is shown")
    scene.kill(first)
    second = await scene.worker(**how)
    ended = await its_end(run.wait())
    await its_end(watching)
    assert (ended.status, ended.text) == (AgentRunStatus.DELIVERED, HALF + REST)
    assert await scene.steps(run.run_id) == [
        *("run_accepted", "run_started", "model 1.1", "tool v1.1", "model 2.1"),
        *(*LOST, "model 2.2", "output_committed", "delivery_committed", "append"),
    ]
    assert len(signs.arrivals("tool-v1")) == 1
    _, lost, again = [json.loads(each) for each in signs.notes("asked")]
    assert lost == again
    assert "clear" in [each.kind for each in frames]
    assert frames[-1].event is not None
    assert frames[-1].event.event.payload.type == "delivery_committed"
    await scene.check_recovery(run, second)


def shown(frames: Sequence[Frame]) -> str:
    """The live text so far."""
    return "".join(each.text for each in frames if each.kind == "text")
