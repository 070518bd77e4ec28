"""What a worker knows of an agent: the parts of its authority and the ports behind them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from orchestral_temporal.core.start import start_refused
from orchestral_temporal.ports import ModelBackend, ReconcilingTool, TokenMeter, Tool
from orchestral_temporal.protocol.activities import BoundTool, ModelPart, Role, RunPart, ToolsPart
from orchestral_temporal.protocol.commands import INPUT_QUEUE
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse
from orchestral_temporal.protocol.limits import RunLimitKind, RunLimits, requested_kinds
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.retry import ContextRecoveryPolicy, ModelRetryPolicy
from orchestral_temporal.protocol.run import (
    AgentCapabilities,
    AgentDescriptor,
    CancelSupport,
    ControlCapabilities,
    EffectMediation,
    PendingRequestKind,
    ProtocolVersion,
    seal_descriptor,
)
from orchestral_temporal.protocol.tools import ApprovalPolicy, EffectScope, FilesystemPolicy, ToolPolicyBounds
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.runtime.meter import DESCRIPTOR as METER
from orchestral_temporal.runtime.meter import ByteMeter
from orchestral_temporal.runtime.tool_call import ToolGuard

CEILINGS: Final = (RunLimitKind.MODEL_STEPS, RunLimitKind.TOOL_CALLS)
"""Those that a host may set for every run."""

DEFAULTS: Final = (*CEILINGS, RunLimitKind.INPUT_TOKENS, RunLimitKind.OUTPUT_TOKENS, RunLimitKind.COST)
"""Those that an agent may give to a run which brings none: a moment in time is none of them."""

PROVIDER_ID: Final = "orchestral-temporal"

CONTEXT_TOKENS: Final = 131_072
"""The window assumed where the model's configuration names none (`spec/agent-loop.md` §2)."""

OUTPUT_TOKENS: Final = 4_096
"""Output tokens reserved for one turn where the configuration names none."""

RETRY_AFTER_CAP_MS: Final = 60_000
"""The longest pause that a provider's retry-after gets where the configuration names none (divergence 7)."""

NO_LIMITS: Final = RunLimits()
RETRY: Final = ModelRetryPolicy()
CONTEXT_RECOVERY: Final = ContextRecoveryPolicy()

DEFAULT_INSTRUCTIONS: Final = """\
You carry out the task you are given and report what you found.
Look before you claim: use the tools to read what you speak about, and name the file and line that support a statement.
Ask for several independent observations at once; when one result decides the next step, take that step first.
Prefer the tool made for a purpose over a general one. The host decides what you may touch: when it refuses something,
say so and go on with what is left. End with a short report: the answer first, then what it rests on, then what is open.
"""


@dataclass(frozen=True)
class HostedModel:
    """A model part and the backend that serves it."""

    part: ModelPart
    backend: ModelBackend
    meter: TokenMeter

    @cached_property
    def digest(self) -> str:
        """The part's digest, which a run's calls carry."""
        return digest(self.part)


@dataclass(frozen=True)
class HostedTools:
    """A tools part, the guard before the tools, and the folders that runs may work in, the default one first."""

    part: ToolsPart
    guard: ToolGuard
    roots: tuple[Path, ...]

    @cached_property
    def digest(self) -> str:
        """The part's digest, which a run's calls carry."""
        return digest(self.part)

    def workspaces(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The absolute folders of a run: what it asks for, or the policy's own.

        Raises:
            StartRefused: a folder does not exist, or lies outside the policy's workspaces.
        """
        if not asked:
            return tuple(str(root) for root in self.roots)
        return tuple(self._allowed(each) for each in asked)

    def _allowed(self, asked: str) -> str:
        base = self.roots[0] if self.roots else Path.cwd()
        try:
            folder = (base / asked).expanduser().resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise start_refused(f"The workspace {asked!r} does not exist; give a folder that does.") from None
        if not folder.is_dir():
            raise start_refused(f"The workspace {asked!r} is not a folder; give one.")
        if not any(folder.is_relative_to(root) for root in self.roots):
            allowed = ", ".join(repr(str(root)) for root in self.roots) or "none"
            raise start_refused(f"The workspace {asked!r} lies outside the worker's policy; allowed is: {allowed}.")
        return str(folder)


@dataclass(frozen=True)
class HostedAgent:
    """One agent as far as this worker serves it."""

    name: str
    run: RunPart | None = None
    model: HostedModel | None = None
    tools: HostedTools | None = None


@dataclass(frozen=True)
class AgentPlan:
    """What an agent is made of before it is bound; ceilings and defaults as `design/answers.md` 12 names them.

    `backend` is none in a process that does not serve the model. Without a `price` there is no cost to limit.
    """

    name: str
    backend: ModelBackend | None
    tools: Sequence[Tool] = ()
    instructions: str = DEFAULT_INSTRUCTIONS
    roots: tuple[Path, ...] = ()
    ceilings: RunLimits = NO_LIMITS
    run_limits: RunLimits = NO_LIMITS
    strict_calls: bool = False
    input_requests: bool = False
    context_tokens: int = CONTEXT_TOKENS
    max_output_tokens: int = OUTPUT_TOKENS
    retry: ModelRetryPolicy = RETRY
    retry_after_cap_ms: int = RETRY_AFTER_CAP_MS
    context_recovery: ContextRecoveryPolicy = CONTEXT_RECOVERY
    price: ModelCostPolicy | None = None

    @property
    def calls_tools(self) -> bool:
        """Whether the model calls tools, as far as it is known here."""
        return self.backend is None or self.backend.descriptor.capabilities.tool_calls


def host(plan: AgentPlan, namespace: str, roles: Collection[Role] = tuple(Role)) -> HostedAgent:
    """An agent ready to be served: the parts of these roles sealed, its tools behind the guard.

    What another process serves must be absent here, so that a run asks that process for it (decision 22).

    Raises:
        WordError: a tool's descriptor is invalid, two tools share a name, a limit or the price is wrong or not carried
            out, or there are tools and the model calls none.
    """
    _check_limits(plan)
    if plan.tools and not plan.calls_tools:
        message = f"The agent {plan.name!r} has tools, and its model calls none; give it one that does, or no tools."
        refuse(AgentProtocolErrorCode.UNSUPPORTED, message)
    return HostedAgent(
        name=plan.name,
        run=_run_part(plan, namespace) if Role.RUN in roles else None,
        model=_model(plan, plan.backend) if Role.MODEL in roles and plan.backend is not None else None,
        tools=_tools(plan) if Role.TOOLS in roles else None,
    )


def _run_part(plan: AgentPlan, namespace: str) -> RunPart:
    return RunPart(
        binding_ref=f"temporal:{namespace}/{plan.name}",
        descriptor=seal_descriptor(_descriptor(plan)),
        instructions=plan.instructions,
        max_model_steps=plan.ceilings.max_model_steps,
        max_tool_calls=plan.ceilings.max_tool_calls,
        run_limits=plan.run_limits,
        strict_calls=plan.strict_calls,
        price=plan.price,
    )


def _model(plan: AgentPlan, backend: ModelBackend) -> HostedModel:
    part = ModelPart(
        descriptor=backend.descriptor,
        meter=METER,
        redispatchable=backend.redispatchable,
        max_context_tokens=plan.context_tokens,
        reserved_output_tokens=plan.max_output_tokens,
        retry=plan.retry,
        retry_after_cap_ms=plan.retry_after_cap_ms,
        context_recovery=plan.context_recovery,
    )
    return HostedModel(part=part, backend=backend, meter=ByteMeter())


def _tools(plan: AgentPlan) -> HostedTools:
    guard = ToolGuard(plan.tools)
    bound = tuple(
        BoundTool(
            descriptor=each.descriptor,
            view_contract=each.view_contract,
            reconciles=isinstance(each, ReconcilingTool),
        )
        for each in guard.tools
    )
    return HostedTools(
        part=ToolsPart(tools=bound, grant=_grant(plan), input_requests=plan.input_requests),
        guard=guard,
        roots=plan.roots,
    )


def _check_limits(plan: AgentPlan) -> None:
    """A budget that nobody watches is worse than none: only what this version carries out may be set."""
    for limits, name, known in ((plan.ceilings, "limits", CEILINGS), (plan.run_limits, "run_limits", DEFAULTS)):
        for kind in requested_kinds(limits):
            if kind not in known:
                message = f"The agent {plan.name!r} sets the limit {kind} in its {name}, where it is not carried out."
                refuse(AgentProtocolErrorCode.UNSUPPORTED, f"{message} Known there are: {', '.join(known)}.")
        validate(limits)
    if plan.price is not None:
        validate(plan.price)
    default = plan.run_limits.max_cost
    if default is not None and (plan.price is None or plan.price.currency != default.currency):
        message = (
            f"The agent {plan.name!r} limits cost in {default.currency} and has no price in it; give both or none."
        )
        refuse(AgentProtocolErrorCode.UNSUPPORTED, message)


def _descriptor(plan: AgentPlan) -> AgentDescriptor:
    """What the agent declares: only what it can do (F6)."""
    lacking = {RunLimitKind.TOOL_CALLS: not plan.tools, RunLimitKind.COST: plan.price is None}
    return AgentDescriptor(
        provider_id=PROVIDER_ID,
        agent_id=plan.name,
        supported_protocol_versions=(ProtocolVersion(major=1, minor=0),),
        accepted_content_types=("text/plain",),
        capabilities=AgentCapabilities(
            session_reuse=True,
            structured_output=False,
            controls=ControlCapabilities(steer=True, cancel=CancelSupport.CONFIRMED, recover=True),
            pending_request_kinds=(PendingRequestKind.INPUT,) if plan.input_requests and plan.calls_tools else (),
            supported_limits=tuple(kind for kind in RunLimitKind if not lacking.get(kind)),
            effect_mediation=EffectMediation.HOST_MEDIATED if plan.tools else EffectMediation.NONE,
        ),
        extensions={INPUT_QUEUE: {"version": 1}},
    )


def _grant(plan: AgentPlan) -> ToolPolicyBounds:
    """What the policy grants a run: the effects of its tools, reading below its roots, and writing if a tool does."""
    effects = tuple(scope for tool in plan.tools for scope in tool.descriptor.effect_scopes)
    roots = tuple(sorted(str(root) for root in plan.roots))
    return ToolPolicyBounds(
        allowed_effects=effects,
        approval=ApprovalPolicy.NOT_REQUIRED,
        filesystem=FilesystemPolicy(
            readable_roots=roots, writable_roots=roots if EffectScope.FILESYSTEM_WRITE in effects else ()
        ),
    )
