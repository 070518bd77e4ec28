"""What a Python value becomes as JSON: one form for each type (F043, F044).

| Python | JSON |
|---|---|
| None, bool, int, float, str | itself |
| datetime, date, time | ISO 8601 text, with the offset if it has one |
| timedelta | ISO 8601 duration, `P1DT2H` |
| Decimal, UUID, Path | its text, digits unchanged |
| Enum member | the form of its value |
| list, tuple | array |
| set, frozenset | array, sorted by value where the members compare, else by their JSON text |
| mapping | object; keys are text, or have a form that is text or an integer |
| dataclass | object of its fields |
| pydantic model | the form of `model_dump()` |
| bytes, bytearray, memoryview | `{"media_type": "application/octet-stream", "base64": …}` |

Any other type has no form. What Python text and numbers hold that JSON does not is the guard's business: it replaces
lone surrogates and refuses NaN, infinities and integers of more than 64 bits.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Final, TypeAlias, cast
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from orchestral_temporal.ports import ToolFailed
from orchestral_temporal.protocol.words import MAX_DEPTH, Json

MAX_ITEMS: Final = 1_000_000
"""Items of one container: more than the guard takes, so that they need not be written first."""

_PLAIN: Final = frozenset({type(None), bool, int, float, str})

_Place: TypeAlias = tuple[str | int, ...]


def to_json(value: object) -> Json:
    """The JSON form of what a function returned.

    Raises:
        ToolFailed: output_serialization_failed; a part has no form, and the message names its place.
    """
    return _form(value, ())


def _form(value: object, place: _Place) -> Json:
    if type(value) in _PLAIN:
        return cast("Json", value)
    if len(place) > MAX_DEPTH:
        raise _no_form((), f"nests deeper than {MAX_DEPTH} containers; return something flatter")
    inner = _opened(value)
    if inner is not value:
        return _form(inner, place)
    if isinstance(value, Mapping | list | tuple | set | frozenset) and len(cast("list[object]", value)) > MAX_ITEMS:
        raise ToolFailed("output_limit_exceeded", f"The output has a container of more than {MAX_ITEMS} items.")
    if isinstance(value, Mapping):
        return _object(cast("Mapping[object, object]", value), place)
    if isinstance(value, list | tuple | set | frozenset):
        items = [_form(item, (*place, at)) for at, item in enumerate(cast("Iterable[object]", value))]
        return _sorted(items) if isinstance(value, set | frozenset) else items
    return _scalar(value, place)


def _opened(value: object) -> object:
    """What a wrapper holds: the value of an enum member, the fields of a model or dataclass."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BaseModel):
        return value.model_dump(warnings=False)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return value


def _scalar(value: object, place: _Place) -> Json:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(cast("bytes", value))
        return {"media_type": "application/octet-stream", "base64": base64.b64encode(data).decode()}
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return to_jsonable_python(value)
        case Decimal() | UUID() | PurePath():
            return str(value)
        # Subclasses of plain types, such as numpy's, are written as what they are underneath.
        case str():
            return str.__str__(value)
        case int() | float():
            return int(value) if isinstance(value, int) else float(value)
        case _:
            raise _no_form(place, f"is of type {type(value).__name__}, which has no JSON form; return a plain value")


def _object(value: Mapping[object, object], place: _Place) -> Json:
    result: dict[str, Json] = {}
    for key, item in value.items():
        name = _form(key, place)
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise _no_form(place, f"has a key of type {type(key).__name__}; use text")
        if str(name) in result:
            raise _no_form(place, f"has two keys that are both written {str(name)!r}")
        result[str(name)] = _form(item, (*place, str(name)))
    return result


def _sorted(items: list[Json]) -> list[Json]:
    try:
        return sorted(items, key=lambda item: cast("str", item))
    except TypeError:
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _no_form(place: _Place, fault: str) -> ToolFailed:
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return ToolFailed("output_serialization_failed", f"The output at {path} {fault}.")
