"""The second stage: what a shape cannot say (`spec/wire.md` §0). Each module registers the rules of its own words."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import singledispatch
from typing import cast

from orchestral_temporal.protocol.base import Json, Word
from orchestral_temporal.protocol.digest import is_sha256
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.ids import is_blank, is_namespaced


@singledispatch
def validate(word: Word) -> None:
    """Check the rules of a word beyond its shape, in the order of its sheet; the first that fails is raised.

    A type without rules of its own is as valid as its parts are, in declared order.

    Raises:
        ProtocolError: a rule of the agent protocol fails.
        WordError: a rule of a model, tool, session or WAL word fails.
    """
    for _, part in word:
        if isinstance(part, Word):
            validate(part)
        elif isinstance(part, tuple):
            validate_each(cast("tuple[object, ...]", part))


def validate_each(parts: Iterable[object]) -> None:
    """Check those parts that are words, in order; raises as `validate`."""
    for part in parts:
        if isinstance(part, Word):
            validate(part)


def require_filled(name: str, text: str | None, code: StrEnum = AgentProtocolErrorCode.INVALID_SPEC) -> None:
    """Refuse an empty id or reference; null is not empty."""
    require(text != "", code, f"`{name}` is empty; give it a value, or null where the field may be null.")


def require_text(name: str, text: str | None, code: StrEnum = AgentProtocolErrorCode.INVALID_SPEC) -> None:
    """Refuse a blank text; null is not blank."""
    require(text is None or not is_blank(text), code, f"`{name}` is blank; give at least one visible character.")


def require_sha256(name: str, text: str | None, code: StrEnum = AgentProtocolErrorCode.INVALID_SPEC) -> None:
    """Refuse what has not the form of a digest; null is not refused."""
    require(text is None or is_sha256(text), code, f"`{name}` is no SHA-256; give 64 hex digits.")


def require_positive(code: StrEnum, **numbers: int | None) -> None:
    """Refuse a count or sequence that is 0; null is not refused."""
    for name, number in numbers.items():
        require(number != 0, code, f"`{name}` is 0; give at least 1, or null where the field may be null.")


def require_sealed(name: str, given: str, computed: str, code: StrEnum = AgentProtocolErrorCode.INVALID_DIGEST) -> None:
    """Refuse a digest that is not that of what it stands for."""
    require(given == computed, code, f"`{name}` is not the digest of what it seals; seal that again.")


def require_unique(name: str, keys: Iterable[str], code: StrEnum = AgentProtocolErrorCode.INVALID_SPEC) -> None:
    """Refuse a list in which a key occurs twice."""
    keys = tuple(keys)
    require(len(set(keys)) == len(keys), code, f"`{name}` repeats an entry; give each once.")


def require_namespaced(
    name: str, keys: Mapping[str, Json] | tuple[str, ...], code: StrEnum = AgentProtocolErrorCode.INVALID_SPEC
) -> None:
    """Refuse keys that are not `namespace/name`."""
    require(all(map(is_namespaced, keys)), code, f"`{name}` must be `namespace/name`; put both halves.")
