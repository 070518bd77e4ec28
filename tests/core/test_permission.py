"""Whether a call may simply run, needs a person, or may not run."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.core.permission import constrained, decide, proposed
from orchestral_temporal.protocol.approval import (
    CapabilityRequest,
    PermissionAllow,
    PermissionDeny,
    PermissionPolicy,
    PermissionRequireApproval,
    ToolOperationPlan,
    ToolPermissionDecision,
)
from orchestral_temporal.protocol.tools import ApprovalPolicy, EffectScope, ToolOperationRisk, ToolPolicyBounds
from tests.core.policy_world import EFFECTS, WIDEST, effective, wide_bounds, with_values
from tests.golden import Row, section

ALLOW = PermissionAllow()
ASK = PermissionRequireApproval()
OWN_DENY = PermissionDeny(code="not_on_sunday", message="Come back on Monday.")
STRICTER = (PermissionAllow, PermissionRequireApproval, PermissionDeny)
"""From the mildest to the strictest."""


def plan_of(*effects: str, risk: str = "routine") -> ToolOperationPlan:
    """A plan of some risk with these effects."""
    request = CapabilityRequest(effects=tuple(EffectScope(effect) for effect in effects))
    return ToolOperationPlan(required_capabilities=request, risk=ToolOperationRisk(risk), summary="s")


def written(decision: ToolPermissionDecision) -> Any:
    """A decision as the vectors write it."""
    return {"deny": decision.code} if isinstance(decision, PermissionDeny) else decision.kind


@pytest.mark.parametrize("row", section("tool_policy", "permission_decisions"), ids=lambda row: row["name"])
def test_both_policies_answer_as_in_the_source(row: Row) -> None:
    """Approval, sandbox, risk and effects give the source's decision under either policy (E1)."""
    values = {"approval": row["approval"], "sandbox.required": row["sandbox_required"]}
    bounds, plan = effective(with_values(WIDEST, values)), plan_of(*row["effects"], risk=row["risk"])
    assert written(proposed(PermissionPolicy.DESCRIPTOR, plan, bounds)) == row["DescriptorPermissionPolicy"]
    assert written(proposed(PermissionPolicy.WORKSPACE, plan, bounds)) == row["WorkspacePermissionPolicy"]


@pytest.mark.parametrize(
    ("approval", "effect", "answers"),
    [
        (ApprovalPolicy.NOT_REQUIRED, "process", (ALLOW, ASK, OWN_DENY)),
        (ApprovalPolicy.NOT_REQUIRED, "host_execution", (ASK, ASK, OWN_DENY)),
        (ApprovalPolicy.REQUIRED, "process", (ASK, ASK, OWN_DENY)),
        (ApprovalPolicy.REQUIRED, "host_execution", (ASK, ASK, OWN_DENY)),
    ],
)
def test_no_policy_is_milder_than_the_bounds(
    approval: ApprovalPolicy, effect: str, answers: tuple[ToolPermissionDecision, ...]
) -> None:
    """A policy that allows everything relaxes neither `required` nor a program on the host; its own denial stays."""
    bounds = effective(with_values(WIDEST, {"approval": approval}))
    assert tuple(constrained(each, plan_of(effect), bounds) for each in (ALLOW, ASK, OWN_DENY)) == answers


@pytest.mark.parametrize("answer", [ALLOW, ASK, OWN_DENY])
def test_where_the_bounds_deny_nothing_else_counts(answer: ToolPermissionDecision) -> None:
    """Under `deny` every answer becomes the denial of the bounds."""
    bounds = effective(with_values(WIDEST, {"approval": "deny"}))
    assert written(constrained(answer, plan_of("host_execution"), bounds)) == {"deny": "approval_policy_denied"}


plans = st.builds(
    lambda effects, risk: plan_of(*effects, risk=risk),
    st.lists(st.sampled_from(EFFECTS), max_size=3),
    st.sampled_from([risk.value for risk in ToolOperationRisk]),
)


@given(wide_bounds, wide_bounds, plans, st.sampled_from(PermissionPolicy))
@settings(max_examples=200, deadline=None)
def test_narrower_bounds_never_spare_a_question(
    wide: ToolPolicyBounds, grant: ToolPolicyBounds, plan: ToolOperationPlan, policy: PermissionPolicy
) -> None:
    """A decision under narrower bounds is at least as strict, but where the workspace policy gains a sandbox (E1)."""
    narrow, before = effective(wide, grant), effective(wide)
    if policy is PermissionPolicy.WORKSPACE and narrow.sandbox.required != before.sandbox.required:
        return
    ranks = [STRICTER.index(type(decide(policy, plan, bounds))) for bounds in (before, narrow)]
    assert ranks == sorted(ranks)


def test_a_sandbox_stands_in_for_a_person() -> None:
    """The one counter-example to the rule above, as the sheet wants it: a demanded sandbox spares the question."""
    grant = with_values(WIDEST, {"sandbox.required": True})
    plan = plan_of("filesystem_write", risk="elevated")
    assert decide(PermissionPolicy.WORKSPACE, plan, effective(WIDEST)) == ASK
    assert decide(PermissionPolicy.WORKSPACE, plan, effective(WIDEST, grant)) == ALLOW
