"""How often and how soon a model attempt is repeated (`spec/agent-loop.md` §4)."""

from typing import Annotated, Final

from pydantic import Field

from orchestral_temporal.protocol.base import U32, U64, Word
from orchestral_temporal.protocol.errors import require
from orchestral_temporal.protocol.model import ModelError, ModelErrorCode
from orchestral_temporal.protocol.validation import validate

_LONGEST_DELAY_MS: Final = 60_000
_TRANSIENT: Final = (ModelErrorCode.RATE_LIMITED, ModelErrorCode.UNAVAILABLE)


class ModelRetryPolicy(Word):
    """Retries inside one round; delays in milliseconds, doubled from the base up to the maximum."""

    max_retries: U32 = 3
    base_delay_ms: U64 = 500
    max_delay_ms: U64 = 8_000


class ContextRecoveryPolicy(Word):
    """What to do when a backend finds the context too long; null output tokens: never cut the output."""

    max_retries: U32 = 1
    minimum_output_tokens: Annotated[U64, Field(ge=1)] | None = 1_024


def is_transient(error: ModelError) -> bool:
    """Whether an error may go away by itself."""
    return error.retryable and error.code in _TRANSIENT


def retry_delay_ms(policy: ModelRetryPolicy, error: ModelError, retry: int) -> int | None:
    """Milliseconds before retry number `retry` (from 1); null when there is none."""
    if not is_transient(error) or not 1 <= retry <= policy.max_retries:
        return None
    return min(policy.max_delay_ms, policy.base_delay_ms << (retry - 1))


@validate.register
def _(policy: ModelRetryPolicy) -> None:
    require(
        0 < policy.base_delay_ms <= policy.max_delay_ms <= _LONGEST_DELAY_MS,
        ModelErrorCode.INVALID_REQUEST,
        f"`base_delay_ms` and `max_delay_ms` must rise from 1 to at most {_LONGEST_DELAY_MS}.",
    )
