"""Secrets that an adapter knows, kept out of all that it says: errors, logs, and what a model reads (F112 F113)."""

import json
import logging
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from orchestral_temporal.protocol.base import Json

SHOWN: Final = "[secret]"
"""What stands where a secret stood."""

SHORTEST: Final = 8
"""Characters of the shortest secret that is masked: a shorter one is a dummy such as `none`, and would garble words."""


class Mask:
    """Replaces known secrets in any text, however they are written.

    A secret is found as it is, percent-encoded, escaped as in JSON, and in base64 of either alphabet wherever it stood
    in what was encoded, as in `Basic` credentials. A mask is a filter of the standard library's loggers too.
    """

    def __init__(self, *secrets: str) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        # A form may hold another one: the longest is replaced first.
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def text(self, text: str) -> str:
        """The text with `[secret]` for each secret."""
        return self._known.sub(SHOWN, text)

    def value(self, value: Json) -> Json:
        """The value with masked texts and keys."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(key): self.value(item) for key, item in value.items()}
            case _:
                return value

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the message of a log record; no record is dropped."""
        message = record.getMessage()
        masked = self.text(message)
        if masked != message:
            record.msg, record.args = masked, None
        return True


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    for encoded in (quote(secret, safe=""), quote_plus(secret)):
        yield encoded
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
    for shift in range(3):
        core = _base64_core(secret.encode(), shift)
        yield core
        yield core.translate(str.maketrans("+/", "-_"))


def _base64_core(secret: bytes, shift: int) -> str:
    """The base64 characters that a secret alone decides when it begins `shift` bytes into a group of three."""
    encoded = b64encode(bytes(shift) + secret).decode()
    return encoded[-(-shift * 8 // 6) : (shift + len(secret)) * 8 // 6]
