"""What an author says of a Python function that is to be a tool.

`api.tool` writes these words on the function, the function adapter reads them; neither may import the other.
"""

from typing import Final

from orchestral_temporal.protocol.base import U64, Word
from orchestral_temporal.protocol.tools import ApprovalPolicy, ToolConcurrency, ToolIdempotency

OPTIONS_ATTRIBUTE: Final = "__orchestral_tool__"
"""The attribute of the function that holds its `FunctionOptions`."""

RECONCILE_ATTRIBUTE: Final = "__orchestral_reconcile__"
"""The attribute of the function that holds the function to ask for a lost effect, if it has one."""


class FunctionOptions(Word):
    """The options of a function tool; the defaults hold for a function that nobody has marked.

    Null as name or description takes the function's own; the time-out is in milliseconds, null is none.
    """

    name: str | None = None
    description: str | None = None
    idempotency: ToolIdempotency = ToolIdempotency.NON_IDEMPOTENT
    approval: ApprovalPolicy = ApprovalPolicy.NOT_REQUIRED
    concurrency: ToolConcurrency = ToolConcurrency.PER_RUN_SERIAL
    timeout_ms: U64 | None = None
