"""What a call wants to do, and the signed one-time allowance for it (`spec/tools.md` §4, §5, §8)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from orchestral_temporal.protocol.base import I64, JsonObject, Word
from orchestral_temporal.protocol.digest import digest, sha256
from orchestral_temporal.protocol.errors import require
from orchestral_temporal.protocol.ids import Digest, RunId, has_control, is_blank, trimmed
from orchestral_temporal.protocol.tools import EffectScope, EffectSet, ToolOperationRisk, ToolProtocolErrorCode
from orchestral_temporal.protocol.validation import require_sha256, require_text, validate
from orchestral_temporal.protocol.words import dump

_HOST_EXECUTION_NEEDS: Final = (
    EffectScope.PROCESS,
    EffectScope.NETWORK,
    EffectScope.FILESYSTEM_READ,
    EffectScope.FILESYSTEM_WRITE,
    EffectScope.EXTERNAL_SIDE_EFFECT,
)
"""A program on the host itself can do all of these, so a call that starts one must say so."""

_UNBOUNDED: Final = (EffectScope.NETWORK, EffectScope.EXTERNAL_SIDE_EFFECT)
_FILES: Final = (EffectScope.FILESYSTEM_READ, EffectScope.FILESYSTEM_WRITE)


class Unscoped(Word):
    """No particular resource."""

    scope: Literal["unscoped"] = "unscoped"


class Exact(Word):
    """One resource."""

    scope: Literal["exact"] = "exact"
    value: str


class Subtree(Word):
    """A folder and all below it."""

    scope: Literal["subtree"] = "subtree"
    value: str


class Unrestricted(Word):
    """Any resource."""

    scope: Literal["unrestricted"] = "unrestricted"


CapabilitySelector = Annotated[Unscoped | Exact | Subtree | Unrestricted, Field(discriminator="scope")]


class CapabilityResource(Word):
    """One effect on some resource."""

    effect: EffectScope
    selector: CapabilitySelector


def _resource_order(resource: CapabilityResource) -> tuple[int, int, str]:
    selector = resource.selector
    kind = (Unscoped, Exact, Subtree, Unrestricted).index(type(selector))
    value = selector.value if isinstance(selector, Exact | Subtree) else ""
    return list(EffectScope).index(resource.effect), kind, value


def _in_resource_order(resources: tuple[CapabilityResource, ...]) -> tuple[CapabilityResource, ...]:
    return tuple(sorted(dict.fromkeys(resources), key=_resource_order))


class CapabilityRequest(Word):
    """The authority that a call wants, no more."""

    effects: EffectSet = ()
    resources: Annotated[tuple[CapabilityResource, ...], AfterValidator(_in_resource_order)] = ()


class ToolOperationPlan(Word):
    """What a call will do, made before any effect; `summary` is for people."""

    required_capabilities: CapabilityRequest
    risk: ToolOperationRisk = ToolOperationRisk.ROUTINE
    session_approval_scope: Digest | None = None
    summary: str


class PermissionAllow(Word):
    """The call may run."""

    kind: Literal["allow"] = "allow"


class PermissionRequireApproval(Word):
    """The call may run once a person has allowed it."""

    kind: Literal["require_approval"] = "require_approval"


class PermissionDeny(Word):
    """The call may not run; code and message go to the model."""

    kind: Literal["deny"] = "deny"
    code: str
    message: str


ToolPermissionDecision = Annotated[
    PermissionAllow | PermissionRequireApproval | PermissionDeny, Field(discriminator="kind")
]

DESCRIPTOR_POLICY: Final = sha256(b"orchestral.permission-policy/descriptor/v1")
"""The contract digest of the policy that asks the effective bounds alone (`spec/tools.md` §7)."""

WORKSPACE_POLICY: Final = sha256(b"orchestral.permission-policy/workspace/v2")
"""The contract digest of the policy that also looks at risk and sandbox (`spec/tools.md` §7)."""


class PermissionPolicy(StrEnum):
    """Who decides whether a call that the bounds allow needs a person: the bounds alone, or also risk and sandbox."""

    DESCRIPTOR = "descriptor"
    WORKSPACE = "workspace"


PERMISSION_CONTRACTS: Final[Mapping[PermissionPolicy, Digest]] = {
    PermissionPolicy.DESCRIPTOR: DESCRIPTOR_POLICY,
    PermissionPolicy.WORKSPACE: WORKSPACE_POLICY,
}
"""The contract digest of each policy."""


class ApprovalBinding(Word):
    """All that an approval is for: it fits this call with these arguments under this policy only.

    Both digests of arguments are those of the execution arguments, after the host has completed them. `exact_digest` is
    ours (divergence 14): it tells arguments apart whose `args_digest` is the same.
    """

    run_id: RunId
    call_id: str
    tool_id: str
    args_digest: Digest
    operation_digest: Digest
    permission_digest: Digest
    requested_capabilities: CapabilityRequest
    session_approval_scope: Digest | None = None
    policy_digest: Digest
    exact_digest: Digest | None = Field(default=None, exclude_if=lambda found: found is None)


class ApprovalCapabilityClaims(Word):
    """What an approver signs; expiry in milliseconds since the epoch.

    `key_id` and `approver` are ours (decision 19): which key signed, and who holds it.
    """

    binding: ApprovalBinding
    expires_at_unix_ms: I64
    nonce: str
    key_id: str | None = Field(default=None, exclude_if=lambda found: found is None)
    approver: str | None = Field(default=None, exclude_if=lambda found: found is None)


class ApprovalCapability(Word):
    """A signed allowance; `authenticator` is the HMAC of the canonical claims in hex."""

    claims: ApprovalCapabilityClaims
    authenticator: str


def operation_digest(plan: ToolOperationPlan) -> Digest:
    """The digest of what a plan may do: capabilities and risk, not the words around them."""
    value = dump(plan)
    covered: JsonObject = {"required_capabilities": value["required_capabilities"], "risk": value["risk"]}
    return digest(covered)


def permission_digest(policy_contract_digest: Digest, decision: ToolPermissionDecision) -> Digest:
    """The digest of what a policy decided; bound into the effect, so that no reviewed call runs unreviewed later."""
    return digest(
        {
            "contract": "orchestral.tool-permission-decision/v1",
            "policy_contract_digest": policy_contract_digest,
            "decision": dump(decision),
        }
    )


def validate_envelope(plan: ToolOperationPlan, envelope: EffectSet) -> None:
    """Check a plan, and that it stays within what its tool declares.

    Raises:
        WordError: invalid_invocation, the plan is malformed; policy_denied, it goes beyond the envelope.
    """
    validate(plan)
    beyond = [effect for effect in plan.required_capabilities.effects if effect not in envelope]
    require(
        not beyond,
        ToolProtocolErrorCode.POLICY_DENIED,
        f"The plan wants {', '.join(beyond)}, which the tool's `effect_scopes` lack.",
    )


def _check_selector(resource: CapabilityResource, effects: EffectSet) -> None:
    selector = resource.selector
    if isinstance(selector, Exact | Subtree):
        require(
            not is_blank(selector.value)
            and trimmed(selector.value) == selector.value
            and not has_control(selector.value),
            ToolProtocolErrorCode.INVALID_INVOCATION,
            "`value` of a selector is blank, has outer spaces or a control character; clean it.",
        )
    elif isinstance(selector, Unrestricted):
        require(
            resource.effect in _UNBOUNDED or (resource.effect in _FILES and EffectScope.HOST_EXECUTION in effects),
            ToolProtocolErrorCode.INVALID_INVOCATION,
            f"{resource.effect} cannot be unrestricted here; name the resource.",
        )


@validate.register
def _(request: CapabilityRequest) -> None:
    for resource in request.resources:
        require(
            resource.effect in request.effects,
            ToolProtocolErrorCode.INVALID_INVOCATION,
            f"`effects` lacks {resource.effect}, which `resources` names; add it.",
        )
        _check_selector(resource, request.effects)
    scoped = {resource.effect for resource in request.resources}
    require(
        EffectScope.NETWORK not in request.effects or EffectScope.NETWORK in scoped,
        ToolProtocolErrorCode.INVALID_INVOCATION,
        "`resources` names no network target; add one, or unrestricted.",
    )
    if EffectScope.HOST_EXECUTION in request.effects:
        free = {resource.effect for resource in request.resources if isinstance(resource.selector, Unrestricted)}
        require(
            all(effect in request.effects for effect in _HOST_EXECUTION_NEEDS)
            and all(effect in free for effect in _HOST_EXECUTION_NEEDS[1:]),
            ToolProtocolErrorCode.INVALID_INVOCATION,
            "host_execution lacks what a program can do; add process, network, files and side effects, unrestricted.",
        )


@validate.register
def _(plan: ToolOperationPlan) -> None:
    validate(plan.required_capabilities)
    require_text("summary", plan.summary, ToolProtocolErrorCode.INVALID_INVOCATION)
    require(
        not has_control(plan.summary),
        ToolProtocolErrorCode.INVALID_INVOCATION,
        "`summary` has a control character; write one line.",
    )
    require_sha256("session_approval_scope", plan.session_approval_scope, ToolProtocolErrorCode.INVALID_INVOCATION)
