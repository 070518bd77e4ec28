"""The door: JSON text in, words out, and back (`spec/wire.md` §1).

Python's own reader and pydantic each let through something that the dialect refuses, so a text is read by both: the
first judges numbers, duplicate keys and depth, the second the shape.
"""

import json
import re
from collections import Counter
from decimal import Decimal
from typing import Final, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from orchestral_temporal.protocol.base import (
    DIGESTED,
    I64,
    LARGEST_EXACT,
    RULE,
    U16,
    U32,
    U64,
    Json,
    JsonObject,
    TextSet,
    Word,
)
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse

__all__ = [
    "I64",
    "MAX_DEPTH",
    "U16",
    "U32",
    "U64",
    "Json",
    "JsonObject",
    "TextSet",
    "Word",
    "dump",
    "kind_of",
    "mended_text",
    "parse",
    "parse_exact_json",
    "parse_json",
    "parse_value",
    "refuse_shape",
    "same",
    "to_json",
]

MAX_DEPTH: Final = 127
"""Containers inside one another in one document: the wire's bound, far below what exhausts a stack."""

_INTEGER_DIGITS: Final = 20
"""Characters of the longest literal that may still be an exact integer (2^64 - 1, or -2^63)."""

_NUMBER_CHARACTERS: Final = 40
"""Characters of a number in a message: it comes from outside and may be of any length."""

_PATH_CHARACTERS: Final = 120
"""Characters of a field path in a message: keys come from outside and may be of any length."""

_TWICE: Final = "\0given twice: "
"""Begins the key that marks a duplicate; a struct refuses it as unknown, a free map takes it."""

_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")

W = TypeVar("W", bound=Word)


class _Reading:
    """One pass over a text: its value, and whether it must be written anew before pydantic may see it."""

    def __init__(self, text: str, *, marking: bool) -> None:
        self.rewritten = False
        self.doubled = False
        self.inexact: str | None = None
        self._marking = marking
        reader = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._integer,
            parse_float=self._float,
            parse_constant=self._constant,
        )
        self.value: Json = reader.decode(text)

    def _object(self, pairs: list[tuple[str, Json]]) -> JsonObject:
        members = dict(pairs)
        if len(members) != len(pairs):
            self.doubled = True
            if self._marking:
                repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
                members[_TWICE + repeated] = None
        return members

    def _integer(self, literal: str) -> int | float:
        if len(literal) <= _INTEGER_DIGITS and literal != "-0":
            value = int(literal)
            if -(2**63) <= value < 2**64:
                return value
        self.rewritten = True
        return self._float(literal)

    def _float(self, literal: str) -> float:
        value = float(literal)
        if value in (float("inf"), float("-inf")):
            refuse(
                AgentProtocolErrorCode.INVALID_SPEC, "The text holds a number too large for a double; write it as text."
            )
        if abs(value) > LARGEST_EXACT and Decimal(literal) != Decimal(value):
            self.inexact = literal
        return value

    def _constant(self, literal: str) -> float:
        refuse(AgentProtocolErrorCode.INVALID_SPEC, f"The text holds {literal}, which is not JSON; use null or text.")


def parse_json(text: str | bytes) -> Json:
    """Read a JSON document of the dialect of `spec/wire.md` §1; of a key given twice the last value counts.

    Raises:
        ProtocolError: invalid_spec; the text is not JSON, or a number, string or depth is out of the dialect.
    """
    return _read(_decoded(text), marking=False).value


def parse_exact_json(text: str | bytes) -> Json:
    """As `parse_json`, for values that somebody acts on: a large number is what the text says, or refused (F040).

    Raises:
        ProtocolError: invalid_spec; as `parse_json`, or a number beyond 2^53 that no integer of 64 bits and no double
            holds exactly.
    """
    reading = _read(_decoded(text), marking=False)
    if reading.inexact is not None:
        literal = reading.inexact[:_NUMBER_CHARACTERS]
        refuse(AgentProtocolErrorCode.INVALID_SPEC, f"The number {literal} cannot be kept exactly; write it as text.")
    return reading.value


def parse(kind: type[W], text: str | bytes) -> W:
    """Read a word from JSON text.

    Raises:
        ProtocolError: invalid_spec; the text is not JSON of the dialect, or not of that shape; names the first field.
        WordError: the shape is right but for a field that must be an object; the code is that of `validate`.
    """
    text = _decoded(text)
    reading = _read(text, marking=True)
    if reading.doubled:
        _shaped(kind, json.dumps(reading.value))
        reading = _read(text, marking=False)
    return _shaped(kind, json.dumps(reading.value) if reading.rewritten or reading.doubled else text)


def parse_value(kind: type[W], value: Json) -> W:
    """Read a word from a JSON value that is already in memory.

    Raises:
        ProtocolError: invalid_spec; the value is not JSON, or not of that shape; names the first field.
        WordError: as `parse`.
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as fault:
        refuse(AgentProtocolErrorCode.INVALID_SPEC, f"The value is not JSON: {fault}.")
    return parse(kind, text)


def dump(word: Word, *, digested: bool = False) -> JsonObject:
    """The JSON value of a word, in the declared order of its fields; `digested` as it stands in a digest.

    The two differ in a 32-bit number, of which a text has the fewest digits and a digest the exact double.

    Raises:
        ProtocolError: serialization; the word holds a value that was built in memory and has no JSON form.
    """
    try:
        return word.model_dump(mode="json", context=DIGESTED if digested else None)
    except (PydanticSerializationError, ValueError, RecursionError) as fault:
        refuse(AgentProtocolErrorCode.SERIALIZATION, f"{type(word).__name__} has no JSON form: {fault}.")


def to_json(word: Word) -> str:
    """The compact JSON text of a word, in the declared order of its fields.

    Raises:
        ProtocolError: serialization; the word holds a value that was built in memory and has no JSON form.
    """
    try:
        return word.model_dump_json()
    except (PydanticSerializationError, ValueError, RecursionError) as fault:
        refuse(AgentProtocolErrorCode.SERIALIZATION, f"{type(word).__name__} has no JSON form: {fault}.")


def mended_text(text: str) -> str:
    """A text with U+FFFD for each lone surrogate, and one character for each pair (divergence 15)."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def same(left: Word, right: Word) -> bool:
    """Whether two words are equal as typed values: `1`, `1.0` and `true` differ, key order does not matter (§3.4)."""
    return left == right and _same(dump(left), dump(right))


def kind_of(value: Json) -> str:
    """The kind of a JSON value with its article, for sentences."""
    if value is None:
        return "null"
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), f"of type {type(value).__name__}")


def _same(left: Json, right: Json) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and left == right


def _decoded(text: str | bytes) -> str:
    try:
        if isinstance(text, bytes):
            return text.decode()
        text.encode()
    except UnicodeError:
        refuse(AgentProtocolErrorCode.INVALID_SPEC, "The text is not UTF-8; send Unicode text without lone surrogates.")
    return text


def _read(text: str, *, marking: bool) -> _Reading:
    try:
        reading = _Reading(text, marking=marking)
    except json.JSONDecodeError as fault:
        refuse(AgentProtocolErrorCode.INVALID_SPEC, f"The text is not JSON: {fault}.")
    except RecursionError:
        _too_deep()
    _check_depth(reading.value)
    _check_surrogates(text, reading.value)
    return reading


def _check_surrogates(text: str, value: Json) -> None:
    if _SURROGATE_ESCAPE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            refuse(AgentProtocolErrorCode.INVALID_SPEC, "The text escapes half a surrogate pair; write the character.")


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = inner
    if any(isinstance(item, dict | list) for item in level):
        _too_deep()


def _too_deep() -> NoReturn:
    refuse(AgentProtocolErrorCode.INVALID_SPEC, f"The text nests deeper than {MAX_DEPTH} containers; make it flatter.")


def _shaped(kind: type[W], text: str) -> W:
    try:
        return kind.model_validate_json(text)
    except ValidationError as fault:
        refuse_shape(kind, fault)


def refuse_shape(kind: type[Word], fault: ValidationError) -> NoReturn:
    """Say in one sentence what pydantic found.

    Raises:
        ProtocolError: invalid_spec; the value is not of that shape; names the first field.
        WordError: as `parse`.
    """
    name, problems = kind.__name__, fault.errors(include_url=False)
    shape = next((problem for problem in problems if problem["type"] != RULE), None)
    if shape is not None:
        refuse(AgentProtocolErrorCode.INVALID_SPEC, _sentence(name, shape))
    refuse(problems[0].get("ctx", {})["code"], _sentence(name, problems[0]))


def _sentence(name: str, problem: ErrorDetails) -> str:
    """One sentence: the field, what is wrong with it, what to do; never the value, which may be secret or huge."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
    path = path.removeprefix(".")
    if _TWICE in path:
        path, remedy = path.replace(_TWICE, ""), "is given twice; give it once"
    elif problem["type"] == "missing":
        remedy = "is missing; give it"
    elif problem["type"] == "extra_forbidden":
        remedy = "is not a known key; leave it out"
    elif "ctx" in problem and "expected_tags" in problem["ctx"]:
        remedy = f"has an unknown {problem['ctx']['discriminator']}; use {problem['ctx']['expected_tags']}"
    else:
        remedy = f"is {kind_of(problem['input'])}; it {problem['msg'].removeprefix('Input ')}"
    return f"{name}: `{path[:_PATH_CHARACTERS]}` {remedy}." if path else f"{name} {remedy}."
