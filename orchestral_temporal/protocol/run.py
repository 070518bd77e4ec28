"""A run as it is asked for, and the agent it is asked of (`spec/wire.md` §4, §7, §8)."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from orchestral_temporal.protocol.base import U16, U32, JsonObject, OrderedSet, TextSet, Word
from orchestral_temporal.protocol.content import Content, validate_list
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.ids import (
    AgentId,
    AgentProviderId,
    AgentSessionId,
    Digest,
    ProviderBindingRef,
    ResourceBindingId,
    ResourceId,
    ResourceKind,
    ResourceRevision,
    RunId,
    SchemaRef,
)
from orchestral_temporal.protocol.limits import RunLimitKind, RunLimits
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_namespaced,
    require_positive,
    require_sealed,
    require_unique,
    validate,
    validate_each,
)


class ProtocolVersion(Word):
    """A version of the agent protocol; ours is 1.0."""

    major: U16
    minor: U16


class PendingRequestKind(StrEnum):
    """What a run may ask of people; the order of declaration is the order on the wire."""

    INPUT = "input"
    APPROVAL = "approval"
    EXTERNAL_ACTION = "external_action"


class ResourceBindingMode(StrEnum):
    """How a resource is bound; the order of declaration is the order on the wire."""

    SNAPSHOT = "snapshot"
    ON_DEMAND = "on_demand"


class CancelSupport(StrEnum):
    """What becomes of a cancel."""

    UNSUPPORTED = "unsupported"
    BEST_EFFORT = "best_effort"
    CONFIRMED = "confirmed"


class EffectMediation(StrEnum):
    """Who guards the agent's effects."""

    NONE = "none"
    HOST_MEDIATED = "host_mediated"
    PROVIDER_MANAGED = "provider_managed"


class ControlCapabilities(Word):
    """The commands an agent understands; information, enforced nowhere in the reducer."""

    steer: bool
    cancel: CancelSupport
    recover: bool


class ResourceCapability(Word):
    """A kind of resource an agent takes; null bindings are unlimited."""

    kind: ResourceKind
    modes: Annotated[tuple[ResourceBindingMode, ...], OrderedSet] = ()
    max_bindings: U32 | None = None


class AgentCapabilities(Word):
    """What an agent can do."""

    session_reuse: bool
    structured_output: bool
    controls: ControlCapabilities
    pending_request_kinds: Annotated[tuple[PendingRequestKind, ...], OrderedSet] = ()
    supported_limits: Annotated[tuple[RunLimitKind, ...], OrderedSet] = ()
    resources: tuple[ResourceCapability, ...] = ()
    effect_mediation: EffectMediation


class AgentDescriptor(Word):
    """An agent's identity and abilities."""

    provider_id: AgentProviderId
    agent_id: AgentId
    supported_protocol_versions: tuple[ProtocolVersion, ...]
    accepted_content_types: TextSet
    capabilities: AgentCapabilities
    extensions: JsonObject = Field(default_factory=dict)


class AgentDescriptorEnvelope(Word):
    """A descriptor under its digest."""

    descriptor: AgentDescriptor
    descriptor_digest: Digest


class BindingRequirement(StrEnum):
    """Whether a run can do without a resource."""

    REQUIRED = "required"
    OPTIONAL = "optional"


class ResourceRef(Word):
    """One revision of one resource."""

    kind: ResourceKind
    id: ResourceId
    revision: ResourceRevision


class ResourceBinding(Word):
    """A resource that a run brings along."""

    binding_id: ResourceBindingId
    resource: ResourceRef
    requirement: BindingRequirement
    mode: ResourceBindingMode


class AgentRunSpec(Word):
    """All that identifies a run; it holds no authority and no secret."""

    protocol_version: ProtocolVersion
    session_id: AgentSessionId
    run_id: RunId
    input: tuple[Content, ...]
    resources: tuple[ResourceBinding, ...] = ()
    limits: RunLimits = RunLimits()
    output_schema: SchemaRef | None = None
    extensions: JsonObject = Field(default_factory=dict)


class AgentRunEnvelope(Word):
    """A spec under its digest."""

    spec: AgentRunSpec
    spec_digest: Digest


class AgentStartRequest(Word):
    """A run for one binding of one agent, as its descriptor was when the run was asked for."""

    run: AgentRunEnvelope
    provider_binding: ProviderBindingRef
    expected_descriptor_digest: Digest


def is_compatible(requested: ProtocolVersion, supported: ProtocolVersion) -> bool:
    """Whether a supported version serves a requested one (`spec/wire.md` §4)."""
    return requested.major == supported.major and requested.minor <= supported.minor


def seal_descriptor(descriptor: AgentDescriptor) -> AgentDescriptorEnvelope:
    """Put a descriptor under its digest.

    Raises:
        ProtocolError: the descriptor is invalid (unlike a run spec, it is validated first).
    """
    validate(descriptor)
    return AgentDescriptorEnvelope(descriptor=descriptor, descriptor_digest=digest(descriptor))


def seal(spec: AgentRunSpec) -> AgentRunEnvelope:
    """Put a spec under its digest; it is not validated."""
    return AgentRunEnvelope(spec=spec, spec_digest=digest(spec))


def start_request(
    run: AgentRunEnvelope, provider_binding: str, descriptor: AgentDescriptorEnvelope
) -> AgentStartRequest:
    """Ask a binding for a run.

    Raises:
        ProtocolError: as `validate_for_descriptor`.
    """
    request = AgentStartRequest(
        run=run, provider_binding=provider_binding, expected_descriptor_digest=descriptor.descriptor_digest
    )
    validate_for_descriptor(request, descriptor)
    return request


def validate_for_descriptor(request: AgentStartRequest, descriptor: AgentDescriptorEnvelope) -> None:
    """Check a start request against the descriptor it was made for (`spec/wire.md` §7.2).

    Raises:
        ProtocolError: the run or the descriptor is invalid, or the request was made for another one (run_id_conflict).
    """
    validate(request.run)
    validate(descriptor)
    require(
        bool(request.provider_binding) and request.expected_descriptor_digest == descriptor.descriptor_digest,
        AgentProtocolErrorCode.RUN_ID_CONFLICT,
        "`expected_descriptor_digest` or `provider_binding` is not the agent's; ask for its present descriptor.",
    )


@validate.register
def _(capability: ResourceCapability) -> None:
    require_namespaced("resources.kind", (capability.kind,))
    require(
        bool(capability.modes),
        AgentProtocolErrorCode.INVALID_SPEC,
        "`modes` of a resource is empty; give snapshot, on_demand or both.",
    )
    require_positive(AgentProtocolErrorCode.INVALID_SPEC, max_bindings=capability.max_bindings)


@validate.register
def _(descriptor: AgentDescriptor) -> None:
    require_filled("provider_id", descriptor.provider_id)
    require_filled("agent_id", descriptor.agent_id)
    versions = descriptor.supported_protocol_versions
    require(
        bool(versions) and all(version.major for version in versions),
        AgentProtocolErrorCode.INVALID_SPEC,
        "`supported_protocol_versions` is empty or has a major 0; give at least one version from 1.0 on.",
    )
    require(
        bool(descriptor.accepted_content_types) and "" not in descriptor.accepted_content_types,
        AgentProtocolErrorCode.INVALID_SPEC,
        "`accepted_content_types` is empty or has an empty entry; give media types, such as text/plain.",
    )
    validate_each(descriptor.capabilities.resources)
    require_unique("resources.kind", (capability.kind for capability in descriptor.capabilities.resources))
    require_namespaced("extensions", descriptor.extensions)


@validate.register
def _(envelope: AgentDescriptorEnvelope) -> None:
    validate(envelope.descriptor)
    require_sealed("descriptor_digest", envelope.descriptor_digest, digest(envelope.descriptor))


@validate.register
def _(binding: ResourceBinding) -> None:
    require_filled("binding_id", binding.binding_id)
    require_namespaced("resource.kind", (binding.resource.kind,))
    require_filled("resource.id", binding.resource.id)
    require_filled("resource.revision", binding.resource.revision)


@validate.register
def _(run: AgentRunEnvelope) -> None:
    spec = run.spec
    require(
        spec.protocol_version.major != 0,
        AgentProtocolErrorCode.UNSUPPORTED_PROTOCOL,
        "`protocol_version.major` is 0; use 1.",
    )
    require_filled("session_id", spec.session_id)
    require_filled("run_id", spec.run_id)
    validate_list("input", spec.input)
    require_filled("output_schema", spec.output_schema)
    validate(spec.limits)
    require_namespaced("extensions", spec.extensions)
    validate_each(spec.resources)
    require_unique("resources", (binding.binding_id for binding in spec.resources))
    require_sealed("spec_digest", run.spec_digest, digest(spec))
