"""THE GUARD: no tool runs except through `ToolGuard.invoke` (`spec/tools.md` §10 to §12).

It never raises for what a tool, a model or a person does: every ending is an outcome. The steps, in order:

| step | decides | refusal or failure |
|---|---|---|
| invocation | the ids are there | `rejected/invalid_invocation` |
| resolve | the tool is registered | `rejected/tool_not_found` |
| schema | the arguments fit the input schema | `rejected/input_schema_violation` |
| policy | the tool's own bounds let it run without a person | `rejected/policy_denied` |
| gate | a `global_serial` tool is free in this process | |
| execute | the tool answers before its deadline | §11, see `_execute` |
| output | it is JSON, fits its schema and the caps | §12, see `_judge_output` |

Policy intersection, plan and approval take the place of *policy* when they come; the effect fence stands between *gate*
and *execute*.

An exception out of a tool is the tool's answer that it failed: `failed/tool_error`, for every class of idempotency. The
sheet calls a panic an unknown effect, since there nobody is left who could answer; a Python function that raises has
ended, in an orderly way, and its author decides what that means. Nobody answers only at a timeout or a cancel.
"""

import asyncio
import copy
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from traceback import format_exception
from typing import Final, ParamSpec, TypeVar

import structlog

from orchestral_temporal.core.limits import INLINE_RESULT_BYTES, MESSAGE_CHARACTERS
from orchestral_temporal.core.output import Output, OutputError, read_output, shortened, without_surrogates
from orchestral_temporal.core.schema import compile_schema
from orchestral_temporal.core.tool_registry import check_tools
from orchestral_temporal.ports import Tool, ToolFailed, ToolRejected
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    Cancelled,
    Completed,
    Failed,
    InlineOutput,
    Rejected,
    ToolConcurrency,
    ToolDescriptor,
    ToolIdempotency,
    ToolInvocation,
    ToolOutcome,
    UnknownEffect,
)
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import JsonObject

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


@dataclass(frozen=True)
class CallContext:
    """What the caller of the guard knows of a call besides its invocation.

    `on_progress` runs on the event loop that called the guard; `yield_wanted` may be asked from any thread.
    """

    workspaces: tuple[str, ...] = ()
    readable_roots: tuple[str, ...] = ()
    on_progress: Callable[[str, float | None], None] = _ignore_progress
    yield_wanted: Callable[[], bool] = _nobody_waits


@dataclass(frozen=True)
class CallReport:
    """How a call ended: `outcome` is for the journal, `shown` is the same as the model sees it.

    The two differ when the tool has a model view of its own. `notes` say what was changed on the way, a sentence each.
    """

    outcome: ToolOutcome
    shown: ToolOutcome
    notes: tuple[str, ...] = ()


class GuardedCall:
    """What a running tool knows of its call (`ports.ToolCall`)."""

    def __init__(self, invocation: ToolInvocation, descriptor: ToolDescriptor, context: CallContext) -> None:
        bounds = descriptor.restriction.bounds
        self.run_id: Final = invocation.run_id
        self.idempotency_key: Final = invocation.call_id
        self.workspaces: Final = context.workspaces
        self.readable_roots: Final = context.readable_roots
        self.max_output_bytes: Final = bounds.max_output_bytes
        self.timeout: Final = None if bounds.max_timeout_ms is None else timedelta(milliseconds=bounds.max_timeout_ms)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()

    def report_progress(self, message: str, fraction: float | None = None) -> None:
        """Tell watchers how far the call is, from any thread; after the call has ended nobody listens."""
        if not self._over.is_set():
            with suppress(RuntimeError):  # the loop has gone with its worker
                self._loop.call_soon_threadsafe(self._context.on_progress, message, fraction)

    def should_yield(self) -> bool:
        """Whether somebody wants what there is, or nobody waits any more."""
        return self._over.is_set() or self._context.yield_wanted()

    def end(self) -> None:
        """The call is over, whatever the tool still does."""
        self._over.set()


@dataclass(frozen=True)
class _Answer:
    """What a tool returned, before anybody has looked at it."""

    value: object


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
        self._at_work: set[asyncio.Task[_Answer | ToolOutcome]] = set()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The registered tools by id, the order in which a model is offered them."""
        return tuple(self._tools.values())

    async def invoke(self, invocation: ToolInvocation, context: CallContext) -> CallReport:
        """Run one call.

        Raises:
            asyncio.CancelledError: the caller was cancelled. The tool was told and is not waited for; what that means
                for its effect, `interrupted` says.
        """
        try:
            tool, arguments = await self._admit(invocation)
        except ToolRejected as refusal:
            return _plain(_rejected(refusal))
        async with self._gates.get(invocation.tool_id) or nullcontext():
            ending = await self._execute(tool, arguments, GuardedCall(invocation, tool.descriptor, context))
        if isinstance(ending, _Answer):
            return await self._in_thread(_judge_output, tool, invocation.arguments, ending.value)
        return _plain(ending)

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

    async def _execute(self, tool: Tool, arguments: JsonObject, call: GuardedCall) -> _Answer | ToolOutcome:
        """Let the tool work until its deadline and then stop it; what it says after the deadline is dropped."""
        work = asyncio.create_task(_answer(tool, arguments, call))
        # The event loop itself holds a task only weakly, and one that ignores its cancel outlives this call.
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)
        try:
            await asyncio.wait({work}, timeout=call.timeout.total_seconds() if call.timeout else None)
            if not work.done():
                call.end()
                work.cancel()
                await asyncio.wait({work}, timeout=GRACE_SECONDS)
                return _timed_out(tool.descriptor)
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            call.end()
        if work.cancelled():
            return _unanswered(tool.descriptor, Cancelled(), "The tool cancelled its own call.")
        return work.result()

    async def _in_thread(self, judge: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Judge off the event loop, which has to keep the heartbeats of all calls going."""
        return await asyncio.get_running_loop().run_in_executor(self._judges, partial(judge, *arguments, **options))


def interrupted(guard: ToolGuard, invocation: ToolInvocation) -> ToolOutcome:
    """How a call ends whose `invoke` was cancelled because its run was (`spec/tools.md` §11).

    That the tool was not yet at work is not looked for: a cancelled run has no use for the difference.
    """
    tool = next((tool for tool in guard.tools if tool.descriptor.tool_id == invocation.tool_id), None)
    if tool is None:
        return Cancelled()
    return _unanswered(tool.descriptor, Cancelled(), "The run was cancelled while the tool was at work.")


def _judge_arguments(descriptor: ToolDescriptor, arguments: JsonObject) -> JsonObject:
    fault = compile_schema(descriptor.model_schema.input_schema).check(arguments)
    if fault is not None:
        raise ToolRejected("input_schema_violation", f"The arguments do not fit the schema: {fault}.")
    return copy.deepcopy(arguments)


async def _answer(tool: Tool, arguments: JsonObject, call: GuardedCall) -> _Answer | ToolOutcome:
    try:
        return _Answer(await tool.invoke(arguments, call))
    except ToolRejected as refusal:
        return _rejected(refusal)
    except ToolFailed as failure:
        return _failed(_text(failure.code, "tool_error"), failure.message, retryable=bool(failure.retryable))
    except (Exception, SystemExit) as fault:  # noqa: BLE001 -- whatever a tool raises is its answer, not our end
        # As text: a renderer that is given the exception itself may print local variables, which may be secret.
        trace = "".join(format_exception(fault))
        _log.warning("tool_raised", tool_id=tool.descriptor.tool_id, call_id=call.idempotency_key, traceback=trace)
        return _failed("tool_error", f"{type(fault).__name__}: {_text(fault, 'no message')}")


def _judge_output(tool: Tool, arguments: JsonObject, returned: object) -> CallReport:
    """§12: JSON, output schema, model view, `max_output_bytes`, inline cap.

    Until there are artifacts an output or view above the inline cap is cut to its beginning, which says so.
    """
    try:
        output = read_output(returned)
        _check_output(tool.descriptor, output)
        view = _view(tool, arguments, output)
    except OutputError as error:
        return _plain(_failed(error.code, error.message))
    notes: list[str] = []
    if output.replaced:
        notes.append(f"{output.replaced} characters of the output were not Unicode and became U+FFFD.")
    outcome = _completed(output, notes)
    shown = outcome if view is output else _completed(view, notes)
    return CallReport(outcome, shown, tuple(notes))


def _check_output(descriptor: ToolDescriptor, output: Output) -> None:
    # Arguments have a bound on their parts and so has what a schema judges; without a schema there is nothing to judge.
    fault = compile_schema(descriptor.output_schema).check(output.value) if descriptor.output_schema else None
    if fault is not None:
        raise OutputError("output_schema_violation", f"The output does not fit its schema: {fault}.")
    limit = descriptor.restriction.bounds.max_output_bytes
    if limit is not None and output.size > limit:
        raise OutputError("output_limit_exceeded", f"The output has {output.size} bytes, {limit} are allowed.")


def _view(tool: Tool, arguments: JsonObject, output: Output) -> Output:
    try:
        view = tool.view(arguments, output.value)
        return output if view is output.value else read_output(view)
    except Exception as fault:  # noqa: BLE001 -- a view is the tool author's code
        raise OutputError("model_output_serialization_failed", f"The tool's view failed: {_text(fault, '?')}") from None


def _completed(output: Output, notes: list[str]) -> Completed:
    if output.size <= INLINE_RESULT_BYTES:
        return Completed(output=InlineOutput(value=output.value))
    notes.append(f"A result of {output.size} bytes was cut to its beginning.")
    return Completed(output=InlineOutput(value=shortened(output)))


def _plain(outcome: ToolOutcome) -> CallReport:
    return CallReport(outcome, outcome)


def _rejected(refusal: ToolRejected) -> Rejected:
    return Rejected(
        code=_text(refusal.code, "tool_rejected"), message=_text(refusal.message, "The tool gave no reason.")
    )


def _failed(code: str, message: str, *, retryable: bool = False) -> Failed:
    return Failed(code=code, message=_text(message, "The tool gave no reason."), retryable=retryable)


def _timed_out(descriptor: ToolDescriptor) -> ToolOutcome:
    message = f"The tool did not answer within {descriptor.restriction.bounds.max_timeout_ms} ms."
    return _unanswered(descriptor, _failed("timeout", message), message)


def _unanswered(descriptor: ToolDescriptor, certain: ToolOutcome, message: str) -> ToolOutcome:
    """Nobody says how the work ended: the effect of a tool that must not run twice is unknown (`spec/tools.md` §11)."""
    if descriptor.idempotency is ToolIdempotency.NON_IDEMPOTENT:
        return UnknownEffect(message=f"{message} Whether it took effect is not known.")
    return certain


def _text(value: object, otherwise: str) -> str:
    """A text from outside as one that every record can hold: Unicode, not blank, cut."""
    try:
        text, _ = without_surrogates(str(value))
    except Exception:  # noqa: BLE001 -- an exception may fail even at saying what it is
        return otherwise
    text = text if len(text) <= MESSAGE_CHARACTERS else f"{text[: MESSAGE_CHARACTERS - 1]}…"
    return text if text.strip() else otherwise
