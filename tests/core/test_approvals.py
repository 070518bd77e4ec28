"""Approvals: what one is for, how it is signed, and every way in which one is refused (D10)."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.core.approvals import (
    ApprovalKey,
    approval_binding,
    issue,
    refused,
    session_key,
    verify,
)
from orchestral_temporal.protocol.approval import (
    PERMISSION_CONTRACTS,
    ApprovalBinding,
    ApprovalCapability,
    ApprovalCapabilityClaims,
    CapabilityRequest,
    PermissionPolicy,
    PermissionRequireApproval,
    ToolOperationPlan,
    permission_digest,
)
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import ProtocolError, WordError
from orchestral_temporal.protocol.ids import grant_ref
from orchestral_temporal.protocol.tools import EffectScope, ToolInvocation, ToolOperationRisk, ToolPolicyBounds
from orchestral_temporal.protocol.words import dump, parse, parse_value, to_json
from tests.core.policy_world import WIDEST, effective, with_values
from tests.golden import Row, section

SHA = "ab" * 32
SECRET = b"0123456789abcdef0123456789abcdef"
ALICE = ApprovalKey(SECRET, "alice-2", "alice")
BOB = ApprovalKey(SECRET[::-1], "bob-1", "bob")
RING = (ApprovalKey(b"old" * 11, "alice-1", "alice"), ALICE, BOB)
EXPIRY = 1_796_126_700_000
PLAN = ToolOperationPlan(
    required_capabilities=CapabilityRequest(effects=(EffectScope.EXTERNAL_SIDE_EFFECT,)),
    risk=ToolOperationRisk.ELEVATED,
    session_approval_scope=SHA,
    summary="weigh",
)
BOUNDS = effective(with_values(WIDEST, {"approval": "required"}))
CALL = ToolInvocation(run_id="r", call_id="r/m1/c1", tool_id="acme/weigh", arguments={"basket": 3})


def binding(
    invocation: ToolInvocation = CALL,
    plan: ToolOperationPlan = PLAN,
    policy: PermissionPolicy = PermissionPolicy.WORKSPACE,
) -> ApprovalBinding:
    """What an approval of a call is for."""
    permission = permission_digest(PERMISSION_CONTRACTS[policy], PermissionRequireApproval())
    return approval_binding(invocation, invocation.arguments, plan, permission, BOUNDS)


GRANT = issue(binding(), ALICE, expires_at_unix_ms=EXPIRY, nonce="n1")


def fault_of(
    capability: ApprovalCapability = GRANT,
    expected: ApprovalBinding | None = None,
    now: int = 1,
    spent: tuple[str, ...] = (),
) -> WordError | None:
    """Why a capability is refused, if it is."""
    try:
        verify(capability, expected or binding(), keys=RING, now_unix_ms=now, spent=spent)
    except WordError as fault:
        return fault
    return None


@pytest.mark.parametrize("row", section("tool_policy", "grants"), ids=lambda row: row["name"])
def test_grants_are_verified_as_in_the_source(row: Row) -> None:
    """Each sequence of uses is accepted or refused with the source's code, and only what is accepted spends a nonce."""
    spent: list[str] = []
    for step in row["steps"]:
        capability = parse_value(ApprovalCapability, step["capability"])
        expected, now = parse_value(ApprovalBinding, step["expected"]), step["now_unix_ms"]
        key = ApprovalKey(row["signing_key_utf8"].encode())
        try:
            verify(capability, expected, keys=[key], now_unix_ms=now, spent=spent)
        except WordError as fault:
            found: Any = {"error": fault.code}
        else:
            spent.append(capability.claims.nonce)
            found = {"ok": {"nonce": capability.claims.nonce}}
        assert found == step["result"]


def bound(inputs: Row) -> Any:
    """The binding of a row, in the source's form: without our exact digest."""
    invocation = parse_value(ToolInvocation, inputs["invocation"])
    found = approval_binding(
        invocation,
        invocation.arguments,
        parse_value(ToolOperationPlan, inputs["operation"]),
        inputs["permission_digest"],
        effective(parse_value(ToolPolicyBounds, inputs["effective_bounds"])),
    )
    assert found.exact_digest == found.args_digest
    plain = found.model_copy(update={"exact_digest": None})
    return {"binding": dump(plain), "digest": digest(plain)}


def made(inputs: Row) -> Any:
    """A key of a row."""
    ApprovalKey(inputs["signing_key_utf8"].encode())
    return "ok"


DIGESTS: dict[str, Callable[[Row], Any]] = {
    "ApprovalBinding::for_operation": bound,
    "HostApprovalIssuer::new": made,
    "HostApprovalIssuer::issue": lambda inputs: issue(binding(), ALICE, nonce="n", **inputs),
    "InMemoryHostApprovalBroker::approve": lambda inputs: grant_ref(inputs["request_id"], inputs["nonce"]),
}


@pytest.mark.parametrize(
    "row", [row for row in section("tool_policy", "digests") if row["function"] in DIGESTS], ids=lambda row: row["name"]
)
def test_what_an_approver_does_is_done_alike(row: Row) -> None:
    """Bindings, keys, expiries and references are those of the source, or are refused with its code."""
    try:
        found = DIGESTS[row["function"]](row["inputs"])
    except WordError as fault:
        found = {"error": fault.code}
    assert found == row["output"]


def test_a_good_grant_passes_until_its_last_millisecond() -> None:
    """What one signs the other accepts, also after its way over the wire, as often as its nonce is not spent."""
    assert fault_of() is None
    assert fault_of(parse(ApprovalCapability, to_json(GRANT)), now=EXPIRY - 1, spent=("n0",)) is None
    assert GRANT.claims.approver == "alice"


def call(**changes: Any) -> ApprovalBinding:
    """The binding of another call."""
    return binding(CALL.model_copy(update=changes))


def plan(**changes: Any) -> ApprovalBinding:
    """The binding of a call that would do something else."""
    return binding(plan=PLAN.model_copy(update=changes))


def claimed(**changes: Any) -> ApprovalCapability:
    """The grant with other claims under its old signature."""
    return GRANT.model_copy(update={"claims": GRANT.claims.model_copy(update=changes)})


MORE = CapabilityRequest(effects=(EffectScope.PROCESS, EffectScope.EXTERNAL_SIDE_EFFECT))
INVALID, MISMATCH = "invalid_capability", "capability_binding_mismatch"

DEFECTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "expired": ("capability_expired", "expires_at_unix_ms", {"now": EXPIRY}),
    "altered expiry": (INVALID, "authenticator", {"capability": claimed(expires_at_unix_ms=EXPIRY + 1)}),
    "altered nonce": (INVALID, "authenticator", {"capability": claimed(nonce="n2")}),
    "altered binding": (
        INVALID,
        "authenticator",
        {"capability": claimed(binding=call(run_id="q")), "expected": call(run_id="q")},
    ),
    "altered approver": (INVALID, "authenticator", {"capability": claimed(approver="bob")}),
    "altered key id": (INVALID, "authenticator", {"capability": claimed(key_id="bob-1")}),
    "no signature": (
        INVALID,
        "authenticator",
        {"capability": GRANT.model_copy(update={"authenticator": "\u00e4" * 64})},
    ),
    "unknown key": (INVALID, "key_id", {"capability": claimed(key_id="carol-1")}),
    "no key id": (INVALID, "key_id", {"capability": claimed(key_id=None)}),
    "another's name": (
        INVALID,
        "approver",
        {
            "capability": issue(
                binding(), ApprovalKey(BOB.secret, "bob-1", "alice"), expires_at_unix_ms=EXPIRY, nonce="n1"
            )
        },
    ),
    "other run": (MISMATCH, "run_id", {"expected": call(run_id="q")}),
    "other call": (MISMATCH, "call_id", {"expected": call(call_id="r/m1/c2")}),
    "other tool": (MISMATCH, "tool_id", {"expected": call(tool_id="acme/sell")}),
    "other arguments": (MISMATCH, "args_digest", {"expected": call(arguments={"basket": 4})}),
    "other risk": (MISMATCH, "operation_digest", {"expected": plan(risk=ToolOperationRisk.DESTRUCTIVE)}),
    "more effects": (MISMATCH, "operation_digest", {"expected": plan(required_capabilities=MORE)}),
    "other decision": (MISMATCH, "permission_digest", {"expected": binding(policy=PermissionPolicy.DESCRIPTOR)}),
    "other session scope": (
        MISMATCH,
        "session_approval_scope",
        {"expected": plan(session_approval_scope="cd" * 32)},
    ),
    "used twice": ("capability_replayed", "nonce", {"spent": ("n0", "n1")}),
}
"""Defect → its code, the field that the sentence names, and what makes it."""

REJECTED = {
    INVALID: "invalid_approval_capability",
    "capability_expired": "approval_expired",
    MISMATCH: "approval_binding_mismatch",
    "capability_replayed": "approval_replayed",
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_is_refused_under_its_code(defect: str) -> None:
    """Whatever is wrong with a grant, its call is rejected under one code and the sentence names the field (D10)."""
    code, name, made_by = DEFECTS[defect]
    fault = fault_of(**made_by)
    assert fault is not None
    assert fault.code == code
    assert f"`{name}`" in fault.message
    outcome = refused(fault)
    assert (outcome.code, outcome.message) == (REJECTED[code], fault.message)


def test_a_fault_of_another_kind_is_rejected_too() -> None:
    """What cannot even be written canonically rejects the call like any other fault."""
    with pytest.raises(ProtocolError) as fault:
        issue(binding(), ALICE, expires_at_unix_ms=EXPIRY, nonce="\ud800")
    assert refused(fault.value).code == "approval_validation_failed"


def test_large_integers_do_not_share_a_grant() -> None:
    """Arguments that round to one double have one digest on the wire and still two bindings (F024, F040)."""
    one, other = (call(arguments={"order_id": number}) for number in (2**53, 2**53 + 1))
    assert one.args_digest == other.args_digest
    grant = issue(one, ALICE, expires_at_unix_ms=EXPIRY, nonce="n1")
    fault = fault_of(grant, other)
    assert fault is not None
    assert "`exact_digest`" in fault.message
    assert fault_of(grant, one) is None


@pytest.mark.parametrize("changes", [{"run_id": " "}, {"args_digest": "x"}, {"exact_digest": "x"}])
def test_a_malformed_binding_is_not_signed(changes: dict[str, str]) -> None:
    """Nobody signs what `verify` would refuse for its form."""
    with pytest.raises(WordError) as refusal:
        issue(binding().model_copy(update=changes), ALICE, expires_at_unix_ms=EXPIRY, nonce="n")
    assert refusal.value.code == INVALID


@pytest.mark.parametrize("expiry", [0, -1, 2**53, 2**63 - 1])
def test_an_expiry_is_a_real_moment(expiry: int) -> None:
    """Beyond 2^53 two expiries share a signature, so none there is signed, nor accepted from another signer (F028)."""
    with pytest.raises(WordError) as refusal:
        issue(binding(), ALICE, expires_at_unix_ms=expiry, nonce="n")
    assert refusal.value.code == INVALID
    fault = fault_of(claimed(expires_at_unix_ms=expiry))
    assert fault is not None
    assert "`expires_at_unix_ms`" in fault.message


@pytest.mark.parametrize("text", ['"2026-12-01T12:05:00Z"', '""', "null", "1.5", "1796126700000.0", "true"])
def test_an_expiry_is_a_number_on_the_wire(text: str) -> None:
    """Milliseconds only: a text, nothing and a fraction are refused by name when the claims are read (F028)."""
    given_claims = to_json(GRANT.claims).replace(str(EXPIRY), text)
    with pytest.raises(ProtocolError) as refusal:
        parse(ApprovalCapabilityClaims, given_claims)
    assert "`expires_at_unix_ms`" in refusal.value.error.message


def test_expiries_in_milliseconds_are_instants() -> None:
    """At noon a grant until five past holds, one that meant seconds has long passed (F028)."""
    noon = EXPIRY - 300_000
    assert fault_of(now=noon) is None
    fault = fault_of(issue(binding(), ALICE, expires_at_unix_ms=EXPIRY // 1_000, nonce="n"), now=noon)
    assert fault is not None
    assert fault.code == "capability_expired"


@given(st.integers(0, 31), st.integers(1, 255))
@settings(max_examples=50, deadline=None)
def test_one_flipped_bit_of_a_signature_is_enough(place: int, flip: int) -> None:
    """No signature but the right one is accepted."""
    raw = bytearray.fromhex(GRANT.authenticator)
    raw[place] ^= flip
    fault = fault_of(GRANT.model_copy(update={"authenticator": raw.hex()}))
    assert fault is not None
    assert fault.code == INVALID


def test_a_secret_is_never_shown() -> None:
    """A key shows its id and holder, not its secret, also in the words of its own refusal."""
    assert repr(ALICE) == "ApprovalKey(key_id='alice-2', approver='alice')"
    with pytest.raises(WordError) as refusal:
        ApprovalKey(b"hush")
    assert "hush" not in refusal.value.message


def test_what_a_session_may_remember() -> None:
    """Calls alike in tool, scope, capabilities, decision and policy share a key, whatever their arguments."""
    key = session_key(binding())
    assert key is not None
    assert key == session_key(call(run_id="q", call_id="q/m1/c1", arguments={"basket": 9}))
    others = (
        call(tool_id="acme/sell"),
        plan(session_approval_scope="cd" * 32),
        plan(required_capabilities=MORE),
        binding(policy=PermissionPolicy.DESCRIPTOR),
        binding().model_copy(update={"policy_digest": SHA}),
    )
    assert len({key, *map(session_key, others)}) == 1 + len(others)
    assert session_key(plan(session_approval_scope=None)) is None


def test_our_fields_are_written_only_where_they_are() -> None:
    """A grant of the source's form has its own keys and no other."""
    plain = issue(
        binding().model_copy(update={"exact_digest": None}), ApprovalKey(SECRET), expires_at_unix_ms=1, nonce="n"
    )
    assert set(dump(plain.claims)) == {"binding", "expires_at_unix_ms", "nonce"}
    assert "exact_digest" not in to_json(plain)
    assert {"key_id", "approver"} < set(dump(GRANT.claims))
