"""The one place that schedules activities: queues, time-outs, retries, summaries (decisions 15, 17, 26, 28)."""

from datetime import timedelta
from typing import Final, TypeVar

from temporalio import workflow
from temporalio.workflow import ActivityCancellationType, ActivityHandle

from orchestral_temporal.core.limits import RECONCILE_SECONDS, SUMMARY_BYTES
from orchestral_temporal.core.state import CallModel, InvokeTool
from orchestral_temporal.protocol.activities import Binding, ModelResult, Timeouts, ToolObservation
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.protocol.tools import FENCED
from orchestral_temporal.temporal import failures, names, visibility

LONGEST_CALL: Final = timedelta(hours=24)
"""Start-to-close of a call that sets no bound of its own; a worker's silence is noticed by the heartbeat."""

KEEPER_TIMEOUT: Final = timedelta(seconds=30)
"""Start-to-close of binding and session calls: short work, repeated until it succeeds."""

TOOL_MARGIN: Final = timedelta(seconds=10)
"""How far a call's deadline lies before start-to-close, so that the worker enforces it and can say so (decision 15).

As much again lies before it for what comes before the tool, so that a tool's own time is seldom cut.
"""

Answer = TypeVar("Answer")


def call_model(effect: CallModel, bound: Binding) -> ActivityHandle[ModelResult]:
    """Start a model attempt; a cancel does not wait for its end, since a completion has no effect but its cost."""
    attempt = effect.attempt
    return workflow.start_activity(
        names.CALL_MODEL,
        attempt,
        result_type=ModelResult,
        task_queue=bound.queues.models,
        start_to_close_timeout=LONGEST_CALL,
        heartbeat_timeout=timedelta(milliseconds=bound.timeouts.heartbeat_ms),
        retry_policy=failures.CALL_RETRIES,
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        summary=visibility.model_summary(attempt.round, attempt.attempt, effect.model),
    )


def invoke_tool(effect: InvokeTool, bound: Binding) -> ActivityHandle[ToolObservation]:
    """Start a tool call; a cancel waits for its end, since only the worker knows what happened."""
    timeouts = bound.timeouts
    # A false alarm costs more where the call must not simply run again (decision 17).
    beat = timeouts.fenced_heartbeat_ms if effect.idempotency in FENCED else timeouts.heartbeat_ms
    longest = LONGEST_CALL if effect.timeout_ms is None else timedelta(milliseconds=effect.timeout_ms)
    if effect.request.reconcile:
        longest += timedelta(seconds=RECONCILE_SECONDS)
    return workflow.start_activity(
        names.INVOKE_TOOL,
        effect.request,
        result_type=ToolObservation,
        task_queue=bound.queues.tools,
        start_to_close_timeout=longest + 2 * TOOL_MARGIN,
        heartbeat_timeout=timedelta(milliseconds=beat),
        retry_policy=failures.CALL_RETRIES,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=visibility.tool_summary(effect.round, effect.name, effect.request.arguments),
    )


def keep(
    name: str, word: Word, answer: type[Answer], timeouts: Timeouts, *, queue: str | None = None
) -> ActivityHandle[Answer]:
    """Start a binding or session call; the server repeats it, also when its worker falls silent."""
    return workflow.start_activity(
        name,
        word,
        result_type=answer,
        task_queue=queue,
        start_to_close_timeout=KEEPER_TIMEOUT,
        heartbeat_timeout=timedelta(milliseconds=timeouts.heartbeat_ms),
        retry_policy=failures.KEEPER_RETRIES,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=visibility.cut(name.replace("_", " "), SUMMARY_BYTES),
    )
