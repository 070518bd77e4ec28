"""THE GUARD: no tool runs except through `ToolGuard.invoke` (`spec/tools.md` §10 to §12).

It never raises for what a tool, a model or a person does: every ending is an outcome. The steps, in order:

| step | decides | refusal or failure |
|---|---|---|
| invocation | the ids are there | `rejected/invalid_invocation` |
| resolve | the tool is registered | `rejected/tool_not_found` |
| schema | the arguments fit the input schema | `rejected/input_schema_violation` |
| policy | the tool's own bounds let it run without a person | `rejected/policy_denied` |
| gate | a `global_serial` tool is free in this process | |
| reconcile | after a lost attempt: the tool says that nothing happened | its earlier output, or an unknown effect |
| fence | the call is on record, if its tool must not simply run again | `rejected/not_started`, `cancelled` |
| execute | the tool answers before its deadline and the call's | §11, see `_perform` |
| output | it is JSON, fits its schema and the caps | §12, see `tool_outcomes` |

Policy intersection, plan and approval take the place of *policy* when they come.

An exception out of a tool is the tool's answer that it failed: `failed/tool_error`, for every class of idempotency. The
sheet calls a panic an unknown effect, since there nobody is left who could answer; a Python function that raises has
ended, in an orderly way, and its author decides what that means. Nobody answers only at a timeout or a cancel.
"""

import asyncio
import copy
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from traceback import format_exception
from typing import Final, ParamSpec, TypeVar

import structlog

from orchestral_temporal.core.limits import RECONCILE_SECONDS
from orchestral_temporal.core.schema import compile_schema
from orchestral_temporal.core.tool_registry import check_tools
from orchestral_temporal.ports import (
    CannotTell,
    DidNotHappen,
    EffectFence,
    EffectUncertain,
    Happened,
    NotStarted,
    Reconciled,
    ReconcilingTool,
    Tool,
    ToolFailed,
    ToolRejected,
)
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import (
    FENCED,
    ApprovalPolicy,
    Cancelled,
    Rejected,
    ToolConcurrency,
    ToolDescriptor,
    ToolInvocation,
    ToolOutcome,
    UnknownEffect,
)
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import JsonObject
from orchestral_temporal.runtime.tool_outcomes import (
    NO_REASON,
    CallReport,
    failed,
    judge_output,
    plain,
    rejected,
    said,
    timed_out,
    unanswered,
)

GRACE_SECONDS: Final = 0.25
"""How long a tool that was told to stop may take before the call ends without it (`spec/tools.md` §11)."""

JUDGES: Final = 2
"""Threads that judge arguments and outputs: pure work, so more would only take turns."""

P = ParamSpec("P")
T = TypeVar("T")

_log = structlog.get_logger(__name__)


def _ignore_progress(_message: str, _fraction: float | None) -> None:
    """Nobody watches."""


def _nobody_waits() -> bool:
    return False


class OpenFence:
    """Lets every call pass: nothing need be on record, or nobody keeps a record."""

    async def put_up(self) -> None:
        """Let it pass."""

    def fresh(self) -> bool:
        """Always."""
        return True

    def lapsed(self) -> bool:
        """Never."""
        return False


OPEN: Final = OpenFence()


@dataclass(frozen=True)
class CallContext:
    """What the caller of the guard knows of a call besides its invocation.

    `on_progress` runs on the event loop that called the guard; `yield_wanted` may be asked from any thread. `fence` is
    put up for calls of the classes `FENCED`; `reconcile` says that an attempt was lost behind one. After `deadline`, a
    moment of that event loop's clock, nobody waits for the call any more, whatever time its tool may take.
    """

    workspaces: tuple[str, ...] = ()
    readable_roots: tuple[str, ...] = ()
    writable_roots: tuple[str, ...] = ()
    on_progress: Callable[[str, float | None], None] = _ignore_progress
    yield_wanted: Callable[[], bool] = _nobody_waits
    fence: EffectFence = OPEN
    reconcile: bool = False
    deadline: float = math.inf


class GuardedCall:
    """What a running tool knows of its call (`ports.ToolCall`)."""

    def __init__(
        self, invocation: ToolInvocation, descriptor: ToolDescriptor, context: CallContext, fence: EffectFence = OPEN
    ) -> None:
        bounds = descriptor.restriction.bounds
        self.run_id: Final = invocation.run_id
        self.idempotency_key: Final = invocation.call_id
        self.workspaces: Final = context.workspaces
        self.readable_roots: Final = context.readable_roots
        self.writable_roots: Final = context.writable_roots
        self.max_output_bytes: Final = bounds.max_output_bytes
        self.timeout: Final = None if bounds.max_timeout_ms is None else timedelta(milliseconds=bounds.max_timeout_ms)
        self._context = context
        self._fence = fence
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()

    def report_progress(self, message: str, fraction: float | None = None) -> None:
        """Tell watchers how far the call is, from any thread; after the call has ended nobody listens."""
        if not self._over.is_set():
            with suppress(RuntimeError):  # the loop has gone with its worker
                self._loop.call_soon_threadsafe(self._context.on_progress, message, fraction)

    def should_yield(self) -> bool:
        """Whether somebody wants what there is, nobody waits any more, or this worker may have lost the call."""
        return self._over.is_set() or self._context.yield_wanted() or self._fence.lapsed()

    def confirm(self) -> Future[None]:
        """The last look before an effect, for another thread than the guard's; fails with `NotStarted`."""
        if not self._over.is_set() and not self._fence.fresh():
            return asyncio.run_coroutine_threadsafe(self._fence.put_up(), self._loop)
        looked: Future[None] = Future()
        if self._over.is_set():
            looked.set_exception(NotStarted(Cancelled()))
        else:
            looked.set_result(None)
        return looked

    async def confirmed(self) -> None:
        """The last look on the guard's own event loop.

        Raises:
            NotStarted: nothing may run.
        """
        if not self._fence.fresh():
            await self._fence.put_up()

    def end(self) -> None:
        """The call is over, whatever the tool still does."""
        self._over.set()


@dataclass(frozen=True)
class _Answer:
    """What a tool returned, before anybody has looked at it."""

    value: object


_Ending = _Answer | ToolOutcome


class ToolGuard:
    """The tools of one worker, and the only way to run them."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Register tools.

        Raises:
            WordError: invalid_descriptor or invalid_policy; the sentence names the tool.
        """
        ordered = sorted(tools, key=lambda tool: tool.descriptor.tool_id)
        check_tools([tool.descriptor for tool in ordered])
        self._tools = {tool.descriptor.tool_id: tool for tool in ordered}
        self._gates = {
            tool_id: asyncio.Lock()
            for tool_id, tool in self._tools.items()
            if tool.descriptor.concurrency is ToolConcurrency.GLOBAL_SERIAL
        }
        self._judges = ThreadPoolExecutor(JUDGES, thread_name_prefix="tool-guard")
        self._at_work: set[asyncio.Task[object]] = set()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The registered tools by id, the order in which a model is offered them."""
        return tuple(self._tools.values())

    async def invoke(self, invocation: ToolInvocation, context: CallContext) -> CallReport:
        """Run one call.

        Raises:
            asyncio.CancelledError: the caller was cancelled before the tool answered. The tool was told and given its
                grace; what that means for its effect, `interrupted` says.
        """
        try:
            tool, arguments = await self._admit(invocation)
        except ToolRejected as refusal:
            return plain(rejected(refusal))
        async with self._gates.get(invocation.tool_id) or nullcontext():
            earlier = await self._reconciled(tool, invocation, context) if context.reconcile else None
            ending = earlier if earlier is not None else await self._perform(tool, arguments, invocation, context)
        judged = isinstance(ending, _Answer)
        report = await self._judged(tool, invocation.arguments, ending) if judged else plain(ending)
        return replace(report, reconciled=earlier is not None)

    async def _admit(self, invocation: ToolInvocation) -> tuple[Tool, JsonObject]:
        """The tool of a call that may run, and its own copy of the arguments.

        Raises:
            ToolRejected: the call may not run.
        """
        try:
            validate(invocation)
        except WordError as error:
            raise ToolRejected("invalid_invocation", error.message) from None
        tool = self._tools.get(invocation.tool_id)
        if tool is None:
            raise ToolRejected("tool_not_found", f"No tool with the id {invocation.tool_id!r} is registered here.")
        arguments = await self._in_thread(_judge_arguments, tool.descriptor, invocation.arguments)
        if tool.descriptor.restriction.bounds.approval is not ApprovalPolicy.NOT_REQUIRED:
            raise ToolRejected(
                "policy_denied", "This tool runs only if a person allows it, and nobody can be asked here."
            )
        return tool, arguments

    async def _perform(
        self, tool: Tool, arguments: JsonObject, invocation: ToolInvocation, context: CallContext
    ) -> _Ending:
        """Put up the fence, then let the tool work until its deadline; what it says after that is dropped."""
        fence = context.fence if tool.descriptor.idempotency in FENCED else OPEN
        call = GuardedCall(invocation, tool.descriptor, context, fence)
        try:
            await fence.put_up()
        except NotStarted as ended:
            return ended.outcome
        seconds = context.deadline - asyncio.get_running_loop().time()
        if seconds <= 0:
            return Rejected(code="not_started", message="No time was left for the call when its tool could have begun.")
        if call.timeout is not None:
            seconds = min(seconds, call.timeout.total_seconds())
        task = await self._until(seconds, asyncio.create_task(_answer(tool, arguments, call)), call)
        if task is None:
            return timed_out(tool.descriptor, seconds)
        if task.cancelled():
            return unanswered(tool.descriptor, Cancelled(), "The tool cancelled its own call.")
        return task.result()

    async def _reconciled(self, tool: Tool, invocation: ToolInvocation, context: CallContext) -> _Ending | None:
        """What became of a lost attempt, as its tool says; none if nothing did, so that the call may begin."""
        call = GuardedCall(invocation, tool.descriptor, context)
        work = _said(tool, copy.deepcopy(invocation.arguments), call)
        task = await self._until(RECONCILE_SECONDS, asyncio.create_task(work), call)
        found = None if task is None or task.cancelled() else task.result()
        if isinstance(found, Happened):
            return _Answer(found.output)
        if isinstance(found, DidNotHappen):
            return None
        return UnknownEffect(
            message="An earlier attempt was lost. Whether it took effect is not known, and the tool cannot tell."
        )

    async def _until(self, seconds: float, work: asyncio.Task[T], call: GuardedCall) -> asyncio.Task[T] | None:
        """Wait for work until its deadline and then stop it; none if it was not done by then."""
        # The event loop itself holds a task only weakly, and one that ignores its cancel outlives this call.
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)
        try:
            await asyncio.wait({work}, timeout=None if math.isinf(seconds) else seconds)
        except asyncio.CancelledError:
            if not work.done():
                await _stop(work, call)
                raise
        if not work.done():
            await _stop(work, call)
            return None
        call.end()
        return work

    async def _judged(self, tool: Tool, arguments: JsonObject, answer: _Answer) -> CallReport:
        """Judge an answer to its end, also when the run is cancelled meanwhile: it came before the cancel."""
        judging = asyncio.ensure_future(self._in_thread(judge_output, tool, arguments, answer.value))
        with suppress(asyncio.CancelledError):
            return await asyncio.shield(judging)
        return await judging

    async def _in_thread(self, judge: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Judge off the event loop, which has to keep the heartbeats of all calls going."""
        return await asyncio.get_running_loop().run_in_executor(self._judges, partial(judge, *arguments, **options))


def interrupted(guard: ToolGuard, invocation: ToolInvocation, *, fenced: bool) -> ToolOutcome:
    """How a call ends whose `invoke` was cancelled because its run was (`spec/tools.md` §11).

    Without its fence nothing ran that matters; behind it nobody knows, unless the tool may run twice.
    """
    tool = next((tool for tool in guard.tools if tool.descriptor.tool_id == invocation.tool_id), None)
    if tool is None or not fenced:
        return Cancelled()
    return unanswered(tool.descriptor, Cancelled(), "The run was cancelled while the tool was at work.")


def _judge_arguments(descriptor: ToolDescriptor, arguments: JsonObject) -> JsonObject:
    fault = compile_schema(descriptor.model_schema.input_schema).check(arguments)
    if fault is not None:
        raise ToolRejected("input_schema_violation", f"The arguments do not fit the schema: {fault}.")
    return copy.deepcopy(arguments)


async def _stop(work: asyncio.Task[T], call: GuardedCall) -> None:
    """Tell a tool to stop, and give it its grace."""
    call.end()
    work.cancel()
    await asyncio.wait({work}, timeout=GRACE_SECONDS)


async def _answer(tool: Tool, arguments: JsonObject, call: GuardedCall) -> _Ending:
    try:
        await call.confirmed()
        return _Answer(await tool.invoke(arguments, call))
    except NotStarted as ended:
        return ended.outcome
    except ToolRejected as refusal:
        return rejected(refusal)
    except ToolFailed as failure:
        return failed(said(failure.code, "tool_error"), failure.message, retryable=bool(failure.retryable))
    except EffectUncertain as uncertain:
        return UnknownEffect(message=said(uncertain, NO_REASON))
    except (Exception, SystemExit) as fault:  # noqa: BLE001 -- whatever a tool raises is its answer, not our end
        _log_fault("tool_raised", tool, call, fault)
        return failed("tool_error", f"{type(fault).__name__}: {said(fault, 'no message')}")


async def _said(tool: Tool, arguments: JsonObject, call: GuardedCall) -> Reconciled:
    if not isinstance(tool, ReconcilingTool):
        return CannotTell()
    try:
        return await tool.reconcile(arguments, call)
    except (Exception, SystemExit) as fault:  # noqa: BLE001 -- a tool that fails at saying it has not said it
        _log_fault("tool_cannot_tell", tool, call, fault)
        return CannotTell()


def _log_fault(event: str, tool: Tool, call: GuardedCall, fault: BaseException) -> None:
    # As text: a renderer that is given the exception itself may print local variables, which may be secret.
    trace = "".join(format_exception(fault))
    _log.warning(event, tool_id=tool.descriptor.tool_id, call_id=call.idempotency_key, traceback=trace)
