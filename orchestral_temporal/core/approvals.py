"""Approvals as signed one-time capabilities: binding, issuing and verifying (`spec/tools.md` §8, decision 19).

Nobody here looks at a clock, draws a nonce or remembers one: moments, nonces and the nonces spent so far are handed in.
A capability is verified twice, when an allow arrives and again before the fence (divergence 9); only the first spends
its nonce.
"""

import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from orchestral_temporal.core.policy import EffectiveBounds, request_fault
from orchestral_temporal.protocol.approval import (
    ApprovalBinding,
    ApprovalCapability,
    ApprovalCapabilityClaims,
    ToolOperationPlan,
    operation_digest,
)
from orchestral_temporal.protocol.base import LARGEST_EXACT
from orchestral_temporal.protocol.digest import canonical, digest, exact_digest, is_sha256
from orchestral_temporal.protocol.errors import WordError, refuse, require
from orchestral_temporal.protocol.ids import Digest
from orchestral_temporal.protocol.tools import Rejected, ToolInvocation, ToolProtocolErrorCode
from orchestral_temporal.protocol.validation import require_sha256, require_text, validate
from orchestral_temporal.protocol.words import JsonObject

KEY_BYTES: Final = 32
"""The fewest bytes of a signing key: as many as the digest of its HMAC."""

REFUSALS: Final[Mapping[StrEnum, str]] = {
    ToolProtocolErrorCode.INVALID_CAPABILITY: "invalid_approval_capability",
    ToolProtocolErrorCode.CAPABILITY_EXPIRED: "approval_expired",
    ToolProtocolErrorCode.CAPABILITY_BINDING_MISMATCH: "approval_binding_mismatch",
    ToolProtocolErrorCode.CAPABILITY_REPLAYED: "approval_replayed",
    ToolProtocolErrorCode.STORE_FAILURE: "approval_store_failure",
}
"""What is wrong with a capability → the code under which its call is rejected."""

_INVALID: Final = ToolProtocolErrorCode.INVALID_CAPABILITY


@dataclass(frozen=True)
class ApprovalKey:
    """The key of one approver; no word, so that it cannot be written anywhere, and its secret is never shown.

    Id and approver are null only for grants of the source's form, which name neither.

    Raises:
        WordError: invalid_capability; the secret is too short.
    """

    secret: bytes = field(repr=False)
    key_id: str | None = None
    approver: str | None = None

    def __post_init__(self) -> None:
        require(
            len(self.secret) >= KEY_BYTES, _INVALID, f"A signing key has fewer than {KEY_BYTES} bytes; make another."
        )


def approval_binding(
    invocation: ToolInvocation,
    arguments: JsonObject,
    plan: ToolOperationPlan,
    permission: Digest,
    bounds: EffectiveBounds,
) -> ApprovalBinding:
    """What an approval of this call is for; `arguments` are the execution arguments, `permission` a decision's digest.

    Raises:
        WordError: invalid_invocation, a part is malformed; policy_denied, the policy does not let the call ask.
    """
    validate(invocation)
    validate(plan)
    require_sha256("permission_digest", permission, ToolProtocolErrorCode.INVALID_INVOCATION)
    fault = request_fault(plan.required_capabilities, bounds)
    if fault is not None:
        refuse(ToolProtocolErrorCode.POLICY_DENIED, fault)
    return ApprovalBinding(
        run_id=invocation.run_id,
        call_id=invocation.call_id,
        tool_id=invocation.tool_id,
        args_digest=digest(arguments),
        operation_digest=operation_digest(plan),
        permission_digest=permission,
        requested_capabilities=plan.required_capabilities,
        session_approval_scope=plan.session_approval_scope,
        policy_digest=digest(bounds),
        exact_digest=exact_digest(arguments),
    )


def issue(binding: ApprovalBinding, key: ApprovalKey, *, expires_at_unix_ms: int, nonce: str) -> ApprovalCapability:
    """Sign an allowance for one call; the nonce must never have been used before.

    Raises:
        WordError: invalid_capability; expiry, nonce or binding is malformed.
    """
    claims = ApprovalCapabilityClaims(
        binding=binding,
        expires_at_unix_ms=expires_at_unix_ms,
        nonce=nonce,
        key_id=key.key_id,
        approver=key.approver,
    )
    _check(claims)
    return ApprovalCapability(claims=claims, authenticator=_authenticator(claims, key))


def verify(
    capability: ApprovalCapability,
    expected: ApprovalBinding,
    *,
    keys: Iterable[ApprovalKey],
    now_unix_ms: int,
    spent: Collection[str],
) -> None:
    """Check a capability for one call: form, signature, expiry, binding, first use, in this order.

    The caller adds its nonce to `spent` once this returns; a refused one stays usable for its own call.

    Raises:
        WordError: invalid_capability, it is malformed, altered or of an unknown key; capability_expired, also at the
            very moment of expiry; capability_binding_mismatch, it is for another run, call, tool, other arguments or
            another scope, and the sentence names the field; capability_replayed, its nonce is spent.
    """
    claims = capability.claims
    _check(claims)
    key = next((key for key in keys if key.key_id == claims.key_id), None)
    if key is None:
        refuse(_INVALID, "`key_id` of the approval names no key that is known here; sign with one that is.")
    require(
        is_sha256(capability.authenticator)
        and hmac.compare_digest(capability.authenticator, _authenticator(claims, key)),
        _INVALID,
        "`authenticator` is not the signature of the approval's claims under its key; sign them again.",
    )
    require(
        claims.approver == key.approver, _INVALID, "`approver` does not hold the key that signed; sign with theirs."
    )
    require(
        now_unix_ms < claims.expires_at_unix_ms,
        ToolProtocolErrorCode.CAPABILITY_EXPIRED,
        "`expires_at_unix_ms` of the approval has passed; approve again.",
    )
    _require_bound(claims.binding, expected)
    require(
        claims.nonce not in spent,
        ToolProtocolErrorCode.CAPABILITY_REPLAYED,
        "`nonce` of the approval was used before; approve each call by itself.",
    )


def refused(fault: WordError) -> Rejected:
    """How a call ends whose capability `verify` refuses."""
    return Rejected(code=REFUSALS.get(fault.code, "approval_validation_failed"), message=fault.message)


def session_key(binding: ApprovalBinding) -> Digest | None:
    """Under which an approval may be remembered for a session, or None if its call has no such scope (§8.4).

    Calls of one tool that want the same under the same decision and policy share it, whatever their arguments.
    """
    if binding.session_approval_scope is None:
        return None
    return digest(
        {
            "tool_id": binding.tool_id,
            "session_approval_scope": binding.session_approval_scope,
            "requested_capabilities": digest(binding.requested_capabilities),
            "permission_digest": binding.permission_digest,
            "policy_digest": binding.policy_digest,
        }
    )


def _authenticator(claims: ApprovalCapabilityClaims, key: ApprovalKey) -> str:
    return hmac.digest(key.secret, canonical(claims), "sha256").hex()


def _check(claims: ApprovalCapabilityClaims) -> None:
    binding = claims.binding
    for name in ("run_id", "call_id", "tool_id"):
        require_text(name, getattr(binding, name), _INVALID)
    for name in (
        "args_digest",
        "operation_digest",
        "permission_digest",
        "session_approval_scope",
        "policy_digest",
        "exact_digest",
    ):
        require_sha256(name, getattr(binding, name), _INVALID)
    # Beyond 2^53 two expiries share a canonical form, so that one could be put for the other.
    require(
        0 < claims.expires_at_unix_ms <= LARGEST_EXACT,
        _INVALID,
        "`expires_at_unix_ms` is no moment in milliseconds since 1970 below 2^53; give one.",
    )
    for name in ("nonce", "key_id", "approver"):
        require_text(name, getattr(claims, name), _INVALID)


def _require_bound(bound: ApprovalBinding, expected: ApprovalBinding) -> None:
    for name in ApprovalBinding.model_fields:
        require(
            getattr(bound, name) == getattr(expected, name),
            ToolProtocolErrorCode.CAPABILITY_BINDING_MISMATCH,
            f"`{name}` of the approval is not that of this call; approve this call.",
        )
