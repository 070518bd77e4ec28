"""The base of every wire word: frozen, closed, strict (`spec/wire.md` §0), and the scalar types words are made of."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

Json = JsonValue
"""Any JSON value, the sheet's J."""

JsonObject = dict[str, JsonValue]

U16 = Annotated[int, Field(ge=0, le=2**16 - 1)]
U32 = Annotated[int, Field(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Field(ge=0, le=2**64 - 1)]
LARGEST_U64: Final = 2**64 - 1
I64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]

LARGEST_EXACT: Final = 2**53 - 1
"""The largest integer of which a double is sure."""

RULE: Final = "rule"
"""The pydantic error type of a rule that belongs to the second stage; its context holds the `code`."""

DIGESTED: Final = "digested"
"""The serialisation context in which a word is written for its digest rather than for people."""

Member = TypeVar("Member", bound=StrEnum)


class Word(BaseModel):
    """A frozen value that refuses unknown keys and never coerces a type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class OpenWord(Word):
    """A word that drops unknown keys: what it is made of is written by models, tools or other programs."""

    model_config = ConfigDict(extra="ignore")


class SpeltOutWord(Word):
    """A word with keys that have a default in Python, yet must stand in every JSON text."""

    spelt_out: ClassVar[tuple[str, ...]]

    @model_validator(mode="after")
    def _spelt_out(self, info: ValidationInfo) -> Self:
        if info.mode == "json":
            missing = [key for key in self.spelt_out if key not in self.model_fields_set]
            if missing:
                raise PydanticCustomError("not_spelt_out", "should hold the key {key}", {"key": missing[0]})
        return self


def object_or(code: StrEnum) -> BeforeValidator:
    """Marks a `JsonObject` whose sheet refuses other values in the second stage, with this code.

    A type that admits any value would spread a question over all who use it; so the shape asks, and reading answers
    with the code that `validate` would give.
    """

    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise PydanticCustomError(RULE, "should be an object", {"code": code})
        return value  # pyright: ignore[reportUnknownVariableType] -- pydantic checks the members

    return BeforeValidator(check)


def _in_declared_order(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """An enum set as it stands on the wire: each member once, in the order of its declaration (`spec/wire.md` §8.1)."""
    declared = list(type(members[0])) if members else []
    return tuple(member for member in declared if member in members)


def _in_text_order(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


TextSet = Annotated[tuple[str, ...], AfterValidator(_in_text_order)]
"""A set of strings: each once, by code point, which is the order of their UTF-8 bytes."""

OrderedSet = AfterValidator(_in_declared_order)
"""Marks a tuple of enum members as a set: `Annotated[tuple[Kind, ...], OrderedSet]`."""
