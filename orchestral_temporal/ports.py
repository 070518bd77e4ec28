"""Holes: the small protocols that adapters fill. No code."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.model import (
    ModelDescriptor,
    ModelError,
    ModelRequest,
    ModelStreamEvent,
)
from orchestral_temporal.protocol.tools import ToolDescriptor


class ModelFault(Exception):  # noqa: N818 -- the wire calls it a fault of the model, not a Python error
    """A backend failed; `error` says how (`spec/agent-loop.md` §4)."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.error = error


class ModelBackend(Protocol):
    """One model behind one vendor.

    `redispatchable` says that a request which was lost may be sent again: it has no effect but its cost (decision 18).
    """

    @property
    def descriptor(self) -> ModelDescriptor:
        """The backend's identity."""
        ...

    @property
    def redispatchable(self) -> bool:
        """Whether a lost request may be sent again."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelStreamEvent]:
        """Start one attempt; `request.request_id` goes out as the idempotency key.

        Raises:
            ModelFault: the backend refused or broke off.
        """
        ...


class ToolRejected(Exception):  # noqa: N818 -- the wire's word
    """A tool refuses a call before doing anything."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ToolFailed(Exception):  # noqa: N818 -- the wire's word
    """A tool could not do its work."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.retryable = code, message, retryable


class ToolCall(Protocol):
    """What a running tool knows of its call."""

    @property
    def run_id(self) -> str:
        """The run that asks."""
        ...

    @property
    def idempotency_key(self) -> str:
        """`<run>/m<round>/c<index>`: the same for every attempt of one call."""
        ...

    @property
    def workspaces(self) -> tuple[str, ...]:
        """Absolute workspace folders of the run, the primary one first."""
        ...

    @property
    def readable_roots(self) -> tuple[str, ...]:
        """Absolute folders that the effective policy lets the call read below."""
        ...

    @property
    def max_output_bytes(self) -> int | None:
        """Bytes of canonical JSON the output may have."""
        ...

    @property
    def timeout(self) -> timedelta | None:
        """How long the call may take, from its start."""
        ...

    def report_progress(self, message: str, fraction: float | None = None) -> None:
        """Tell watchers how far the call is; never blocks, never fails, never durable."""
        ...

    def should_yield(self) -> bool:
        """Whether somebody wants the call to return what it has."""
        ...


class Tool(Protocol):
    """One tool: a declaration and the work."""

    @property
    def descriptor(self) -> ToolDescriptor:
        """The tool's declaration."""
        ...

    async def invoke(self, arguments: JsonObject, call: ToolCall) -> Json:
        """Do the work and return the output as JSON.

        Raises:
            ToolRejected: nothing was done.
            ToolFailed: the work failed.
        """
        ...

    def view(self, arguments: JsonObject, output: Json) -> Json:
        """What the model sees of the output; a pure function, versioned by `view_contract`."""
        ...

    @property
    def view_contract(self) -> str:
        """The version of `view`, `orchestral.model-output/identity/v1` if it returns the output."""
        ...


@dataclass(frozen=True)
class TokenCount:
    """Tokens of a text: `bound` is never exceeded, `estimate` is what to plan with."""

    bound: int
    estimate: int


class TokenMeter(Protocol):
    """Counts tokens of a model's input."""

    def count(self, canonical: bytes) -> TokenCount:
        """Count the canonical JSON of a message or a tool list."""
        ...


class ArtifactStore(Protocol):
    """Bytes by digest."""

    async def put(self, data: bytes) -> str:
        """Store bytes, return their lower-case hex SHA-256."""
        ...

    async def get(self, digest: str) -> bytes:
        """Read bytes back.

        Raises:
            KeyError: nothing is stored under that digest.
        """
        ...
