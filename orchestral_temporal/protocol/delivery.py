"""How a run ends: deliveries, failure, incompleteness (`spec/wire.md` §11)."""

from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import Json, JsonObject, Word
from orchestral_temporal.protocol.content import ArtifactRefWithDigest, Content, NamedOutput
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode
from orchestral_temporal.protocol.ids import (
    AgentEventId,
    AgentId,
    AgentProviderId,
    DeliveryId,
    Digest,
    PartialDeliveryId,
    RunId,
)
from orchestral_temporal.protocol.limits import RunLimitKind, UsageReport
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_namespaced,
    require_sha256,
    require_text,
    require_unique,
    validate,
    validate_each,
)


class Provenance(Word):
    """Who delivered, and on which events of the run it rests."""

    provider_id: AgentProviderId
    agent_id: AgentId
    supporting_event_ids: tuple[AgentEventId, ...] = ()
    extensions: JsonObject = Field(default_factory=dict)


class AgentDelivery(Word):
    """A run's result."""

    delivery_id: DeliveryId
    run_id: RunId
    spec_digest: Digest
    final_response: Content
    outputs: tuple[NamedOutput, ...] = ()
    artifacts: tuple[ArtifactRefWithDigest, ...] = ()
    unresolved_issues: tuple[str, ...] = ()
    usage: UsageReport | None = None
    provenance: Provenance


class PartialDelivery(Word):
    """What an incomplete run has to show."""

    partial_delivery_id: PartialDeliveryId
    run_id: RunId
    spec_digest: Digest
    response: Content | None = None
    outputs: tuple[NamedOutput, ...] = ()
    artifacts: tuple[ArtifactRefWithDigest, ...] = ()
    unresolved_issues: tuple[str, ...] = ()
    usage: UsageReport | None = None
    provenance: Provenance


class AgentFailure(Word):
    """Why a run failed; `code` is free text, such as `model_cancelled`."""

    code: str
    message: str
    retryable: bool
    details: Json = None


class LimitReached(Word):
    """A limit of the run was reached."""

    type: Literal["limit_reached"] = "limit_reached"
    limit: RunLimitKind


class Interrupted(Word):
    """The run was cut off."""

    type: Literal["interrupted"] = "interrupted"
    reason: str


class ProviderEnded(Word):
    """The provider ended the run."""

    type: Literal["provider_ended"] = "provider_ended"
    reason: str


IncompleteReason = Annotated[LimitReached | Interrupted | ProviderEnded, Field(discriminator="type")]


def _check_origin(id_name: str, delivery_id: str, delivery: AgentDelivery | PartialDelivery) -> None:
    require_filled(id_name, delivery_id, AgentProtocolErrorCode.INVALID_DIGEST)
    require_filled("run_id", delivery.run_id, AgentProtocolErrorCode.INVALID_DIGEST)
    require_sha256("spec_digest", delivery.spec_digest, AgentProtocolErrorCode.INVALID_DIGEST)


def _check_contents(delivery: AgentDelivery | PartialDelivery) -> None:
    validate_each(delivery.outputs)
    require_unique("outputs", (output.name for output in delivery.outputs))
    validate_each(delivery.artifacts)
    require_unique("artifacts", (artifact.artifact_ref for artifact in delivery.artifacts))
    for issue in delivery.unresolved_issues:
        require_text("unresolved_issues", issue)
    if delivery.usage is not None:
        validate(delivery.usage)
    validate(delivery.provenance)


@validate.register
def _(provenance: Provenance) -> None:
    require_filled("provider_id", provenance.provider_id)
    require_filled("agent_id", provenance.agent_id)
    for event_id in provenance.supporting_event_ids:
        require_filled("supporting_event_ids", event_id)
    require_unique("supporting_event_ids", provenance.supporting_event_ids)
    require_namespaced("extensions", provenance.extensions)


@validate.register
def _(delivery: AgentDelivery) -> None:
    _check_origin("delivery_id", delivery.delivery_id, delivery)
    validate(delivery.final_response)
    _check_contents(delivery)


@validate.register
def _(delivery: PartialDelivery) -> None:
    _check_origin("partial_delivery_id", delivery.partial_delivery_id, delivery)
    if delivery.response is not None:
        validate(delivery.response)
    _check_contents(delivery)


@validate.register
def _(failure: AgentFailure) -> None:
    require_text("code", failure.code)
    require_text("message", failure.message)


@validate.register
def _(reason: Interrupted | ProviderEnded) -> None:
    require_text("reason", reason.reason)
