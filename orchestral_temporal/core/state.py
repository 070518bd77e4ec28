"""What a run knows and what it wants done (house: the core in words).

The state is one serialisable value. It holds headers of facts (digest, sizes, sequence), and text only of what is still
on its way: arguments of calls not yet run, the newest items while they are short, the last answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.core.projection import Run
from orchestral_temporal.core.start import Start
from orchestral_temporal.protocol.activities import (
    Fence,
    Item,
    Measure,
    ModelAttempt,
    ModelPart,
    PendingRecord,
    RunPart,
    SessionAppend,
    StoredText,
    ToolObservation,
    ToolRequest,
    ToolsPart,
)
from orchestral_temporal.protocol.content import Content
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.model import ModelUsage
from orchestral_temporal.protocol.tools import Rejected, ToolIdempotency
from orchestral_temporal.protocol.wal import GenericCheckpointDraft
from orchestral_temporal.protocol.words import JsonObject, Word


class CallAt(StrEnum):
    """Where one call of a turn stands."""

    WAITING = "waiting"
    OPEN = "open"
    UNCERTAIN = "uncertain"
    ASKING = "asking"
    SETTLED = "settled"
    UNKNOWN = "unknown"


class OpenCall(Word):
    """One call of the turn: refused by the run itself, or carried out by a worker.

    `attempt` counts from 1; `reconcile` and `recorded` are what its next attempt is asked for; `late` is an outcome
    that came before the loss it answers, or while the tool is asked about its attempt; `reason` says why the call is
    uncertain or unknown. `fenced` is the last attempt that was lost behind its fence, or 0: what a later one says of
    itself does not settle that one.
    """

    call_id: str
    name: str
    invocation_id: str
    tool_id: str
    arguments: JsonObject
    refusal: Rejected | None = None
    at: CallAt = CallAt.WAITING
    attempt: int = 1
    reconcile: bool = False
    recorded: str | None = None
    fenced: int = 0
    late: Fence | None = None
    observation: ToolObservation | None = None
    reason: str = ""


class RecentItem(Word):
    """The text of an item that no attempt has carried yet; `ours` when it stands nowhere else in the history."""

    item: Item
    known: Measure
    ours: bool


class Sent(Word):
    """How far the attempts so far have told a context: its name, how many items, and texts that none has carried."""

    base: str | None = None
    items: int = 0
    recent: tuple[RecentItem, ...] = ()


class Preparing(Word):
    """Some part of the authority or the session is still missing."""

    at: Literal["preparing"] = "preparing"


class ModelOpen(Word):
    """A model attempt is on its way: the `attempt`-th of its round, after `retry` retries.

    In tokens: `bound` and `estimate` of its request, its input `budget` and its output `cap`. `before` is what the run
    had sent before this attempt: one that is voided may never have been sent.
    """

    at: Literal["model"] = "model"
    before: Sent
    attempt: int
    retry: int = 0
    bound: int
    estimate: int
    budget: int
    cap: int


class ModelWaiting(Word):
    """A failed attempt will be repeated when its timer fires: the `retry`-th time in this round."""

    at: Literal["retry"] = "retry"
    attempt: int
    retry: int
    reason: str


class ToolsOpen(Word):
    """The calls of one turn and the digests of the results committed so far, in call order.

    The calls from `index` to before `end` are the group at work (divergence 4): side by side if there is more than one.
    `stopping` is the cancel command that waits for their end, `failing` the sentence of a failure that does; `expired`
    says that the deadline does.
    """

    at: Literal["tools"] = "tools"
    calls: tuple[OpenCall, ...]
    usage: ModelUsage | None = None
    index: int = 0
    end: int = 0
    results: tuple[str, ...] = ()
    stopping: str | None = None
    failing: str | None = None
    expired: bool = False

    @property
    def closing(self) -> bool:
        """Whether the run only waits for what is at work, to end then."""
        return self.stopping is not None or self.failing is not None or self.expired


class Ended(Word):
    """The terminal event is committed."""

    at: Literal["ended"] = "ended"


Phase = Annotated[Preparing | ModelOpen | ModelWaiting | ToolsOpen | Ended, Field(discriminator="at")]


class SessionCursor(Word):
    """This run's part of the session journal: what waits, and where the entity stands.

    `texts` are what stood nowhere else in the history when the newest record was kept.
    """

    first_seq: int = 1
    last_seq: int = 0
    head: str | None = None
    number: int = 0
    appended_seq: int = 0
    pending: tuple[PendingRecord, ...] = ()
    texts: tuple[RecentItem, ...] = ()
    appending: SessionAppend | None = None
    closed: bool = False


class WaitingSteer(Word):
    """A steer that the loop has not taken yet; a `deferred` one interrupts nothing. `size` in canonical bytes."""

    command_id: str
    content: tuple[Content, ...]
    size: int
    deferred: bool


class Refusal(Word):
    """A payload that is no command of this run: shown in the view, never an error of the run."""

    name: str
    reason: str


class Capacity(Word):
    """What a backend's refusals of long contexts have taught this run, in tokens (`spec/agent-loop.md` §4).

    `retries` counts them since the last turn; once the input had to shrink, its ceiling stays.
    """

    retries: int = 0
    input_budget: int | None = None
    output_cap: int | None = None
    input_shrunk: bool = False


class RunState(Word):
    """Everything a run knows between two inputs; `last_stored` is where the whole of a cut `last_response` lies."""

    start: Start
    run: Run
    run_part: RunPart
    model_part: ModelPart | None = None
    tools_part: ToolsPart | None = None
    workspaces: tuple[str, ...] = ()
    live_text_ms: int | None = None
    uncertainty_grace_ms: int = 30_000
    config_digest: str = ""
    model_digest: str = ""
    tools_digest: str = ""
    tools: Measure | None = None
    session: SessionCursor | None = None
    phase: Phase = Preparing()
    round: int = 0
    headers: tuple[Measure, ...] = ()
    sent: Sent = Sent()
    usage: ModelUsage = ModelUsage()
    capacity: Capacity = Capacity()
    tool_calls: int = 0
    last_response: str = ""
    last_stored: StoredText | None = None
    supporting: tuple[str, ...] = ()
    unreadable_turns: int = 0
    expired: bool = False
    queue: tuple[WaitingSteer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    commands: int = 0
    received: int = 0


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
    """Stop an open call and wait for its end."""

    invocation_id: str


@dataclass(frozen=True)
class WakeAfter:
    """Bring `TimeReached` after so many milliseconds; a running timer of the same name is set anew."""

    timer: str
    ms: int


@dataclass(frozen=True)
class WakeAt:
    """Bring `TimeReached` at a moment, in milliseconds since 1970; at once if it is past."""

    timer: str
    unix_ms: int


@dataclass(frozen=True)
class StopTimer:
    """Forget a timer."""

    timer: str


@dataclass(frozen=True)
class AppendSession:
    """Hand a batch to the session."""

    batch: SessionAppend


Effect = CallModel | CancelModelCall | InvokeTool | CancelToolCall | WakeAfter | WakeAt | StopTimer | AppendSession


EffectAt = Literal["prepared", "invoked", "lost", "observed", "committed", "unknown_effect"]


class EffectNote(Word):
    """One step of a call on its way through `Prepared → Invoked → Observed → Committed | UnknownEffect`.

    `lost` stands between attempts. `said` is the outcome's status, or the reason.
    """

    invocation_id: str
    attempt: int
    tool: str
    idempotency: ToolIdempotency | None
    at: EffectAt
    said: str = ""


@dataclass(frozen=True)
class Step:
    """The answer to an input: the new state, what happened, what must be done now.

    `wal` and `notes` are the WAL records and the steps of tool calls, in order.
    """

    state: RunState
    events: tuple[AgentJournalRecord, ...] = ()
    effects: tuple[Effect, ...] = ()
    wal: tuple[GenericCheckpointDraft, ...] = ()
    notes: tuple[EffectNote, ...] = ()
