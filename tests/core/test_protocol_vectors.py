"""Words, digests and records of vector files whose behaviour is tested elsewhere: here only what is the wire's."""

import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest

from orchestral_temporal.protocol import plans, session, skills, tools, wal
from orchestral_temporal.protocol.approval import (
    DESCRIPTOR_POLICY,
    WORKSPACE_POLICY,
    ApprovalBinding,
    ApprovalCapabilityClaims,
    ToolOperationPlan,
    operation_digest,
    permission_digest,
    validate_envelope,
)
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.protocol.digest import canonical, digest
from orchestral_temporal.protocol.effects import PreparedToolEffect
from orchestral_temporal.protocol.errors import ProtocolError, WordError
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import dump, parse_value
from tests.golden import Row, read_value, rows, section, skill_rows

POLICIES = {"DescriptorPermissionPolicy": DESCRIPTOR_POLICY, "WorkspacePermissionPolicy": WORKSPACE_POLICY}

ELSEWHERE = {
    "GuardedToolRuntime::execution_contract_digest",
    "HostApprovalIssuer::issue",
    "HostApprovalIssuer::new",
    "InMemoryHostApprovalBroker::approve",
}
"""What the source's runtime and approver do: no word of the protocol."""


def checked(kind: type[Word], value: Any) -> Word:
    """A word that is valid."""
    word = parse_value(kind, value)
    validate(word)
    return word


def plan_of(value: Any) -> ToolOperationPlan:
    """An operation plan."""
    return parse_value(ToolOperationPlan, value)


def outcome_digest(value: Any) -> str:
    """The digest of a valid outcome."""
    outcome = read_value("ToolOutcome", value)
    validate(outcome)
    return digest(outcome)


def plan_digest(value: Any) -> str:
    """The digest of a valid operation plan."""
    validate(plan_of(value))
    return operation_digest(plan_of(value))


def binding(inputs: Row) -> Any:
    """What an approval is for; whether the policy lets the call ask at all is decided elsewhere."""
    bounds = parse_value(tools.ToolPolicyBounds, inputs["effective_bounds"])
    invocation, plan = parse_value(tools.ToolInvocation, inputs["invocation"]), plan_of(inputs["operation"])
    bound = ApprovalBinding(
        run_id=invocation.run_id,
        call_id=invocation.call_id,
        tool_id=invocation.tool_id,
        args_digest=digest(invocation.arguments),
        operation_digest=operation_digest(plan),
        permission_digest=inputs["permission_digest"],
        requested_capabilities=plan.required_capabilities,
        session_approval_scope=plan.session_approval_scope,
        policy_digest=digest(bounds),
    )
    return {"binding": dump(bound), "digest": digest(bound)}


def signed(inputs: Row) -> Any:
    """The authenticator of claims, from their canonical form."""
    claims = canonical(parse_value(ApprovalCapabilityClaims, inputs["claims"]))
    assert claims.decode() == inputs["canonical_claims"]
    return {"authenticator": hmac.digest(inputs["signing_key_utf8"].encode(), claims, "sha256").hex()}


def decided(inputs: Row) -> str:
    """The digest of a permission decision."""
    decision = read_value("ToolPermissionDecision", inputs["decision"])
    return permission_digest(inputs["policy_contract_digest"], decision)


DIGESTS: dict[str, Callable[[Any], Any]] = {
    "ApprovalBinding::for_operation": binding,
    "HMAC-SHA-256 over canonical claims (checked by HostApprovalVerifier::verify_and_consume)": signed,
    "PreparedToolEffect::identity_digest": lambda value: digest(checked(PreparedToolEffect, value)),
    "ToolDescriptor::digest": lambda value: digest(checked(tools.ToolDescriptor, value)),
    "ToolInvocation::args_digest": lambda value: digest(value["arguments"]),
    "ToolOperationPlan::digest": plan_digest,
    "ToolOperationPlan::validate_envelope": lambda inputs: validate_envelope(
        plan_of(inputs["plan"]), parse_value(tools.ToolPolicyBounds, bounds_of(inputs["envelope"])).allowed_effects
    ),
    "ToolOutcome::digest": outcome_digest,
    "ToolPermissionPolicy::contract_digest": lambda inputs: POLICIES[inputs["policy"]],
    "tool_permission_decision_digest": decided,
    "workflow_step_call_id": lambda inputs: plans.step_call_id(**inputs),
}


def bounds_of(effects: list[str]) -> Any:
    """Bounds that allow these effects and nothing else."""
    return {**dump(tools.ToolPolicyBounds()), "allowed_effects": effects}


@pytest.mark.parametrize("function", DIGESTS)
def test_digests_of_tools_and_policies(function: str) -> None:
    """A digest is that of the source, and what the source refuses to digest is refused with its code.

    That a policy refuses to bind a call is the guard's business: only bindings that came about are compared.
    """
    found = [row for row in section("tool_policy", "digests") if row["function"] == function]
    if function == "ApprovalBinding::for_operation":
        found = [row for row in found if "binding" in row["output"]]
    assert found
    for row in found:
        try:
            answer = DIGESTS[function](row["inputs"])
        except WordError as fault:
            answer = {"error": str(fault.code)}
        assert ("ok" if answer is None else answer) == row["output"], row["name"]


def test_every_digest_is_here_or_named() -> None:
    """No digest of the file is left out in silence."""
    assert {row["function"] for row in section("tool_policy", "digests")} == DIGESTS.keys() | ELSEWHERE


@pytest.mark.parametrize("row", rows("plans"), ids=lambda row: row["name"])
def test_plans_are_read_and_digested(row: Row) -> None:
    """A plan as a model writes it is read, whatever else stands in it; as given and normalised it has its digest."""
    given = parse_value(plans.Plan, row["plan_json"])
    if "normalized" in row:
        normalised = parse_value(plans.Plan, row["normalized"])
        assert digest(given) == row["input_digest"]
        assert canonical(normalised).decode() == row["canonical"]
        assert digest(normalised) == row["plan_digest"]


@pytest.mark.parametrize(
    ("given", "kept", "written"),
    [
        (0.9, 0.8999999761581421, 0.9),
        (1, 1.0, 1.0),
        (1e39, None, None),
        (-1e39, None, None),
        (16777217, 2.0**24, 2.0**24),
    ],
)
def test_confidence_is_a_single(given: float, kept: float | None, written: float | None) -> None:
    """The confidence of a plan is a 32-bit float, null beyond its range; a text has its fewest digits."""
    plan = parse_value(plans.Plan, {"goal": "g", "steps": [], "confidence": given})
    assert plan.confidence == kept
    assert dump(plan)["confidence"] == written
    assert dump(plan, digested=True)["confidence"] == kept


@pytest.mark.parametrize("row", skill_rows("package"), ids=lambda row: row["name"])
def test_skill_packages(row: Row) -> None:
    """A package is read, checked and digested as in the source."""
    try:
        package = parse_value(skills.SkillPackage, row["package"])
        validate(package)
    except ProtocolError:
        found: Any = {"error": "parse"}
    except WordError as fault:
        found = {"error": str(fault.code)}
    else:
        found = {"digest": skills.package_digest(package), "valid": True}
    assert found == row["output"]


def test_packages_from_files_are_valid() -> None:
    """Every package that the source read from a file is valid here, byte for byte."""
    found = [row["output"]["package"] for row in skill_rows("front_matter") if "package" in row["output"]]
    assert [dump(checked(skills.SkillPackage, package)) for package in found] == found
    assert found


def test_catalogs_are_sealed_alike() -> None:
    """A catalog of valid packages has the source's order and revision, in whatever order they come."""
    sealed = [row for row in skill_rows("catalog") if "revision" in row["output"] and "exclude_sources" not in row]
    assert sealed
    for row in sealed:
        listed = tuple(parse_value(skills.SkillPackage, package).descriptor for package in row["packages"])
        catalog = skills.seal_catalog(row["resource_id"], listed[::-1])
        assert catalog.revision == row["output"]["revision"]
        assert [skill.name for skill in catalog.skills] == row["output"]["names"]


@pytest.mark.parametrize("row", skill_rows("loaded"), ids=lambda row: row["name"])
def test_a_loaded_skill_is_sealed_alike(row: Row) -> None:
    """The session record of a loaded skill holds all of it, under the source's digests."""
    place = row["record"]
    payload = {"type": "skill_loaded", "load": {"package": row["package"]}}
    draft = {key: value for key, value in place.items() if key != "session_seq"} | {"payload": payload}
    record = session.seal_session(parse_value(session.AgentSessionEventDraft, draft), place["session_seq"])
    validate(record)
    assert record.draft_digest == row["output"]["draft_digest"]
    assert record.event_digest == row["output"]["event_digest"]


def test_session_records_are_sealed_alike() -> None:
    """Each draft that the source's session journal took has the same record here; a malformed one has none."""
    outcomes: list[str] = []
    for row in section("journals", "sessions"):
        for step in row.get("steps", []):
            draft = parse_value(session.AgentSessionEventDraft, step["draft"])
            if step["result"] == {"error": "InvalidEvent"}:
                with pytest.raises(WordError):
                    session.seal_session(draft, 1)
            elif step["result"] != {"error": "EventConflict"}:
                assert dump(session.seal_session(draft, step["record"]["session_seq"])) == step["record"]
            outcomes.append(json.dumps(step["result"]))
    assert set(outcomes) == {'"ok"', '"duplicate"', '{"error": "EventConflict"}', '{"error": "InvalidEvent"}'}


def test_ranges_of_a_session_are_digested_alike() -> None:
    """What a compaction says of its source is the digest of the whole records; a range begins at 1 and goes up."""
    for row in section("journals", "sessions"):
        if "source" not in row or row["result"] == {"error": "Corrupt"}:
            continue
        source = parse_value(session.SessionSourceRange, row["source"])
        if "error" in row["result"]:
            with pytest.raises(WordError):
                validate(source)
            continue
        covered = row["records"][source.first_session_seq - 1 : source.last_session_seq]
        assert (
            digest([dump(parse_value(session.AgentSessionRecord, each)) for each in covered]) == row["result"]["digest"]
        )


def test_log_records_are_sealed_alike() -> None:
    """Each draft that the source's write-ahead log took has the same record here, and the record is valid."""
    taken = [
        step for row in section("journals", "generic_checkpoints") for step in row.get("steps", []) if "record" in step
    ]
    assert taken
    for step in taken:
        draft = parse_value(wal.GenericCheckpointDraft, step["draft"])
        record = wal.seal_checkpoint(draft, step["record"]["checkpoint_seq"])
        validate(record)
        assert dump(record) == step["record"]
