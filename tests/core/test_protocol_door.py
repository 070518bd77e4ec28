"""The door: what a text must be, what a refusal says, and the canonical form behind every digest."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Cancel, Steer, seal_command
from orchestral_temporal.protocol.content import Content, InlineBody, text_content
from orchestral_temporal.protocol.digest import MAX_CANONICAL_DEPTH, _is_quick, canonical, digest, exact_digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError, WordError
from orchestral_temporal.protocol.run import ProtocolVersion
from orchestral_temporal.protocol.tools import SandboxPolicy, ToolInvocation, ToolProtocolErrorCode
from orchestral_temporal.protocol.words import (
    MAX_DEPTH,
    dump,
    kind_of,
    parse,
    parse_exact_json,
    parse_json,
    parse_value,
    same,
    to_json,
)
from tests.golden import rows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=25,
)


def refusal(kind: Any, text: str | bytes) -> str:
    """The sentence with which a text is refused."""
    with pytest.raises(ProtocolError) as refused:
        parse(kind, text)
    assert refused.value.error.code is AgentProtocolErrorCode.INVALID_SPEC
    return refused.value.message


def nested(depth: int, value: Any = 1) -> Any:
    """A value inside so many lists."""
    for _ in range(depth):
        value = [value]
    return value


def test_canonical_vectors() -> None:
    """Every JSON text has the canonical form and digest of the source, or is refused."""
    for row in rows("canonical"):
        if "error" in row:
            with pytest.raises(ProtocolError):
                parse_json(row["input_text"])
            continue
        value = parse_json(row["input_text"])
        assert canonical(value).decode() == row["canonical"], row["name"]
        assert digest(value) == row["sha256"], row["name"]


def exact(value: Any) -> Any:
    """The value with integers beyond 2^53 as doubles, as the canonical form wants it."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return float(value) if isinstance(value, int) and abs(value) > 2**53 - 1 else value


@settings(deadline=None)  # the machine is shared
@given(JSON)
def test_the_quick_writer_equals_the_reference(value: Any) -> None:
    """Whatever way it takes, the canonical form is that of the reference implementation."""
    assert canonical(value) == rfc8785.dumps(exact(value))


@settings(deadline=None)  # the machine is shared
@given(JSON)
def test_what_is_written_is_read_back(value: Any) -> None:
    """A word survives the way out and in again, and its canonical form with it."""
    word = Content(media_type="application/json", body=InlineBody(value=exact(value)))
    again = parse(Content, to_json(word))
    assert same(again, word)
    assert canonical(again) == canonical(word)


@pytest.mark.parametrize(
    "value", ["\ud800", float("nan"), float("inf"), 10**400, nested(MAX_CANONICAL_DEPTH + 1), {1: 2}, {"a": {1, 2}}]
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    """A value built in memory that is not JSON has no digest, and says so as an error of its own (F041).

    An integer of any length has an exact text, but no double.
    """
    for taken in (digest,) if value == 10**400 else (digest, exact_digest):
        for wrapped in (value, [2.0, value]):
            with pytest.raises(ProtocolError) as refused:
                taken(wrapped)
            assert refused.value.error.code is AgentProtocolErrorCode.SERIALIZATION


def inline(value: Any) -> Content:
    """A word that holds a value."""
    return Content(media_type="application/json", body=InlineBody(value=value))


@settings(deadline=None)  # the machine is shared
@given(JSON, JSON)
def test_the_exact_digest_is_that_of_the_typed_value(left: Any, right: Any) -> None:
    """Two values share an exact digest if and only if they are equal as typed values (F024, F040, divergence 14)."""
    assert (exact_digest(left) == exact_digest(right)) is same(inline(left), inline(right))
    assert exact_digest(left) == exact_digest(json.loads(json.dumps(left)))


@pytest.mark.parametrize(
    ("left", "right"),
    [(2**53, 2**53 + 1), (2**64 - 1, 2**64 - 2), (1, 1.0), (1, True), ({"n": [-(2**63)]}, {"n": [-(2**63) + 1]})],
)
def test_values_that_a_double_cannot_tell_apart(left: Any, right: Any) -> None:
    """The wire's digest may be shared, the exact one never is; 0.0 and -0.0 are one value (F024, divergence 14)."""
    assert exact_digest(left) != exact_digest(right)
    assert digest(left) == digest(right) or left is right or isinstance(right, bool)


def test_the_exact_digest_where_nothing_is_lost() -> None:
    """Small integers, texts and ASCII keys have one digest, exact or not; zero has one sign; a word is its JSON."""
    value = {"b": [1, "é\u2028", None, True], "a": {"n": -(2**53) + 1}}
    assert exact_digest(value) == digest(value)
    assert exact_digest([0.0, {"z": -0.0}]) == exact_digest([-0.0, {"z": 0.0}])
    assert exact_digest(inline(2**53 + 1)) == exact_digest(dump(inline(2**53 + 1)))


def test_depth_is_bounded_and_never_exhausts_the_stack() -> None:
    """A text may nest 127 deep; deeper ones are refused, however deep they are."""
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) == nested(MAX_DEPTH - 1, [])
    for depth in (MAX_DEPTH + 1, 5_000, 200_000):
        assert "deeper than 127" in refusal(ProtocolVersion, "[" * depth + "]" * depth)


def test_a_value_in_memory_passes_the_same_door() -> None:
    """A value that is no JSON, or nests too deep, is refused like a text."""
    assert parse_value(ProtocolVersion, {"major": 1, "minor": 0}) == ProtocolVersion(major=1, minor=0)
    for value in (float("nan"), {1, 2}, nested(100_000), {"major": "\ud800", "minor": 0}):
        with pytest.raises(ProtocolError):
            parse_value(ProtocolVersion, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"major":1}', "ProtocolVersion: `minor` is missing; give it."),
        ('{"major":1,"minor":0,"patch":0}', "ProtocolVersion: `patch` is not a known key; leave it out."),
        ('{"major":1,"major":1,"minor":0}', "ProtocolVersion: `major` is given twice; give it once."),
        ('{"major":"1","minor":0}', "ProtocolVersion: `major` is text; it should be a valid integer."),
        (
            '{"major":-1,"minor":0}',
            "ProtocolVersion: `major` is a number; it should be greater than or equal to 0.",
        ),
        ('{"major":1e400,"minor":0}', "The text holds a number too large for a double; write it as text."),
        ('{"major":NaN,"minor":0}', "The text holds NaN, which is not JSON; use null or text."),
        (b'{"major":"\xff","minor":0}', "The text is not UTF-8; send Unicode text without lone surrogates."),
        ('{"major":"\ud800","minor":0}', "The text is not UTF-8; send Unicode text without lone surrogates."),
        ('{"major":"\\ud800","minor":0}', "The text escapes half a surrogate pair; write the character."),
        ("{", "The text is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
    ],
)
def test_a_refusal_names_field_kind_and_remedy(text: str | bytes, sentence: str) -> None:
    """One sentence: the field, what is wrong with it, what to do; never the value."""
    assert refusal(ProtocolVersion, text) == sentence


def test_a_refusal_names_the_path_of_a_union() -> None:
    """Inside a union the path goes on, and an unknown tag is answered with the known ones."""
    cancel = to_json(seal_command("c", "r", Cancel(reason="stop")))
    assert refusal(AgentCommandEnvelope, cancel.replace('"reason"', '"why"')) == (
        "AgentCommandEnvelope: `payload.cancel.reason` is missing; give it."
    )
    assert refusal(AgentCommandEnvelope, cancel.replace('"cancel"', '"pause"')) == (
        "AgentCommandEnvelope: `payload` has an unknown 'type'; use 'steer', 'resolve_request', 'cancel'."
    )
    steer = to_json(seal_command("c", "r", Steer(content=(text_content("x"),))))
    assert refusal(AgentCommandEnvelope, steer.replace('"text/plain"', "1")) == (
        "AgentCommandEnvelope: `payload.steer.content[0].media_type` is a number; it should be a valid string."
    )


def test_a_hostile_key_does_not_fill_the_message() -> None:
    """A key of a megabyte is cut in the message (F-class: texts from outside)."""
    assert len(refusal(ProtocolVersion, json.dumps({"major": 1, "minor": 0, "x" * 1_000_000: 1}))) < 250


def test_of_a_key_given_twice_in_a_free_map_the_last_counts() -> None:
    """Free JSON follows the reader of the source, structs refuse, also beside each other."""
    text = '{"media_type":"t","body":{"kind":"inline","value":{"a":1,"a":-0,"b":18446744073709551616}}}'
    word = parse(Content, text)
    assert dump(word)["body"] == {"kind": "inline", "value": {"a": -0.0, "b": 2.0**64}}
    assert "given twice" in refusal(Content, text.replace('"media_type":"t"', '"media_type":"t","media_type":"t"'))


def test_keys_with_a_python_default_must_be_spelt_out_in_json() -> None:
    """A policy built in Python is closed; a policy as text must say so."""
    assert SandboxPolicy().required is False
    assert refusal(SandboxPolicy, "{}") == "SandboxPolicy is an object; it should hold the key required."


def test_typed_equality() -> None:
    """`1`, `1.0` and `true` are three values, `0.0` equals `-0.0`, and key order does not matter (F024)."""

    def word(value: Any) -> Content:
        return Content(media_type="t", body=InlineBody(value=value))

    for left, right in ((1, 1.0), (1, True), (0, False), ([1], [1.0]), ({"a": 1}, {"a": 1.0}), ([1], [1, 1])):
        assert not same(word(left), word(right))
    for left, right in ((0.0, -0.0), ({"a": 1, "b": [2]}, {"b": [2], "a": 1}), (2**63, 2**63)):
        assert same(word(left), word(right))


def test_kinds_in_words() -> None:
    """Each kind of JSON value has its name for sentences."""
    kinds = [kind_of(value) for value in (None, True, 1, 1.5, "x", [], {})]
    assert kinds == ["null", "a boolean", "a number", "a number", "text", "a list", "an object"]


@pytest.mark.parametrize("value", ["\ud800", nested(400)])
def test_a_word_without_json_form_is_refused_on_the_way_out(value: Any) -> None:
    """A word built in memory around something that is no JSON is refused, not half written (F041)."""
    word = Content(media_type="t", body=InlineBody.model_construct(kind="inline", value=value))
    with pytest.raises(ProtocolError) as refused:
        to_json(word)
    assert refused.value.error.code is AgentProtocolErrorCode.SERIALIZATION
    with pytest.raises(ProtocolError):
        digest(word)


def test_ordinary_values_take_the_quick_way() -> None:
    """Texts, small integers and ASCII keys need no slow writer, since the loop digests them in workflow code."""
    assert _is_quick({"text": 'line "quoted" é\U0001f600\n', "n": [1, -(2**53) + 1, None, True], "o": {"key": {}}})
    for value in (1.5, [2**53], {"é": 1}):
        assert not _is_quick(value)


def test_a_field_that_must_be_an_object_is_refused_with_its_own_code() -> None:
    """Arguments that are no object have the code of the rule, unless something else is wrong with the shape."""
    text = '{"run_id":"r","call_id":"c","tool_id":"t","arguments":[1]}'
    with pytest.raises(WordError) as refused:
        parse(ToolInvocation, text)
    assert refused.value.code is ToolProtocolErrorCode.INVALID_INVOCATION
    assert refused.value.message == "ToolInvocation: `arguments` is a list; it should be an object."
    assert refusal(ToolInvocation, text.replace('"t"', "7")) == (
        "ToolInvocation: `tool_id` is a number; it should be a valid string."
    )


@pytest.mark.parametrize("text", ["9007199254740993", "18446744073709551615", "1e22", "0.1", "-0", "1e3"])
def test_a_number_to_act_on_is_what_the_text_says(text: str) -> None:
    """Integers of 64 bits and whatever a double holds are kept (F040)."""
    assert parse_exact_json(text) == parse_json(text)


@pytest.mark.parametrize("text", ["123456789012345678901234567890", "4.611686018427387905e18", '{"a":[1e23]}'])
def test_a_number_that_would_become_its_neighbour_is_refused(text: str) -> None:
    """Beyond 2^53 a number that no integer and no double holds is not acted on (F040)."""
    with pytest.raises(ProtocolError, match="cannot be kept exactly; write it as text"):
        parse_exact_json(text)
