"""Python functions as tools: schema from the type hints, work off the worker's event loop, one JSON form per type."""

from orchestral_temporal.adapters.tools.functions.tool import FunctionTool, function_tool, load_function

__all__ = ["FunctionTool", "function_tool", "load_function"]
