"""Limits of a run and what it used (`spec/wire.md` §7.1, §11.1)."""

import re
from enum import StrEnum
from typing import Final, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator

from orchestral_temporal.protocol.base import I64, U64, Word
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.validation import require_positive, validate
from orchestral_temporal.protocol.words import refuse_shape

_CURRENCY: Final = re.compile("[A-Z]{3}")


class RunLimitKind(StrEnum):
    """The six dimensions of a budget; the order of declaration is the order on the wire."""

    DEADLINE = "deadline"
    MODEL_STEPS = "model_steps"
    TOOL_CALLS = "tool_calls"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    COST = "cost"


class MoneyAmount(Word):
    """Money in millionths of a unit of an ISO currency."""

    currency: str
    microunits: U64

    def __str__(self) -> str:
        """As people write it: `0.003150 USD`."""
        return f"{self.microunits // 10**6}.{self.microunits % 10**6:06} {self.currency}"


class RunLimits(Word):
    """A run's budget; null is unlimited, `deadline_unix_ms` is milliseconds since the epoch."""

    deadline_unix_ms: I64 | None = None
    max_model_steps: U64 | None = None
    max_tool_calls: U64 | None = None
    max_input_tokens: U64 | None = None
    max_output_tokens: U64 | None = None
    max_cost: MoneyAmount | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _said_in_a_sentence(cls, given: object, read: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """People make limits in Python: what is wrong there is refused as in JSON, by the field's name."""
        try:
            return read(given)
        except ValidationError as fault:
            if info.mode == "json":  # the door says where it stands in the whole text
                raise
            refuse_shape(cls, fault)


class UsageReport(Word):
    """What a run used; null is unknown."""

    input_tokens: U64 | None = None
    output_tokens: U64 | None = None
    tool_calls: U64 | None = None
    cost: MoneyAmount | None = None


def requested_kinds(limits: RunLimits) -> tuple[RunLimitKind, ...]:
    """The dimensions that a run binds, in declared order."""
    values = (
        limits.deadline_unix_ms,
        limits.max_model_steps,
        limits.max_tool_calls,
        limits.max_input_tokens,
        limits.max_output_tokens,
        limits.max_cost,
    )
    return tuple(kind for kind, value in zip(RunLimitKind, values, strict=True) if value is not None)


@validate.register
def _(money: MoneyAmount) -> None:
    require(
        _CURRENCY.fullmatch(money.currency) is not None,
        AgentProtocolErrorCode.INVALID_SPEC,
        "`currency` is no ISO code; give three capital letters, such as USD.",
    )


@validate.register
def _(limits: RunLimits) -> None:
    require_positive(
        AgentProtocolErrorCode.INVALID_SPEC,
        max_model_steps=limits.max_model_steps,
        max_tool_calls=limits.max_tool_calls,
        max_input_tokens=limits.max_input_tokens,
        max_output_tokens=limits.max_output_tokens,
    )
    require(
        limits.deadline_unix_ms is None or limits.deadline_unix_ms > 0,
        AgentProtocolErrorCode.INVALID_SPEC,
        "`deadline_unix_ms` is not positive; give milliseconds since 1970, or null for no limit.",
    )
    if limits.max_cost is not None:
        validate(limits.max_cost)
