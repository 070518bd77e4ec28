"""What a call may do: host ∩ grant ∩ restriction, and whether its request stays within (`spec/tools.md` §6).

Bounds form a lattice: two of them have one narrowest common part, dimension by dimension. So nothing can be gained by
adding a source, and *within* needs no second list of the dimensions: what a ceiling does not change is within it.
"""

from functools import reduce
from typing import Final, NewType, TypeVar, assert_never

from orchestral_temporal.core.schema_fault import quoted
from orchestral_temporal.protocol.approval import (
    CapabilityRequest,
    CapabilityResource,
    CapabilitySelector,
    Exact,
    Subtree,
    Unrestricted,
    Unscoped,
)
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    EffectScope,
    EffectSet,
    EnvironmentPolicy,
    FilesystemPolicy,
    HostToolPolicy,
    InteractiveCommandPolicy,
    NetworkPolicy,
    ProcessPolicy,
    RunToolGrant,
    SandboxPolicy,
    ToolPolicyBounds,
    ToolRestriction,
    TransportLaunchPolicy,
)
from orchestral_temporal.protocol.validation import validate

EffectiveBounds = NewType("EffectiveBounds", ToolPolicyBounds)
"""What is left of all three sources; only `effective_bounds` makes it, and its digest is the policy digest."""

VALUE_CHARACTERS: Final = 120
"""Characters of a path, target or name quoted in a reason: they come from outside."""

_STRICTNESS: Final = tuple(ApprovalPolicy)
"""Declared from the mildest to the strictest."""

Member = TypeVar("Member", bound=str)


def effective_bounds(host: HostToolPolicy, grant: RunToolGrant, restriction: ToolRestriction) -> EffectiveBounds:
    """The bounds of a call: no source can widen what another allows, and a model's arguments take no part.

    Raises:
        WordError: invalid_policy; a source has a cap of 0 or a blank entry.
    """
    sources = (host.bounds, grant.bounds, restriction.bounds)
    for bounds in sources:
        validate(bounds)
    return EffectiveBounds(reduce(_common, sources))


def within(bounds: ToolPolicyBounds, ceiling: ToolPolicyBounds) -> bool:
    """Whether bounds are in no dimension more permissive than a ceiling."""
    return _common(bounds, ceiling) == bounds


def scopes_fault(effects: EffectSet, bounds: EffectiveBounds) -> str | None:
    """Why a policy refuses these effects whatever they are for, or None if it lets them pass.

    With no effects it says whether the policy refuses every call.
    """
    if bounds.approval is ApprovalPolicy.DENY:
        return "The policy's `approval` is deny, so no call of this tool may run; use another."
    beyond = [effect for effect in effects if effect not in bounds.allowed_effects]
    if beyond:
        return f"The policy's `allowed_effects` lack {', '.join(beyond)}; do without."
    if bounds.sandbox.required and not bounds.sandbox.allowed_profiles:
        return (
            "The policy's `sandbox` is required and `allowed_profiles` has none that all its sources share; name one."
        )
    return None


def request_fault(request: CapabilityRequest, bounds: EffectiveBounds) -> str | None:
    """Why a policy refuses a request, in one sentence that names the dimension, or None if it allows all of it.

    Paths are compared as written, by whole segments: whoever makes a plan has made them absolute and followed their
    links before (divergence 25). A path that still has a `..` is below nothing, since only the file system knows where
    that leads.
    """
    try:
        validate(request)
    except WordError as fault:
        return fault.message
    refusal = scopes_fault(request.effects, bounds)
    if refusal is not None:
        return refusal
    faults = (_resource_fault(resource, bounds) for resource in request.resources)
    return next((fault for fault in faults if fault is not None), None)


def _resource_fault(resource: CapabilityResource, bounds: EffectiveBounds) -> str | None:
    selector = resource.selector
    match resource.effect:
        case EffectScope.FILESYSTEM_READ:
            dimension, held = "filesystem.readable_roots", _below_one(selector, bounds.filesystem.readable_roots)
        case EffectScope.FILESYSTEM_WRITE:
            dimension, held = "filesystem.writable_roots", _below_one(selector, bounds.filesystem.writable_roots)
        case EffectScope.NETWORK:
            dimension, held = "network.allowed_targets", _reaches(selector, bounds.network)
        case EffectScope.ENVIRONMENT_READ:
            dimension, held = "environment.allowed_variables", _names(selector, bounds.environment.allowed_variables)
        case EffectScope.SECRET_READ:
            dimension, held = "allowed_credentials", _names(selector, bounds.allowed_credentials)
        case EffectScope.PROCESS:
            programs = bounds.process.interactive.command_shells + bounds.process.transport.allowed_programs
            dimension, held = "process", _names(selector, programs)
        case (
            EffectScope.ARTIFACT_READ
            | EffectScope.SESSION_READ
            | EffectScope.EXTERNAL_SIDE_EFFECT
            | EffectScope.HOST_EXECUTION
        ):
            return None
        case _:
            assert_never(resource.effect)
    if held:
        return None
    return f"The policy's `{dimension}` does not cover {resource.effect} {_shown(selector)}; stay within it."


def _shown(selector: CapabilitySelector) -> str:
    value = quoted(selector.value, VALUE_CHARACTERS) if isinstance(selector, Exact | Subtree) else ""
    return f"{selector.scope} {value}".rstrip()


def _names(selector: CapabilitySelector, allowed: tuple[str, ...]) -> bool:
    return isinstance(selector, Unscoped) or (isinstance(selector, Exact) and selector.value in allowed)


def _reaches(selector: CapabilitySelector, network: NetworkPolicy) -> bool:
    if isinstance(selector, Exact):
        return network.allow_unrestricted or selector.value in network.allowed_targets
    return isinstance(selector, Unrestricted) and network.allow_unrestricted


def _below_one(selector: CapabilitySelector, roots: tuple[str, ...]) -> bool:
    match selector:
        case Exact() | Subtree():
            return any(_is_below(selector.value, root) for root in roots)
        case Unscoped():
            return True
        case Unrestricted():
            # A valid request has this only beside `host_execution`, and that effect is allowed or we are not here.
            return True
        case _:
            assert_never(selector)


def _is_below(path: str, root: str) -> bool:
    if not (path.startswith("/") and root.startswith("/")):
        return False
    inner, outer = _segments(path), _segments(root)
    return ".." not in inner and inner[: len(outer)] == outer


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment not in {"", "."}]


def _common(one: ToolPolicyBounds, other: ToolPolicyBounds) -> ToolPolicyBounds:
    """The common part of two bounds, each dimension for itself; roots are compared as texts."""
    return ToolPolicyBounds(
        allowed_effects=_both(one.allowed_effects, other.allowed_effects),
        approval=max(one.approval, other.approval, key=_STRICTNESS.index),
        sandbox=SandboxPolicy(
            required=one.sandbox.required or other.sandbox.required,
            allowed_profiles=_both(one.sandbox.allowed_profiles, other.sandbox.allowed_profiles),
        ),
        process=_common_process(one.process, other.process),
        filesystem=FilesystemPolicy(
            readable_roots=_both(one.filesystem.readable_roots, other.filesystem.readable_roots),
            writable_roots=_both(one.filesystem.writable_roots, other.filesystem.writable_roots),
        ),
        network=NetworkPolicy(
            allowed_targets=_both(one.network.allowed_targets, other.network.allowed_targets),
            allow_unrestricted=one.network.allow_unrestricted and other.network.allow_unrestricted,
        ),
        environment=EnvironmentPolicy(
            allowed_variables=_both(one.environment.allowed_variables, other.environment.allowed_variables),
            inherit_host_environment=one.environment.inherit_host_environment
            and other.environment.inherit_host_environment,
        ),
        allowed_credentials=_both(one.allowed_credentials, other.allowed_credentials),
        max_timeout_ms=_lower(one.max_timeout_ms, other.max_timeout_ms),
        max_output_bytes=_lower(one.max_output_bytes, other.max_output_bytes),
    )


def _common_process(one: ProcessPolicy, other: ProcessPolicy) -> ProcessPolicy:
    shells, programs = (one.interactive, other.interactive), (one.transport, other.transport)
    return ProcessPolicy(
        interactive=InteractiveCommandPolicy(
            enabled=all(each.enabled for each in shells),
            command_shells=_both(shells[0].command_shells, shells[1].command_shells),
            allow_child_processes=all(each.allow_child_processes for each in shells),
        ),
        transport=TransportLaunchPolicy(
            allowed_programs=_both(programs[0].allowed_programs, programs[1].allowed_programs),
            allow_child_processes=all(each.allow_child_processes for each in programs),
        ),
    )


def _both(one: tuple[Member, ...], other: tuple[Member, ...]) -> tuple[Member, ...]:
    return tuple(member for member in one if member in other)


def _lower(one: int | None, other: int | None) -> int | None:
    """The lower of two caps; null is none at all."""
    return min((cap for cap in (one, other) if cap is not None), default=None)
