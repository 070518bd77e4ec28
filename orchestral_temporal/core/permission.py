"""Whether a call that its bounds allow may simply run, needs a person, or may not run (`spec/tools.md` §7).

A decision is bound into the effect by its digest (`protocol.approval.permission_digest`), so that a call which a person
has to review once is never let through without one later.
"""

from typing import Final, assert_never

from orchestral_temporal.core.policy import EffectiveBounds
from orchestral_temporal.protocol.approval import (
    PermissionAllow,
    PermissionDeny,
    PermissionPolicy,
    PermissionRequireApproval,
    ToolOperationPlan,
    ToolPermissionDecision,
)
from orchestral_temporal.protocol.tools import ApprovalPolicy, EffectScope, ToolOperationRisk

_ALLOW: Final = PermissionAllow()
_ASK: Final = PermissionRequireApproval()
_DENY: Final = PermissionDeny(
    code="approval_policy_denied",
    message="The policy's `approval` is deny, so nobody can allow this call; use another.",
)

_GRAVE: Final = frozenset({EffectScope.SECRET_READ, EffectScope.HOST_EXECUTION})
_OUTWARD: Final = frozenset({EffectScope.NETWORK, EffectScope.EXTERNAL_SIDE_EFFECT})
_CONFINABLE: Final = frozenset({EffectScope.PROCESS, EffectScope.FILESYSTEM_WRITE})
"""What a sandbox keeps in: without one, a person looks at it."""


def decide(policy: PermissionPolicy, plan: ToolOperationPlan, bounds: EffectiveBounds) -> ToolPermissionDecision:
    """What a policy makes of a call, held to what no policy may loosen."""
    return constrained(proposed(policy, plan, bounds), plan, bounds)


def proposed(policy: PermissionPolicy, plan: ToolOperationPlan, bounds: EffectiveBounds) -> ToolPermissionDecision:
    """What a policy by itself would answer.

    Under the workspace policy a sandbox stands in for a person: narrower bounds that demand one may spare the question
    which wider ones ask. In every other dimension narrower bounds never make its answer milder.
    """
    decision = _by_bounds(bounds)
    match policy:
        case PermissionPolicy.DESCRIPTOR:
            return decision
        case PermissionPolicy.WORKSPACE:
            return _ASK if decision == _ALLOW and _needs_review(plan, bounds) else decision
        case _:
            assert_never(policy)


def constrained(
    decision: ToolPermissionDecision, plan: ToolOperationPlan, bounds: EffectiveBounds
) -> ToolPermissionDecision:
    """A decision that is at least as strict as the bounds; a program on the host itself always needs a person."""
    floor = _by_bounds(bounds)
    if floor == _ALLOW and EffectScope.HOST_EXECUTION in plan.required_capabilities.effects:
        floor = _ASK
    return floor if floor == _DENY or decision == _ALLOW else decision


def _by_bounds(bounds: EffectiveBounds) -> ToolPermissionDecision:
    match bounds.approval:
        case ApprovalPolicy.NOT_REQUIRED:
            return _ALLOW
        case ApprovalPolicy.REQUIRED:
            return _ASK
        case ApprovalPolicy.DENY:
            return _DENY
        case _:
            assert_never(bounds.approval)


def _needs_review(plan: ToolOperationPlan, bounds: EffectiveBounds) -> bool:
    effects = plan.required_capabilities.effects
    return (
        plan.risk is ToolOperationRisk.DESTRUCTIVE
        or not _GRAVE.isdisjoint(effects)
        or (plan.risk is not ToolOperationRisk.ROUTINE and not _OUTWARD.isdisjoint(effects))
        or (not bounds.sandbox.required and not _CONFINABLE.isdisjoint(effects))
    )
