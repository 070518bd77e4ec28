"""Policy by dimension: what three sources leave, what that allows, and that no source ever widens another."""

import itertools
import posixpath
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestral_temporal.core.policy import request_fault, scopes_fault, within
from orchestral_temporal.protocol.approval import CapabilityRequest, CapabilityResource, Exact
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import ApprovalPolicy, EffectScope, FilesystemPolicy, ToolPolicyBounds
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import dump, parse_value
from tests.core.policy_world import (
    DIMENSIONS,
    NOTHING,
    PROGRAM,
    WIDEST,
    any_bounds,
    at,
    effective,
    requests,
    wide_bounds,
    wider_in,
    with_values,
)
from tests.golden import Row, section

AUTHORIZATIONS = section("tool_policy", "authorizations")

VOID = {"read with a parent segment is compared as written": 25}
"""Rows that no longer hold → the divergence that says so: a `..` may lead anywhere, so such a path is refused."""


def bounds_of(value: Any) -> ToolPolicyBounds:
    """Bounds of a row."""
    return parse_value(ToolPolicyBounds, value)


def digested(request: CapabilityRequest) -> Any:
    """The digest of a request as the vectors write it."""
    try:
        validate(request)
    except WordError as refused:
        return {"error": refused.code}
    return digest(request)


@pytest.mark.parametrize("row", section("tool_policy", "intersections"), ids=lambda row: row["name"])
def test_three_sources_leave_what_they_have_in_common(row: Row) -> None:
    """Host, grant and restriction leave the source's bounds under its digest, or one of them is refused (E1)."""
    host, grant, restriction = (bounds_of(row[name]) for name in ("host", "grant", "restriction"))
    if "error" in row:
        with pytest.raises(WordError) as refused:
            effective(host, grant, restriction)
        assert refused.value.code == row["error"]["code"]
        return
    found = effective(host, grant, restriction)
    assert dump(found) == row["effective"]
    assert digest(found) == row["policy_digest"]
    assert (found.approval is ApprovalPolicy.REQUIRED) is row["requires_approval"]
    sources = {"host": host, "grant": grant, "restriction": restriction}
    assert {name: within(found, source) for name, source in sources.items()} == row["within"]
    assert within(grant, host) is row["grant_within_host"]


@pytest.mark.parametrize("row", [row for row in AUTHORIZATIONS if row["name"] not in VOID], ids=lambda row: row["name"])
def test_a_request_is_allowed_as_in_the_source(row: Row) -> None:
    """A request passes or is refused as in the source, and a refusal says why (E1)."""
    bounds = effective(bounds_of(row["bounds"]))
    request = parse_value(CapabilityRequest, row["request"])
    assert (scopes_fault(request.effects, bounds) is None) is row["scopes_authorized"]
    fault = request_fault(request, bounds)
    assert (fault is None) is row["authorized"]
    assert fault is None or fault.endswith(".")
    assert digested(request) == row["request_digest"]


@pytest.mark.parametrize("name", VOID)
def test_a_row_that_a_divergence_makes_void(name: str) -> None:
    """What the source allows by comparing texts is refused here (divergence 25)."""
    row = next(row for row in AUTHORIZATIONS if row["name"] == name)
    assert row["authorized"]
    fault = request_fault(parse_value(CapabilityRequest, row["request"]), effective(bounds_of(row["bounds"])))
    assert fault is not None
    assert "`filesystem.readable_roots`" in fault
    assert '"/w/../etc"' in fault


def test_the_dimensions_are_all_there() -> None:
    """The dimensions of these tests are those of the word, so none is left unproved."""

    def leaves(value: Any, path: str = "") -> list[str]:
        if not isinstance(value, dict):
            return [path]
        return [leaf for key, each in value.items() for leaf in leaves(each, f"{path}.{key}" if path else key)]

    assert sorted(leaves(dump(NOTHING))) == sorted(DIMENSIONS)


@pytest.mark.parametrize("path", DIMENSIONS)
def test_each_dimension_is_narrowed_to_exactly_what_all_allow(path: str) -> None:
    """In each dimension the result is narrower than every source, nothing narrower than all is lost, no other moves."""
    narrower, pool = DIMENSIONS[path]
    of = {repr(value): with_values(NOTHING, {path: value}) for value in pool}
    for values in itertools.product(pool, repeat=3):
        found = effective(*(of[repr(value)] for value in values))
        left = at(dump(found), path)
        assert all(narrower(left, value) for value in values)
        assert all(narrower(each, left) for each in pool if all(narrower(each, value) for value in values))
        assert with_values(found, {path: at(dump(NOTHING), path)}) == NOTHING


@given(any_bounds, any_bounds, any_bounds)
@settings(max_examples=150, deadline=None)
def test_no_combination_widens(host: ToolPolicyBounds, grant: ToolPolicyBounds, restriction: ToolPolicyBounds) -> None:
    """No host, grant and restriction together are more permissive than any of them, in any dimension (E1)."""
    found = effective(host, grant, restriction)
    for source in (host, grant, restriction):
        assert wider_in(found, source) == []
        assert within(found, source)
    assert within(grant, host) is (wider_in(grant, host) == [])
    assert effective(restriction, host, grant) == found


@given(wide_bounds, wide_bounds, wide_bounds, requests)
@example(WIDEST, WIDEST, WIDEST, PROGRAM)
@settings(max_examples=300, deadline=None)
def test_a_narrowed_policy_admits_nothing_more(
    wide: ToolPolicyBounds, grant: ToolPolicyBounds, restriction: ToolPolicyBounds, request: CapabilityRequest
) -> None:
    """What any source refuses by itself is refused under all of them together (E1)."""
    narrow = effective(wide, grant, restriction)
    for source in (wide, grant, restriction):
        if request_fault(request, effective(source)) is not None:
            assert request_fault(request, narrow) is not None


def reading(path: str) -> CapabilityRequest:
    """A request to read one file."""
    effect = EffectScope.FILESYSTEM_READ
    return CapabilityRequest(
        effects=(effect,), resources=(CapabilityResource(effect=effect, selector=Exact(value=path)),)
    )


@given(
    st.sampled_from(["", "/", "/w/", "//w/", "/w"]),
    st.lists(st.sampled_from(["", ".", "..", "w", "a", "ww"]), min_size=1, max_size=6).map("/".join),
)
@example("/w/a/", "../b")
@example("//w", "/a")
@settings(deadline=None)
def test_no_spelling_of_a_path_leads_out_of_its_root(start: str, rest: str) -> None:
    """A path that passes is below its root once it is normalised, however it was written (divergence 25)."""
    path = start + rest
    policy = with_values(WIDEST, {"filesystem.readable_roots": ["/w"]})
    if request_fault(reading(path), effective(policy)) is None:
        assert path.startswith("/")
        assert f"/{posixpath.normpath(path).lstrip('/')}/".startswith("/w/")
        assert ".." not in path.split("/")


@pytest.mark.parametrize(
    ("root", "path", "passes"),
    [
        ("w", "w/a", False),
        (".", "a", False),
        ("/w/", "/w/a", True),
        ("/w/..", "/w/../etc", False),
        ("/", "/etc/passwd", True),
        ("/w", "/w/..a", True),
    ],
)
def test_roots_are_absolute_and_compared_by_segments(root: str, path: str, passes: bool) -> None:
    """A relative root covers nothing, the root of all covers all, and a name that only begins with dots is a name."""
    bounds = WIDEST.model_copy(update={"filesystem": FilesystemPolicy(readable_roots=(root,))})
    assert (request_fault(reading(path), effective(bounds)) is None) is passes


def test_a_reason_stays_short() -> None:
    """A reason quotes what it refuses, cut: a path may be as long as a message."""
    fault = request_fault(reading("/x" * 5_000), effective(with_values(WIDEST, {"filesystem.readable_roots": ["/w"]})))
    assert fault is not None
    assert len(fault) < 300
