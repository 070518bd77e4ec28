"""The activities of a call: decode, call the runtime, map errors (decisions 3, 17, 21, 22)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

import structlog
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from orchestral_temporal.core.items import system_item, tools_item
from orchestral_temporal.core.limits import BINDING_BYTES
from orchestral_temporal.core.start import StartRefused, start_refused
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.ports import ArtifactStore, Clock
from orchestral_temporal.protocol.activities import (
    Binding,
    BindRequest,
    Heartbeat,
    Measure,
    ModelAttempt,
    ModelResult,
    Queues,
    ResultItem,
    Role,
    Timeouts,
    ToolObservation,
    ToolRequest,
)
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.tools import Completed, InlineOutput, ToolInvocation, ToolOutcome, UnknownEffect
from orchestral_temporal.protocol.words import dump, to_json
from orchestral_temporal.runtime.agents import HostedAgent, HostedModel, HostedTools
from orchestral_temporal.runtime.context_items import ContextItems, ContextMissing
from orchestral_temporal.runtime.model_call import LiveText, ModelCallFailed, call_model
from orchestral_temporal.runtime.tool_call import CallContext, interrupted
from orchestral_temporal.runtime.tool_outcomes import CallReport, plain
from orchestral_temporal.temporal import failures, names
from orchestral_temporal.temporal.beating import beating
from orchestral_temporal.temporal.fencing import Lease, since_boot
from orchestral_temporal.temporal.history import RunHistorySource
from orchestral_temporal.temporal.patient_store import PatientStore
from orchestral_temporal.temporal.recorded import fence_of, on_record
from orchestral_temporal.temporal.yielding import YieldWatch

STORE_SECONDS: Final = 60.0
"""How long a turn that was paid for waits for a store that is away; a store that never takes it fails the run."""

_log = structlog.get_logger(__name__)


class CallActivities:
    """Bind, model and tool calls of one worker process, and what they share."""

    def __init__(
        self,
        agents: Mapping[str, HostedAgent],
        *,
        queues: Queues,
        timeouts: Timeouts,
        items: ContextItems,
        attributes: Callable[[Client], Awaitable[bool]],
        artifacts: ArtifactStore,
        grace: timedelta,
        clock: Clock = since_boot,
    ) -> None:
        self._agents = agents
        self._queues = queues
        self._timeouts = timeouts
        self._items = items
        self._attributes = attributes
        self._artifacts = artifacts
        self._grace = grace
        self._clock = clock

    @activity.defn(name=names.BIND)
    async def bind(self, request: BindRequest) -> Binding:
        """The parts of an agent's authority that this worker serves; its system message and tools are remembered."""
        try:
            agent = self._agent(request.agent)
            tools = agent.tools if Role.TOOLS in request.roles else None
            workspaces = tools.workspaces(request.workspaces) if tools is not None else ()
        except StartRefused as refused:
            raise failures.refused_start(refused.rejection) from None
        run = agent.run if Role.RUN in request.roles else None
        model = agent.model if Role.MODEL in request.roles else None
        system = system_item(run) if run is not None else None
        if system is not None:
            self._items.put(system)
        if tools is not None:
            self._items.put(tools_item(tools.part))
        binding = Binding(
            queues=self._queues,
            timeouts=self._timeouts,
            attributes=await beating(self._attributes(activity.client())),
            run=run,
            model=model.part if model is not None else None,
            tools=tools.part if tools is not None else None,
            workspaces=workspaces,
        )
        size = len(to_json(binding).encode())
        if size > BINDING_BYTES:
            message = f"The agent {request.agent!r} has {size} bytes of instructions and tools; {BINDING_BYTES} fit."
            raise failures.refused_start(start_refused(message).rejection)
        return binding

    def _agent(self, name: str) -> HostedAgent:
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise start_refused(f"There is no agent named {name[:80]!r}; this deployment has: {known}.")
        return agent

    @activity.defn(name=names.CALL_MODEL)
    async def call_model(self, attempt: ModelAttempt) -> ModelResult:
        """One attempt of one round: the context by digest, the backend, the assembled turn."""
        model = self._model(attempt)
        live = LiveText()

        async def work() -> ModelResult:
            context = await self._items.resolve(attempt, self._history)
            return await call_model(
                attempt,
                context,
                model.backend,
                model.meter,
                live,
                artifacts=PatientStore(self._artifacts, STORE_SECONDS),
                remember=self._items.put,
            )

        try:
            return await beating(work(), live.beat, attempt.live_text_ms)
        except ModelCallFailed as failed:
            raise failures.model_failed(
                failed.code, failed.error, generated=failed.generated, usage=failed.usage
            ) from None
        except ContextMissing as missing:
            raise failures.context_missing(str(missing)) from None
        except asyncio.CancelledError:
            _give_back_if_stopping(attempt.request_id, live.beat())
            raise
        except ApplicationError:
            raise
        except Exception as fault:  # noqa: BLE001 -- whatever breaks here must reach the run, once
            _log.exception("model attempt broke", request=attempt.request_id)
            raise failures.broken(fault) from None

    def _history(self) -> RunHistorySource:
        info = activity.info()
        return RunHistorySource(activity.client(), self._artifacts, info.workflow_id or "", info.workflow_run_id or "")

    def _model(self, attempt: ModelAttempt) -> HostedModel:
        agent = self._agents.get(attempt.agent)
        model = agent.model if agent is not None else None
        if model is None or model.digest != attempt.part_digest:
            raise failures.another_authority(f"This worker's model part of {attempt.agent!r} is not the run's.")
        return model

    @activity.defn(name=names.INVOKE_TOOL)
    async def invoke_tool(self, request: ToolRequest) -> ToolObservation:
        """One attempt of a call through the guard, or only what is on record of an earlier one."""
        tools = self._tools(request)
        lease = Lease(fence_of(request), self._timeouts, self._grace, self._clock)
        try:
            observation = await lease.hold(self._attempt(tools, request, lease))
        except ApplicationError:
            raise
        except Exception as fault:  # noqa: BLE001 -- whatever breaks here must reach the run, once
            _log.exception("tool call broke", invocation=request.invocation_id)
            raise failures.broken(fault, lease.details) from None
        if lease.completed:
            activity.raise_complete_async()
        return observation

    async def _attempt(self, tools: HostedTools, request: ToolRequest, lease: Lease) -> ToolObservation:
        earlier = await on_record(request, self._artifacts)
        if earlier is not None:
            self._remember(request, earlier.outcome)
            return earlier
        observation = self._observed(request, await self._invoked(tools, request, lease))
        if lease.sent:
            await lease.record(observation, self._artifacts)
        return observation

    async def _invoked(self, tools: HostedTools, request: ToolRequest, lease: Lease) -> CallReport:
        invocation = ToolInvocation(
            run_id=request.run_id,
            call_id=request.invocation_id,
            tool_id=request.tool_id,
            arguments=request.arguments,
        )
        steered = YieldWatch(request.invocation_id)
        context = CallContext(
            workspaces=request.workspaces,
            readable_roots=tuple(str(root) for root in tools.roots),
            writable_roots=tools.part.grant.filesystem.writable_roots,
            on_progress=lease.progressed,
            yield_wanted=steered.wanted,
            fence=lease,
            reconcile=request.reconcile,
            deadline=lease.deadline,
        )
        try:
            report = await tools.guard.invoke(invocation, context)
        except asyncio.CancelledError:
            if not lease.cancelled:
                raise
            # An attempt that was asked about stood behind a fence of its own.
            fenced = lease.stands or request.reconcile
            report = plain(interrupted(tools.guard, invocation, fenced=fenced))
            report = replace(report, reconciled=request.reconcile and not lease.stands)
        finally:
            steered.end()
        for note in report.notes:
            _log.info("tool result changed", invocation=request.invocation_id, note=note)
        return report

    def _tools(self, request: ToolRequest) -> HostedTools:
        agent = self._agents.get(request.agent)
        tools = agent.tools if agent is not None else None
        if tools is None or tools.digest != request.part_digest:
            raise failures.another_authority(f"This worker's tools part of {request.agent!r} is not the run's.")
        return tools

    def _observed(self, request: ToolRequest, report: CallReport) -> ToolObservation:
        """The observation of a call; its item goes into the memory, so that the next attempt finds it here."""
        item = self._remember(request, report.shown)
        inline = report.outcome.output if item is not None and isinstance(report.outcome, Completed) else None
        output = digest(inline.value) if isinstance(inline, InlineOutput) else None
        return ToolObservation(
            outcome=report.shown, output_digest=output, item=item, notes=report.notes, reconciled=report.reconciled
        )

    def _remember(self, request: ToolRequest, shown: ToolOutcome) -> Measure | None:
        """Keep the item of an outcome; an unknown effect has none."""
        if isinstance(shown, UnknownEffect):
            return None
        return self._items.put(ResultItem(part=tool_result(request.call_id, shown))).measure


def _give_back_if_stopping(call: str, beat: Heartbeat) -> None:
    """A stopping worker says so itself; a cancel that was asked for wins (`temporal/shape-experiments.md` D)."""
    details = activity.cancellation_details()
    if details is not None and details.worker_shutdown and not details.cancel_requested:
        raise failures.abandoned(f"The worker stopped while it carried out {call}.", dump(beat)) from None
