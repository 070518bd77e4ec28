"""Whether an agent takes a run: compatibility, admission, execution (`spec/wire.md` §8.3, §8.4, §15.3)."""

from collections import Counter
from enum import StrEnum

from orchestral_temporal.protocol.base import Json, Word
from orchestral_temporal.protocol.errors import (
    AgentProtocolErrorCode,
    AgentRejection,
    AgentRejectionCode,
    ProtocolError,
    require,
)
from orchestral_temporal.protocol.ids import (
    AgentId,
    AgentProviderId,
    AgentSessionId,
    Digest,
    ProviderBindingRef,
    ResourceBindingId,
    RunId,
)
from orchestral_temporal.protocol.limits import requested_kinds
from orchestral_temporal.protocol.run import (
    AgentDescriptor,
    AgentDescriptorEnvelope,
    AgentRunEnvelope,
    AgentStartRequest,
    BindingRequirement,
    ResourceBinding,
    is_compatible,
    validate_for_descriptor,
)
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_sha256,
    require_text,
    require_unique,
    validate,
    validate_each,
)


class ResourceBindingSkipCode(StrEnum):
    """Why a binding is left out; the last one is the only one that compatibility cannot foresee."""

    UNSUPPORTED_KIND = "unsupported_kind"
    UNSUPPORTED_MODE = "unsupported_mode"
    CAPACITY_EXCEEDED = "capacity_exceeded"
    RESOLUTION_FAILED = "resolution_failed"


class ResourceBindingSkip(Word):
    """An optional binding that a run does without."""

    binding_id: ResourceBindingId
    code: ResourceBindingSkipCode
    reason: str


class AgentCompatibility(Word):
    """The optional bindings that an agent cannot take."""

    skipped_optional_bindings: tuple[ResourceBindingSkip, ...] = ()


class AgentAdmission(Word):
    """The optional bindings that a run was admitted without, in this order."""

    skipped_optional_bindings: tuple[ResourceBindingSkip, ...] = ()


class AgentExecutionRef(Word):
    """Which run, of which spec, on which agent; it never holds a handle of the provider."""

    provider_id: AgentProviderId
    agent_id: AgentId
    binding_ref: ProviderBindingRef
    descriptor_digest: Digest
    session_id: AgentSessionId
    run_id: RunId
    spec_digest: Digest


class Incompatible(Exception):  # noqa: N818 -- an answer about a run and an agent, not an error of ours
    """An agent cannot take a run; `rejection` says why."""

    def __init__(self, rejection: AgentRejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


def check_compatibility(descriptor: AgentDescriptor, run: AgentRunEnvelope) -> AgentCompatibility:
    """Check what can be known without starting: versions, content, limits, resources (`spec/wire.md` §8.3).

    Raises:
        Incompatible: the agent cannot take the run.
    """
    _valid_or_reject(descriptor, AgentRejectionCode.PROVIDER_UNAVAILABLE)
    _valid_or_reject(run, AgentRejectionCode.INVALID_SPEC)
    _check_capabilities(descriptor, run)
    taken: Counter[str] = Counter()
    for binding in run.spec.resources:
        if binding.requirement is BindingRequirement.REQUIRED:
            skip = _fit(binding, descriptor, taken)
            if skip is not None:
                _reject(AgentRejectionCode.UNSUPPORTED_RESOURCE, skip.reason, _resource_details(binding, skip))
    optional = [each for each in run.spec.resources if each.requirement is BindingRequirement.OPTIONAL]
    skips = [_fit(binding, descriptor, taken) for binding in optional]
    return AgentCompatibility(skipped_optional_bindings=tuple(skip for skip in skips if skip is not None))


def accepts(accepted: str, media_type: str) -> bool:
    """Whether an accepted type covers a media type: equal, `*/*`, or the family of `family/*`; case matters."""
    family = accepted.removesuffix("*")
    in_family = family != accepted and family.endswith("/") and len(family) > 1 and media_type.startswith(family)
    return accepted in (media_type, "*/*") or in_family


def execution_for(request: AgentStartRequest, descriptor: AgentDescriptorEnvelope) -> AgentExecutionRef:
    """The execution that a start request makes on an agent.

    Raises:
        ProtocolError: as `validate_for_descriptor`.
    """
    validate_for_descriptor(request, descriptor)
    return AgentExecutionRef(
        provider_id=descriptor.descriptor.provider_id,
        agent_id=descriptor.descriptor.agent_id,
        binding_ref=request.provider_binding,
        descriptor_digest=request.expected_descriptor_digest,
        session_id=request.run.spec.session_id,
        run_id=request.run.spec.run_id,
        spec_digest=request.run.spec_digest,
    )


def validate_execution(
    execution: AgentExecutionRef, request: AgentStartRequest, descriptor: AgentDescriptorEnvelope
) -> None:
    """Check that an execution is the one a start request dictates (`spec/wire.md` §15.3).

    Raises:
        ProtocolError: the request, the descriptor or the execution is invalid, or they differ (run_id_conflict).
    """
    expected = execution_for(request, descriptor)
    validate(execution)
    require(
        execution == expected,
        AgentProtocolErrorCode.RUN_ID_CONFLICT,
        "The execution is another one than the start request asks for; bind the run again.",
    )


def validate_admission(admission: AgentAdmission, run: AgentRunEnvelope, compatibility: AgentCompatibility) -> None:
    """Check admitted skips against the run and what compatibility foresaw (`spec/wire.md` §8.4).

    Raises:
        ProtocolError: invalid_spec.
    """
    validate_admission_for_run(admission, run)
    admitted = {skip.binding_id: skip.code for skip in admission.skipped_optional_bindings}
    foreseen = {skip.binding_id: skip.code for skip in compatibility.skipped_optional_bindings}
    require(
        all(admitted.get(binding_id) == code for binding_id, code in foreseen.items()),
        AgentProtocolErrorCode.INVALID_SPEC,
        "The admission lacks a skip that the agent's descriptor makes certain, or gives it another code.",
    )
    require(
        all(
            code is ResourceBindingSkipCode.RESOLUTION_FAILED
            for binding_id, code in admitted.items()
            if binding_id not in foreseen
        ),
        AgentProtocolErrorCode.INVALID_SPEC,
        "The admission skips a binding that the agent's descriptor takes; only resolution_failed may add a skip.",
    )


def validate_admission_for_run(admission: AgentAdmission, run: AgentRunEnvelope) -> None:
    """Check that an admission skips nothing but optional bindings of the run.

    Raises:
        ProtocolError: invalid_spec.
    """
    validate(admission)
    optional = [
        binding.binding_id for binding in run.spec.resources if binding.requirement is BindingRequirement.OPTIONAL
    ]
    require(
        all(skip.binding_id in optional for skip in admission.skipped_optional_bindings),
        AgentProtocolErrorCode.INVALID_SPEC,
        "The admission skips a binding that the run does not have or cannot do without.",
    )


def _valid_or_reject(word: Word, code: AgentRejectionCode) -> None:
    try:
        validate(word)
    except ProtocolError as fault:
        _reject(code, fault.message, fault.error.details)


def _reject(code: AgentRejectionCode, message: str, details: Json = None) -> None:
    raise Incompatible(AgentRejection(code=code, message=message, details=details))


def _check_capabilities(descriptor: AgentDescriptor, run: AgentRunEnvelope) -> None:
    spec = run.spec
    if not any(is_compatible(spec.protocol_version, version) for version in descriptor.supported_protocol_versions):
        _reject(AgentRejectionCode.UNSUPPORTED_PROTOCOL, "The agent serves no such `protocol_version`; ask for 1.0.")
    for content in spec.input:
        if not any(accepts(accepted, content.media_type) for accepted in descriptor.accepted_content_types):
            _reject(
                AgentRejectionCode.UNSUPPORTED_CAPABILITY,
                f"The agent takes no {content.media_type} as `input`; send {descriptor.accepted_content_types[0]}.",
            )
    if spec.output_schema is not None and not descriptor.capabilities.structured_output:
        _reject(AgentRejectionCode.UNSUPPORTED_CAPABILITY, "The agent knows no `output_schema`; leave it out.")
    for kind in requested_kinds(spec.limits):
        if kind not in descriptor.capabilities.supported_limits:
            _reject(AgentRejectionCode.UNSUPPORTED_CAPABILITY, f"The agent keeps no {kind} limit; leave it out.")


def _fit(binding: ResourceBinding, descriptor: AgentDescriptor, taken: Counter[str]) -> ResourceBindingSkip | None:
    """Take a place for a binding, or say why there is none."""
    kind = binding.resource.kind
    capability = next((each for each in descriptor.capabilities.resources if each.kind == kind), None)
    if capability is None:
        code, reason = ResourceBindingSkipCode.UNSUPPORTED_KIND, "The agent takes no resource of this kind."
    elif binding.mode not in capability.modes:
        code, reason = ResourceBindingSkipCode.UNSUPPORTED_MODE, "The agent does not take this kind in this mode."
    elif capability.max_bindings is not None and taken[kind] >= capability.max_bindings:
        code, reason = ResourceBindingSkipCode.CAPACITY_EXCEEDED, "The agent takes no more resources of this kind."
    else:
        taken[kind] += 1
        return None
    return ResourceBindingSkip(binding_id=binding.binding_id, code=code, reason=reason)


def _resource_details(binding: ResourceBinding, skip: ResourceBindingSkip) -> Json:
    return {
        "binding_id": binding.binding_id,
        "resource_kind": binding.resource.kind,
        "binding_mode": binding.mode.value,
        "code": skip.code.value,
        "reason": skip.reason,
    }


@validate.register
def _(skip: ResourceBindingSkip) -> None:
    require_filled("binding_id", skip.binding_id)
    require_text("reason", skip.reason)


@validate.register
def _(admission: AgentAdmission) -> None:
    validate_each(admission.skipped_optional_bindings)
    require_unique("skipped_optional_bindings", (skip.binding_id for skip in admission.skipped_optional_bindings))


@validate.register
def _(execution: AgentExecutionRef) -> None:
    for name in ("provider_id", "agent_id", "binding_ref", "session_id", "run_id"):
        require_filled(name, getattr(execution, name))
    for name in ("descriptor_digest", "spec_digest"):
        require_sha256(name, getattr(execution, name))
