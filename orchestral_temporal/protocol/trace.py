"""How a model input was made: its records, its size, the estimate behind it (`spec/wal-recovery.md` §2)."""

from itertools import pairwise

from pydantic import Field

from orchestral_temporal.protocol.base import U64, Word
from orchestral_temporal.protocol.errors import JournalErrorCode, require
from orchestral_temporal.protocol.ids import Digest, RunId
from orchestral_temporal.protocol.model import ModelContextEstimate, ModelTokenAccounting
from orchestral_temporal.protocol.session import SessionSourceRange
from orchestral_temporal.protocol.validation import require_positive, require_sha256, require_text, validate

_INVALID = JournalErrorCode.INVALID_DATA


class ContextSignature(Word):
    """A model input by length and digests."""

    messages_len: U64
    messages_digest: Digest
    tools_digest: Digest
    raw_estimate_tokens: U64


class ContextAnchor(Word):
    """An input whose real size a backend has reported."""

    run_id: RunId
    config_digest: Digest
    source_request_id: str
    input: ContextSignature
    observed_input_tokens: U64


class ContextPlanning(Word):
    """How the size of an input was estimated."""

    input: ContextSignature
    anchor: ContextAnchor | None = Field(default=None, exclude_if=lambda anchor: anchor is None)


class GenericModelContextTrace(Word):
    """Which records a model input was made of, and its tokens against the budget."""

    through_session_seq: U64
    included_ranges: tuple[SessionSourceRange, ...]
    deferred_ranges: tuple[SessionSourceRange, ...]
    config_digest: Digest
    history_limit: U64
    used_input_tokens: U64
    context_estimate: ModelContextEstimate | None = Field(default=None, exclude_if=lambda estimate: estimate is None)
    planning: ContextPlanning | None = Field(default=None, exclude_if=lambda planning: planning is None)
    input_budget_tokens: U64


def _check_ranges(trace: GenericModelContextTrace) -> None:
    ranges = sorted(
        (*trace.included_ranges, *trace.deferred_ranges),
        key=lambda each: (each.first_session_seq, each.last_session_seq),
    )
    for each in ranges:
        require(
            1 <= each.first_session_seq <= each.last_session_seq <= trace.through_session_seq,
            _INVALID,
            "A range of the context is reversed, begins at 0 or goes beyond `through_session_seq`.",
        )
    require(
        all(left.last_session_seq < right.first_session_seq for left, right in pairwise(ranges)),
        _INVALID,
        "Ranges of the context overlap.",
    )


def _check_signature(signature: ContextSignature) -> None:
    require_positive(_INVALID, messages_len=signature.messages_len)
    require_sha256("messages_digest", signature.messages_digest, _INVALID)
    require_sha256("tools_digest", signature.tools_digest, _INVALID)


def _check_planning(planning: ContextPlanning, trace: GenericModelContextTrace) -> None:
    require(trace.context_estimate is not None, _INVALID, "`planning` goes with `context_estimate` only.")
    _check_signature(planning.input)
    require(
        planning.input.raw_estimate_tokens <= trace.used_input_tokens,
        _INVALID,
        "`raw_estimate_tokens` is above `used_input_tokens`.",
    )
    if planning.anchor is not None:
        anchor = planning.anchor
        require_text("anchor.run_id", anchor.run_id, _INVALID)
        require_text("anchor.source_request_id", anchor.source_request_id, _INVALID)
        require_sha256("anchor.config_digest", anchor.config_digest, _INVALID)
        _check_signature(anchor.input)
        require_positive(_INVALID, observed_input_tokens=anchor.observed_input_tokens)


@validate.register
def _(trace: GenericModelContextTrace) -> None:
    estimate = trace.context_estimate
    require_sha256("config_digest", trace.config_digest, _INVALID)
    require_positive(_INVALID, history_limit=trace.history_limit, input_budget_tokens=trace.input_budget_tokens)
    require(
        (trace.used_input_tokens if estimate is None else estimate.tokens) <= trace.input_budget_tokens,
        _INVALID,
        "The context is above `input_budget_tokens`.",
    )
    require(
        estimate is None
        or (estimate.accounting is ModelTokenAccounting.ESTIMATED and estimate.tokens <= trace.used_input_tokens),
        _INVALID,
        "`context_estimate` is no estimate, or above `used_input_tokens`.",
    )
    _check_ranges(trace)
    if trace.planning is not None:
        _check_planning(trace.planning, trace)
