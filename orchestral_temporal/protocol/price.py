"""What a model costs (`spec/agent-loop.md` §7)."""

from typing import Final

from orchestral_temporal.protocol.base import LARGEST_U64, U64, Word
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.limits import MoneyAmount
from orchestral_temporal.protocol.validation import validate

_PER_TOKENS: Final = 1_000_000


class ModelCostPolicy(Word):
    """Prices of a million tokens, in millionths of a unit of the currency."""

    currency: str
    input_microunits_per_million_tokens: U64
    output_microunits_per_million_tokens: U64


def quote(policy: ModelCostPolicy, input_tokens: int, output_tokens: int) -> MoneyAmount:
    """The price of so many tokens in all, rounded up; what no u64 can hold is the largest one."""
    exact = (
        input_tokens * policy.input_microunits_per_million_tokens
        + output_tokens * policy.output_microunits_per_million_tokens
    )
    return MoneyAmount(currency=policy.currency, microunits=min(LARGEST_U64, -(-exact // _PER_TOKENS)))


def output_within(policy: ModelCostPolicy, ceiling: int, input_tokens: int, output_tokens: int) -> int | None:
    """How many more output tokens keep the quote of all at or below `ceiling` microunits; null is any number.

    Below 0 when the tokens so far are above it themselves.
    """
    input_rate, output_rate = policy.input_microunits_per_million_tokens, policy.output_microunits_per_million_tokens
    left = ceiling * _PER_TOKENS - input_tokens * input_rate - output_tokens * output_rate
    if left < 0:
        return -1
    return left // output_rate if output_rate else None


@validate.register
def _(policy: ModelCostPolicy) -> None:
    validate(MoneyAmount(currency=policy.currency, microunits=0))
    require(
        policy.input_microunits_per_million_tokens + policy.output_microunits_per_million_tokens > 0,
        AgentProtocolErrorCode.INVALID_SPEC,
        "Both prices are 0; give one, or no price at all.",
    )
