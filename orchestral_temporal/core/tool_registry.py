"""Which tools may stand beside each other in one worker (`spec/tools.md` §2, §19)."""

from collections.abc import Sequence

from orchestral_temporal.core.calls import RESERVED
from orchestral_temporal.core.schema import InvalidSchemaError, compile_schema
from orchestral_temporal.protocol.errors import WordError, refuse
from orchestral_temporal.protocol.tools import ToolDescriptor, ToolProtocolErrorCode
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import JsonObject


def check_tools(descriptors: Sequence[ToolDescriptor]) -> None:
    """Refuse tools that cannot be registered together.

    Raises:
        WordError: invalid_descriptor or invalid_policy; the sentence names the first tool that is refused.
    """
    taken: set[tuple[str, str]] = set()
    for descriptor in descriptors:
        name, tool_id = descriptor.model_schema.name, descriptor.tool_id
        try:
            _check(descriptor)
            if ("name", name) in taken or ("id", tool_id) in taken:
                refuse(ToolProtocolErrorCode.INVALID_DESCRIPTOR, "Its name or id is taken; give it another.")
        except WordError as error:
            refuse(error.code, f"Tool {name!r} ({tool_id}) cannot be registered. {error.message}")
        taken |= {("name", name), ("id", tool_id)}


def _check(descriptor: ToolDescriptor) -> None:
    validate(descriptor)
    if descriptor.model_schema.name in RESERVED:
        refuse(ToolProtocolErrorCode.INVALID_DESCRIPTOR, "The name belongs to the host; give it another.")
    _check_schema("input", descriptor.model_schema.input_schema)
    _check_schema("output", descriptor.output_schema)
    kinds = descriptor.model_schema.input_schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        refuse(
            ToolProtocolErrorCode.INVALID_DESCRIPTOR, "Arguments are an object, which the input schema never allows."
        )


def _check_schema(which: str, schema: JsonObject) -> None:
    try:
        compile_schema(schema)
    except InvalidSchemaError as error:
        refuse(ToolProtocolErrorCode.INVALID_DESCRIPTOR, f"The {which} schema is refused: {error}")
