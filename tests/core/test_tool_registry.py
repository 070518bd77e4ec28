"""Which tools may be registered together (`spec/tools.md` §2, §19)."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestral_temporal.core.tool_registry import check_tools
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    EffectScope,
    ModelToolSchema,
    ToolConcurrency,
    ToolDescriptor,
    ToolIdempotency,
    ToolPolicyBounds,
    ToolRestriction,
)
from orchestral_temporal.protocol.words import JsonObject

CASES = Path(__file__).parents[1] / "cases"


def tool(
    name: str = "echo",
    tool_id: str = "test/echo",
    schema: JsonObject | None = None,
    output: JsonObject | None = None,
    effects: tuple[EffectScope, ...] = (),
) -> ToolDescriptor:
    """A descriptor that is sound but for what a test gives it."""
    return ToolDescriptor(
        tool_id=tool_id,
        model_schema=ModelToolSchema(name=name, description="Echo.", input_schema=schema or {}),
        output_schema=output or {},
        effect_scopes=effects,
        restriction=ToolRestriction(bounds=ToolPolicyBounds(approval=ApprovalPolicy.NOT_REQUIRED)),
        idempotency=ToolIdempotency.PURE,
        concurrency=ToolConcurrency.PARALLEL_SAFE,
    )


def test_tools_with_their_own_names_and_ids_stand_together() -> None:
    """Different names and ids are all it takes."""
    check_tools([tool(), tool("other", "test/other", {"type": ["object", "null"]}, {"type": "string"})])


@pytest.mark.parametrize(
    ("tools", "sentence"),
    [
        (
            [tool(), tool(tool_id="test/other")],
            "Tool 'echo' (test/other) cannot be registered. Its name or id is taken",
        ),
        ([tool(), tool("other")], "Tool 'other' (test/echo) cannot be registered. Its name or id is taken"),
        ([tool("skill_read")], "The name belongs to the host"),
        ([tool(" ")], "name"),
        ([tool(effects=(EffectScope.PROCESS,))], "`effect_scopes` goes beyond"),
        ([tool(schema={"$ref": "#"})], "The input schema is refused: The schema refers to itself"),
        ([tool(output={"type": "objet"})], "The output schema is refused: This is no JSON Schema"),
        ([tool(schema={"type": "null"})], "Arguments are an object, which the input schema never allows"),
        ([tool(schema={"type": ["null", "array"]})], "Arguments are an object, which the input schema never allows"),
    ],
)
def test_a_tool_that_cannot_stand_is_refused_by_name(tools: list[ToolDescriptor], sentence: str) -> None:
    """A refused registration names the tool and the rule (F052)."""
    with pytest.raises(WordError) as refused:
        check_tools(tools)
    assert refused.value.code == "invalid_descriptor"
    assert refused.value.message.startswith(f"Tool {tools[-1].model_schema.name!r}")
    assert sentence in refused.value.message


def test_the_schemas_of_f050_are_taken_or_refused_by_name() -> None:
    """Schemas for a tool without arguments are taken unchanged; the forms of null are refused (F050)."""
    *accepted, null_type, null = json.loads((CASES / "F050.json").read_text())["schemas"]
    for schema in accepted:
        check_tools([tool(schema=schema)])
    with pytest.raises(WordError, match="'echo'"):
        check_tools([tool(schema=null_type)])
    with pytest.raises(ValidationError):
        ModelToolSchema(name="echo", description="Echo.", input_schema=null)
