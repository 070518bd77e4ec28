"""A Python function as a `Tool`."""

import importlib
import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Final, NoReturn, cast

from orchestral_temporal.adapters.tools.functions.results import to_json
from orchestral_temporal.adapters.tools.functions.running import in_thread, in_user_loop
from orchestral_temporal.adapters.tools.functions.signature import Signature, read_signature
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.errors import refuse
from orchestral_temporal.protocol.functions import OPTIONS_ATTRIBUTE, FunctionOptions
from orchestral_temporal.protocol.tools import (
    EffectScope,
    ModelToolSchema,
    ToolDescriptor,
    ToolIdempotency,
    ToolPolicyBounds,
    ToolProtocolErrorCode,
    ToolRestriction,
)
from orchestral_temporal.protocol.words import Json, JsonObject

IDENTITY_VIEW: Final = "orchestral.model-output/identity/v1"

REFERENCE: Final = "python:module:function"
"""How a configuration names a function."""


class FunctionTool:
    """A function that is a tool; `function_tool` and `load_function` make it."""

    def __init__(self, function: Callable[..., object], signature: Signature, descriptor: ToolDescriptor) -> None:
        self._function = function
        self._signature = signature
        self._asynchronous = inspect.iscoroutinefunction(function)
        self.descriptor: Final = descriptor
        self.view_contract: Final = IDENTITY_VIEW

    async def invoke(self, arguments: JsonObject, call: ToolCall) -> Json:
        """Call the function with arguments of the declared types; what it returns becomes JSON (see `results`).

        Raises:
            ToolRejected: input_schema_violation; an argument is none of its type.
            ToolFailed: output_serialization_failed, a part of the result has no JSON form; or the function's own.
            Exception: what the function raises.
        """
        # The validators of a user's types are user code as well, so the arguments are read over there.
        if self._asynchronous:
            return await in_user_loop(lambda: self._work(arguments, call))
        return await in_thread(lambda: to_json(self._function(**self._signature.keywords(arguments, call))))

    async def _work(self, arguments: JsonObject, call: ToolCall) -> Json:
        function = cast("Callable[..., Awaitable[object]]", self._function)
        return to_json(await function(**self._signature.keywords(arguments, call)))

    def view(self, arguments: JsonObject, output: Json) -> Json:  # noqa: ARG002 -- the port's signature
        """The output itself."""
        return output


def function_tool(function: Callable[..., object]) -> FunctionTool:
    """Make a tool of a function; without `api.tool` it is `non_idempotent` and needs no approval.

    Its id is `python/<module>/<qualified name>/v1`, whatever name a model sees.

    Raises:
        WordError: invalid_descriptor; the sentence names the function and what to change.
    """
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        _refuse(f"{function!r} is not a Python function; give a function or a method.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _refuse(f"{function.__qualname__} is no tool: it yields; return one value.")
    options = getattr(function, OPTIONS_ATTRIBUTE, None) or FunctionOptions()
    signature = read_signature(function)
    return FunctionTool(function, signature, _descriptor(function, signature, options))


def load_function(reference: str) -> FunctionTool:
    """Import the function that a configuration names as `python:module:function`.

    Raises:
        WordError: invalid_descriptor; the sentence names the reference and what is wrong with it.
    """
    scheme, _, rest = reference.partition(":")
    module_name, _, name = rest.partition(":")
    if scheme != "python" or not module_name or not name:
        _refuse(f"The tool {reference!r} is not written as {REFERENCE}.")
    function = getattr(_imported(reference, module_name), name, None)
    if function is None:
        _refuse(f"The tool {reference!r} names {name!r}, which {module_name!r} does not have; look at its spelling.")
    return function_tool(function)


def _imported(reference: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            _refuse(f"The tool {reference!r} names a module that is not there; is its folder on PYTHONPATH?")
        _refuse(f"The tool {reference!r} cannot be imported: {error}; install what its module needs.")
    except Exception as error:  # noqa: BLE001 -- a module may raise anything while it is imported
        _refuse(f"The tool {reference!r} cannot be imported: {type(error).__name__}: {error}.")


def _descriptor(function: Callable[..., object], signature: Signature, options: FunctionOptions) -> ToolDescriptor:
    name = options.name or function.__name__
    # What a function touches nobody knows; only of a pure one its author says that it is nothing.
    pure = options.idempotency is ToolIdempotency.PURE
    effects = () if pure else (EffectScope.EXTERNAL_SIDE_EFFECT,)
    return ToolDescriptor(
        tool_id=f"python/{function.__module__}/{function.__qualname__}/v1",
        model_schema=ModelToolSchema(
            name=name,
            description=options.description or inspect.getdoc(function) or f"The Python function {name}.",
            input_schema=signature.schema(),
        ),
        output_schema={},
        effect_scopes=effects,
        restriction=ToolRestriction(
            bounds=ToolPolicyBounds(
                allowed_effects=effects, approval=options.approval, max_timeout_ms=options.timeout_ms
            )
        ),
        idempotency=options.idempotency,
        concurrency=options.concurrency,
    )


def _refuse(sentence: str) -> NoReturn:
    refuse(ToolProtocolErrorCode.INVALID_DESCRIPTOR, sentence)
