"""A tool under a policy's word on whether a person must allow its calls."""

from collections.abc import Mapping
from typing import Final

from orchestral_temporal.api import APPROVALS, Approval
from orchestral_temporal.ports import Tool, ToolCall
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.tools import ToolDescriptor


class GovernedTool:
    """A tool that declares the policy's approval instead of its own."""

    def __init__(self, tool: Tool, descriptor: ToolDescriptor) -> None:
        self._tool = tool
        self.descriptor: Final = descriptor
        self.view_contract: Final = tool.view_contract

    async def invoke(self, arguments: JsonObject, call: ToolCall) -> Json:
        """Let the tool do its work; what it raises is its own."""
        return await self._tool.invoke(arguments, call)

    def view(self, arguments: JsonObject, output: Json) -> Json:
        """The tool's view."""
        return self._tool.view(arguments, output)


def governed(tool: Tool, rules: Mapping[str, Approval]) -> Tool:
    """The tool under the rule for the name that the model sees; without one, the tool as it is."""
    given = tool.descriptor
    rule = rules.get(given.model_schema.name)
    if rule is None:
        return tool
    bounds = given.restriction.bounds.model_copy(update={"approval": APPROVALS[rule]})
    restriction = given.restriction.model_copy(update={"bounds": bounds})
    return GovernedTool(tool, given.model_copy(update={"restriction": restriction}))
