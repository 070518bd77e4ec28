"""`AgentRun`: one run, from its start argument to its result (decisions 1, 13, 14, 23).

The workflow brings inputs to `advance` and carries out the effects that come back; it decides nothing itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ActivityHandle

from orchestral_temporal.core.commands import check
from orchestral_temporal.core.inputs import (
    Bound,
    CommandArrived,
    CommandsRead,
    Input,
    OutcomeArrived,
    PayloadRefused,
    SessionReady,
)
from orchestral_temporal.core.limits import REASON_BYTES
from orchestral_temporal.core.loop import advance, begin
from orchestral_temporal.core.reducer import ack, status
from orchestral_temporal.core.result import refused_result, result
from orchestral_temporal.core.start import Start, StartRefused, read_start, start_refused
from orchestral_temporal.core.state import (
    Ended,
    RunState,
    Step,
)
from orchestral_temporal.protocol.activities import (
    Binding,
    BindRequest,
    Role,
    SessionAppend,
    SessionAppended,
    SessionOpen,
    SessionOpened,
    Timeouts,
)
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import AgentCommandEnvelope
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import dispatch, failures, names, payloads, queries, visibility
from orchestral_temporal.temporal.inbox import Arrived, Inbox
from orchestral_temporal.temporal.under_way import UnderWay, outcome

RECORDER: Final = "orchestral_recorder"
"""Extern function that a reader of histories hands in: it gets every step (`history.py`)."""

Answer = TypeVar("Answer")


# Bare: the SDK's sandbox cost a fifth of a worker's time here and catches nothing that is not caught before. The linter
# bans clock and chance in `core`, and the replay tests load every module of ours inside the full sandbox.
@workflow.defn(name=names.AGENT_RUN, failure_exception_types=[RuntimeError], sandboxed=False)
class AgentRun:
    """One run. Its history is the write-ahead log; its result is the result object of `design/surface.md`."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._inbox = Inbox()
        self._unread = False
        self._unshown = False
        self._timeouts = Timeouts()
        self._binding: Binding | None = None
        self._under_way = UnderWay()
        self._wal: list[JsonObject] = []
        self._waiting: tuple[str, ...] = ()

    @workflow.run
    async def run(self, *given: Any) -> JsonObject:  # pyright: ignore[reportExplicitAny] -- what a stranger sent
        """Carry the run to its end.

        Raises:
            ApplicationError: the run failed or was refused; type is the code, details[0] the result object.
        """
        run_id = workflow.info().workflow_id
        try:
            start = read_start(_only(given), run_id)
            early = await self._open(start)
        except StartRefused as refused:
            if self._state is not None and self._bound.attributes:
                workflow.upsert_search_attributes(visibility.at_end(self._state, "failed"))
            raise ApplicationError(
                refused.rejection.message,
                refused_result(refused.rejection, run_id),
                type=refused.rejection.code,
                non_retryable=True,
            ) from None
        if early is not None:
            return _concluded(early)
        await self._until(lambda: self._ended)
        self._show_status()
        await self._until(lambda: self._closed and self._inbox.empty and workflow.all_handlers_finished())
        return self._finish()

    # -- start ---------------------------------------------------------------------------------------------------

    async def _open(self, start: Start) -> JsonObject | None:
        """Bind and open the session side by side; the result, if the run has one before it has begun."""
        opening = dispatch.keep(
            names.OPEN_SESSION,
            SessionOpen(
                session_id=start.session_id,
                run_id=start.run_id,
                spec_digest=start.envelope.spec_digest,
                execution=workflow.info().run_id,
            ),
            SessionOpened,
            self._timeouts,
        )
        request = BindRequest(agent=start.options.agent, roles=tuple(Role), workspaces=start.workspaces)
        binding = dispatch.keep(names.BIND, request, Binding, self._timeouts)
        await self._until(binding.done)
        try:
            self._accept(start, _answer(binding))
            await self._until(lambda: self._inbox.empty)  # what waited for the run begins with it
            await self._bind_others(request)
        except StartRefused:
            await self._release(start, opening)
            raise
        await self._until(opening.done)
        try:
            opened = _answer(opening)
        except StartRefused:
            if self._ended:  # cancelled meanwhile: that is its end, whoever holds the session
                self._show_status()
                return result(self._state) if self._state is not None else None
            raise
        if opened.result is not None:
            return opened.result
        self._bring(SessionReady(opened))
        return None

    def _accept(self, start: Start, bound: Binding) -> None:
        if bound.run is None:
            raise start_refused(
                "The worker on the run's queue does not serve runs; check the queues of the deployment."
            )
        self._binding, self._timeouts = bound, bound.timeouts
        self._apply(begin(start, bound.run, bound))
        if bound.attributes:
            assert self._state is not None
            workflow.upsert_search_attributes(visibility.at_start(self._state))

    async def _bind_others(self, request: BindRequest) -> None:
        """Ask the model and tool queues for their parts, when the run's worker does not serve them too."""
        bound = self._bound
        queues = {Role.MODEL: bound.queues.models, Role.TOOLS: bound.queues.tools}
        missing = [
            (role, queues[role])
            for role, part in ((Role.MODEL, bound.model), (Role.TOOLS, bound.tools))
            if part is None
        ]
        asked = [
            dispatch.keep(
                names.BIND, request.model_copy(update={"roles": (role,)}), Binding, self._timeouts, queue=queue
            )
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
        closing = dispatch.keep(names.APPEND_SESSION, batch, SessionAppended, self._timeouts)
        await self._until(closing.done)

    # -- inputs --------------------------------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take whatever is sent; what a worker reports of a call never waits behind a burst of commands."""
        if name == names.SIGNAL_OUTCOME and self._state is not None:
            self._take((name, args))
        else:
            self._arrive((name, args))

    def _arrive(self, arrived: Arrived) -> int:
        """Take it now or later; the answer is its ticket in the inbox."""
        if self._state is None or not self._inbox.admits():
            return self._inbox.put(arrived)
        self._take(arrived)
        return 0

    def _take(self, arrived: Arrived) -> None:
        """Bring what has arrived; what is no command of this run is put on record as refused."""
        if isinstance(arrived, AgentCommandEnvelope):
            self._command(arrived)
            return
        name, args = arrived
        try:
            if name == names.SIGNAL_OUTCOME:
                self._bring(OutcomeArrived(payloads.read_outcome(args)))
                return
            assert self._state is not None
            place = self._state.received + 1
            command = payloads.read_command(name, args, workflow.info().workflow_id, place)
        except ProtocolError as fault:
            self._bring(PayloadRefused(name, fault.error.message))
        else:
            self._command(command)

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, args: Sequence[RawValue]) -> JsonObject:
        """Take a command and answer with its acknowledgement."""
        command = payloads.read_command(name, args, workflow.info().workflow_id, place=0)
        known = self._state is not None and command.command_id in self._state.run.commands
        ticket = self._arrive(command)
        await workflow.wait_condition(lambda: self._inbox.taken(ticket))
        assert self._state is not None
        try:
            check(self._state, command)  # what came before the run was there, and is refused, hears why
        except ProtocolError as fault:
            raise failures.refused_command(fault) from None
        return self._ack(command, duplicate=known)

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse, without a trace, what is no command of this run."""
        try:
            if name != names.UPDATE_SUBMIT:
                message = f"{name[:80]!r} is no update of a run; use 'submit'."
                raise ApplicationError(message, type=AgentProtocolErrorCode.INVALID_SPEC, non_retryable=True)
            command = payloads.read_command(name, args, workflow.info().workflow_id, place=0)
            if self._state is not None:
                check(self._state, command)
        except ProtocolError as fault:
            raise failures.refused_command(fault) from None

    def _ack(self, command: AgentCommandEnvelope, *, duplicate: bool) -> JsonObject:
        assert self._state is not None
        try:
            return dump(ack(self._state.run, command.command_id, duplicate=duplicate))
        except ProtocolError as fault:
            raise failures.refused_command(fault) from None

    def _command(self, command: AgentCommandEnvelope) -> None:
        self._unread = True
        self._bring(CommandArrived(command))

    def _bring(self, given: Input) -> None:
        assert self._state is not None, "inputs come only once the run is accepted"
        self._apply(advance(self._state, given))

    def _apply(self, step: Step) -> None:
        self._state = step.state
        self._wal.extend({"event_id": each.event_id, "type": each.payload.type} for each in step.wal)
        recorder = cast("Callable[[Step], None] | None", workflow.extern_functions().get(RECORDER))
        if recorder is not None:
            recorder(step)
        for effect in step.effects:
            self._under_way.carry_out(effect, self._bound)
        self._unshown = True
        for given in self._under_way.past():
            self._bring(given)

    def _show(self) -> None:
        """Say where the run stands: once for all that came together, since a burst may bring hundreds of steps."""
        state = self._state
        if state is None or not self._unshown:
            return
        self._unshown = False
        workflow.set_current_details(visibility.details(state))
        waiting = visibility.waiting_for(state)
        if waiting != self._waiting and self._binding is not None and self._binding.attributes:
            self._waiting = waiting
            workflow.upsert_search_attributes(visibility.while_waiting(state, waiting))

    # -- the loop ------------------------------------------------------------------------------------------------

    @property
    def _bound(self) -> Binding:
        assert self._binding is not None, "effects come only after the binding"
        return self._binding

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
                await workflow.wait_condition(lambda: done() or self._something_to_do)
            except asyncio.CancelledError:
                reason = workflow.cancellation_reason()
                if reason is None:  # not a request to cancel: this worker forgets the run, another will go on
                    raise
                self._cancelled(reason)
            if self._state is not None:
                for arrived in self._inbox.rest():
                    self._take(arrived)
            for given in self._under_way.answers():
                self._bring(given)
            # An answer that is there already is worth more than the steer that would void it.
            if self._unread and self._inbox.empty:
                self._unread = False
                self._bring(CommandsRead())
            self._show()
        self._show()

    @property
    def _something_to_do(self) -> bool:
        readable = self._inbox.ready and self._state is not None
        return readable or self._unshown or self._under_way.answered

    def _cancelled(self, reason: str) -> None:
        """A cancel command with a derived id (decision 14)."""
        text = visibility.cut(reason, REASON_BYTES) or "cancelled in Temporal"
        value = payloads.short_cancel(
            {"command_id": f"temporal-cancel-{workflow.info().first_execution_run_id}", "reason": text},
            workflow.info().workflow_id,
            0,
        )
        self._arrive(value)

    def _show_status(self) -> None:
        """Say that the run is over, also while its session does not yet take the last records (`answers.md` 13)."""
        state, bound = self._state, self._binding
        if state is not None and bound is not None and bound.attributes:
            workflow.upsert_search_attributes(visibility.at_end(state, str(status(state.run))))

    def _finish(self) -> JsonObject:
        assert self._state is not None
        return _concluded(result(self._state))

    # -- queries -------------------------------------------------------------------------------------------------

    @workflow.query(dynamic=True)
    def on_query(self, name: str, args: Sequence[RawValue]) -> JsonObject:
        """Answer `inspect`, `events`, `wal` and `command_ack` (`answers.md` 9).

        Raises:
            ProtocolError: the name or its argument is wrong, or the run is not accepted yet.
        """
        asked = payloads.read_object(args)
        if self._state is None:
            message = "The run is not accepted yet; ask again in a moment."
            raise ApplicationError(message, type=AgentProtocolErrorCode.RUN_NOT_FOUND)
        return queries.answer(name, asked, self._state, self._wal)


def _concluded(value: JsonObject) -> JsonObject:
    """A result as the workflow ends with it: a failed run fails the workflow, with the same object (decision 23)."""
    failure = value["failure"]
    if isinstance(failure, dict):
        raise ApplicationError(str(failure["message"]), value, type=str(failure["code"]), non_retryable=True)
    return value


def _only(given: tuple[Any, ...]) -> Json:  # pyright: ignore[reportExplicitAny] -- what a stranger sent
    if len(given) != 1:
        raise start_refused(f"AgentRun takes exactly one argument, a JSON object; it was started with {len(given)}.")
    return given[0]


def _answer(handle: ActivityHandle[Answer]) -> Answer:
    answer = outcome(handle)
    if isinstance(answer, BaseException):
        raise failures.refusal_of(answer) from None
    return answer
