"""What crosses between a run and its activities: small words, texts only once (decisions 6–8, 22)."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import JsonObject, Word
from orchestral_temporal.protocol.ids import Digest
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.model import (
    ModelDescriptor,
    ModelMessage,
    ModelObservation,
    ModelTokenMeterDescriptor,
    ModelToolDefinition,
    ModelUsage,
    ToolResultPart,
)
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.retry import ContextRecoveryPolicy, ModelRetryPolicy
from orchestral_temporal.protocol.run import AgentDescriptorEnvelope
from orchestral_temporal.protocol.session import AgentSessionRecord, EffectUncertaintyCommitted
from orchestral_temporal.protocol.telemetry import ProgressReported
from orchestral_temporal.protocol.tools import ToolDescriptor, ToolOutcome, ToolPolicyBounds
from orchestral_temporal.protocol.wal import GenericModelContextTrace


class Role(StrEnum):
    """The three kinds of worker; each holds its own part of a run's authority."""

    RUN = "run"
    MODEL = "model"
    TOOLS = "tools"


class Queues(Word):
    """Task queues by role."""

    runs: str
    models: str
    tools: str


class Timeouts(Word):
    """How long silence may last before a call counts as lost, in milliseconds (decision 17)."""

    heartbeat_ms: int = 5_000
    fenced_heartbeat_ms: int = 10_000
    uncertainty_grace_ms: int = 30_000
    live_text_ms: int | None = 1_000


class RunPart(Word):
    """What the run worker binds: identity, instructions, ceilings, and what the model costs.

    The price is here, not with the model: a start is judged before a model worker has answered, and a new price must
    not make the workers of today unfit for the runs of yesterday. Each run keeps the price that it began with.
    """

    binding_ref: str
    descriptor: AgentDescriptorEnvelope
    instructions: str
    max_model_steps: int | None = None
    max_tool_calls: int | None = None
    run_limits: RunLimits = RunLimits()
    strict_calls: bool = False
    price: ModelCostPolicy | None = Field(default=None, exclude_if=lambda price: price is None)


class ModelPart(Word):
    """What the model worker binds; window and output cap in tokens, the cap on a provider's retry-after in ms."""

    descriptor: ModelDescriptor
    meter: ModelTokenMeterDescriptor
    redispatchable: bool
    max_context_tokens: int
    reserved_output_tokens: int
    retry: ModelRetryPolicy = ModelRetryPolicy()
    retry_after_cap_ms: int = 60_000
    context_recovery: ContextRecoveryPolicy = ContextRecoveryPolicy()


class BoundTool(Word):
    """A tool, the version of what the model sees of its output, and whether it can be asked for a lost effect."""

    descriptor: ToolDescriptor
    view_contract: str
    reconciles: bool = False


class ToolsPart(Word):
    """What the tool worker binds, tools ordered by id; `input_requests`: the model may ask people."""

    tools: tuple[BoundTool, ...] = ()
    grant: ToolPolicyBounds = ToolPolicyBounds()
    input_requests: bool = Field(default=False, exclude_if=lambda asks: not asks)


class BindRequest(Word):
    """Asks a worker for the parts of the roles it serves; workspaces are absolute or relative to the policy's first."""

    agent: str
    roles: tuple[Role, ...]
    workspaces: tuple[str, ...] = ()


class Binding(Word):
    """The answer: only the parts asked for are set. `workspaces` are absolute and allowed."""

    queues: Queues
    timeouts: Timeouts
    attributes: bool
    run: RunPart | None = None
    model: ModelPart | None = None
    tools: ToolsPart | None = None
    workspaces: tuple[str, ...] = ()


class Measure(Word):
    """What is known of a context item without its text: digest, canonical bytes, tokens (bound and estimate)."""

    digest: str
    size: int
    bound: int
    estimate: int


class MessageItem(Word):
    """A system, user or assistant message of the context."""

    kind: Literal["message"] = "message"
    message: ModelMessage


class ResultItem(Word):
    """One tool result of the context; neighbours share one tool message."""

    kind: Literal["result"] = "result"
    part: ToolResultPart


class ToolsItem(Word):
    """The tools a run offers, constant for the run."""

    kind: Literal["tools"] = "tools"
    tools: tuple[ModelToolDefinition, ...]


Item = Annotated[MessageItem | ResultItem | ToolsItem, Field(discriminator="kind")]


class ModelAttempt(Word):
    """One attempt of one round.

    The context is named, not sent: `context` is the digest of the whole, `base` of the context it extends (null: `add`
    is the full list, system message first), `add` the digests of the items appended, `tail` their texts when short.
    """

    run_id: str
    agent: str
    round: int
    attempt: int
    request_id: str
    config_digest: str
    part_digest: str
    context: str
    base: str | None = None
    add: tuple[str, ...]
    tail: tuple[Item, ...] = ()
    tools: str
    max_output_tokens: int
    trace: GenericModelContextTrace
    live_text_ms: int | None = None


class StoredText(Word):
    """A text that lies in the artifact store as UTF-8: the digest of its bytes, and how many there are."""

    digest: Digest
    size: int


class ModelResult(Word):
    """A finished turn: the observation once, and the measure of the assistant item made of it.

    A text too large for a history is `stored`: the observation then holds its beginning and says so, while `item`
    measures the whole. `notes` say what was changed on the way, a sentence each.
    """

    observation: ModelObservation
    item: Measure | None
    request_digest: str
    input_bound: int
    stored: StoredText | None = Field(default=None, exclude_if=lambda stored: stored is None)
    notes: tuple[str, ...] = Field(default=(), exclude_if=lambda notes: not notes)


class ToolRequest(Word):
    """One attempt of a call; `invocation_id` is the idempotency key of every attempt of it.

    After a lost attempt, `reconcile` says that the tool must first be asked what became of it, and `recorded` names the
    observation in the artifact store that only has to be read.
    """

    run_id: str
    session_id: str
    agent: str
    invocation_id: str
    attempt: int
    call_id: str
    tool_id: str
    arguments: JsonObject
    part_digest: str
    workspaces: tuple[str, ...] = ()
    reconcile: bool = False
    recorded: str | None = None


class ToolObservation(Word):
    """How a call ended: the outcome as the model sees it, the digest of the canonical output, the item's measure.

    `notes` say what was changed on the way, a sentence each. `reconciled`: the attempt let no tool loose, it is what
    the tool or nobody could say of an earlier one.
    """

    outcome: ToolOutcome
    output_digest: str | None = None
    item: Measure | None = None
    notes: tuple[str, ...] = Field(default=(), exclude_if=lambda notes: not notes)
    reconciled: bool = Field(default=False, exclude_if=lambda reconciled: not reconciled)


class Fence(Word):
    """What stands on record before a tool with effects may work, and what it answered (decision 15).

    With neither `outcome` nor `stored` (the observation's digest in the artifact store) the call is at work. The same
    word is the payload of the signal `outcome`, by which a worker reports what the server no longer takes; of a call at
    work `next_ms` says within how many milliseconds the next one comes.
    """

    invocation_id: str
    attempt: int
    arguments_digest: Digest
    outcome: ToolObservation | None = None
    stored: Digest | None = None
    next_ms: int | None = Field(default=None, exclude_if=lambda ms: ms is None)

    @property
    def told(self) -> bool:
        """Whether it says how the call ended."""
        return self.outcome is not None or self.stored is not None


class Heartbeat(Word):
    """The details of every beat of an attempt (decision 27); `offset` counts characters before `text`.

    `progress` is the newest word of a tool at work.
    """

    v: Literal[1] = 1
    fence: Fence | None = None
    request_digest: str | None = None
    offset: int = 0
    text: str = ""
    progress: ProgressReported | None = Field(default=None, exclude_if=lambda progress: progress is None)


class PendingRecord(Word):
    """A session record without its texts: `items` are the digests of its messages, in order.

    `type` is the wire's payload type; an effect uncertainty has no item and carries its payload whole.
    """

    event_id: str
    type: Literal[
        "run_input_committed", "tool_exchange_committed", "run_output_committed", "effect_uncertainty_committed"
    ]
    items: tuple[str, ...] = ()
    request_id: str | None = None
    usage: ModelUsage | None = None
    uncertainty: EffectUncertaintyCommitted | None = None
    size: int = 0


class SessionOpen(Word):
    """A run asks for its session: the entity's lock and where its journal stands.

    `execution` is the Temporal run id; `release` names a holder that is known to be gone.
    """

    session_id: str
    run_id: str
    spec_digest: str
    execution: str
    release: str | None = None


class SessionOpened(Word):
    """The session is this run's; `head` is null while it is empty.

    `served` is set when the run had ended before: the execution that holds its result, and then `result` itself.
    """

    head: str | None = None
    last_seq: int = 0
    served: str | None = None
    result: JsonObject | None = None


class SessionAppend(Word):
    """A batch of one run; idempotent by run and `number`, refused unless `expected_head` is the head. `close` unlocks.

    Number 0 is no batch: the start was refused, and the session forgets the run. `texts` are the items of its records
    that may stand nowhere else in the run's history.
    """

    session_id: str
    run_id: str
    number: int
    expected_head: str | None
    first_seq: int
    records: tuple[PendingRecord, ...]
    close: bool
    texts: tuple[Item, ...] = Field(default=(), exclude_if=lambda texts: not texts)


class SessionForget(Word):
    """A run that was never accepted gives the session back."""

    run_id: str


class SessionAppended(Word):
    """Where the session's journal stands after a batch."""

    head: str | None
    last_seq: int


class SessionBatch(Word):
    """A sealed batch as the entity keeps it: short ones inline, longer ones as a segment in the artifact store.

    `uncertain` are the calls of which its records say that nobody knows their effect, by invocation id. `execution` is
    the Temporal run id of the run that appends it: after a reset another one has the same numbers.
    """

    run_id: str
    number: int
    expected_head: str | None
    head: str | None
    first_seq: int
    last_seq: int
    records: tuple[AgentSessionRecord, ...] = ()
    segment: str | None = None
    close: bool = False
    uncertain: tuple[str, ...] = Field(default=(), exclude_if=lambda calls: not calls)
    execution: str | None = Field(default=None, exclude_if=lambda execution: execution is None)


class EffectSettlement(Word):
    """What an operator says of an unknown effect: what `happened`, or null, which means that nothing did.

    `call` is the invocation id, `by` the name of who says it (divergence 30).
    """

    call: str
    happened: str | None
    by: str


class EffectSettled(Word):
    """The settlement that stands; `repeated` when it stood before."""

    settlement: EffectSettlement
    repeated: bool
