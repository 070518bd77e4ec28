"""The plan of a tool that makes none, and what a person is shown of a plan."""

import pytest

from orchestral_temporal.core.operation import SUMMARY_CHARACTERS, default_plan, requested_scope, summary_line
from orchestral_temporal.protocol.approval import CapabilityRequest, Unrestricted, validate_envelope
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.ids import has_control
from orchestral_temporal.protocol.tools import EffectScope, ToolInvocation, ToolOperationRisk, ToolProtocolErrorCode
from tests.core.policy_world import PROGRAM

CALL = ToolInvocation(run_id="r", call_id="r/m1/c1", tool_id="acme/weigh", arguments={"secret": "hush"})


def test_a_tool_without_a_plan_wants_its_whole_envelope() -> None:
    """All effects, any network target, routine, never remembered, and arguments by their digest only."""
    envelope = (EffectScope.PROCESS, EffectScope.NETWORK)
    plan = default_plan(envelope, CALL, {"basket": 3})
    validate_envelope(plan, envelope)
    assert plan.required_capabilities.effects == envelope
    assert [each.selector for each in plan.required_capabilities.resources] == [Unrestricted()]
    assert plan.risk is ToolOperationRisk.ROUTINE
    assert plan.session_approval_scope is None
    assert plan.summary == f"acme/weigh with arguments {digest({'basket': 3})}"
    assert default_plan((), CALL, {}).required_capabilities == CapabilityRequest()


def test_a_program_on_the_host_must_be_planned() -> None:
    """The default plan of a tool that runs programs on the host is malformed, so the call is refused."""
    with pytest.raises(WordError) as refused:
        validate_envelope(default_plan(PROGRAM.effects, CALL, {}), PROGRAM.effects)
    assert refused.value.code is ToolProtocolErrorCode.INVALID_INVOCATION


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("  a\n\tb\x00c\x1b[2Jd\x85e\x9f f ", "a b c [2Jd e f"),
        (" \r\n\x07 ", "Call acme/weigh v1"),
        ("x" * SUMMARY_CHARACTERS, "x" * SUMMARY_CHARACTERS),
        ("x" * (SUMMARY_CHARACTERS + 1), "x" * SUMMARY_CHARACTERS + "…"),
    ],
)
def test_a_summary_is_one_line(text: str, line: str) -> None:
    """Control characters and runs of white space become one space, a blank text names the tool, a long one is cut."""
    found = summary_line(text, "acme/weigh\x1bv1")
    assert found == line
    assert not has_control(found)


def test_the_scope_of_a_request_in_words() -> None:
    """One word for each effect in declared order, marked where it knows no bound; none where there is none."""
    assert requested_scope(PROGRAM) == (
        "process",
        "network:unrestricted",
        "filesystem_read:unrestricted",
        "filesystem_write:unrestricted",
        "external_side_effect:unrestricted",
        "host_execution",
    )
    assert requested_scope(CapabilityRequest()) == ()
