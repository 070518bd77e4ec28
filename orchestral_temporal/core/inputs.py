"""What reaches a run: the closed union that `advance` answers (house: the core in words).

An answer names the attempt it is for, so that one which comes late or twice changes nothing.
"""

from dataclasses import dataclass

from orchestral_temporal.protocol.activities import (
    Binding,
    Fence,
    ModelResult,
    SessionAppended,
    SessionOpened,
    ToolObservation,
)
from orchestral_temporal.protocol.commands import AgentCommandEnvelope
from orchestral_temporal.protocol.model import ModelError, ModelUsage


@dataclass(frozen=True)
class Bound:
    """Parts of the authority arrived; only those that were asked for are set."""

    binding: Binding


@dataclass(frozen=True)
class SessionReady:
    """The session is this run's."""

    opened: SessionOpened


@dataclass(frozen=True)
class CommandArrived:
    """Somebody asks; the envelope's shape and digest are already checked."""

    command: AgentCommandEnvelope


@dataclass(frozen=True)
class CommandsRead:
    """Every command at hand has been brought: only now is a steer acted on, so that a burst shares one round."""


@dataclass(frozen=True)
class PayloadRefused:
    """Something arrived that is no command of this run."""

    name: str
    reason: str


@dataclass(frozen=True)
class ModelFinished:
    """An attempt ended with a turn."""

    round: int
    attempt: int
    result: ModelResult


@dataclass(frozen=True)
class ModelFailed:
    """An attempt ended with the backend's own error, or one the run's words have for it.

    `generated` closes the retry window: something other than usage was received; `usage` is the last snapshot.
    """

    round: int
    attempt: int
    code: str
    error: ModelError
    generated: bool
    usage: ModelUsage | None = None


@dataclass(frozen=True)
class ModelLost:
    """An attempt will never answer; `abandoned` when its worker said so, else the worker is gone."""

    round: int
    attempt: int
    abandoned: bool
    reason: str


@dataclass(frozen=True)
class ToolObserved:
    """An attempt of a call ended."""

    invocation_id: str
    attempt: int
    observation: ToolObservation


@dataclass(frozen=True)
class ToolLost:
    """An attempt of a call will never answer; `abandoned` when its worker said so.

    `fenced` is false only where it is certain that the tool was not let loose; `stored` names the observation that the
    artifact store has of it.
    """

    invocation_id: str
    attempt: int
    abandoned: bool
    reason: str
    fenced: bool
    stored: str | None = None


@dataclass(frozen=True)
class ToolBroken:
    """The worker failed around an attempt of a call; `fenced` as for a lost one."""

    invocation_id: str
    attempt: int
    reason: str
    fenced: bool


@dataclass(frozen=True)
class OutcomeArrived:
    """A worker reports by signal on an attempt that the server has given up (decision 16)."""

    fence: Fence


@dataclass(frozen=True)
class TimeReached:
    """A timer of this run has fired."""

    timer: str


@dataclass(frozen=True)
class MomentPast:
    """The moment of a `WakeAt` was past when it was asked for; nothing comes before this."""

    timer: str


@dataclass(frozen=True)
class BatchAppended:
    """The entity holds the batch of that number."""

    number: int
    appended: SessionAppended


@dataclass(frozen=True)
class BatchRefused:
    """The entity will never take the batch of that number."""

    number: int
    reason: str


Input = (
    Bound
    | SessionReady
    | CommandArrived
    | CommandsRead
    | PayloadRefused
    | ModelFinished
    | ModelFailed
    | ModelLost
    | ToolObserved
    | ToolLost
    | ToolBroken
    | OutcomeArrived
    | TimeReached
    | MomentPast
    | BatchAppended
    | BatchRefused
)
