"""Temporal's errors in a client's words: the result inside a failed run, the code of a refused update."""

import asyncio
from typing import NoReturn, cast

from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError

from orchestral_temporal.core.result import refused_result
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, AgentRejection, AgentRejectionCode, refuse
from orchestral_temporal.temporal import failures
from orchestral_temporal.temporal.turn import ContinuityUnknown


def result_of(failed: WorkflowFailureError, run_id: str) -> JsonObject:
    """The result object of a run that failed or was refused.

    Raises:
        ContinuityUnknown: it was terminated, or ended without a result.
    """
    cause = failed.cause
    if isinstance(cause, ApplicationError) and cause.details and isinstance(cause.details[0], dict):
        return cast("JsonObject", cause.details[0])
    if isinstance(cause, ApplicationError) and cause.type in set(AgentRejectionCode):
        # The converter refused a start argument that nobody could read: there was no code of ours to add details.
        code = AgentRejectionCode(cause.type)
        return refused_result(AgentRejection(code=code, message=cause.message, retryable=False), run_id)
    how = {TerminatedError: "was terminated", CancelledError: "was cancelled from outside"}
    text = next((said for kind, said in how.items() if isinstance(cause, kind)), "ended without a result")
    raise ContinuityUnknown(f"The run {run_id!r} {text}: {failures.sentence(cause)}.") from None


def raise_if_cancelled(fault: BaseException) -> None:
    """Pass a cancel of our own on: the SDK makes one of its errors of it while an update is on its way.

    Raises:
        asyncio.CancelledError: that is what the error was.
    """
    if isinstance(fault.__cause__, asyncio.CancelledError):
        raise fault.__cause__ from None


def refused(failed: WorkflowUpdateFailedError) -> NoReturn:
    """Say why an update was refused.

    Raises:
        ProtocolError: always; internal where the cause is none of our codes.
    """
    cause = failed.cause
    named = cause.type if isinstance(cause, ApplicationError) else None
    known = named is not None and named in set(AgentProtocolErrorCode)
    code = AgentProtocolErrorCode(named) if known else AgentProtocolErrorCode.INTERNAL
    refuse(code, failures.sentence(cause))
