"""The base of every wire word: frozen, closed, strict (`spec/wire.md` §0), and the scalar types words are made of."""

from enum import StrEnum
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

Json = JsonValue
"""Any JSON value, the sheet's J."""

JsonObject = dict[str, JsonValue]

U16 = Annotated[int, Field(ge=0, le=2**16 - 1)]
U32 = Annotated[int, Field(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Field(ge=0, le=2**64 - 1)]
I64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]

Member = TypeVar("Member", bound=StrEnum)


class Word(BaseModel):
    """A frozen value that refuses unknown keys and never coerces a type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


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
