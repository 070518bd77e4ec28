"""The default token meter: one byte is at most one token, three bytes are about one (divergence 31)."""

from typing import Final

from orchestral_temporal.core.items import BYTES_PER_TOKEN
from orchestral_temporal.ports import TokenCount
from orchestral_temporal.protocol.digest import sha256
from orchestral_temporal.protocol.model import ModelTokenAccounting, ModelTokenMeterDescriptor

DESCRIPTOR: Final = ModelTokenMeterDescriptor(
    strategy="canonical-json-size",
    version="1",
    accounting=ModelTokenAccounting.CONSERVATIVE_UPPER_BOUND,
    config_digest=sha256(b"canonical-json-size/v1\0bytes_per_token=1"),
)


class ByteMeter:
    """Counts bytes of canonical JSON; a bound that no tokeniser passes, and an estimate that is said to be one."""

    def count(self, canonical: bytes) -> TokenCount:
        """Count the canonical JSON of a request or a message."""
        return TokenCount(bound=len(canonical), estimate=-(-len(canonical) // BYTES_PER_TOKEN))
