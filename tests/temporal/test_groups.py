"""Turns of several calls: side by side where that is safe, in call order for the model, one session for one run."""

import asyncio
import json

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolConcurrency, ToolIdempotency
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, World, calls, case, give_back, plan, says

SERIAL = ToolConcurrency.PER_RUN_SERIAL


class Overlap:
    """Work that says how much of it was done at the same time; the call with the lowest value ends last."""

    def __init__(self, together: int) -> None:
        self._together = asyncio.Barrier(together)
        self._turn = asyncio.Condition()
        self._left = together
        self.most = 0
        self._now = 0

    async def together(self, arguments: JsonObject, _call: ToolCall) -> Json:
        """Wait until all are here, then end in the reverse of the call order."""
        self._now += 1
        self.most = max(self.most, self._now)
        await self._together.wait()
        value = arguments["value"]
        assert isinstance(value, int)
        async with self._turn:
            await self._turn.wait_for(lambda: self._left == value)
            self._left -= 1
            self._turn.notify_all()
        self._now -= 1
        return {"result": value}

    async def alone(self, arguments: JsonObject, _call: ToolCall) -> Json:
        """Look who else is at work."""
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        return {"result": arguments["value"]}


def results(request: object) -> list[object]:
    """The results in a request, in order."""
    messages = getattr(request, "messages", ())
    return [part.result["result"] for message in messages for part in message.content if part.type == "tool_result"]


async def test_safe_calls_run_side_by_side_and_answer_in_call_order(world: World) -> None:
    """Three safe calls are at work together and end in reverse; the model and the session see call order (E7)."""
    overlap = Overlap(3)
    model = ScriptedModel([calls(*[("safe", {"value": number}) for number in (1, 2, 3)]), says("done")])
    async with world.serving(plan(model, RecordingTool("safe", overlap.together))):
        turn = await world.runs.run_text("ask", run_id=world.id("r"))
        records = await world.records(world.id("r"))
    assert (turn.text, overlap.most) == ("done", 3)
    assert results(model.requests[1]) == [1, 2, 3]
    (exchange,) = [each["payload"] for each in records if each["payload"]["type"] == "tool_exchange_committed"]
    assert [part["result"]["result"] for part in exchange["tool"]["content"]] == [1, 2, 3]


async def test_other_calls_run_one_after_another(world: World) -> None:
    """Calls that are not declared safe never overlap, whatever stands between them (E7)."""
    overlap = Overlap(1)
    script = [calls(*[("lone", {"value": number}) for number in range(1, 6)]), says("done")]
    model = ScriptedModel(script)
    tool = RecordingTool("lone", overlap.alone, concurrency=SERIAL)
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("ask", run_id=world.id("r"))
    assert (turn.text, overlap.most) == ("done", 1)
    assert results(model.requests[1]) == [1, 2, 3, 4, 5]


async def test_two_runs_do_not_share_a_session_at_once(world: World) -> None:
    """Started together, one has the session and the other a typed refusal; the batch stands together (F127)."""
    session = world.id("s")
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def wait(arguments: JsonObject, _call: ToolCall) -> Json:
        at_work.set()
        await go_on.wait()
        return {"result": arguments["value"]}

    models = [ScriptedModel([calls(*[("safe", {"value": n}) for n in (1, 2, 3)]), says("done")]) for _ in range(2)]
    plans = [plan(each, RecordingTool("safe", wait), name=name) for each, name in zip(models, "ab", strict=True)]
    async with world.serving(*plans):
        raw = {name: {"input": "go", "session_id": session, "agent": name} for name in "ab"}
        runs = await asyncio.gather(*(world.runs.start_raw(raw[name], world.id(name)) for name in "ab"))
        await at_work.wait()
        refused = await next(asyncio.as_completed([asyncio.ensure_future(run.wait()) for run in runs]))
        go_on.set()
        turns = await asyncio.gather(*(run.wait() for run in runs))
        records = await world.records(session)
    assert (refused.status, refused.failure and refused.failure["code"]) == ("failed", "session_conflict")
    assert sorted(str(turn.status) for turn in turns) == ["delivered", "failed"]
    assert [each["session_seq"] for each in records] == list(range(1, len(records) + 1))
    kinds = [each["payload"]["type"] for each in records]
    assert kinds == ["run_input_committed", "tool_exchange_committed", "run_output_committed"]
    assert len({each["run_id"] for each in records}) == 1


async def test_integers_reach_the_tool_exactly(world: World) -> None:
    """No integer becomes its neighbour, not even where both round to one double; else the call is refused (F040)."""
    given = case("F040")
    tool = RecordingTool("order", give_back, schema=given["tool_schema"])
    texts = given["argument_texts"]
    numbers = [json.loads(text)["order_id"] for text in texts[:5]]
    good = calls(("order", texts[1]))
    model = ScriptedModel(
        [*(calls(("order", text)) for text in texts[:6]), good, calls(("order", texts[6])), says("done")]
    )
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("ask", run_id=world.id("r"))
    assert turn.status is AgentRunStatus.DELIVERED
    assert [call["order_id"] for call in tool.calls] == [*numbers, numbers[1]]
    parts = [part for message in model.requests[-1].messages for part in message.content]
    asked = [part.arguments for part in parts if part.type == "tool_call"]
    told = [part.result for part in parts if part.type == "tool_result"]
    assert asked[:5] == told[:5] == [{"order_id": number} for number in numbers]
    assert ["cannot be kept exactly" in str(each) for each in told] == [False] * 5 + [True, False, True]


async def test_a_tool_that_ignores_its_end_changes_nothing_later(world: World) -> None:
    """Past its time a tool with effects is unknown and the run fails; a pure one timed out, the run goes on (F004)."""
    released, left = asyncio.Event(), asyncio.Event()
    ledger: list[str] = []

    async def stubborn(_arguments: JsonObject, call: ToolCall) -> Json:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        ledger.append(call.idempotency_key)
        left.set()
        return "too late"

    script = [calls(("stubborn", {})), says("done")]
    once = RecordingTool("stubborn", stubborn, idempotency=ToolIdempotency.NON_IDEMPOTENT, timeout_ms=300)
    pure = RecordingTool("stubborn", stubborn, timeout_ms=300)
    plans = [plan(ScriptedModel(script), tool, name=name) for name, tool in (("once", once), ("pure", pure))]
    async with world.serving(*plans):
        runs = {name: await world.runs.start("ask", run_id=world.id(name), agent=name) for name in ("once", "pure")}
        turns = {name: await run.wait() for name, run in runs.items()}
        before = {name: await world.records(world.id(name)) for name in turns}
        released.set()
        await left.wait()
        after = {name: await world.records(world.id(name)) for name in turns}
    assert turns["once"].failure is not None
    assert turns["once"].failure["code"] == "tool_unknown_effect"
    assert [each["payload"]["type"] for each in before["once"]] == [
        "run_input_committed", "effect_uncertainty_committed"
    ]  # fmt: skip
    assert turns["pure"].text == "done"
    assert "timeout" in str(before["pure"][1]["payload"])
    assert before == after
    assert (len(once.calls), len(pure.calls)) == (1, 1)
