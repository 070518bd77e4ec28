"""One table: an ending of an activity or a run in Temporal's words, and back (decisions 15, 16, 21, 23)."""

import asyncio
from datetime import timedelta
from typing import Final

from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.exceptions import TimeoutError as TemporalTimeout

from orchestral_temporal.core.assembly import failure_code
from orchestral_temporal.core.inputs import ModelFailed, ModelFinished, ModelLost, ToolBroken, ToolLost, ToolObserved
from orchestral_temporal.core.invocations import unmeasured
from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.protocol.activities import Fence, Heartbeat, ModelResult, ToolObservation
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.errors import AgentRejection, AgentRejectionCode, ProtocolError
from orchestral_temporal.protocol.ids import is_blank
from orchestral_temporal.protocol.model import ModelError, ModelErrorCode, ModelUsage
from orchestral_temporal.protocol.tools import Cancelled
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal import names

WORKER_SHUTDOWN: Final = "WorkerShutdown"
"""The SDK's own type for an activity that a stopping worker gave back without a word from us."""

AN_ANSWER: Final = ApplicationErrorCategory.BENIGN
"""Of an error that tells the run something: the SDK then writes no traceback of it into the worker's log."""

NEVER_RETRIED: Final = [
    WORKER_SHUTDOWN,
    names.ERROR_ABANDONED,
    "TemporalTimeout:StartToClose",
    "TemporalTimeout:Heartbeat",
]
"""What the server must not repeat by itself: the run repeats calls on record, or not at all."""

ERROR_CHARACTERS: Final = 2_000
"""Characters of an error's message on record: a failure above 4 MiB could not be reported at all (fact 2)."""

ERROR_DETAILS_BYTES: Final = 16_384
"""Canonical bytes of an error's details on record, for the same reason."""

CALL_RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(seconds=2),
    backoff_coefficient=1.5,
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=NEVER_RETRIED,
)
"""Model and tool calls: only another worker's authority, or a history that cannot be read now, is worth another try.

It comes at a slow pace (decision 22); the activities raise nothing else that may be retried.
"""

KEEPER_RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=30),
)
"""Binding and session: repeated until the world answers; they have no effect but their own record (`answers.md` 13)."""


def refused_start(rejection: AgentRejection) -> ApplicationError:
    """A start that creates nothing, as an activity or a run says it; the rejection is the details."""
    return ApplicationError(
        rejection.message, dump(rejection), type=rejection.code, non_retryable=True, category=AN_ANSWER
    )


def refused_command(fault: ProtocolError) -> ApplicationError:
    """A command or question that is refused, as an update or a query says it."""
    return ApplicationError(fault.error.message, dump(fault.error), type=fault.error.code, non_retryable=True)


def read_refused_start(error: BaseException) -> AgentRejection | None:
    """The rejection inside a failed activity, if that is what it is."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError) and cause.type in set(AgentRejectionCode) and cause.details:
        try:
            return parse_value(AgentRejection, cause.details[0])
        except ProtocolError:
            return None
    return None


def refusal_of(error: BaseException) -> StartRefused:
    """Any failure of binding or opening as a refused start."""
    found = read_refused_start(error)
    if found is not None:
        return StartRefused(found)
    cause = _cause(error)
    message = f"The run cannot begin: {sentence(cause)}"
    final = isinstance(cause, ApplicationError) and cause.non_retryable
    code = AgentRejectionCode.PROVIDER_UNAVAILABLE
    return StartRefused(AgentRejection(code=code, message=message, retryable=not final))


def model_failed(
    code: str, error: ModelError, *, generated: bool = False, usage: ModelUsage | None = None
) -> ApplicationError:
    """A model attempt that ended without a turn; what a backend says is cut to what a failure may hold."""
    details = error.details if len(canonical(error.details)) <= ERROR_DETAILS_BYTES else None
    said = error.model_copy(update={"message": error.message[:ERROR_CHARACTERS], "details": details})
    return ApplicationError(
        said.message,
        {
            "code": code,
            "error": dump(said),
            "generated": generated,
            "usage": dump(usage) if usage is not None else None,
        },
        type=names.ERROR_MODEL_FAILED,
        non_retryable=True,
        category=AN_ANSWER,
    )


def context_missing(message: str) -> ApplicationError:
    """The run's own history does not hold what the attempt names; nobody else will find it."""
    return model_failed("session_context", ModelError(code=ModelErrorCode.INTERNAL, message=message, retryable=True))


def context_unreachable(message: str) -> ApplicationError:
    """The history cannot be read now; the server tries again, at a slow pace and without a trace."""
    return ApplicationError(message, type=names.ERROR_CONTEXT_UNREACHABLE)


def broken(fault: Exception, beat: JsonObject | None = None) -> ApplicationError:
    """An error of ours, or of a backend that raises what its port does not allow: on record, and never repeated.

    Of a tool call `beat` is the last heartbeat, which tells whether its fence stood.
    """
    details = () if beat is None else (beat,)
    message = f"{type(fault).__name__}: {sentence(fault)}"
    return ApplicationError(message, *details, type=names.ERROR_BROKEN, non_retryable=True)


def another_authority(message: str) -> ApplicationError:
    """This worker's part differs from the one the run was bound to; a matching worker may take the call."""
    return ApplicationError(message, type=names.ERROR_RUN_ID_CONFLICT)


def abandoned(message: str, details: JsonObject) -> ApplicationError:
    """This worker is stopping and gives the call back."""
    return ApplicationError(message, details, type=names.ERROR_ABANDONED, category=AN_ANSWER)


def model_ended(
    round_: int, attempt: int, outcome: ModelResult | BaseException
) -> ModelFinished | ModelFailed | ModelLost:
    """What the end of a `call_model` activity means to the run."""
    if isinstance(outcome, ModelResult):
        return ModelFinished(round_, attempt, outcome)
    cause = _cause(outcome)
    if isinstance(cause, ApplicationError):
        if cause.type == names.ERROR_MODEL_FAILED and cause.details:
            return _read_model_failure(round_, attempt, cause.details[0])
        if cause.type in (names.ERROR_ABANDONED, WORKER_SHUTDOWN):
            return ModelLost(round_, attempt, abandoned=True, reason=sentence(cause))
    if isinstance(cause, TemporalTimeout):
        return ModelLost(round_, attempt, abandoned=False, reason=_silence(cause))
    return _internal(round_, attempt, cause)


def _read_model_failure(round_: int, attempt: int, details: JsonObject) -> ModelFailed:
    try:
        error, usage = parse_value(ModelError, details["error"]), details.get("usage")
        return ModelFailed(
            round_,
            attempt,
            code=str(details.get("code", failure_code(error.code))),
            error=error,
            # A worker that does not say leaves the window shut: nothing may be sent twice on a guess.
            generated=details.get("generated") is not False,
            usage=parse_value(ModelUsage, usage) if usage is not None else None,
        )
    except (ProtocolError, KeyError, TypeError):
        return _internal(round_, attempt, ApplicationError("The model's error cannot be read."))


def _internal(round_: int, attempt: int, cause: BaseException) -> ModelFailed:
    error = ModelError(code=ModelErrorCode.INTERNAL, message=sentence(cause))
    return ModelFailed(round_, attempt, failure_code(ModelErrorCode.INTERNAL), error, generated=True)


def tool_ended(
    invocation_id: str, attempt: int, outcome: ToolObservation | BaseException
) -> ToolObserved | ToolLost | ToolBroken:
    """What the end of an `invoke_tool` activity means to the run: the last fence on record tells (decision 16)."""
    if isinstance(outcome, ToolObservation):
        return ToolObserved(invocation_id, attempt, outcome)
    cause = _cause(outcome)
    if _never_started(outcome, cause):
        return ToolObserved(invocation_id, attempt, ToolObservation(outcome=Cancelled()))
    known, fence = _last_fence(cause)
    if fence is not None and fence.outcome is not None:
        return ToolObserved(invocation_id, attempt, unmeasured(fence.outcome))
    fenced = fence is not None or not known
    stored = fence.stored if fence is not None else None
    if isinstance(cause, TemporalTimeout):
        return ToolLost(invocation_id, attempt, abandoned=False, reason=_silence(cause), fenced=fenced, stored=stored)
    gone = isinstance(cause, ApplicationError) and cause.type in (names.ERROR_ABANDONED, WORKER_SHUTDOWN)
    if gone or isinstance(cause, CancelledError) or stored is not None:
        return ToolLost(invocation_id, attempt, abandoned=True, reason=sentence(cause), fenced=fenced, stored=stored)
    return ToolBroken(invocation_id, attempt, sentence(cause), fenced=fenced)


def _never_started(outcome: BaseException, cause: BaseException) -> bool:
    """Whether a call was cancelled before any worker had it, or before it was scheduled at all."""
    if isinstance(outcome, ActivityError):
        return isinstance(cause, CancelledError) and not outcome.started_event_id
    return isinstance(outcome, asyncio.CancelledError)


def _last_fence(cause: BaseException) -> tuple[bool, Fence | None]:
    """Whether the last heartbeat is known, and the fence in it; a time-out without details had no heartbeat."""
    if isinstance(cause, TemporalTimeout):
        details = cause.last_heartbeat_details
        if not details:
            return True, None
    else:
        details = cause.details if isinstance(cause, ApplicationError) else ("",)
    try:
        return True, parse_value(Heartbeat, details[0]).fence
    except (ProtocolError, IndexError):
        return False, None


def _cause(error: BaseException) -> BaseException:
    return error.cause if isinstance(error, ActivityError) and error.cause is not None else error


def _silence(cause: TemporalTimeout) -> str:
    kind = cause.type.name.lower().replace("_", " ") if cause.type is not None else "time"
    return f"its worker fell silent ({kind} timeout)"


def sentence(error: BaseException) -> str:
    """The first line of an error's message that says anything, for records; never a trace, never blank."""
    text = str(getattr(error, "message", "") or error)
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if not is_blank(line)), type(error).__name__)[:ERROR_CHARACTERS]
