"""A tool's output as a value (`core/output`; F041, F044, F046, divergence 15)."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.core.limits import INLINE_RESULT_BYTES
from orchestral_temporal.core.output import OUTPUT_CHARACTERS, OUTPUT_PARTS, OutputError, read_output, shortened
from orchestral_temporal.core.schema import VALUE_DEPTH
from orchestral_temporal.protocol.digest import canonical


def nested(depth: int) -> object:
    """Arrays inside one another."""
    value: object = []
    for _ in range(depth - 1):
        value = [value]
    return value


class Text(str):
    """A subclass that could write itself in its own way."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"a": [1, math.nan]}, "The output at $.a[1] is nan, which JSON does not have; return null or text."),
        (-math.inf, "The output at $ is -inf, which JSON does not have; return null or text."),
        ([2**64], "The output at $[0] is an integer of more than 64 bits; return it as text."),
        (-(2**63) - 1, "The output at $ is an integer of more than 64 bits; return it as text."),
        ({"a b": (1,)}, 'The output at $["a b"] is of type tuple, which JSON does not have.'),
        (Text("x"), "The output at $ is of type Text, which JSON does not have."),
        ({1: 2}, "The output at $ has a key of type int; keys must be text."),
        (
            dict.fromkeys(["\ud800", "\udfff"], 1),
            "The output at $ has two keys that differ only in what is not Unicode",
        ),
    ],
)
def test_what_is_no_json_is_refused_at_its_place(value: object, sentence: str) -> None:
    """NaN, infinities, huge integers and other types give a failure that names the place (divergence 15)."""
    with pytest.raises(OutputError) as refused:
        read_output(value)
    assert refused.value.code == "output_serialization_failed"
    assert refused.value.message.startswith(sentence)


def test_depth_is_judged_at_its_bound() -> None:
    """A result nested 5,000 deep is refused, one at the bound is taken (F046)."""
    assert read_output(nested(VALUE_DEPTH)).value == nested(VALUE_DEPTH)
    for depth in (VALUE_DEPTH + 1, 5_000):
        with pytest.raises(OutputError, match="lies below 100 containers"):
            read_output(nested(depth))


def test_lone_surrogates_are_replaced_and_counted() -> None:
    """Text that is not Unicode becomes U+FFFD in keys and values, and how often is said (F044)."""
    output = read_output({"k\udcff": [b"\xff\xfe\x00A".decode(errors="surrogateescape"), "\U0001f600"]})
    assert output.value == {"k\ufffd": ["\ufffd\ufffd\x00A", "\U0001f600"]}
    assert output.replaced == 3


def test_an_output_is_a_copy() -> None:
    """A tool that goes on changing what it returned changes nothing."""
    mine: dict[str, object] = {"a": [1]}
    output = read_output(mine)
    mine["a"] = None
    assert output.value == {"a": [1]}


def test_a_huge_output_is_refused_without_being_read() -> None:
    """More parts or characters than any good use has are refused at once."""
    with pytest.raises(OutputError) as parts:
        read_output([0] * (OUTPUT_PARTS + 1))
    with pytest.raises(OutputError) as characters:
        read_output(["x" * OUTPUT_CHARACTERS, "y"])
    assert parts.value.code == characters.value.code == "output_limit_exceeded"


@pytest.mark.parametrize("value", [[1.0] * 10, ["x" * 300_000], [1] * 250_000, {"a": "ü"}])
def test_the_size_is_that_of_the_canonical_form(value: object) -> None:
    """The size counts canonical bytes, on the quick way too."""
    output = read_output(value)
    assert output.size == len(canonical(output.value))


@pytest.mark.parametrize(
    "value",
    ["x" * 300_000, "ü€😀" * 100_000, '"\\\x01' * 200_000, [{"text": "ü" * 100}] * 2_000, [0.25] * 200_000],
)
def test_an_output_above_the_cap_is_cut_to_its_beginning(value: object) -> None:
    """What is kept is valid JSON below the cap, is as long as fits, begins as the output does and says its size."""
    output = read_output(value)
    cut = shortened(output)
    assert isinstance(cut, dict)
    kept = cut["text"]
    assert isinstance(kept, str)
    whole = (
        output.value if isinstance(output.value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
    assert whole.startswith(kept)
    assert cut["truncated"] is True
    assert cut["original_bytes"] == output.size
    assert str(output.size) in str(cut["note"])
    assert INLINE_RESULT_BYTES * 0.9 < len(canonical(cut)) <= INLINE_RESULT_BYTES


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(deadline=None)  # a loaded machine is no failure
@given(json_values)
def test_every_json_value_is_taken_as_it_is(value: object) -> None:
    """What is JSON already passes unchanged, with the size of its canonical form."""
    output = read_output(value)
    assert output.value == value
    assert output.replaced == 0
    assert output.size == len(canonical(output.value))
