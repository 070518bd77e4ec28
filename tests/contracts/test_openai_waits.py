"""How long endpoints ask us to wait, in every form they have."""

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestral_temporal.adapters.models.openai_waits import LONGEST_WAIT_MS, retry_after_ms
from tests.contracts.openai_endpoint import case_data, error_reply, fault_of

CASE = case_data("F064")
NOW = datetime.fromisoformat(CASE["now"])

EXPECTED: dict[Any, int | None] = {
    2: 2_000,
    "0 or own": None,
    0.5: 500,
    3: 3_000,
    30: 30_000,
    "30 or own": 30_000,
    "own": None,
    "capped by configuration, or run ends because the deadline is nearer": 999_999_999_000,
    1.5: 1_500,
    0.25: 250,
    "7 or own": None,
    "34.07 or own": 34_070,
    "90 or own": 90_000,
    "no retry": 2_000,
}
"""What each expectation of the case means in milliseconds; null leaves the wait to us."""

HEADERS = ("retry-after", "retry-after-ms", "date", "x-ratelimit-reset-requests", "x-ratelimit-remaining-requests")


@pytest.mark.parametrize("number", range(len(CASE["cases"])))
async def test_the_wait_that_is_asked_for_is_kept(number: int) -> None:
    """`retry_after_ms` holds what a header or the body says, by the endpoint's own clock (F064)."""
    case = CASE["cases"][number]
    body = case.get("body", {"error": {"message": "Wait."}})
    headers = {"date": format_datetime(NOW, usegmt=True), **case["headers"]}
    error = (await fault_of(error_reply(429, body, headers))).error
    assert isinstance(error.details, dict)
    assert error.details.get("retry_after_ms") == EXPECTED[case["expect_s"]]
    assert error.retryable is (case["expect_s"] != "no retry")


def test_without_a_date_of_its_own_the_endpoint_has_our_clock() -> None:
    """A date counts from `now` when the answer has no date, or none that can be read (F064)."""
    until = {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert retry_after_ms(until, None, NOW.timestamp()) == 30_000
    assert retry_after_ms({**until, "date": "today"}, None, NOW.timestamp()) == 30_000
    assert retry_after_ms({**until, "date": "Wed, 21 Oct 2026 07:27:50 GMT"}, None, NOW.timestamp()) == 10_000
    assert retry_after_ms({"retry-after": "Wed, 21 Oct 2026 07:28:00 -0000"}, None, NOW.timestamp()) == 30_000


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2_000),
        ({"retry-after-ms": "-1", "retry-after": "2"}, 2_000),
        ({"retry-after": "0", "x-ratelimit-reset-requests": "1m"}, None),
        ({"retry-after": "0.0001"}, 1),
        ({"retry-after": "1e308"}, LONGEST_WAIT_MS),
        ({"retry-after-ms": "9" * 400}, None),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3_723_500),
        ({"x-ratelimit-reset-tokens": "120ms"}, 120),
        ({"x-ratelimit-reset-requests": "2s", "x-ratelimit-reset-tokens": "5s"}, 5_000),
        (
            {
                "x-ratelimit-reset-requests": "1h",
                "x-ratelimit-remaining-requests": "7",
                "x-ratelimit-reset-tokens": "5s",
            },
            5_000,
        ),
        ({"x-ratelimit-reset-requests": ""}, None),
        ({"x-ratelimit-reset-requests": "1700000000"}, None),
        ({"x-ratelimit-reset-requests": "9" * 400 + "h"}, LONGEST_WAIT_MS),
    ],
    ids=str,
)
def test_what_is_said_more_exactly_goes_first(headers: dict[str, str], expected: int | None) -> None:
    """Garbage counts as not said, and an endpoint is never asked sooner than it wants (F064)."""
    assert retry_after_ms(headers, None, NOW.timestamp()) == expected


@pytest.mark.parametrize("hints", [None, "1s", {}, [1, {}, {"retryDelay": 5}], [{"retryDelay": "soon"}]], ids=str)
def test_hints_of_other_shapes_say_nothing(hints: Any) -> None:
    """Details of an error may be anything."""
    assert retry_after_ms({}, hints, 0) is None


@given(
    headers=st.dictionaries(st.sampled_from(HEADERS), st.text() | st.floats().map(str) | st.integers().map(str)),
    now=st.floats(min_value=0, max_value=2**40),
)
@example(headers={"retry-after": "Fri, 31 Dec 9999 23:59:59 -9999"}, now=0)
@example(headers={"retry-after": "Mon, 01 Jan 0001 00:00:00 +2359"}, now=0)
def test_no_text_of_a_header_breaks_the_attempt(headers: dict[str, str], now: float) -> None:
    """Any text is a wait of a whole number of milliseconds above zero, or none (F064)."""
    wait = retry_after_ms(headers, None, now)
    assert wait is None or 0 < wait <= LONGEST_WAIT_MS


def test_a_wait_ends_with_time_itself() -> None:
    """The farthest date is still a number."""
    far = format_datetime(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), usegmt=True)
    assert retry_after_ms({"retry-after": far}, None, 0) == 253_402_300_799_000
