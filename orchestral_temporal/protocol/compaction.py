"""How a session is shortened, and by whom (`spec/session-context.md` §8, §10)."""

from enum import StrEnum

from orchestral_temporal.protocol.base import U64, Word
from orchestral_temporal.protocol.ids import Digest
from orchestral_temporal.protocol.validation import require_positive, require_sha256, require_text, validate


class ContextErrorCode(StrEnum):
    """What is wrong with a request to project or compact a session; never on the wire."""

    INVALID_REQUEST = "InvalidRequest"


class SessionCompactionPolicy(Word):
    """When records of other runs are summarised: how many there must be, and how many of the newest stay."""

    minimum_source_records: U64
    keep_recent_records: U64


class SessionSummarizerDescriptor(Word):
    """A summariser's identity, copied into each summary; `model` is null for one that asks none."""

    strategy: str
    model: str | None = None
    version: str
    config_digest: Digest


@validate.register
def _(policy: SessionCompactionPolicy) -> None:
    require_positive(
        ContextErrorCode.INVALID_REQUEST,
        minimum_source_records=policy.minimum_source_records,
        keep_recent_records=policy.keep_recent_records,
    )


@validate.register
def _(summarizer: SessionSummarizerDescriptor) -> None:
    for name in ("strategy", "model", "version"):
        require_text(name, getattr(summarizer, name), ContextErrorCode.INVALID_REQUEST)
    require_sha256("config_digest", summarizer.config_digest, ContextErrorCode.INVALID_REQUEST)
