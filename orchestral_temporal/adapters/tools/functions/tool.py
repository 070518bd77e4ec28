"""A Python function as a `Tool`."""

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Final, NoReturn

from orchestral_temporal.adapters.tools.functions.calling import UserFunction
from orchestral_temporal.adapters.tools.functions.results import to_json
from orchestral_temporal.adapters.tools.functions.signature import Signature, read_signature
from orchestral_temporal.ports import CannotTell, DidNotHappen, Happened, Reconciled, ToolCall
from orchestral_temporal.protocol.errors import refuse
from orchestral_temporal.protocol.functions import OPTIONS_ATTRIBUTE, RECONCILE_ATTRIBUTE, FunctionOptions
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

    def __init__(self, function: UserFunction, descriptor: ToolDescriptor) -> None:
        self._function = function
        self.descriptor: Final = descriptor
        self.view_contract: Final = IDENTITY_VIEW

    async def invoke(self, arguments: JsonObject, call: ToolCall) -> Json:
        """Call the function; what it returns becomes JSON (see `results`).

        Raises:
            ToolRejected: input_schema_violation; an argument is none of its type.
            ToolFailed: output_serialization_failed, a part of the result has no JSON form; or the function's own.
            NotStarted: at the last look nobody wanted the call any more.
            Exception: what the function raises.
        """
        return await self._function.call(arguments, call, to_json)

    def view(self, arguments: JsonObject, output: Json) -> Json:  # noqa: ARG002 -- the port's signature
        """The output itself."""
        return output


class ReconcilingFunctionTool(FunctionTool):
    """A function that is a tool, and one to ask what became of a lost attempt."""

    def __init__(self, function: UserFunction, asked: UserFunction, descriptor: ToolDescriptor) -> None:
        super().__init__(function, descriptor)
        self._asked = asked

    async def reconcile(self, arguments: JsonObject, call: ToolCall) -> Reconciled:
        """Ask the function that `api.tool` was given as `reconcile`.

        Raises:
            TypeError: it says something else than the port knows.
            Exception: as `invoke`.
        """
        return await self._asked.call(arguments, call, _reconciled)


def _reconciled(returned: object) -> Reconciled:
    match returned:
        case Happened(output):
            return Happened(to_json(output))
        case DidNotHappen() | CannotTell():
            return returned
        case _:
            kind = type(returned).__name__
            raise TypeError(f"It returned {kind}; return Happened(output), DidNotHappen() or CannotTell().")


def function_tool(function: Callable[..., object]) -> FunctionTool:
    """Make a tool of a function; without `api.tool` it is `non_idempotent` and needs no approval.

    Its id is `python/<module>/<qualified name>/v1`, whatever name a model sees.

    Raises:
        WordError: invalid_descriptor; the sentence names the function and what to change.
    """
    user = _user_function(function)
    options = getattr(function, OPTIONS_ATTRIBUTE, None) or FunctionOptions()
    descriptor = _descriptor(function, user.signature, options)
    reconcile = getattr(function, RECONCILE_ATTRIBUTE, None)
    if reconcile is None:
        return FunctionTool(user, descriptor)
    asked = _user_function(reconcile, asks=True)
    if asked.signature.names != user.signature.names:
        _refuse(f"{reconcile.__qualname__} does not take the parameters of {function.__qualname__}; give it the same.")
    return ReconcilingFunctionTool(user, asked, descriptor)


def _user_function(function: Callable[..., object], *, asks: bool = False) -> UserFunction:
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        _refuse(f"{function!r} is not a Python function; give a function or a method.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _refuse(f"{function.__qualname__} is no tool: it yields; return one value.")
    return UserFunction(function, read_signature(function), asks)


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
