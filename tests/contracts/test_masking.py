"""Known secrets are found in every form in which they are quoted."""

import base64
import json
import logging
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestral_temporal.adapters.masking import SHOWN, Mask
from orchestral_temporal.protocol.base import Json

KNOWN = "p@ss/w+rd 7f3a91?"


@pytest.mark.parametrize(
    "form",
    [
        KNOWN,
        quote(KNOWN, safe=""),
        quote(KNOWN, safe="").lower(),
        quote_plus(KNOWN),
        json.dumps(f'"{KNOWN}"')[1:-1],
    ],
)
def test_forms_of_a_secret_are_masked(form: str) -> None:
    """Plain, percent-encoded in both cases, as a form field, inside JSON text (F113)."""
    masked = Mask("another one", KNOWN).text(f"before {form} after {form}")
    assert masked.count(SHOWN) == 2
    assert "7f3a91" not in masked
    assert (masked.startswith("before "), " after " in masked) == (True, True)


@given(before=st.binary(max_size=5), after=st.binary(max_size=5), secret=st.text(min_size=8, max_size=40))
def test_base64_is_masked_wherever_the_secret_stands_in_it(before: bytes, after: bytes, secret: str) -> None:
    """`Basic` credentials and their like show no part that only the secret decides (F112 F113)."""
    whole = before + secret.encode() + after
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        masked = Mask(secret).text(encode(whole).decode())
        assert SHOWN in masked
        # What is left is what stood around it, and at most one shared character at each end.
        rest = len(masked) - masked.count(SHOWN) * len(SHOWN)
        assert rest <= 4 * (len(before) // 3 + len(after) // 3 + 3)


def test_a_secret_with_quotes_is_masked_inside_json() -> None:
    """JSON escapes what a secret may hold."""
    known = 'a"quoted\\secret'
    assert Mask(known).text(json.dumps({"key": known})) == f'{{"key": "{SHOWN}"}}'


def test_values_are_masked_through_and_through() -> None:
    """Keys, items and texts, whatever is around them."""
    value: Json = {KNOWN: [KNOWN, 1, None, True, {"a": f"<{KNOWN}>"}]}
    assert Mask(KNOWN).value(value) == {SHOWN: [SHOWN, 1, None, True, {"a": f"<{SHOWN}>"}]}


def test_a_dummy_is_no_secret() -> None:
    """A short placeholder would garble every sentence."""
    assert Mask("none", "").text("none of these") == "none of these"
    assert Mask().text("as it is") == "as it is"


def test_the_longest_secret_is_masked_first() -> None:
    """One secret inside another leaves no rest of it."""
    assert Mask("12345678", "12345678-and-more").text("<12345678-and-more>") == f"<{SHOWN}>"


def test_log_records_are_masked_and_never_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """As a filter a mask changes only what holds a secret, arguments included."""
    logger = logging.getLogger("orchestral.test.masking")
    mask = Mask(KNOWN)
    logger.addFilter(mask)
    caplog.set_level(logging.INFO)
    logger.info("sent %s to %s", KNOWN, "somebody")
    logger.info("sent %d times", 3)
    logger.removeFilter(mask)
    assert caplog.messages == [f"sent {SHOWN} to somebody", "sent 3 times"]
