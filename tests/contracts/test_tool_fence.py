"""The guard's fence: what must be on record before an effect, and what became of one that was lost (E3, E4)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final

import pytest

from orchestral_temporal.adapters.tools.functions import function_tool, running
from orchestral_temporal.ports import (
    CannotTell,
    DidNotHappen,
    Happened,
    NotStarted,
    Reconciled,
    Tool,
    ToolCall,
    ToolRejected,
)
from orchestral_temporal.protocol.tools import (
    FENCED,
    ApprovalPolicy,
    Cancelled,
    Completed,
    Failed,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    ToolInvocation,
    ToolOutcome,
    UnknownEffect,
)
from orchestral_temporal.protocol.words import JsonObject
from orchestral_temporal.runtime import tool_call
from orchestral_temporal.runtime.tool_call import CallContext, GuardedCall, ToolGuard
from tests.contracts.probe import Probe, completed, echo, forever, invocation, raising

GONE: Final = Rejected(code="not_started", message="Nobody waits.")


class RecordingFence:
    """A fence that notes each time it is put up, and may refuse at one of them."""

    def __init__(self, steps: list[str] | None = None, *, refused_at: int = 0, refusal: ToolOutcome = GONE) -> None:
        self.steps = steps if steps is not None else []
        self.put_up_times = 0
        self.stale_in = ""
        self.gone = False
        self._refused_at = refused_at
        self._refusal = refusal

    async def put_up(self) -> None:
        """Note it, then refuse or not."""
        self.put_up_times += 1
        self.steps.append("fence")
        if self.put_up_times == self._refused_at:
            raise NotStarted(self._refusal)

    def fresh(self) -> bool:
        """Not in the thread that a test names."""
        return threading.current_thread().name != self.stale_in

    def lapsed(self) -> bool:
        """As the test says."""
        return self.gone


class Reconciling(Probe):
    """A probe that can be asked; it notes its steps."""

    def __init__(self, said: Callable[[JsonObject, ToolCall], Awaitable[Reconciled]], **options: object) -> None:
        self.steps: list[str] = []
        self._said = said

        async def run(arguments: JsonObject, _call: ToolCall) -> object:
            self.steps.append("run")
            return arguments

        super().__init__(run, **{"idempotency": ToolIdempotency.NON_IDEMPOTENT, **options})  # type: ignore[arg-type] -- options of the probe

    async def reconcile(self, arguments: JsonObject, call: ToolCall) -> Reconciled:
        """Note it, then say what the test wants."""
        self.steps.append("asked")
        return await self._said(arguments, call)


def saying(said: object) -> Callable[[JsonObject, ToolCall], Awaitable[Reconciled]]:
    """A tool that says always the same."""

    async def reconcile(_arguments: JsonObject, _call: ToolCall) -> Reconciled:
        return said  # type: ignore[return-value] -- a test may say what the port does not know

    return reconcile


async def invoke(tool: Tool, fence: RecordingFence, *, reconcile: bool = False) -> ToolOutcome:
    """One call behind a fence."""
    call = ToolInvocation(
        run_id="run-1", call_id="run-1/m1/c1", tool_id=tool.descriptor.tool_id, arguments={"value": 1}
    )
    return (await ToolGuard([tool]).invoke(call, CallContext(fence=fence, reconcile=reconcile))).outcome


# -- before the effect ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotency", list(ToolIdempotency))
async def test_a_tool_that_may_not_simply_run_again_begins_behind_its_fence(idempotency: ToolIdempotency) -> None:
    """The fence stands before the tool begins, once; calls that may run again put up none (E4, decision 15)."""
    fence = RecordingFence()

    async def work(_arguments: JsonObject, _call: ToolCall) -> object:
        fence.steps.append("run")
        return None

    await invoke(Probe(work, idempotency=idempotency), fence)
    assert fence.steps == (["fence", "run"] if idempotency in FENCED else ["run"])


@pytest.mark.parametrize(
    "tool",
    [
        Probe(schema={"required": ["other"]}, idempotency=ToolIdempotency.NON_IDEMPOTENT),
        Probe(approval=ApprovalPolicy.REQUIRED, idempotency=ToolIdempotency.NON_IDEMPOTENT),
    ],
)
async def test_a_call_that_is_rejected_puts_up_no_fence(tool: Probe) -> None:
    """What may not run leaves no trace (`spec/tools.md` §10)."""
    fence = RecordingFence()
    assert isinstance(await invoke(tool, fence), Rejected)
    assert fence.steps == []


async def test_the_fence_is_put_up_after_the_gate() -> None:
    """A call that waits for its gate is not on record as begun: the fence comes when the gate is free."""
    fence, release = RecordingFence(), asyncio.Event()
    at_work: asyncio.Queue[None] = asyncio.Queue()

    async def work(_arguments: JsonObject, _call: ToolCall) -> object:
        at_work.put_nowait(None)
        await release.wait()
        fence.steps.append("done")
        return None

    probe = Probe(work, idempotency=ToolIdempotency.NON_IDEMPOTENT, concurrency=ToolConcurrency.GLOBAL_SERIAL)
    guard = ToolGuard([probe])
    calls = [asyncio.create_task(guard.invoke(invocation(), CallContext(fence=fence))) for _ in range(2)]
    await at_work.get()
    assert fence.steps == ["fence"]
    release.set()
    await asyncio.gather(*calls)
    assert fence.steps == ["fence", "done", "fence", "done"]


@pytest.mark.parametrize("refusal", [GONE, Cancelled()])
async def test_a_refused_fence_ends_the_call_before_anything_runs(refusal: ToolOutcome) -> None:
    """A fence that cannot be put up says how the call ends, and the tool does not run (E4)."""
    probe = Probe(idempotency=ToolIdempotency.NON_IDEMPOTENT)
    assert await invoke(probe, RecordingFence(refused_at=1, refusal=refusal)) == refusal
    assert probe.executions == 0


async def test_a_cancel_while_the_fence_goes_up_runs_nothing() -> None:
    """A call that is cancelled while its fence goes up never begins."""
    going_up = asyncio.Event()

    class Slow(RecordingFence):
        async def put_up(self) -> None:
            going_up.set()
            await asyncio.Event().wait()

    probe = Probe(idempotency=ToolIdempotency.NON_IDEMPOTENT)
    task = asyncio.create_task(invoke(probe, Slow()))
    await going_up.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert probe.executions == 0


@pytest.mark.parametrize("refused_at", [0, 2])
async def test_a_tool_on_the_event_loop_is_looked_at_once_more(refused_at: int) -> None:
    """A worker that was frozen behind its fence asks again before the tool, and runs nothing if refused (E4)."""
    fence = RecordingFence(refused_at=refused_at)
    fence.stale_in = threading.current_thread().name
    probe = Probe(idempotency=ToolIdempotency.NON_IDEMPOTENT)
    outcome = await invoke(probe, fence)
    assert fence.put_up_times == 2
    assert probe.executions == (0 if refused_at else 1)
    assert outcome == (GONE if refused_at else completed({"value": 1}))


@pytest.mark.parametrize("refused_at", [0, 2])
@pytest.mark.parametrize("thread", ["orchestral-tool", "orchestral-user-tools"])
async def test_a_function_is_looked_at_where_it_runs(thread: str, refused_at: int) -> None:
    """The last look stands behind the way to the function's own thread or loop; refused, it does not run (E4)."""
    ran: list[int] = []

    def now(value: int) -> int:
        ran.append(value)
        return value

    async def later(value: int) -> int:
        return now(value)

    fence = RecordingFence(refused_at=refused_at)
    fence.stale_in = thread
    outcome = await invoke(function_tool(now if thread == "orchestral-tool" else later), fence)
    assert fence.put_up_times == 2
    assert ran == ([] if refused_at else [1])
    assert outcome == (GONE if refused_at else completed(1))


async def test_what_has_ended_does_not_begin() -> None:
    """An adapter that comes to its last look after the call has ended is turned away."""
    call = GuardedCall(invocation(), Probe().descriptor, CallContext())
    assert call.confirm().result() is None
    call.end()
    with pytest.raises(NotStarted) as ended:
        call.confirm().result()
    assert ended.value.outcome == Cancelled()


def test_a_thread_whose_call_was_cancelled_on_its_way_runs_nothing() -> None:
    """A function that nobody waits for by the time its thread begins does not run."""
    future: Future[None] = Future()
    ran: list[int] = []
    future.cancel()
    running._fulfil(future, lambda: ran.append(1))
    assert ran == []


async def test_a_tool_sees_that_its_worker_may_have_lost_the_call() -> None:
    """`should_yield` is true once the fence was not renewed in time."""
    fence, seen = RecordingFence(), list[bool]()

    async def work(_arguments: JsonObject, call: ToolCall) -> object:
        seen.append(call.should_yield())
        fence.gone = True
        seen.append(call.should_yield())
        return None

    await invoke(Probe(work, idempotency=ToolIdempotency.IDEMPOTENT_WITH_KEY), fence)
    assert seen == [False, True]


# -- a result and a cancel -----------------------------------------------------------------------------------------


async def test_an_answer_at_the_moment_of_the_cancel_is_the_outcome() -> None:
    """A result that came before anybody saw the cancel wins (`spec/tools.md` §11)."""

    async def work(_arguments: JsonObject, _call: ToolCall) -> object:
        task.cancel()
        return "done"

    task = asyncio.create_task(invoke(Probe(work), RecordingFence()))
    assert await task == completed("done")


async def test_an_answer_is_judged_to_its_end_though_the_run_is_cancelled() -> None:
    """A cancel while the output is judged takes nothing back."""
    looked, release = threading.Event(), threading.Event()

    def view(_arguments: JsonObject, output: object) -> str:
        looked.set()
        release.wait()
        return f"seen {output}"

    task = asyncio.create_task(ToolGuard([Probe(view=view)]).invoke(invocation({"a": 1}), CallContext()))
    await asyncio.to_thread(looked.wait)
    task.cancel()
    await asyncio.sleep(0)
    release.set()
    report = await task
    assert (report.outcome, report.shown) == (completed({"a": 1}), completed("seen {'a': 1}"))


# -- a lost attempt ------------------------------------------------------------------------------------------------


async def test_what_happened_is_the_output_and_nothing_runs() -> None:
    """A tool that knows that the effect took place gives its output, and is not run again (divergence 3)."""
    tool, fence = Reconciling(saying(Happened({"id": 7}))), RecordingFence()
    assert await invoke(tool, fence, reconcile=True) == completed({"id": 7})
    assert (tool.steps, fence.steps) == (["asked"], [])


async def test_what_happened_is_judged_like_an_output() -> None:
    """The output of a lost attempt has to fit the schema as any other."""
    tool = Reconciling(saying(Happened("x")), output_schema={"type": "integer"})
    outcome = await invoke(tool, RecordingFence(), reconcile=True)
    assert isinstance(outcome, Failed)
    assert outcome.code == "output_schema_violation"


async def test_what_did_not_happen_begins_behind_a_fence_of_its_own() -> None:
    """A tool that knows that nothing happened and never will runs as if for the first time."""
    tool = Reconciling(saying(DidNotHappen()))
    assert await invoke(tool, RecordingFence(tool.steps), reconcile=True) == completed({"value": 1})
    assert tool.steps == ["asked", "fence", "run"]


@pytest.mark.parametrize("idempotency", FENCED)
@pytest.mark.parametrize(
    "said",
    [
        saying(CannotTell()),
        saying("perhaps"),
        raising(ValueError("no idea")),
        raising(SystemExit(3)),
        raising(ToolRejected("no", "no")),
        raising(asyncio.CancelledError()),
        forever,
    ],
    ids=["cannot tell", "nonsense", "raises", "exits", "rejects", "cancels", "hangs"],
)
async def test_a_tool_that_cannot_tell_leaves_the_effect_unknown(
    said: Callable[[JsonObject, ToolCall], Awaitable[Reconciled]],
    idempotency: ToolIdempotency,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is no clear answer is none: the effect is unknown and the tool does not run (E3)."""
    monkeypatch.setattr(tool_call, "RECONCILE_SECONDS", 0.05)
    tool, fence = Reconciling(said, idempotency=idempotency), RecordingFence()
    outcome = await invoke(tool, fence, reconcile=True)
    assert isinstance(outcome, UnknownEffect)
    assert "the tool cannot tell" in outcome.message
    assert (tool.steps, fence.steps) == (["asked"], [])


async def test_a_tool_without_the_hook_cannot_tell() -> None:
    """A tool that cannot be asked leaves the effect unknown."""
    probe = Probe(echo, idempotency=ToolIdempotency.NON_IDEMPOTENT)
    assert isinstance(await invoke(probe, RecordingFence(), reconcile=True), UnknownEffect)
    assert probe.executions == 0


async def test_a_tool_is_asked_with_the_key_and_arguments_of_the_lost_attempt() -> None:
    """The hook gets the same key, and arguments of its own: what it does to them does not reach the tool."""
    keys: list[str] = []

    async def said(arguments: JsonObject, call: ToolCall) -> Reconciled:
        keys.append(call.idempotency_key)
        assert arguments == {"value": 1}
        arguments.clear()
        return DidNotHappen()

    assert await invoke(Reconciling(said), RecordingFence(), reconcile=True) == completed({"value": 1})
    assert keys == ["run-1/m1/c1"]


async def test_a_first_attempt_asks_nobody() -> None:
    """Only after a loss is a tool asked."""
    tool = Reconciling(saying(CannotTell()))
    assert isinstance(await invoke(tool, RecordingFence()), Completed)
    assert tool.steps == ["run"]
