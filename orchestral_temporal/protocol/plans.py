"""Plans: a DAG of tool calls that a model submits as one call (`spec/plans.md` §1 to §3, §10).

Models write plans, so unknown keys are dropped, not refused.
"""

from enum import StrEnum
from struct import pack, unpack
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, SerializationInfo

from orchestral_temporal.protocol.base import DIGESTED, U64, Json, JsonObject, OpenWord
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.ids import Digest, RunId

WorkflowId = Annotated[str, "one plan of a run"]
StepId = Annotated[str, "one step of a plan"]


def _single(value: float | None) -> float | None:
    """The nearest 32-bit float as a double; null when it is out of that range."""
    if value is None:
        return None
    try:
        return unpack("<f", pack("<f", value))[0]
    except OverflowError:
        return None


def _written(value: float | None, info: SerializationInfo) -> float | None:
    """As the wire writes it: a text has the fewest digits that name the same 32-bit float, a digest its double."""
    if value is None or info.context == DIGESTED:
        return value
    return next(short for digits in range(1, 10) if _single(short := float(f"{value:.{digits}g}")) == value)


Single = Annotated[float | None, AfterValidator(_single), PlainSerializer(_written)]
"""A 32-bit float."""


class StepKind(StrEnum):
    """What a step does; one that waits ends the plan where it stands."""

    ACTION = "action"
    WAIT_USER = "wait_user"
    WAIT_EVENT = "wait_event"
    SYSTEM = "system"


class StepIoBinding(OpenWord):
    """Copies a value of the working set into a step's parameters."""

    model_config = ConfigDict(serialize_by_alias=True)

    source: str = Field(alias="from")
    to: str
    required: bool = True


class Step(OpenWord):
    """One step; `action` is the model's name of a tool."""

    id: StepId
    action: str = ""
    kind: StepKind = StepKind.ACTION
    depends_on: tuple[StepId, ...] = ()
    exports: tuple[str, ...] = ()
    io_bindings: tuple[StepIoBinding, ...] = ()
    params: Json = None


class Plan(OpenWord):
    """A plan; `on_complete` and `on_failure` are digested, and nothing else is done with them."""

    goal: str
    steps: tuple[Step, ...]
    confidence: Single = None
    on_complete: str | None = None
    on_failure: str | None = None


class StepScope(OpenWord):
    """A value of one step."""

    type: Literal["step"] = "step"
    step_id: StepId


class WorkflowScope(OpenWord):
    """A value of the whole plan."""

    type: Literal["workflow"] = "workflow"


class GlobalScope(OpenWord):
    """A value beyond one plan."""

    type: Literal["global"] = "global"


Scope = Annotated[StepScope | WorkflowScope | GlobalScope, Field(discriminator="type")]


class WorkingSet(OpenWord):
    """What the steps of a plan have left for one another; the wire knows the empty one only.

    Its entries are keyed by scope and name, which no JSON object can be; so they never leave the run.
    """

    data: Annotated[JsonObject, Field(max_length=0)]
    order: Annotated[tuple[Json, ...], Field(max_length=0)]
    max_entries: U64 = 10_000


class StepSuccess(OpenWord):
    """The step is done; its exports go into the working set."""

    type: Literal["success"] = "success"
    exports: JsonObject = Field(default_factory=dict)


class StepRetryableError(OpenWord):
    """The attempt failed, and another one may help; `retry_after` is in milliseconds."""

    type: Literal["retryable_error"] = "retryable_error"
    message: str
    retry_after: U64 | None = None
    attempt: U64 = 0


class StepError(OpenWord):
    """The step failed for good."""

    type: Literal["error"] = "error"
    message: str


StepOutcome = Annotated[StepSuccess | StepRetryableError | StepError, Field(discriminator="type")]


def step_call_id(run_id: RunId, workflow_id: WorkflowId, plan_digest: Digest, step_id: StepId, attempt: int) -> str:
    """The call id of one attempt of a step, from 1; it is the step's effect key (`spec/plans.md` §2.4).

    `plan_digest` is the digest of the normalised plan.
    """
    identity: JsonObject = {
        "version": "workflow-step-call/v1",
        "run_id": run_id,
        "workflow_id": workflow_id,
        "plan_digest": plan_digest,
        "step_id": step_id,
        "attempt": attempt,
    }
    return f"workflow-step:{digest(identity)}"
