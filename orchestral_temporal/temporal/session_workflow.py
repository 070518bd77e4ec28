"""`AgentSession`: the session journal and the lock of the one active run (decision 2)."""

from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from orchestral_temporal.core.limits import SESSION_APPEND_BYTES
from orchestral_temporal.core.session import (
    SessionState,
    admit_append,
    admit_open,
    admit_settle,
    append,
    forget,
    open_run,
    read,
    settle,
)
from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.protocol.activities import EffectSettlement, SessionBatch, SessionForget, SessionOpen
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal import failures, names, payloads

BATCHES_READ = 16
"""Batches in one answer: at most 32 KB each, half a megabyte together."""


@workflow.defn(name=names.AGENT_SESSION, failure_exception_types=[RuntimeError], sandboxed=False)
class AgentSession:
    """One session, for as long as its journal is kept."""

    def __init__(self) -> None:
        self._state = SessionState(session_id=workflow.info().workflow_id.removeprefix("session/"))

    @workflow.run
    async def run(self) -> None:
        """Wait for ever: a session ends only by terminate."""
        await workflow.wait_condition(lambda: False)

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """A session takes no signals; one that comes leaves a line in the log and nothing else."""
        workflow.logger.warning("signal ignored", extra={"signal": name[:80], "payloads": len(args)})

    @workflow.update(dynamic=True)
    def on_update(self, name: str, args: Sequence[RawValue]) -> JsonObject:
        """`open`, `append`, `settle` and `close_run`, each safe to repeat."""
        value = payloads.read_json(args, SESSION_APPEND_BYTES)
        match name:
            case names.SESSION_OPEN:
                self._state, opened = open_run(self._state, parse_value(SessionOpen, value))
                return dump(opened)
            case names.SESSION_APPEND:
                self._state, appended = append(self._state, parse_value(SessionBatch, value))
                return dump(appended)
            case names.SESSION_SETTLE:
                self._state, settled = settle(self._state, parse_value(EffectSettlement, value))
                return dump(settled)
            case _:
                self._state = forget(self._state, parse_value(SessionForget, value).run_id)
                return {}

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse without a trace; who is refused the session learns from the details who holds it."""
        try:
            value = payloads.read_json(args, SESSION_APPEND_BYTES)
            match name:
                case names.SESSION_OPEN:
                    admit_open(self._state, parse_value(SessionOpen, value))
                case names.SESSION_APPEND:
                    admit_append(self._state, parse_value(SessionBatch, value))
                case names.SESSION_SETTLE:
                    admit_settle(self._state, parse_value(EffectSettlement, value))
                case names.SESSION_CLOSE_RUN:
                    parse_value(SessionForget, value)
                case _:
                    raise ApplicationError(
                        f"{name[:80]!r} is no update of a session; use open, append, settle or close_run.",
                        type=AgentProtocolErrorCode.INVALID_SPEC,
                    )
        except StartRefused as refused:
            raise failures.refused_start(refused.rejection) from None
        except ProtocolError as fault:
            raise failures.refused_command(fault) from None

    @workflow.query(dynamic=True)
    def on_query(self, name: str, args: Sequence[RawValue]) -> JsonObject:
        """`read {after}`: the head, the active run, all settlements, and the batches after a sequence number."""
        asked = payloads.read_object(args)
        after = asked.get("after", 0)
        if name != names.SESSION_READ or not isinstance(after, int):
            raise ApplicationError("A session answers 'read {\"after\": number}'.", type="invalid_spec")
        batches = read(self._state, after, BATCHES_READ)
        last = batches[-1].last_seq if batches else self._state.last_seq
        return {
            "session_id": self._state.session_id,
            "head": self._state.head,
            "active": self._state.active,
            "last_seq": self._state.last_seq,
            "settlements": [dump(each) for each in self._state.settlements],
            "batches": [dump(each) for each in batches],
            "last": last,
            "more": last < self._state.last_seq,
        }
