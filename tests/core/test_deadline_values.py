"""What a deadline may be: an instant in whole milliseconds, and nowhere a text (F100)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from orchestral_temporal.core.start import StartRefused, read_start
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.validation import validate

CASE: Final = json.loads((Path(__file__).parents[1] / "cases" / "F100.json").read_bytes())
NOW_MS: Final = round(datetime.fromisoformat(CASE["now"]).timestamp() * 1_000)
TEXTS: Final = [row["deadline"] for row in CASE["cases"] if isinstance(row["deadline"], str)]
INSTANTS: Final = [row["deadline"] for row in CASE["cases"] if isinstance(row["deadline"], int)]

LARGEST: Final = 2**63 - 1


def raw(deadline: object) -> Any:
    """A start argument with that deadline."""
    return {"input": "work", "limits": {"deadline_unix_ms": deadline}}


@pytest.mark.parametrize("deadline", [*TEXTS, str(NOW_MS), True, 1.5, [], LARGEST + 1])
def test_what_is_no_instant_is_refused_by_name(deadline: object) -> None:
    """Each text of the case, and all else that is no whole number: in one sentence, raw and in Python (F100)."""
    with pytest.raises(StartRefused) as by_start:
        read_start(raw(deadline), "run-1")
    with pytest.raises(ProtocolError) as by_client:
        RunLimits.model_validate({"deadline_unix_ms": deadline})

    sentence = by_start.value.rejection.message
    assert sentence == by_client.value.error.message
    assert sentence.startswith("RunLimits: `deadline_unix_ms` is ")
    assert "\n" not in sentence
    assert by_start.value.rejection.code == by_client.value.error.code == "invalid_spec"


def test_a_python_datetime_is_refused_by_name() -> None:
    """What JSON has no word for is named by its type."""
    with pytest.raises(ProtocolError, match="`deadline_unix_ms` is of type datetime; it should be a valid integer"):
        RunLimits.model_validate({"deadline_unix_ms": datetime.fromisoformat(CASE["now"])})


@pytest.mark.parametrize("deadline", [*INSTANTS, 1, 253_402_300_799_000, LARGEST])
def test_an_instant_is_taken_as_it_is(deadline: int) -> None:
    """Milliseconds since 1970, whatever somebody may have meant: no guess at seconds, no overflow (F100)."""
    spec = read_start(raw(deadline), "run-1").envelope.spec
    validate(spec.limits)
    assert spec.limits == RunLimits(deadline_unix_ms=deadline)


def test_the_instants_of_the_case_lie_where_it_says() -> None:
    """One minute ahead, and in 1970: seconds are not milliseconds (F100)."""
    assert [deadline - NOW_MS for deadline in INSTANTS if deadline > NOW_MS] == [60_000]
    assert [datetime.fromtimestamp(each / 1_000, UTC).year for each in INSTANTS if each < NOW_MS] == [1970]


@pytest.mark.parametrize("deadline", [0, -1, -LARGEST - 1])
def test_an_instant_before_1970_is_refused_by_name(deadline: int) -> None:
    """A deadline of 0 is a mistake, not the past."""
    limits = read_start(raw(deadline), "run-1").envelope.spec.limits
    with pytest.raises(ProtocolError, match="`deadline_unix_ms` is not positive; give milliseconds since 1970"):
        validate(limits)
