"""JSON Schema 2020-12 as a decision: compile once, then say where a value first breaks it (divergence 13).

`jsonschema` knows the dialect; this module keeps it inside bounds that the dialect does not have. Nothing is ever
fetched, so a `$ref` ends inside the document; a reference loop that consumes no part of the value is refused when the
schema is compiled; a value is judged up to a depth, a number of parts and a number of followed references. Formats are
annotations. `$schema` is a label: every schema is judged as 2020-12.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeVar, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY, Schema, SchemaResource

from orchestral_temporal.core.schema_fault import STEP_CHARACTERS, SchemaFault, describe, quoted
from orchestral_temporal.core.schema_keywords import Judge, Judgement, TooCostlyError, judge_of, under_way
from orchestral_temporal.protocol.words import Json, JsonObject

VALUE_DEPTH: Final = 100
"""Containers inside one another in a judged value: below the wire's 127 a document, so that records can wrap it."""

VALUE_PARTS: Final = 50_000
"""Objects, arrays and scalars of a judged value: at 4 to 15 µs each it is judged in well under a second (F046)."""

REFERENCES_FOLLOWED: Final = 50_000
"""`$ref` steps for one value: as many as it may have parts. What is dearer ends here, after seconds at worst."""

SCHEMAS_KEPT: Final = 256
"""Compiled schemas in memory: two for each tool of a large deployment, some 10 KB each."""

_OLDER_LIMITS: Final = ("dependencies", "$recursiveRef")
"""Keywords of older drafts that 2020-12 would ignore; a limit that is silently ignored is a hole: refused."""

Found = TypeVar("Found")


class InvalidSchemaError(Exception):
    """A schema cannot be used; one sentence says where and why."""


@dataclass(frozen=True)
class CompiledSchema:
    """A schema that is known to be sound; `compile_schema` makes it."""

    _judge: Judge
    _dynamic: bool

    def check(self, value: Json) -> SchemaFault | None:
        """Where and how `value` first breaks the schema, or None if it fits."""
        too_large = beyond_bounds(value)
        if too_large is not None:
            return too_large
        before = under_way.set(Judgement(REFERENCES_FOLLOWED, dynamic=self._dynamic))
        try:
            error = next(self._judge.iter_errors(value), None)
        except (TooCostlyError, RecursionError, OverflowError):
            # A schema may put any number of stack frames on each level of a value: Python's own bound is the last one.
            return SchemaFault(
                "$", "is too deep for the schema, or has a number beyond any double; send something simpler"
            )
        finally:
            under_way.reset(before)
        return None if error is None else describe(error)


def compile_schema(schema: Json) -> CompiledSchema:
    """Compile a schema; the same text is compiled once.

    Raises:
        InvalidSchemaError: it is no object, no valid 2020-12 schema, refers outside itself, or loops.
    """
    if not isinstance(schema, dict):
        raise InvalidSchemaError("A schema must be a JSON object; write {} for one that allows anything.")
    fault = beyond_bounds(schema)
    if fault is not None:
        raise InvalidSchemaError(f"The schema at {fault}.")
    # The text is the key: it cannot change later, and the compiler owns what it reads from it.
    return _compiled(json.dumps(schema))


@lru_cache(maxsize=SCHEMAS_KEPT)
def _compiled(text: str) -> CompiledSchema:
    schema = cast("JsonObject", json.loads(text))
    try:
        Draft202012Validator.check_schema(schema)
        _refuse_loops(_applications(schema))
    except SchemaError as error:
        raise InvalidSchemaError(f"This is no JSON Schema 2020-12: {describe(error)}.") from None
    except ValueError:
        raise InvalidSchemaError("The schema has an `$id` that is no URI reference; leave it out.") from None
    except RecursionError:
        raise InvalidSchemaError("The schema nests too deep; name its inner parts under `$defs`.") from None
    return CompiledSchema(judge_of(schema), _dynamic="$dynamicRef" in text)


def _applications(schema: JsonObject) -> dict[int, list[int]]:
    """For each sub-schema, by identity, the sub-schemas that it applies to the very same value.

    Raises:
        SchemaError: a reference points at something that is no valid schema.
        InvalidSchemaError: a reference leads outside the document, or a keyword of an older draft is used.
        ValueError: an `$id` is no URI reference.
    """
    start: Json = schema
    pending = [(start, EMPTY_REGISTRY.resolver_with_root(_resource(schema)), False)]
    applied: dict[int, list[int]] = {}
    while pending:
        node, resolver, referred = pending.pop()
        if id(node) in applied:
            continue
        if referred:
            # `check_schema` looks only where the dialect expects schemas; a pointer may lead anywhere.
            Draft202012Validator.check_schema(cast("Schema", node))
        if not isinstance(node, dict):
            continue
        _refuse_older_limits(node)
        # `jsonschema` would change the dialect in the middle of a document, and lose our keywords with it.
        node.pop("$schema", None)
        found = [_inside(resolver.lookup, reference) for reference in _references(node)]
        targets = [(cast("Json", each.contents), each.resolver, True) for each in found]
        children = cast("Iterable[Json]", DRAFT202012.subresources_of(cast("Schema", node)))
        applied[id(node)] = [id(each) for each in (*_in_place(node), *(target for target, _, _ in targets))]
        pending += targets
        pending += [(child, resolver.in_subresource(_resource(child)), False) for child in children]
    return applied


def _resource(schema: Json) -> SchemaResource:
    return DRAFT202012.create_resource(cast("Schema", schema))


def _refuse_older_limits(node: JsonObject) -> None:
    for keyword in _OLDER_LIMITS:
        if keyword in node:
            raise InvalidSchemaError(f"`{keyword}` has no meaning in JSON Schema 2020-12; use its successor.")


def _references(node: JsonObject) -> Iterator[str]:
    for keyword in ("$ref", "$dynamicRef"):
        reference = node.get(keyword)
        if isinstance(reference, str):
            yield reference


def _inside(lookup: Callable[[str], Found], reference: str) -> Found:
    try:
        return lookup(reference)
    except (Unresolvable, ValueError, TypeError):
        # The plain errors are pointers that pass through a number or a text, or through a list by name.
        shown = quoted(reference, STEP_CHARACTERS)
        raise InvalidSchemaError(
            f"`$ref` {shown} points outside the schema; nothing is fetched, so bring it in."
        ) from None


def _in_place(node: JsonObject) -> Iterator[Json]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from cast("list[Json]", node.get(keyword, []))
    for keyword in ("not", "if", "then", "else"):
        if keyword in node:
            yield node[keyword]
    yield from cast("JsonObject", node.get("dependentSchemas", {})).values()


def _refuse_loops(applied: dict[int, list[int]]) -> None:
    try:
        TopologicalSorter(applied).prepare()
    except CycleError:
        raise InvalidSchemaError(
            "The schema refers to itself without going through a property or an item; no value could satisfy it."
        ) from None


def beyond_bounds(value: Json) -> SchemaFault | None:
    """Why a value is too deep or large to be judged; looked at level by level, so that no depth exhausts the stack."""
    level: list[Json] = [value]
    parts = 1
    for _ in range(VALUE_DEPTH + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return None
        parts += sum(map(len, containers))
        if parts > VALUE_PARTS:
            return SchemaFault("$", f"has more than {VALUE_PARTS} parts; send a smaller value")
        level = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
    return SchemaFault("$", f"nests deeper than {VALUE_DEPTH} containers; send a flatter value")
