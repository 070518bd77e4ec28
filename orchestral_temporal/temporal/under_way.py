"""What a run has under way in Temporal: activities and timers, started for effects and read back as inputs."""

import asyncio
from collections.abc import Iterator
from typing import Final, TypeVar, assert_never

from temporalio import workflow
from temporalio.workflow import ActivityHandle

from orchestral_temporal.core.inputs import BatchAppended, BatchRefused, Input, MomentPast, TimeReached
from orchestral_temporal.core.state import (
    AppendSession,
    CallModel,
    CancelModelCall,
    CancelToolCall,
    Effect,
    InvokeTool,
    StopTimer,
    WakeAfter,
    WakeAt,
)
from orchestral_temporal.protocol.activities import Binding, ModelResult, SessionAppended, ToolObservation
from orchestral_temporal.temporal import dispatch, failures, names

LONGEST_TIMER: Final = 10 * 366 * 86_400.0
"""Seconds; no run lives to see a later moment, and a server may refuse to wait for it."""

Answer = TypeVar("Answer")


class UnderWay:
    """Lives inside one workflow; at most one model attempt and one session batch, any number of calls and timers."""

    def __init__(self) -> None:
        self._model: tuple[int, int, ActivityHandle[ModelResult]] | None = None
        self._tools: dict[str, tuple[int, ActivityHandle[ToolObservation]]] = {}
        self._append: tuple[int, ActivityHandle[SessionAppended]] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._due: list[str] = []
        self._past: list[str] = []

    def carry_out(self, effect: Effect, bound: Binding) -> None:
        """Start, cancel or stop what an effect names."""
        match effect:
            case CallModel(attempt=attempt):
                self._model = (attempt.round, attempt.attempt, dispatch.call_model(effect, bound))
            case CancelModelCall():
                if self._model is not None:
                    _, _, model = self._model
                    model.cancel()
                    model.add_done_callback(outcome)  # looked at, or the SDK complains that nobody did
                    self._model = None
            case InvokeTool(request=request):
                self._look_away(request.invocation_id)
                self._tools[request.invocation_id] = (request.attempt, dispatch.invoke_tool(effect, bound))
            case CancelToolCall(invocation_id):
                if invocation_id in self._tools:
                    _, call = self._tools[invocation_id]
                    call.cancel()
            case WakeAfter() | WakeAt() | StopTimer():
                self._set_timer(effect)
            case AppendSession(batch):
                handle = dispatch.keep(names.APPEND_SESSION, batch, SessionAppended, bound.timeouts)
                self._append = (batch.number, handle)
            case _:
                assert_never(effect)

    def _set_timer(self, effect: WakeAfter | WakeAt | StopTimer) -> None:
        self._stop(effect.timer)
        match effect:
            case WakeAfter(timer, ms):
                self._call_later(timer, ms / 1000)
            case WakeAt(timer, unix_ms):
                left = unix_ms / 1000 - workflow.time()
                if left <= 0:
                    self._past.append(timer)
                elif left < LONGEST_TIMER:
                    self._call_later(timer, left)
            case StopTimer():
                pass
            case _:
                assert_never(effect)

    def _call_later(self, timer: str, seconds: float) -> None:
        self._timers[timer] = asyncio.get_running_loop().call_later(seconds, self._fired, timer)

    def _look_away(self, invocation_id: str) -> None:
        """An attempt that another one takes the place of was cancelled; what it still says is looked at by nobody."""
        if invocation_id in self._tools:
            _, replaced = self._tools[invocation_id]
            replaced.add_done_callback(outcome)

    def _fired(self, timer: str) -> None:
        del self._timers[timer]
        self._due.append(timer)

    def _stop(self, timer: str) -> None:
        running = self._timers.pop(timer, None)
        if running is not None:
            running.cancel()

    def past(self) -> Iterator[MomentPast]:
        """The moments that were past when they were named, each once: nothing may come before them."""
        past, self._past = self._past, []
        for timer in past:
            yield MomentPast(timer)

    @property
    def answered(self) -> bool:
        """Whether `answers` has something to say."""
        return (
            bool(self._due)
            or (self._model is not None and self._model[2].done())
            or (self._append is not None and self._append[1].done())
            or any(call.done() for _, call in self._tools.values())
        )

    def answers(self) -> Iterator[Input]:
        """Every answer that is there, each once; what a cancel left behind is read from the handle, never awaited."""
        if self._model is not None and self._model[2].done():
            (round_, attempt, model), self._model = self._model, None
            yield failures.model_ended(round_, attempt, outcome(model))
        for invocation_id, (attempt, call) in list(self._tools.items()):
            if call.done():
                del self._tools[invocation_id]
                yield failures.tool_ended(invocation_id, attempt, outcome(call))
        due, self._due = self._due, []
        for timer in due:
            yield TimeReached(timer)
        if self._append is not None and self._append[1].done():
            (number, appended), self._append = self._append, None
            answer = outcome(appended)
            if isinstance(answer, BaseException):  # around the reason the SDK says only that an activity failed
                yield BatchRefused(number, failures.sentence(answer.__cause__ or answer))
            else:
                yield BatchAppended(number, answer)


def outcome(handle: ActivityHandle[Answer]) -> Answer | BaseException:
    """How an activity ended, without awaiting it: an await in a cancelled task hides an outcome that is there."""
    if handle.cancelled():
        return asyncio.CancelledError()
    error = handle.exception()
    return handle.result() if error is None else error
