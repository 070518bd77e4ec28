"""One table: an ending of an activity or a run in Temporal's words, and back (decisions 15, 16, 21, 23)."""

from datetime import timedelta
from typing import Final

from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.exceptions import TimeoutError as TemporalTimeout

from orchestral_temporal.core.assembly import failure_code
from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.core.state import ModelFailed, ModelFinished, ModelLost, ToolLost, ToolObserved
from orchestral_temporal.protocol.activities import ModelResult, ToolObservation
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.errors import AgentRejection, AgentRejectionCode, ProtocolError
from orchestral_temporal.protocol.model import ModelError, ModelErrorCode
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

CALL_RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(seconds=2),
    backoff_coefficient=1.5,
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=NEVER_RETRIED,
)
"""Model and tool calls: only a worker of another authority is worth another try, at a slow pace (decision 22)."""

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


def model_failed(code: str, error: ModelError) -> ApplicationError:
    """A model attempt that ended without a turn."""
    return ApplicationError(
        error.message,
        {"code": code, "error": dump(error)},
        type=names.ERROR_MODEL_FAILED,
        non_retryable=True,
        category=AN_ANSWER,
    )


def another_authority(message: str) -> ApplicationError:
    """This worker's part differs from the one the run was bound to; a matching worker may take the call."""
    return ApplicationError(message, type=names.ERROR_RUN_ID_CONFLICT)


def abandoned(message: str, details: JsonObject) -> ApplicationError:
    """This worker is stopping and gives the call back."""
    return ApplicationError(message, details, type=names.ERROR_ABANDONED, category=AN_ANSWER)


def model_ended(outcome: ModelResult | BaseException) -> ModelFinished | ModelFailed | ModelLost:
    """What the end of a `call_model` activity means to the run."""
    if isinstance(outcome, ModelResult):
        return ModelFinished(outcome)
    cause = _cause(outcome)
    if isinstance(cause, ApplicationError):
        if cause.type == names.ERROR_MODEL_FAILED and cause.details:
            return _read_model_failure(cause.details[0])
        if cause.type in (names.ERROR_ABANDONED, WORKER_SHUTDOWN):
            return ModelLost(abandoned=True, reason=sentence(cause))
    if isinstance(cause, TemporalTimeout):
        return ModelLost(abandoned=False, reason=_silence(cause))
    return _internal(cause)


def _read_model_failure(details: JsonObject) -> ModelFailed:
    try:
        error = parse_value(ModelError, details["error"])
    except (ProtocolError, KeyError, TypeError):
        return _internal(ApplicationError("The model's error cannot be read."))
    return ModelFailed(code=str(details.get("code", failure_code(error.code))), error=error)


def _internal(cause: BaseException) -> ModelFailed:
    error = ModelError(code=ModelErrorCode.INTERNAL, message=sentence(cause))
    return ModelFailed(code=failure_code(ModelErrorCode.INTERNAL), error=error)


def tool_ended(outcome: ToolObservation | BaseException) -> ToolObserved | ToolLost:
    """What the end of an `invoke_tool` activity means to the run."""
    if isinstance(outcome, ToolObservation):
        return ToolObserved(outcome)
    cause = _cause(outcome)
    given_back = isinstance(cause, CancelledError) or (
        isinstance(cause, ApplicationError) and cause.type in (names.ERROR_ABANDONED, WORKER_SHUTDOWN)
    )
    reason = _silence(cause) if isinstance(cause, TemporalTimeout) else sentence(cause)
    return ToolLost(abandoned=given_back, reason=reason)


def _cause(error: BaseException) -> BaseException:
    return error.cause if isinstance(error, ActivityError) and error.cause is not None else error


def _silence(cause: TemporalTimeout) -> str:
    kind = cause.type.name.lower().replace("_", " ") if cause.type is not None else "time"
    return f"its worker fell silent ({kind} timeout)"


def sentence(error: BaseException) -> str:
    """The first line of an error's message, for records; never a trace."""
    text = str(getattr(error, "message", "") or error) or type(error).__name__
    return text.splitlines()[0][:500]
