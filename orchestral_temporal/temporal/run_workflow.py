"""`AgentRun`: one run, from its start argument to its result (decisions 1, 13, 14, 23).

The workflow brings inputs to `advance` and carries out the effects that come back; it decides nothing itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar, assert_never

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ActivityCancellationType, ActivityHandle

with workflow.unsafe.imports_passed_through():
    from orchestral_temporal.core.limits import SUMMARY_BYTES
    from orchestral_temporal.core.loop import advance, begin
    from orchestral_temporal.core.reducer import ack, status, view
    from orchestral_temporal.core.result import refused_result, result
    from orchestral_temporal.core.start import Start, StartRefused, read_start, start_refused
    from orchestral_temporal.core.state import (
        AppendSession,
        BatchAppended,
        Bound,
        CallModel,
        CancelModelCall,
        CancelToolCall,
        CommandArrived,
        Effect,
        Ended,
        Input,
        InvokeTool,
        PayloadRefused,
        RunState,
        SessionReady,
        Step,
    )
    from orchestral_temporal.protocol.activities import (
        Binding,
        BindRequest,
        ModelResult,
        Role,
        SessionAppend,
        SessionAppended,
        SessionOpen,
        SessionOpened,
        Timeouts,
        ToolObservation,
    )
    from orchestral_temporal.protocol.base import Json, JsonObject, Word
    from orchestral_temporal.protocol.commands import AgentCommandEnvelope
    from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
    from orchestral_temporal.protocol.tools import ToolIdempotency
    from orchestral_temporal.protocol.words import dump
    from orchestral_temporal.temporal import failures, names, payloads, visibility

RECORDER: Final = "orchestral_recorder"
"""Extern function that a reader of histories hands in: it gets every step (`history.py`)."""

LONGEST_CALL: Final = timedelta(hours=24)
"""Start-to-close of a call that sets no bound of its own; a worker's silence is noticed by the heartbeat."""

KEEPER_TIMEOUT: Final = timedelta(seconds=30)
"""Start-to-close of binding and session calls: short work, repeated until it succeeds."""

TOOL_MARGIN: Final = timedelta(seconds=10)
"""How far a tool's deadline lies before start-to-close, so that the worker enforces it and can say so (decision 15)."""

PAGE_RECORDS: Final = 500
PAGE_BYTES: Final = 900_000

Answer = TypeVar("Answer")


@workflow.defn(name=names.AGENT_RUN, failure_exception_types=[RuntimeError])
class AgentRun:
    """One run. Its history is the write-ahead log; its result is the result object of `design/surface.md`."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._held: list[Input] = []
        self._timeouts = Timeouts()
        self._binding: Binding | None = None
        self._model: ActivityHandle[ModelResult] | None = None
        self._tool: ActivityHandle[ToolObservation] | None = None
        self._append: ActivityHandle[SessionAppended] | None = None
        self._wal: list[JsonObject] = []

    @workflow.run
    async def run(self, *given: Any) -> JsonObject:  # pyright: ignore[reportExplicitAny] -- what a stranger sent
        """Carry the run to its end.

        Raises:
            ApplicationError: the run failed or was refused; type is the code, details[0] the result object.
        """
        run_id = workflow.info().workflow_id
        try:
            start = read_start(_only(given), run_id)
            old = await self._open(start)
        except StartRefused as refused:
            raise ApplicationError(
                refused.rejection.message,
                refused_result(refused.rejection, run_id),
                type=refused.rejection.code,
                non_retryable=True,
            ) from None
        if old is not None:
            return old
        await self._until(lambda: self._closed)
        return self._finish()

    # -- start ---------------------------------------------------------------------------------------------------

    async def _open(self, start: Start) -> JsonObject | None:
        """Bind and open the session side by side; the result of an earlier execution, if the session has one."""
        opening = self._keeper(
            names.OPEN_SESSION,
            SessionOpen(
                session_id=start.session_id,
                run_id=start.run_id,
                spec_digest=start.envelope.spec_digest,
                execution=workflow.info().run_id,
            ),
            SessionOpened,
        )
        request = BindRequest(agent=start.options.agent, roles=tuple(Role), workspaces=start.workspaces)
        binding = self._keeper(names.BIND, request, Binding)
        await self._until(binding.done)
        try:
            self._accept(start, _answer(binding))
        except StartRefused:
            await self._release(start, opening)
            raise
        await self._bind_others(request)
        await self._until(opening.done)
        opened = _answer(opening)
        if opened.result is not None:
            return opened.result
        self._bring(SessionReady(opened))
        return None

    def _accept(self, start: Start, bound: Binding) -> None:
        if bound.run is None:
            raise start_refused("The worker on the run's queue does not serve runs; check the queues of the deployment.")
        self._binding, self._timeouts = bound, bound.timeouts
        self._apply(begin(start, bound.run, bound))
        if bound.attributes:
            assert self._state is not None
            workflow.upsert_search_attributes(visibility.at_start(self._state))
        held, self._held = self._held, []
        for given in held:
            self._bring(given)

    async def _bind_others(self, request: BindRequest) -> None:
        """Ask the model and tool queues for their parts, when the run's worker does not serve them too."""
        bound = self._binding
        assert bound is not None
        queues = {Role.MODEL: bound.queues.models, Role.TOOLS: bound.queues.tools}
        missing = [
            (role, queues[role])
            for role, part in ((Role.MODEL, bound.model), (Role.TOOLS, bound.tools))
            if part is None
        ]
        asked = [
            self._keeper(names.BIND, request.model_copy(update={"roles": (role,)}), Binding, queue=queue)
            for role, queue in missing
        ]
        for handle in asked:
            await self._until(lambda handle=handle: handle.done() or self._ended)
            if handle.done():
                self._bring(Bound(_answer(handle)))

    async def _release(self, start: Start, opening: ActivityHandle[SessionOpened]) -> None:
        """A refused start leaves no lock behind (`answers.md` 7)."""
        await self._until(opening.done)
        try:
            opened = _answer(opening)
        except StartRefused:
            return
        if opened.served is not None:
            return
        batch = SessionAppend(
            session_id=start.session_id,
            run_id=start.run_id,
            number=0,
            expected_head=opened.head,
            first_seq=opened.last_seq + 1,
            records=(),
            close=True,
        )
        closing = self._keeper(names.APPEND_SESSION, batch, SessionAppended)
        await self._until(closing.done)

    # -- inputs --------------------------------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take whatever is sent; what is no command of this run is put on record as refused."""
        try:
            command = payloads.read_command(name, args, workflow.info().workflow_id, self._place)
        except ProtocolError as fault:
            self._bring(PayloadRefused(name, fault.error.message))
        else:
            self._bring(CommandArrived(command))

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, args: Sequence[RawValue]) -> JsonObject:
        """Take a command and answer with its acknowledgement."""
        command = payloads.read_command(name, args, workflow.info().workflow_id, self._place)
        self._bring(CommandArrived(command))
        await workflow.wait_condition(lambda: self._state is not None)
        return self._ack(command)

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse, without a trace, what is no command of this run."""
        try:
            if name != names.UPDATE_SUBMIT:
                message = f"{name[:80]!r} is no update of a run; use 'submit'."
                raise ApplicationError(message, type=AgentProtocolErrorCode.INVALID_SPEC, non_retryable=True)
            payloads.read_command(name, args, workflow.info().workflow_id, self._place)
        except ProtocolError as fault:
            raise failures.refused_command(fault) from None

    def _ack(self, command: AgentCommandEnvelope) -> JsonObject:
        assert self._state is not None
        try:
            return dump(ack(self._state.run, command.command_id))
        except ProtocolError as fault:
            raise failures.refused_command(fault) from None

    @property
    def _place(self) -> int:
        return (self._state.received if self._state is not None else 0) + len(self._held) + 1

    def _bring(self, given: Input) -> None:
        if self._state is None:
            self._held.append(given)
        else:
            self._apply(advance(self._state, given))

    def _apply(self, step: Step) -> None:
        self._state = step.state
        self._wal.extend({"event_id": each.event_id, "type": each.payload.type} for each in step.wal)
        recorder = workflow.extern_functions().get(RECORDER)
        if recorder is not None:
            recorder(step)
        for effect in step.effects:
            self._carry_out(effect)
        workflow.set_current_details(visibility.details(step.state, status(step.state.run)))

    # -- effects -------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case CallModel():
                self._model = self._call_model(effect)
            case CancelModelCall():
                if self._model is not None:
                    self._model.cancel()
                    self._model = None
            case InvokeTool():
                self._tool = self._invoke_tool(effect)
            case CancelToolCall():
                if self._tool is not None:
                    self._tool.cancel()
            case AppendSession(batch):
                self._append = self._keeper(names.APPEND_SESSION, batch, SessionAppended)
            case _:
                assert_never(effect)

    def _call_model(self, effect: CallModel) -> ActivityHandle[ModelResult]:
        attempt, state = effect.attempt, self._state
        assert state is not None and state.model_part is not None and self._binding is not None  # noqa: PT018 -- one fact
        return workflow.start_activity(
            names.CALL_MODEL,
            attempt,
            result_type=ModelResult,
            task_queue=self._binding.queues.models,
            start_to_close_timeout=LONGEST_CALL,
            heartbeat_timeout=timedelta(milliseconds=self._timeouts.heartbeat_ms),
            retry_policy=failures.CALL_RETRIES,
            cancellation_type=ActivityCancellationType.TRY_CANCEL,
            summary=visibility.model_summary(
                attempt.round, attempt.attempt, state.model_part.descriptor.backend_id
            ),
        )

    def _invoke_tool(self, effect: InvokeTool) -> ActivityHandle[ToolObservation]:
        assert self._state is not None and self._binding is not None  # noqa: PT018 -- one fact
        fenced = effect.idempotency in (ToolIdempotency.NON_IDEMPOTENT, ToolIdempotency.IDEMPOTENT_WITH_KEY)
        beat = self._timeouts.fenced_heartbeat_ms if fenced else self._timeouts.heartbeat_ms
        bound = timedelta(milliseconds=effect.timeout_ms) if effect.timeout_ms is not None else LONGEST_CALL
        return workflow.start_activity(
            names.INVOKE_TOOL,
            effect.request,
            result_type=ToolObservation,
            task_queue=self._binding.queues.tools,
            start_to_close_timeout=bound + TOOL_MARGIN,
            heartbeat_timeout=timedelta(milliseconds=beat),
            retry_policy=failures.CALL_RETRIES,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=visibility.tool_summary(self._state.round, effect.name, effect.request.arguments),
        )

    def _keeper(
        self, name: str, word: Word, answer: type[Answer], *, queue: str | None = None
    ) -> ActivityHandle[Answer]:
        return workflow.start_activity(
            name,
            word,
            result_type=answer,
            task_queue=queue,
            start_to_close_timeout=KEEPER_TIMEOUT,
            retry_policy=failures.KEEPER_RETRIES,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=visibility.cut(name.replace("_", " "), SUMMARY_BYTES),
        )

    # -- the loop ------------------------------------------------------------------------------------------------

    @property
    def _ended(self) -> bool:
        return self._state is not None and isinstance(self._state.phase, Ended)

    @property
    def _closed(self) -> bool:
        state = self._state
        return state is not None and self._ended and state.session is not None and state.session.closed

    async def _until(self, done: Callable[[], bool]) -> None:
        """Wait, and meanwhile bring what activities answer; Temporal's own cancel is a command like any other."""
        while not done():
            try:
                await workflow.wait_condition(lambda: done() or self._answered)
            except asyncio.CancelledError:
                reason = workflow.cancellation_reason()
                if reason is None:  # not a request to cancel: this worker forgets the run, another will go on
                    raise
                self._cancelled(reason)
            self._collect()

    @property
    def _answered(self) -> bool:
        return any(each is not None and each.done() for each in (self._model, self._tool, self._append))

    def _collect(self) -> None:
        """Bring every answer that is there; what a cancel left behind is read from the handle, never awaited."""
        if self._model is not None and self._model.done():
            handle, self._model = self._model, None
            self._bring(failures.model_ended(_outcome(handle)))
        if self._tool is not None and self._tool.done():
            ended, self._tool = self._tool, None
            self._bring(failures.tool_ended(_outcome(ended)))
        if self._append is not None and self._append.done():
            appended, self._append = self._append, None
            answer = _outcome(appended)
            if isinstance(answer, BaseException):
                raise ApplicationError(
                    f"The session refuses this run's records: {failures.sentence(answer)}",
                    type="session_journal",
                    non_retryable=True,
                )
            self._bring(BatchAppended(answer))

    def _cancelled(self, reason: str) -> None:
        """A cancel command with a derived id (decision 14)."""
        text = reason.strip() or "cancelled in Temporal"
        value = payloads.short_cancel(
            {"command_id": f"temporal-cancel-{workflow.info().first_execution_run_id}", "reason": text},
            workflow.info().workflow_id,
            0,
        )
        self._bring(CommandArrived(value))

    def _finish(self) -> JsonObject:
        state, bound = self._state, self._binding
        assert state is not None and bound is not None  # noqa: PT018 -- one fact
        value = result(state)
        if bound.attributes:
            workflow.upsert_search_attributes([visibility.STATUS.value_set(str(status(state.run)))])
        failure = value["failure"]
        if isinstance(failure, dict):
            raise ApplicationError(
                str(failure["message"]), value, type=str(failure["code"]), non_retryable=True
            )
        return value

    # -- queries -------------------------------------------------------------------------------------------------

    @workflow.query(dynamic=True)
    def on_query(self, name: str, args: Sequence[RawValue]) -> JsonObject:
        """Answer `inspect`, `events`, `wal` and `command_ack` (`answers.md` 9).

        Raises:
            ProtocolError: the name or its argument is wrong, or the run is not accepted yet.
        """
        asked = payloads.read_object(args)
        state = self._state
        if state is None:
            message = "The run is not accepted yet; ask again in a moment."
            raise ApplicationError(message, type=AgentProtocolErrorCode.RUN_NOT_FOUND)
        match name:
            case names.QUERY_INSPECT:
                return _inspect(state)
            case names.QUERY_EVENTS:
                return _page([dump(each) for each in state.run.records], asked)
            case names.QUERY_WAL:
                return _page(self._wal, asked)
            case names.QUERY_COMMAND_ACK:
                return dump(ack(state.run, str(asked.get("command_id"))))
            case _:
                message = f"{name[:80]!r} is no query of a run; use inspect, events, wal or command_ack."
                raise ApplicationError(message, type=AgentProtocolErrorCode.INVALID_SPEC)


def _only(given: tuple[Any, ...]) -> Json:  # pyright: ignore[reportExplicitAny] -- what a stranger sent
    if len(given) != 1:
        raise start_refused(f"AgentRun takes exactly one argument, a JSON object; it was started with {len(given)}.")
    return given[0]


def _outcome(handle: ActivityHandle[Answer]) -> Answer | BaseException:
    """How an activity ended, without awaiting it: an await in a cancelled task hides an outcome that is there."""
    if handle.cancelled():
        return asyncio.CancelledError()
    error = handle.exception()
    return handle.result() if error is None else error


def _answer(handle: ActivityHandle[Answer]) -> Answer:
    outcome = _outcome(handle)
    if isinstance(outcome, BaseException):
        raise failures.refusal_of(outcome) from None
    return outcome


def _inspect(state: RunState) -> JsonObject:
    return {
        "view": dump(view(state.run)),
        "status": str(status(state.run)),
        "round": state.round,
        "tool_calls": state.tool_calls,
        "usage": dump(state.usage),
        "refused": [dump(each) for each in state.refusals],
    }


def _page(records: list[JsonObject], asked: JsonObject) -> JsonObject:
    """Records after a sequence number: `{records, last, more}`, at most 500 and below 1 MB."""
    after, limit = asked.get("after", 0), asked.get("limit", PAGE_RECORDS)
    if not isinstance(after, int) or not isinstance(limit, int) or after < 0 or not 1 <= limit <= PAGE_RECORDS:
        message = f"'after' must be a number from 0 and 'limit' one from 1 to {PAGE_RECORDS}."
        raise ApplicationError(message, type=AgentProtocolErrorCode.INVALID_SPEC)
    page: list[Json] = []
    size = 0
    for record in records[after : after + limit]:
        size += len(str(record))
        if page and size > PAGE_BYTES:
            break
        page.append(record)
    last = after + len(page) if after < len(records) else len(records)
    return {"records": page, "last": last, "more": last < len(records)}

