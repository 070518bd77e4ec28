"""How long a chat-completions endpoint asks us to wait before another try, in any form that endpoints use (F064)."""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil, inf
from typing import Final

from orchestral_temporal.protocol.base import Json

LONGEST_WAIT_MS: Final = 2**53 - 1
"""What is longer is cut to this, the largest whole number that every JSON reader keeps; the run caps it anyway."""

_DURATION = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?!s))?"
    r"(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+(?:\.\d+)?)ms)?",
    re.ASCII,
)
_UNIT_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def retry_after_ms(headers: Mapping[str, str], hints: Json, now: float) -> int | None:
    """Milliseconds to wait, rounded up; null if the endpoint does not say, or says that no time is left.

    What is said more exactly goes first: `retry-after-ms`, `retry-after` in seconds or as a date, a `retryDelay` in
    the body, then the reset of a rate limit that is used up. A text that means nothing counts as not said.

    Args:
        headers: Of the answer, names in lower case.
        hints: The error's `details`, whatever it is.
        now: Seconds since 1970 by our clock; the answer's own `date` goes before it, so that clocks may differ.
    """
    said = (
        _number(headers.get("retry-after-ms", "")),
        _seconds(_number(headers.get("retry-after", ""))),
        _until(headers.get("retry-after", ""), _date(headers.get("date", "")) or now),
        _delay(hints),
        _reset(headers),
    )
    wait = next((each for each in said if each is not None), 0)
    return min(ceil(min(wait, LONGEST_WAIT_MS)), LONGEST_WAIT_MS) or None


def _number(text: str) -> float | None:
    """A number of 0 or more; `nan`, `inf` and negative ones say nothing."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < inf else None


def _seconds(number: float | None) -> float | None:
    return None if number is None else number * 1000


def _until(text: str, now: float) -> float | None:
    date = _date(text)
    return None if date is None else max(0, date - now) * 1000


def _date(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _delay(hints: Json) -> float | None:
    """The `retryDelay` of an error's details, such as `34.07s`."""
    listed = [hint for hint in hints if isinstance(hint, dict)] if isinstance(hints, list) else []
    delays = [delay for hint in listed if isinstance(delay := hint.get("retryDelay"), str)]
    return next((wait for wait in map(_duration, delays) if wait is not None), None)


def _reset(headers: Mapping[str, str]) -> float | None:
    """When the limits that are used up begin anew; endpoints name the reset of the others too."""
    used_up = [kind for kind in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{kind}", "0") == "0"]
    found = (_duration(headers.get(f"x-ratelimit-reset-{kind}", "")) for kind in used_up)
    return max((each for each in found if each is not None), default=None)


def _duration(text: str) -> float | None:
    """Milliseconds of a duration such as `1m30s` or `120ms`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not match[0]:
        return None
    return sum(float(amount) * _UNIT_MS[unit] for unit, amount in match.groupdict().items() if amount)
