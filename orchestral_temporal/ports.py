"""Holes: the small protocols that adapters fill. No code."""

from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.model import (
    ModelDescriptor,
    ModelError,
    ModelRequest,
    ModelStreamEvent,
)
from orchestral_temporal.protocol.tools import ToolDescriptor, ToolOutcome


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


class EffectUncertain(Exception):  # noqa: N818 -- what is known, and no error
    """A tool began to change something and cannot vouch for what is left of it: the call's effect is unknown."""


class NotStarted(Exception):  # noqa: N818 -- what happened, and no error
    """A tool must not begin, since nobody wants this attempt any more; `outcome` is how the call ends."""

    def __init__(self, outcome: ToolOutcome) -> None:
        super().__init__("Nobody wants this attempt of the call any more; its tool did not begin.")
        self.outcome = outcome


class Clock(Protocol):
    """Seconds since some moment, counted also while the process is frozen or the machine asleep."""

    def __call__(self) -> float:
        """The seconds so far."""
        ...


class EffectFence(Protocol):
    """The record that must stand before a tool with effects begins: whoever finds it knows that it may have worked.

    `put_up` runs on the guard's event loop; the questions may be asked from any thread (decision 15).
    """

    async def put_up(self) -> None:
        """Put the call on record, or renew the record; return when that is durable.

        Raises:
            NotStarted: the attempt was given up or its run cancelled.
        """
        ...

    def fresh(self) -> bool:
        """Whether the record is so young that nobody can have given the attempt up: an effect may begin."""
        ...

    def lapsed(self) -> bool:
        """Whether the record stands but was not renewed in time, so that the attempt may have been given up."""
        ...


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
    def writable_roots(self) -> tuple[str, ...]:
        """Absolute folders that the effective policy lets the call write below."""
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
        """Whether to return what there is: somebody wants it, the call is over, or this worker may have lost it.

        The last is so when nothing was heard from the server for longer than a heartbeat time-out, as after a pause of
        the whole process. A tool that prepares for long looks here just before its own effect, from any thread.
        """
        ...

    def confirm(self) -> Future[None]:
        """The last look of an adapter, after its way to the thread or loop that runs the tool, before foreign code.

        Done at once in almost all cases; after a pause of the process it asks the server. May be called from any
        thread but must not be waited for on the guard's event loop, which answers it. It fails with `NotStarted`,
        which the adapter lets pass; then nothing may run.
        """
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
            EffectUncertain: part of it was done, and nobody can say which.
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
class Happened:
    """The effect took place, and this is the output that the lost attempt would have returned."""

    output: object


@dataclass(frozen=True)
class DidNotHappen:
    """The effect did not take place and never will: no request of the lost attempt is still on its way."""


@dataclass(frozen=True)
class CannotTell:
    """Nobody knows; the effect stays unknown and the call is not repeated."""


Reconciled = Happened | DidNotHappen | CannotTell
"""What a tool says of the effect of a lost attempt."""


@runtime_checkable
class ReconcilingTool(Tool, Protocol):
    """A tool that can be asked what became of an attempt whose outcome was lost (decision 16, divergence 3)."""

    async def reconcile(self, arguments: JsonObject, call: ToolCall) -> Reconciled:
        """Find out, without any effect, what became of an earlier attempt of this call.

        `call.idempotency_key` is the one that attempt had. An exception counts as `CannotTell`.
        """
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
