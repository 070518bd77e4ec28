"""Where a value breaks its schema, in one sentence that a model can act on; never the value itself."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from jsonschema.exceptions import SchemaError, ValidationError

from orchestral_temporal.protocol.words import Json

STEP_CHARACTERS: Final = 60
"""Characters of one key in a path: keys come from outside."""

PATH_CHARACTERS: Final = 300
"""Characters of a whole path."""

LIMIT_CHARACTERS: Final = 200
"""Characters of a limit quoted from the schema, such as the members of an enum."""

_RULES: Final[Mapping[str, str]] = {
    "enum": "must be one of {}",
    "const": "must be {}",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "format": "is not a valid {}",
    "pattern": "must match the pattern {}",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "uniqueItems": "must not hold the same item twice",
    "minContains": "must hold at least {} items of the kind that the schema asks for",
    "maxContains": "must hold at most {} items of the kind that the schema limits",
    "minProperties": "must have at least {} properties",
    "maxProperties": "must have at most {} properties",
    "additionalProperties": "is not a property that the schema allows",
    "unevaluatedProperties": "has a property that the schema does not allow",
    "unevaluatedItems": "has an item that the schema does not allow",
    "anyOf": "fits none of the forms that the schema offers",
    "oneOf": "must fit exactly one of the forms that the schema offers",
    "false": "holds a value where the schema allows none",
    "not": "has a form that the schema forbids",
}


@dataclass(frozen=True)
class SchemaFault:
    """The first place where a value breaks a schema: a `$`-rooted path and what should be there."""

    path: str
    rule: str

    def __str__(self) -> str:
        """`$.a[0] must be integer, not string`."""
        return f"{self.path} {self.rule}"


def describe(error: ValidationError | SchemaError) -> SchemaFault:
    """The sentence for the first error that `jsonschema` found, or for its most specific cause."""
    steps = list(error.relative_path)
    while error.context:
        error, whole = max(error.context, key=lambda each: len(each.relative_path)), error
        if not error.relative_path:
            return SchemaFault(path_of(steps), _rule(whole))
        steps += error.relative_path
    return SchemaFault(path_of(steps), _rule(error))


def quoted(value: Json, characters: int) -> str:
    """A value as JSON text, cut."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= characters else f"{text[:characters]}…"


def path_of(steps: Iterable[str | int]) -> str:
    """`$.a[0]["a b"]`, cut."""
    path = "$" + "".join(map(_step, steps))
    return path if len(path) <= PATH_CHARACTERS else f"{path[:PATH_CHARACTERS]}…"


def _step(step: str | int) -> str:
    if isinstance(step, str) and step.isidentifier():
        return f".{step[:STEP_CHARACTERS]}"
    return f"[{quoted(step, STEP_CHARACTERS)}]"


def _rule(error: ValidationError | SchemaError) -> str:
    keyword, limit, value = (cast("Json", each) for each in (error.validator, error.validator_value, error.instance))
    causes = error.context
    if keyword == "type":
        return _wrong_type([limit], value)
    if causes and all(cause.validator == "type" for cause in causes):
        return _wrong_type([cast("Json", cause.validator_value) for cause in causes], value)
    if keyword == "required" and isinstance(limit, list) and isinstance(value, dict):
        missing = next(name for name in limit if name not in value)
        return f"lacks the required property {quoted(missing, STEP_CHARACTERS)}"
    if keyword == "propertyNames":
        return error.message
    # A schema that is just `false` fails without a keyword.
    rule = _RULES.get(str(keyword or "false"), f"breaks `{keyword}` of the schema")
    return rule.format(quoted(limit, LIMIT_CHARACTERS))


def _wrong_type(limits: list[Json], value: Json) -> str:
    names = [str(name) for limit in limits for name in (limit if isinstance(limit, list) else [limit])]
    return f"must be {' or '.join(names)}, not {_type_of(value)}"


def _type_of(value: Json) -> str:
    """The name that JSON Schema has for the type of a value."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]
