"""JSON Schema 2020-12 inside our bounds (`core/schema*`; F046, F047, F049, F050, F052, F053, divergence 13)."""

import inspect
import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.core.schema import (
    REFERENCES_FOLLOWED,
    VALUE_DEPTH,
    VALUE_PARTS,
    InvalidSchemaError,
    compile_schema,
)
from orchestral_temporal.protocol.words import Json, JsonObject

CASES = Path(__file__).parents[1] / "cases"


def case(name: str) -> dict:
    """The input file of a given case."""
    return json.loads((CASES / f"{name}.json").read_text())


def fault(schema: JsonObject, value: Json) -> str:
    """The sentence of the first fault, or nothing."""
    found = compile_schema(schema).check(value)
    return "" if found is None else str(found)


def nested(depth: int) -> Json:
    """Arrays inside one another."""
    value: Json = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_the_schemas_of_f052_are_refused_unless_recursion_consumes_something() -> None:
    """Loops and references that leave the document are refused at registration, nothing is fetched (F052)."""
    for each in case("F052")["cases"]:
        if each["expect"].startswith("accepted"):
            schema = compile_schema(each["schema"])
            assert schema.check({"v": 1, "next": {"v": 2, "next": None}}) is None
            assert str(schema.check({"v": 1, "next": {"v": "x"}})) == "$.next.v must be integer, not string"
        else:
            with pytest.raises(InvalidSchemaError, match=r"points outside|refers to itself"):
                compile_schema(each["schema"])


def test_the_arguments_of_f047_run_or_are_rejected_at_their_path() -> None:
    """Required, optional and nullable fields are told apart and nothing is coerced (F047)."""
    given_case = case("F047")
    for each in given_case["cases"]:
        found = fault(given_case["schema"], each["arguments"])
        where = {"/limit": "$.limit must be", "/q": "$.q must be", "q missing": 'lacks the required property "q"'}
        wanted = next((text for key, text in where.items() if each["expect"].startswith(f"rejected at {key}")), "")
        if "q missing" in each["expect"]:
            wanted = where["q missing"]
        if "unknown property" in each["expect"]:
            wanted = "$.extra is not a property"
        assert (wanted in found) if wanted else (found == ""), each


def test_the_calls_of_f049_are_judged_through_a_recursive_definition() -> None:
    """The fault deep in a recursive schema is named by its path (F049)."""
    found = [fault(case("F049")["schema"], each["arguments"]) for each in case("F049")["calls"]]
    assert found == [
        "",
        '$.root.children[0].children[0] lacks the required property "name"',
        "$.mode must fit exactly one of the forms that the schema offers",
    ]


def test_the_arguments_of_f053_pass_as_far_as_additional_properties_allow() -> None:
    """A schema, true, {} or nothing lets extra keys in, false refuses them (F053)."""
    for each in case("F053")["cases"]:
        labels: JsonObject = {"type": "object"}
        if each["additionalProperties"] != "absent":
            labels["additionalProperties"] = each["additionalProperties"]
        found = fault({"properties": {"labels": labels}}, each["arguments"])
        assert (found == "") == each["expect"].startswith("runs"), each
        assert not found or found.startswith(("$.labels.env ", "$.labels.any "))


def test_values_of_f046_are_judged_at_once() -> None:
    """Depth 5,000 and 200,000 keys are refused with the reason, in less than a second (F046)."""
    deep: Json = {"a": nested(5_000)}
    wide: Json = {f"k{i}": 1 for i in range(200_000)}
    schema = compile_schema({"type": "object", "additionalProperties": True})
    started = time.perf_counter()
    assert str(schema.check(deep)) == f"$ nests deeper than {VALUE_DEPTH} containers; send a flatter value"
    assert str(schema.check(wide)) == f"$ has more than {VALUE_PARTS} parts; send a smaller value"
    assert time.perf_counter() - started < 1


def test_values_at_the_bounds_are_judged() -> None:
    """The last depth and the last part inside the bounds are judged, the next is refused."""
    assert fault({}, nested(VALUE_DEPTH)) == ""
    assert fault({}, nested(VALUE_DEPTH + 1)) != ""
    assert fault({}, [0] * (VALUE_PARTS - 1)) == ""
    assert fault({}, [0] * VALUE_PARTS) != ""


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (None, "must be a JSON object"),
        ({"type": "objet"}, "$.type fits none"),
        ({"pattern": "("}, '$.pattern is not a valid "regex"'),
        ({"properties": {"a": {"minimum": "1"}}}, "$.properties.a.minimum must be number, not string"),
        ({"dependencies": {}}, "`dependencies` has no meaning"),
        ({"properties": {"a": {"$recursiveRef": "#"}}}, "`$recursiveRef` has no meaning"),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "points outside"),
        ({"$ref": "#/minimum/x", "minimum": 1}, "points outside"),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, "points outside"),
        ({"$ref": "#/properties", "properties": {"type": {"type": "string"}}}, "$.type fits none"),
        ({"$ref": "#/minimum", "minimum": 1}, "must be object or boolean, not integer"),
        ({"$id": "http://[", "$defs": {"a": {"$id": "x"}}}, "`$id` that is no URI reference"),
        ({"not": {"$ref": "#"}}, "refers to itself"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "refers to itself"),
        ({"a": nested(VALUE_DEPTH)}, "nests deeper"),
    ],
)
def test_a_schema_that_cannot_be_compiled_is_refused_in_one_sentence(schema: Json, sentence: str) -> None:
    """What cannot be compiled is refused where the tool is registered, and the sentence says why (divergence 13)."""
    with pytest.raises(InvalidSchemaError) as refused:
        compile_schema(schema)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "value", "sentence"),
    [
        ({"type": "integer"}, 1.0, ""),
        ({"type": ["integer", "null"]}, "1", "$ must be integer or null, not string"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, True, "$ must be integer or null, not boolean"),
        ({"oneOf": [{"type": "array"}, {"type": "null"}]}, {}, "$ must be array or null, not object"),
        ({"anyOf": [{"minimum": 3}, {"type": "null"}]}, 2, "$ fits none of the forms that the schema offers"),
        ({"anyOf": [{"type": "null"}, {"items": {"maximum": 1}}]}, [0, 2], "$[1] must be at most 1"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "$ must fit exactly one of the forms that the schema offers"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 5}]}, 3, ""),
        ({"enum": ["a", None]}, 1, '$ must be one of ["a", null]'),
        ({"const": {"a": 1}}, {"a": True}, '$ must be {"a": 1}'),
        ({"exclusiveMinimum": 0}, 0, "$ must be greater than 0"),
        ({"pattern": "^a"}, "b", '$ must match the pattern "^a"'),
        ({"format": "date"}, "no date", ""),
        ({"properties": {"a": False}}, {"a": 1}, "$ holds a value where the schema allows none"),
        ({"not": {"type": "null"}}, None, "$ has a form that the schema forbids"),
        ({"if": {"type": "integer"}, "then": {"minimum": 1}, "else": False}, 0, "$ must be at least 1"),
        ({"contains": {"type": "null"}}, [1], "$ breaks `contains` of the schema"),
        ({"contains": {"type": "null"}, "minContains": 2}, [None], "$ must hold at least 2 items of the kind"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "$ breaks `dependentRequired` of the schema"),
        ({"unevaluatedProperties": False}, {"a": 1}, "$ has a property that the schema does not allow"),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, '$ has the property name "abc", which must have at most 2'),
        ({"propertyNames": {"maxLength": 2}}, {"ab": 1}, ""),
        ({"propertyNames": {"maxLength": 2}}, "abc", ""),
        ({"additionalProperties": False}, [], ""),
        ({"patternProperties": {"^x": {}}, "additionalProperties": {"type": "null"}}, {"x1": 1, "b": None}, ""),
        ({"additionalProperties": {"type": "null"}}, {"a b": 1}, '$["a b"] must be null, not integer'),
        ({"uniqueItems": True}, [1, 1.0], "$ must not hold the same item twice"),
        ({"uniqueItems": True}, [{"a": [1]}, {"a": [1]}], "$ must not hold the same item twice"),
        ({"uniqueItems": True}, [1, True, "1", [1], {"1": 1}, None, 2**53, 2**53 + 1], ""),
        ({"uniqueItems": False}, [1, 1], ""),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "null"}, 1, "$ must be null, not integer"),
        ({"multipleOf": 0.1}, 10**400, "$ is too deep for the schema, or has a number beyond any double"),
        ({"properties": {"k" * 500: {"type": "null"}}}, {"k" * 500: 1}, "$." + "k" * 60 + " must be null"),
    ],
)
def test_the_first_fault_is_one_sentence(schema: JsonObject, value: Json, sentence: str) -> None:
    """The first fault is a `$`-rooted path and what should be there, or nothing when the value fits."""
    found = fault(schema, value)
    assert found.startswith(sentence) if sentence else found == ""


def test_a_fault_never_dumps_the_value_or_a_huge_limit() -> None:
    """A huge value or limit leaves a short sentence."""
    huge = ["x" * 1_000] * 40
    assert len(fault({"enum": huge}, huge)) < 300
    assert len(fault({"type": "null"}, huge)) < 100
    path: Json = 1
    schema: JsonObject = {"type": "null"}
    for _ in range(20):
        path, schema = {"k" * 60: path}, {"additionalProperties": schema}
    assert len(fault(schema, path)) < 400


def test_a_recursive_union_is_judged_without_repeating_itself() -> None:
    """Alternatives that share their parts cost their sum, not their product at each level (F046)."""
    forms: list[Json] = [
        {
            "properties": {"left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}, "kind": {"const": kind}},
            "required": ["kind"],
        }
        for kind in "abcdefgh"
    ]
    good: Json = {"kind": "h"}
    bad: Json = {"kind": "z"}
    for _ in range(8):
        good = {"left": good, "right": good, "kind": "h"}
        bad = {"left": bad, "right": bad, "kind": "h"}
    schema: JsonObject = {"$defs": {"e": {"oneOf": forms}}, "$ref": "#/$defs/e"}
    started = time.perf_counter()
    assert fault(schema, good) == ""
    assert fault(schema, bad).startswith("$.left.left.left")
    assert time.perf_counter() - started < 1


def test_a_judgement_that_follows_too_many_references_ends() -> None:
    """A value that takes more steps than any good use has is refused, not judged for ever."""
    schema: JsonObject = {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": True}}
    assert "too deep for the schema" in fault(schema, [str(i) for i in range(REFERENCES_FOLLOWED // 2 + 1)])


def test_a_chain_of_references_deeper_than_the_stack_is_a_fault() -> None:
    """A schema that would exhaust Python's stack gives a fault, never a RecursionError."""
    chain: JsonObject = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(900)}
    chain["d900"] = {}
    assert "too deep for the schema" in fault({"$defs": chain, "$ref": "#/$defs/d0"}, 1)


def test_compiling_near_the_end_of_the_stack_is_a_refusal() -> None:
    """A schema compiled with no stack left is refused with a typed error."""

    def with_stack(left: int) -> None:
        if left:
            with_stack(left - 1)
        else:
            compile_schema({"title": "near the end of the stack", "properties": {"a": {"items": {"type": "null"}}}})

    used = len(inspect.stack(context=0))
    with pytest.raises(InvalidSchemaError, match="nests too deep"):
        with_stack(sys.getrecursionlimit() - used - 40)


def test_a_dynamic_reference_resolves_by_its_way() -> None:
    """`$dynamicRef` is judged each time anew, since its target depends on the way that led there."""
    schema: JsonObject = {
        "$id": "https://example.test/list-of-text",
        "$defs": {
            "item": {"$dynamicAnchor": "item", "type": "string"},
            "list": {
                "$id": "list",
                "type": "array",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"item": {"$dynamicAnchor": "item"}},
            },
        },
        "$ref": "list",
    }
    assert fault(schema, ["a", "a"]) == ""
    assert fault(schema, ["a", 1]) == "$[1] must be string, not integer"


def test_a_compiled_schema_is_reused_and_keeps_its_meaning() -> None:
    """The same text compiles once, and changing the dict afterwards changes nothing."""
    schema: JsonObject = {"type": "object", "properties": {"a": {"type": "null"}}}
    compiled = compile_schema(schema)
    assert compile_schema(json.loads(json.dumps(schema))) is compiled
    schema["properties"] = {}
    assert str(compiled.check({"a": 1})) == "$.a must be null, not integer"
    assert compile_schema(schema).check({"a": 1}) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)  # a loaded machine is no failure
@given(st.lists(json_values, max_size=5))
def test_unique_items_means_no_two_equal_ones(items: list[Json]) -> None:
    """`uniqueItems` finds exactly the pairs that `const` calls equal."""
    doubled = any(
        compile_schema({"const": left}).check(right) is None
        for at, left in enumerate(items)
        for right in items[at + 1 :]
    )
    assert (fault({"uniqueItems": True}, items) != "") == doubled
