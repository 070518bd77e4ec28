"""What a payload converter may let in and JSON does not have: a start argument goes through our own door first."""

from typing import cast

import pytest

from orchestral_temporal.core.start import StartRefused, read_start
from orchestral_temporal.protocol.base import Json


@pytest.mark.parametrize(
    "value",
    [
        cast("Json", b"bytes"),
        {"input": "x", "extensions": {"a/b": float("nan")}},
        {"input": "x", "extensions": {"a/b": float("-inf")}},
        {"input": "x", "extensions": {"a/b": 10**400}},
        {"input": "x", "extensions": {"a/b": "half \ud800"}},
        {"input": "half \udc00"},
    ],
    ids=["bytes", "nan", "infinity", "huge", "surrogate", "surrogate in the task"],
)
def test_what_is_no_json_is_refused(value: Json) -> None:
    """Bytes, NaN, infinities, numbers beyond a double and half characters are refused in one sentence (F134)."""
    with pytest.raises(StartRefused) as refused:
        read_start(value, "run-1")

    assert refused.value.rejection.code == "invalid_spec"
    assert "\n" not in refused.value.rejection.message


def test_what_nests_too_deep_is_refused() -> None:
    """A value deeper than the stack allows is refused like any other."""
    value: Json = "x"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(StartRefused, match=r"JSON|deep"):
        read_start({"input": "x", "extensions": {"a/b": value}}, "run-1")
