"""Policies by dimension: what each may hold, and the sheet's own words on when it is narrower (`spec/tools.md` §6)."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from typing import Any, Final

from hypothesis import strategies as st

from orchestral_temporal.core.policy import EffectiveBounds, effective_bounds
from orchestral_temporal.protocol.approval import CapabilityRequest
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    EffectScope,
    HostToolPolicy,
    RunToolGrant,
    ToolPolicyBounds,
    ToolRestriction,
)
from orchestral_temporal.protocol.words import dump, parse_value

Value = Any
EFFECTS: Final = [effect.value for effect in EffectScope]


def subset(own: Value, ceiling: Value) -> bool:
    """A set is narrower when the ceiling has all of it."""
    return set(own) <= set(ceiling)


def implies(own: bool, ceiling: bool) -> bool:
    """A permission is narrower when the ceiling gives it too."""
    return ceiling or not own


def demands(own: bool, ceiling: bool) -> bool:
    """A demand is narrower when it is made where the ceiling makes it."""
    return own or not ceiling


def capped(own: int | None, ceiling: int | None) -> bool:
    """A cap is narrower when it is there and at most the ceiling's; a ceiling without one caps nothing."""
    return ceiling is None or (own is not None and own <= ceiling)


def stricter(own: str, ceiling: str) -> bool:
    """An approval is narrower when it is at least as strict."""
    ranks = [policy.value for policy in ApprovalPolicy]
    return ranks.index(own) >= ranks.index(ceiling)


FLAG: Final = (True, False)
CAP: Final = (None, 1, 500, 2**64 - 1)

DIMENSIONS: Final[Mapping[str, tuple[Callable[[Value, Value], bool], tuple[Value, ...]]]] = {
    "allowed_effects": (subset, (EFFECTS, EFFECTS[:4], ["process", "network", "secret_read"], [])),
    "approval": (stricter, ("not_required", "required", "deny")),
    "sandbox.required": (demands, (False, True)),
    "sandbox.allowed_profiles": (subset, (["strict", "loose"], ["strict"], ["loose"], [])),
    "process.interactive.enabled": (implies, FLAG),
    "process.interactive.command_shells": (subset, (["sh", "bash"], ["sh"], ["bash"], [])),
    "process.interactive.allow_child_processes": (implies, FLAG),
    "process.transport.allowed_programs": (subset, (["git", "rg"], ["git"], ["rg"], [])),
    "process.transport.allow_child_processes": (implies, FLAG),
    "filesystem.readable_roots": (subset, (["/", "/w"], ["/w"], ["/"], [])),
    "filesystem.writable_roots": (subset, (["/w", "/w/out"], ["/w/out"], ["/w"], [])),
    "network.allowed_targets": (subset, (["a.example", "b.example"], ["a.example"], ["b.example"], [])),
    "network.allow_unrestricted": (implies, FLAG),
    "environment.allowed_variables": (subset, (["LANG", "PATH"], ["LANG"], ["PATH"], [])),
    "environment.inherit_host_environment": (implies, FLAG),
    "allowed_credentials": (subset, (["cred/a", "cred/b"], ["cred/a"], ["cred/b"], [])),
    "max_timeout_ms": (capped, CAP),
    "max_output_bytes": (capped, CAP),
}
"""Dimension → when it is narrower than a ceiling, and values for it, the widest first."""


def at(value: Value, path: str) -> Value:
    """What stands at a dotted path."""
    return reduce(getitem, path.split("."), value)


def with_values(base: ToolPolicyBounds, values: Mapping[str, Value]) -> ToolPolicyBounds:
    """Bounds with other values in some dimensions."""
    raw: Value = dump(base)
    for path, value in values.items():
        *parents, last = path.split(".")
        reduce(getitem, parents, raw)[last] = value
    return parse_value(ToolPolicyBounds, raw)


def wider_in(bounds: ToolPolicyBounds, ceiling: ToolPolicyBounds) -> list[str]:
    """The dimensions in which bounds are more permissive than a ceiling."""
    own, other = dump(bounds), dump(ceiling)
    return [path for path, (narrower, _) in DIMENSIONS.items() if not narrower(at(own, path), at(other, path))]


def effective(
    host: ToolPolicyBounds, grant: ToolPolicyBounds | None = None, restriction: ToolPolicyBounds | None = None
) -> EffectiveBounds:
    """What is left of three bounds; those left out are the host's."""
    return effective_bounds(
        HostToolPolicy(bounds=host), RunToolGrant(bounds=grant or host), ToolRestriction(bounds=restriction or host)
    )


NOTHING: Final = ToolPolicyBounds()
WIDEST: Final = with_values(NOTHING, {path: pool[0] for path, (_, pool) in DIMENSIONS.items()})

any_bounds = st.fixed_dictionaries({path: st.sampled_from(pool) for path, (_, pool) in DIMENSIONS.items()}).map(
    lambda values: with_values(NOTHING, values)
)
"""Bounds with any value in every dimension."""

wide_bounds = st.dictionaries(st.sampled_from(sorted(DIMENSIONS)), st.integers(0, 3), max_size=3).map(
    lambda drawn: with_values(
        WIDEST, {path: DIMENSIONS[path][1][n % len(DIMENSIONS[path][1])] for path, n in drawn.items()}
    )
)
"""Bounds that are the widest but in a few dimensions, so that most requests pass."""

SELECTORS: Final[Mapping[str, tuple[Value, ...]]] = {
    "process": ("sh", "git", "rm"),
    "network": ("a.example", "b.example", "c.example"),
    "filesystem_read": ("/w/a", "/etc/b", "/w/../c"),
    "filesystem_write": ("/w/out/a", "/w/b", "/"),
    "environment_read": ("LANG", "PATH", "HOME"),
    "secret_read": ("cred/a", "cred/b", "cred/c"),
    "external_side_effect": ("mail",),
    "artifact_read": ("x",),
}

PROGRAM: Final = parse_value(
    CapabilityRequest,
    {
        "effects": [
            "process",
            "network",
            "filesystem_read",
            "filesystem_write",
            "external_side_effect",
            "host_execution",
        ],
        "resources": [
            {"effect": effect, "selector": {"scope": "unrestricted"}}
            for effect in ("network", "filesystem_read", "filesystem_write", "external_side_effect")
        ],
    },
)
"""A program on the host itself."""


def _resource(effect: str) -> st.SearchStrategy[Value]:
    values = st.sampled_from(SELECTORS[effect])
    selectors = st.one_of(
        st.builds(lambda scope, value: {"scope": scope, "value": value}, st.sampled_from(["exact", "subtree"]), values),
        st.sampled_from([{"scope": "unscoped"}, {"scope": "unrestricted"}]),
    )
    return selectors.map(lambda selector: {"effect": effect, "selector": selector})


requests = st.one_of(
    st.just(PROGRAM),
    st.builds(
        lambda resources, more: parse_value(
            CapabilityRequest, {"effects": [*more, *(each["effect"] for each in resources)], "resources": resources}
        ),
        st.lists(st.sampled_from(sorted(SELECTORS)).flatmap(_resource), max_size=2),
        st.lists(st.sampled_from(EFFECTS), max_size=1),
    ),
)
"""Requests of every kind, well-formed or not."""
