"""A function's parameters as a JSON Schema, and a call's arguments as what the type hints promise (F110)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from orchestral_temporal.ports import ToolCall, ToolRejected
from orchestral_temporal.protocol.errors import refuse
from orchestral_temporal.protocol.tools import ToolProtocolErrorCode
from orchestral_temporal.protocol.words import JsonObject

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_SILENT: Final[set[JsonSchemaWarningKind]] = {"skipped-choice", "non-serializable-default"}

Parameter = tuple[object, FieldInfo]
"""A type hint, which may be any Python object, and what pydantic is to know besides."""


@dataclass(frozen=True)
class Signature:
    """The parameters that a model fills in, and those that take the running `ToolCall`."""

    _model: type[BaseModel]
    _names: Mapping[str, str]
    _calls: tuple[str, ...]

    def schema(self) -> JsonObject:
        """The input schema; pydantic's, with its `$defs`."""
        schema = self._model.model_json_schema(schema_generator=_PlainSchema)
        return {key: value for key, value in schema.items() if key != "title"}

    @property
    def names(self) -> frozenset[str]:
        """The names of the parameters that a model fills in."""
        return frozenset(self._names.values())

    def keywords(self, arguments: JsonObject, call: ToolCall) -> dict[str, object]:
        """The keyword arguments of a call: declared types for what was given, nothing for what was not.

        So the function's own defaults hold, and a default that is no JSON value tells "not given" from null (F047).

        Raises:
            ToolRejected: input_schema_violation; a value passes the schema but not its type, such as a 31st of June.
        """
        try:
            given = self._model.model_validate(arguments)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
            raise ToolRejected("input_schema_violation", f"The argument {path} is refused: {problem['msg']}.") from None
        keywords: dict[str, object] = dict.fromkeys(self._calls, call)
        keywords.update((self._names[field], getattr(given, field)) for field in given.model_fields_set)
        return keywords


def read_signature(function: Callable[..., object]) -> Signature:
    """Read the parameters of a function.

    Raises:
        WordError: invalid_descriptor; a parameter has no type hint, none that JSON can fill, or cannot be named.
    """
    hints = _hints(function)
    fields: dict[str, Parameter] = {}
    names: dict[str, str] = {}
    calls: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _NAMED:
            _refuse(function, f"its parameter {name!r} cannot be given by name; list the parameters one by one")
        if name not in hints:
            _refuse(function, f"its parameter {name!r} has no type hint; add one")
        if hints[name] is ToolCall:
            calls.append(name)
            continue
        # A field name of our own: pydantic has other uses for names such as `schema`, `copy` or `_id`.
        field = f"p{len(fields)}"
        names[field] = name
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[field] = (hints[name], Field(default, alias=name))
    return Signature(_model(function, fields), names, tuple(calls))


class _PlainSchema(GenerateJsonSchema):
    """Without titles made of names, which cost tokens and say nothing, and silent about defaults that are no JSON."""

    ignored_warning_kinds = _SILENT

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 -- pydantic's signature
        """Never."""
        return False


def _hints(function: Callable[..., object]) -> dict[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        _refuse(function, f"its type hints cannot be read ({error}); import what they name at module level")


def _model(function: Callable[..., object], fields: dict[str, Parameter]) -> type[BaseModel]:
    create = cast("Callable[..., type[BaseModel]]", create_model)
    try:
        model = create("arguments", __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema(schema_generator=_PlainSchema)
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        _refuse(function, f"a type hint has no JSON form ({reason}); use types that JSON can fill")
    return model


def _refuse(function: Callable[..., object], reason: str) -> NoReturn:
    refuse(ToolProtocolErrorCode.INVALID_DESCRIPTOR, f"{function.__qualname__} is no tool: {reason}.")
