"""What a user's own code imports: `Agent`, `tool`, `Policy`, limits, what a tool meets, where a session began."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeVar, overload

from orchestral_temporal.ports import (
    CannotTell,
    DidNotHappen,
    Happened,
    ModelBackend,
    Reconciled,
    Tool,
    ToolCall,
    ToolFailed,
    ToolRejected,
)
from orchestral_temporal.protocol.functions import OPTIONS_ATTRIBUTE, RECONCILE_ATTRIBUTE, FunctionOptions
from orchestral_temporal.protocol.limits import MoneyAmount, RunLimits
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.recall import SessionOrigin, origin_extensions, session_origin
from orchestral_temporal.protocol.tools import ApprovalPolicy, ToolConcurrency, ToolIdempotency

__all__ = [
    "Agent",
    "Approval",
    "CannotTell",
    "Concurrency",
    "DidNotHappen",
    "Happened",
    "Idempotency",
    "ModelCostPolicy",
    "MoneyAmount",
    "Policy",
    "Reconcile",
    "Reconciled",
    "RunLimits",
    "SessionOrigin",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolRejected",
    "origin_extensions",
    "session_origin",
    "tool",
]

Idempotency = Literal["pure", "idempotent", "idempotent_with_key", "non_idempotent"]
"""What a second execution of one call would do; with a key, the tool itself honours `call.idempotency_key`."""

Approval = Literal["never", "ask", "deny"]
"""Whether a person must allow a call."""

Concurrency = Literal["parallel_safe", "per_run_serial", "global_serial"]
"""What may run beside a call of the tool."""

Reconcile = Callable[..., Reconciled] | Callable[..., Awaitable[Reconciled]]
"""A function that is asked what became of a lost attempt; it takes the parameters of its tool."""

Member = TypeVar("Member")
Name = TypeVar("Name", bound=str)
Function = TypeVar("Function", bound=Callable[..., object])

APPROVALS: Final[Mapping[Approval, ApprovalPolicy]] = {
    "never": ApprovalPolicy.NOT_REQUIRED,
    "ask": ApprovalPolicy.REQUIRED,
    "deny": ApprovalPolicy.DENY,
}
"""How people say it, and how the wire does (`answers.md` 12)."""


@dataclass(frozen=True)
class Policy:
    """What the runs of an agent may do.

    `workspaces` are folders, the primary one first; `approval` overrides what a tool says of itself, by the name that
    the model sees.
    """

    workspaces: Sequence[str | Path] = ()
    network: Literal["deny", "allow"] = "deny"
    approval: Mapping[str, Approval] = field(default_factory=dict[str, Approval])

    def __post_init__(self) -> None:
        """Keep copies, so that the declaration stays as it was written."""
        object.__setattr__(self, "workspaces", tuple(self.workspaces))
        object.__setattr__(self, "approval", MappingProxyType(dict(self.approval)))


@dataclass(frozen=True)
class Agent:
    """An agent as a worker hosts it.

    `tools` are functions (marked with `tool` or plain) or `Tool` objects; `limits` is the ceiling that no run may pass,
    `run_limits` what a run gets that asks for nothing. With a `price` of its model a run says what it has cost, and may
    have a `max_cost`.
    """

    name: str
    model: ModelBackend
    tools: Sequence[Callable[..., object] | Tool] = ()
    instructions: str = ""
    policy: Policy = field(default_factory=Policy)
    limits: RunLimits = field(default_factory=RunLimits)
    run_limits: RunLimits = field(default_factory=RunLimits)
    price: ModelCostPolicy | None = None

    def __post_init__(self) -> None:
        """Refuse a blank name and keep a copy of the tools.

        Raises:
            ValueError: the name is blank.
        """
        if not self.name.strip():
            raise ValueError("`name` is blank; give the agent a name.")
        object.__setattr__(self, "tools", tuple(self.tools))


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotency: Idempotency = "non_idempotent",
    approval: Approval = "never",
    concurrency: Concurrency = "per_run_serial",
    timeout: timedelta | None = None,
    reconcile: Reconcile | None = None,
) -> Callable[[Function], Function]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotency: Idempotency = "non_idempotent",
    approval: Approval = "never",
    concurrency: Concurrency = "per_run_serial",
    timeout: timedelta | None = None,
    reconcile: Reconcile | None = None,
) -> Function | Callable[[Function], Function]:
    """Mark a function as a tool; the function itself stays as it is and can be called as before.

    Name and description default to the function's own. A parameter hinted as `ToolCall` gets the running call and is
    not shown to the model. Without `timeout` a call may take as long as the host allows.

    `reconcile` is a function with the same parameters that is asked when a worker was lost while the tool was at work:
    it looks, changes nothing, and says `Happened(output)`, `DidNotHappen()` or `CannotTell()`. Without it the effect of
    a lost `non_idempotent` call is unknown and the run fails. It has half a minute; an exception is `CannotTell()`.

    Raises:
        ValueError: an option has a value that does not exist; the sentence names it and the ones that do.
    """
    if timeout is not None and timeout < timedelta(milliseconds=1):
        raise ValueError(f"`timeout` is {timeout}; give at least a millisecond, or None for no limit.")
    options = FunctionOptions(
        name=name,
        description=description,
        idempotency=_member("idempotency", idempotency, {each.value: each for each in ToolIdempotency}),
        approval=_member("approval", approval, APPROVALS),
        concurrency=_member("concurrency", concurrency, {each.value: each for each in ToolConcurrency}),
        timeout_ms=None if timeout is None else timeout // timedelta(milliseconds=1),
    )

    def mark(marked: Function) -> Function:
        setattr(marked, OPTIONS_ATTRIBUTE, options)
        setattr(marked, RECONCILE_ATTRIBUTE, reconcile)
        return marked

    return mark if function is None else mark(function)


def _member(option: str, given: Name, members: Mapping[Name, Member]) -> Member:
    if given not in members:
        raise ValueError(f"`{option}` is {given!r}; use one of {', '.join(members)}.")
    return members[given]
