"""A tool whose work, view and bounds a test chooses, and calls of it."""

import asyncio
from collections.abc import Awaitable, Callable

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    Completed,
    InlineOutput,
    ModelToolSchema,
    ToolConcurrency,
    ToolDescriptor,
    ToolIdempotency,
    ToolInvocation,
    ToolPolicyBounds,
    ToolRestriction,
)
from orchestral_temporal.protocol.words import Json, JsonObject

Work = Callable[[JsonObject, ToolCall], Awaitable[object]]


async def echo(arguments: JsonObject, _call: ToolCall) -> object:
    """Give the arguments back."""
    return arguments


class Probe:
    """A tool whose work, view and bounds a test chooses; it counts its executions."""

    view_contract = "test/view/v1"

    def __init__(
        self,
        work: Work = echo,
        *,
        tool_id: str = "test/probe",
        schema: JsonObject | None = None,
        output_schema: JsonObject | None = None,
        idempotency: ToolIdempotency = ToolIdempotency.PURE,
        concurrency: ToolConcurrency = ToolConcurrency.PARALLEL_SAFE,
        approval: ApprovalPolicy = ApprovalPolicy.NOT_REQUIRED,
        timeout_ms: int | None = None,
        max_output_bytes: int | None = None,
        view: Callable[[JsonObject, Json], Json] = lambda _, output: output,
    ) -> None:
        self.executions = 0
        self.view = view
        self._work = work
        self.descriptor = ToolDescriptor(
            tool_id=tool_id,
            model_schema=ModelToolSchema(name=tool_id, description="A probe.", input_schema=schema or {}),
            output_schema=output_schema or {},
            restriction=ToolRestriction(
                bounds=ToolPolicyBounds(approval=approval, max_timeout_ms=timeout_ms, max_output_bytes=max_output_bytes)
            ),
            idempotency=idempotency,
            concurrency=concurrency,
        )

    async def invoke(self, arguments: JsonObject, call: ToolCall) -> Json:
        """Count, then do the work; what a real tool must not return is part of what is tested."""
        self.executions += 1
        return await self._work(arguments, call)


def invocation(arguments: JsonObject | None = None, tool_id: str = "test/probe") -> ToolInvocation:
    """The first call of a run."""
    return ToolInvocation(run_id="run-1", call_id="run-1/m1/c1", tool_id=tool_id, arguments=arguments or {})


def returning(value: object) -> Work:
    """Work that returns a value."""

    async def work(_arguments: JsonObject, _call: ToolCall) -> object:
        return value

    return work


def raising(fault: BaseException) -> Work:
    """Work that raises."""

    async def work(_arguments: JsonObject, _call: ToolCall) -> object:
        raise fault

    return work


async def forever(_arguments: JsonObject, _call: ToolCall) -> object:
    """Wait for what never comes."""
    return await asyncio.Event().wait()


def completed(value: Json) -> Completed:
    """A completed outcome."""
    return Completed(output=InlineOutput(value=value))
