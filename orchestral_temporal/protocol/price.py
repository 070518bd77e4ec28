"""What a model costs (`spec/agent-loop.md` §7)."""

from typing import Final

from orchestral_temporal.protocol.base import U64, Word
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.limits import MoneyAmount
from orchestral_temporal.protocol.validation import validate

_PER_TOKENS: Final = 1_000_000
_MOST: Final = 2**64 - 1


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
    return MoneyAmount(currency=policy.currency, microunits=min(_MOST, -(-exact // _PER_TOKENS)))


@validate.register
def _(policy: ModelCostPolicy) -> None:
    validate(MoneyAmount(currency=policy.currency, microunits=0))
    require(
        policy.input_microunits_per_million_tokens + policy.output_microunits_per_million_tokens > 0,
        AgentProtocolErrorCode.INVALID_SPEC,
        "Both prices are 0; give one, or no price at all.",
    )
