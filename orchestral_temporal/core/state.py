"""What a run knows, what reaches it, what it wants done: the closed unions around `advance` (house: the core in words).

The state is one serialisable value. It holds headers of facts (digest, sizes, sequence), and text only of what is still
on its way: arguments of calls not yet run, the newest items while they are short, the last answer.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.core.projection import Run
from orchestral_temporal.core.start import Start
from orchestral_temporal.protocol.activities import (
    Binding,
    Item,
    Measure,
    ModelAttempt,
    ModelPart,
    ModelResult,
    PendingRecord,
    RunPart,
    SessionAppend,
    SessionAppended,
    SessionOpened,
    ToolObservation,
    ToolRequest,
    ToolsPart,
)
from orchestral_temporal.protocol.commands import AgentCommandEnvelope
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.model import ModelError, ModelUsage
from orchestral_temporal.protocol.tools import Rejected, ToolIdempotency
from orchestral_temporal.protocol.wal import GenericCheckpointDraft
from orchestral_temporal.protocol.words import JsonObject, Word


class OpenCall(Word):
    """One call of the turn: refused by the run itself, or carried out by a worker."""

    call_id: str
    name: str
    invocation_id: str
    tool_id: str
    arguments: JsonObject
    refusal: Rejected | None = None
    attempt: int = 1


class Preparing(Word):
    """Some part of the authority or the session is still missing."""

    at: Literal["preparing"] = "preparing"


class ModelOpen(Word):
    """A model attempt is on its way."""

    at: Literal["model"] = "model"
    attempt: int


class ToolsOpen(Word):
    """The calls of one turn and the digests of their results so far; `index` is the call on its way.

    `stopping` is the cancel command that waits for its end.
    """

    at: Literal["tools"] = "tools"
    calls: tuple[OpenCall, ...]
    usage: ModelUsage | None = None
    index: int = 0
    results: tuple[str, ...] = ()
    stopping: str | None = None


class Ended(Word):
    """The terminal event is committed."""

    at: Literal["ended"] = "ended"


Phase = Annotated[Preparing | ModelOpen | ToolsOpen | Ended, Field(discriminator="at")]


class SessionCursor(Word):
    """This run's part of the session journal: what waits, and where the entity stands."""

    first_seq: int = 1
    last_seq: int = 0
    head: str | None = None
    number: int = 0
    appended_seq: int = 0
    pending: tuple[PendingRecord, ...] = ()
    appending: SessionAppend | None = None
    closed: bool = False


class Refusal(Word):
    """A payload that is no command of this run: shown in the view, never an error of the run."""

    name: str
    reason: str


class RecentItem(Word):
    """The text of an item that no attempt has carried yet; `ours` when it stands nowhere else in the history."""

    item: Item
    ours: bool


class RunState(Word):
    """Everything a run knows between two inputs."""

    start: Start
    run: Run
    run_part: RunPart
    model_part: ModelPart | None = None
    tools_part: ToolsPart | None = None
    workspaces: tuple[str, ...] = ()
    live_text_ms: int | None = None
    config_digest: str = ""
    model_digest: str = ""
    tools_digest: str = ""
    tools: Measure | None = None
    session: SessionCursor | None = None
    phase: Phase = Preparing()
    round: int = 0
    headers: tuple[Measure, ...] = ()
    base: str | None = None
    sent: int = 0
    recent: tuple[RecentItem, ...] = ()
    usage: ModelUsage = ModelUsage()
    tool_calls: int = 0
    last_response: str = ""
    supporting: tuple[str, ...] = ()
    unreadable_turns: int = 0
    refusals: tuple[Refusal, ...] = ()
    commands: int = 0
    received: int = 0


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
class PayloadRefused:
    """Something arrived that is no command of this run."""

    name: str
    reason: str


@dataclass(frozen=True)
class ModelFinished:
    """The open attempt ended with a turn."""

    result: ModelResult


@dataclass(frozen=True)
class ModelFailed:
    """The open attempt ended with the backend's own error, or one the run's words have for it."""

    code: str
    error: ModelError


@dataclass(frozen=True)
class ModelLost:
    """The open attempt will never answer; `abandoned` when its worker said so, else the worker is gone."""

    abandoned: bool
    reason: str


@dataclass(frozen=True)
class ToolObserved:
    """The open call ended."""

    observation: ToolObservation


@dataclass(frozen=True)
class ToolLost:
    """The open call will never answer; `abandoned` when its worker said so."""

    abandoned: bool
    reason: str


@dataclass(frozen=True)
class ToolBroken:
    """The worker failed around the open call; whether the tool had run is not known."""

    reason: str


@dataclass(frozen=True)
class BatchAppended:
    """The entity holds the batch that was on its way."""

    appended: SessionAppended


@dataclass(frozen=True)
class BatchRefused:
    """The entity will never take the batch that was on its way."""

    reason: str


Input = (
    Bound
    | SessionReady
    | CommandArrived
    | PayloadRefused
    | ModelFinished
    | ModelFailed
    | ModelLost
    | ToolObserved
    | ToolLost
    | ToolBroken
    | BatchAppended
    | BatchRefused
)


@dataclass(frozen=True)
class CallModel:
    """Start one attempt of `model`, the backend's id."""

    attempt: ModelAttempt
    model: str


@dataclass(frozen=True)
class CancelModelCall:
    """Stop the open attempt; its answer is no longer wanted."""


@dataclass(frozen=True)
class InvokeTool:
    """Run one call of a round; `timeout_ms` bounds it, `idempotency` says what its loss means."""

    request: ToolRequest
    round: int
    name: str
    timeout_ms: int | None
    idempotency: ToolIdempotency


@dataclass(frozen=True)
class CancelToolCall:
    """Stop the open call and wait for its end."""


@dataclass(frozen=True)
class AppendSession:
    """Hand a batch to the session."""

    batch: SessionAppend


Effect = CallModel | CancelModelCall | InvokeTool | CancelToolCall | AppendSession


@dataclass(frozen=True)
class Step:
    """The answer to an input: the new state, what happened, what must be done now, and its WAL records in order."""

    state: RunState
    events: tuple[AgentJournalRecord, ...] = ()
    effects: tuple[Effect, ...] = ()
    wal: tuple[GenericCheckpointDraft, ...] = ()
