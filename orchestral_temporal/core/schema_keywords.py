"""The keywords of 2020-12 that `jsonschema` judges too slowly, too eagerly or in the order of a hash.

Its own versions compare each item of a mixed array with each other one, collect every error of every alternative
(which multiplies the work at each level of a recursive union), and walk extra properties in the order of a set.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from referencing.jsonschema import EMPTY_REGISTRY, Schema

from orchestral_temporal.core.schema_fault import STEP_CHARACTERS, describe, quoted
from orchestral_temporal.protocol.words import Json, JsonObject


@dataclass
class Judgement:
    """What one judgement keeps: how many more references it may follow, and what each gave for each part of the value.

    Without that memory a recursive union is judged again in each of its forms, at each level of a value. A `dynamic`
    schema does without: there an answer may depend on the way that led to the reference.
    """

    references_left: int
    dynamic: bool
    seen: dict[tuple[int, int], ValidationError | None] = field(default_factory=dict)


under_way: Final[ContextVar[Judgement]] = ContextVar("under_way")
"""The judgement under way; whoever judges sets it."""


class TooCostlyError(Exception):
    """The references allowed for one value are used up."""


class Judge(Protocol):
    """A schema at work: what we use of a `jsonschema` validator."""

    def iter_errors(self, instance: Json) -> Iterator[ValidationError]:
        """The errors of a value, found one by one."""
        ...

    def descend(self, instance: Json, schema: Schema, path: str | None = None) -> Iterator[ValidationError]:
        """The errors of a part under a sub-schema, found one by one; `path` is the step that leads to the part."""
        ...


Errors: TypeAlias = Iterator[ValidationError]
Keyword: TypeAlias = Callable[[Judge, Json, Json, JsonObject], Errors]
"""Judges a value under one keyword: the judge, the keyword's value, the value, the schema that holds the keyword."""


def judge_of(schema: JsonObject) -> Judge:
    """A judge for a schema that is valid and refers to nothing outside itself."""
    return _dialect(schema, registry=EMPTY_REGISTRY)


def _reference(judge: Judge, reference: Json, instance: Json, schema: JsonObject) -> Errors:
    judgement = under_way.get()
    place = id(schema), id(instance)
    if judgement.dynamic or place not in judgement.seen:
        if judgement.references_left == 0:
            raise TooCostlyError
        judgement.references_left -= 1
        judgement.seen[place] = next(_follow(judge, reference, instance, schema), None)
    fault = judgement.seen[place]
    if fault is not None:
        # The path of an error grows on its way out, so each way gets its own.
        yield ValidationError.create_from(fault)


def _any_of(judge: Judge, forms: Json, instance: Json, _: JsonObject) -> Errors:
    faults: list[ValidationError] = []
    for form in _list(forms):
        fault = _first(judge, instance, form)
        if fault is None:
            return
        faults.append(fault)
    yield ValidationError("", context=faults)


def _one_of(judge: Judge, forms: Json, instance: Json, _: JsonObject) -> Errors:
    faults = [_first(judge, instance, form) for form in _list(forms)]
    causes = [fault for fault in faults if fault is not None]
    if len(faults) - len(causes) != 1:
        yield ValidationError("", context=causes if len(causes) == len(faults) else ())


def _additional(judge: Judge, extra: Json, instance: Json, schema: JsonObject) -> Errors:
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in _object(named) or any(re.search(pattern, name) for pattern in _object(patterns)):
            continue
        if extra is False:
            yield ValidationError("", path=[name])
        else:
            yield from judge.descend(value, cast("Schema", extra), path=name)


def _names(judge: Judge, rule: Json, instance: Json, _: JsonObject) -> Errors:
    for name in instance if isinstance(instance, dict) else ():
        fault = _first(judge, name, rule)
        if fault is not None:
            message = f"has the property name {quoted(name, STEP_CHARACTERS)}, which {describe(fault).rule}"
            yield ValidationError(message)


def _unique(_: Judge, wanted: Json, instance: Json, __: JsonObject) -> Errors:
    if wanted and isinstance(instance, list) and len(set(map(_identity, instance))) < len(instance):
        yield ValidationError("")


def _first(judge: Judge, instance: Json, schema: Json) -> ValidationError | None:
    return next(judge.descend(instance, cast("Schema", schema)), None)


def _list(value: Json) -> list[Json]:
    return cast("list[Json]", value)


def _object(value: Json) -> JsonObject:
    return cast("JsonObject", value)


def _identity(value: Json) -> Hashable:
    """What makes two JSON values equal: numbers by value and exactly, booleans apart from numbers."""
    match value:
        case dict():
            return "object", frozenset((name, _identity(item)) for name, item in value.items())
        case list():
            return "array", tuple(map(_identity, value))
        case bool():
            return "boolean", value
        case _:
            return value


_follow: Final[Keyword] = Draft202012Validator.VALIDATORS["$ref"]

_OURS: Final[Mapping[str, Keyword]] = {
    "$ref": _reference,
    "$dynamicRef": _reference,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "uniqueItems": _unique,
}

_dialect: Final = cast(
    "Callable[..., Judge]",
    validators.extend(Draft202012Validator, _OURS),  # pyright: ignore[reportUnknownMemberType] -- its stub has no types
)
