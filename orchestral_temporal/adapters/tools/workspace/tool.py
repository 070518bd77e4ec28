"""The shell around blocking work: a thread, and a word to it when the call is cancelled."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.ports import EffectUncertain, NotStarted, ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    EffectScope,
    ModelToolSchema,
    ToolConcurrency,
    ToolDescriptor,
    ToolIdempotency,
    ToolPolicyBounds,
    ToolRestriction,
)

_SLACK = timedelta(seconds=5)
"""What the guard's time-out leaves a tool beyond its own limit, to return what it has."""

Work = Callable[[JsonObject, ToolCall, Watch], JsonObject]
"""What a tool does, in a thread: arguments, call and watch to output."""


@dataclass(frozen=True)
class WorkspaceTool:
    """A tool over the workspaces of a run.

    `work` blocks, so it runs in a thread; it looks at its watch often, and ends within a second of a cancellation.
    """

    descriptor: ToolDescriptor
    view_contract: str
    limit: timedelta
    work: Work
    shown: Callable[[JsonObject, Json], Json]
    crash_code: str

    async def invoke(self, arguments: JsonObject, call: ToolCall) -> Json:
        """Do the work.

        Raises:
            ToolRejected, ToolFailed: the tool's codes (`spec/builtin-tools.md` §2, §4 to §9).
            EffectUncertain: some of several changes were made.
            NotStarted: nobody wants this attempt any more.
        """
        watch = Watch(call, self.limit)
        try:
            return await asyncio.to_thread(self.work, arguments, call, watch)
        except asyncio.CancelledError:
            watch.abandon()
            raise
        except (ToolRejected, ToolFailed, EffectUncertain, NotStarted):
            raise
        except Exception as error:
            # The sheet's "worker crash". A read may simply be tried again.
            safe = self.descriptor.idempotency is ToolIdempotency.PURE
            raise ToolFailed(self.crash_code, f"The work broke off: {type(error).__name__}.", retryable=safe) from error

    def view(self, arguments: JsonObject, output: Json) -> Json:
        """What the model sees of the output."""
        return self.shown(arguments, output)


def descriptor(
    name: str,
    version: int,
    description: str,
    schemas: tuple[JsonObject, JsonObject],
    limit: timedelta,
    *,
    writes: bool = False,
) -> ToolDescriptor:
    """The declaration of a tool; `schemas` are those of input and output.

    One that writes must not run twice, and asks a person where the policy has no word on it.
    """
    effects = (EffectScope.FILESYSTEM_READ, *((EffectScope.FILESYSTEM_WRITE,) if writes else ()))
    return ToolDescriptor(
        tool_id=f"orchestral/{name}/v{version}",
        model_schema=ModelToolSchema(name=name, description=description, input_schema=schemas[0]),
        output_schema=schemas[1],
        effect_scopes=effects,
        restriction=ToolRestriction(
            bounds=ToolPolicyBounds(
                allowed_effects=effects,
                approval=ApprovalPolicy.REQUIRED if writes else ApprovalPolicy.NOT_REQUIRED,
                max_timeout_ms=(limit + _SLACK) // timedelta(milliseconds=1),
            )
        ),
        idempotency=ToolIdempotency.NON_IDEMPOTENT if writes else ToolIdempotency.PURE,
        concurrency=ToolConcurrency.PER_RUN_SERIAL if writes else ToolConcurrency.PARALLEL_SAFE,
    )
