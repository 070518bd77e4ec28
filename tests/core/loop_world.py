"""A shell in miniature: starts runs of the pure loop and answers its effects, so that tests read as stories."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from orchestral_temporal.core.assembly import failure_code
from orchestral_temporal.core.calls import turn_item
from orchestral_temporal.core.inputs import (
    BatchAppended,
    Input,
    ModelFailed,
    ModelFinished,
    ModelLost,
    SessionReady,
    ToolBroken,
    ToolLost,
    ToolObserved,
)
from orchestral_temporal.core.items import measure
from orchestral_temporal.core.loop import advance, begin
from orchestral_temporal.core.reducer import status
from orchestral_temporal.core.start import Start, read_start
from orchestral_temporal.core.state import (
    AppendSession,
    CallAt,
    CallModel,
    Effect,
    InvokeTool,
    ModelOpen,
    RunState,
    Step,
    ToolsOpen,
)
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.protocol.activities import (
    Binding,
    BoundTool,
    ModelPart,
    ModelResult,
    Queues,
    ResultItem,
    RunPart,
    SessionAppended,
    SessionOpened,
    Timeouts,
    ToolObservation,
    ToolsPart,
)
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import INPUT_QUEUE
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import (
    ModelCapabilities,
    ModelDescriptor,
    ModelError,
    ModelErrorCode,
    ModelFinishReason,
    ModelObservation,
    ModelTokenAccounting,
    ModelTokenMeterDescriptor,
    ModelUsage,
    ObservedToolCall,
)
from orchestral_temporal.protocol.run import (
    AgentCapabilities,
    AgentDescriptor,
    CancelSupport,
    ControlCapabilities,
    EffectMediation,
    ProtocolVersion,
    seal_descriptor,
)
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    Completed,
    InlineOutput,
    ModelToolSchema,
    ToolConcurrency,
    ToolDescriptor,
    ToolIdempotency,
    ToolOutcome,
    ToolPolicyBounds,
    ToolRestriction,
    UnknownEffect,
)

RUN = "run-1"
NOW = (0, 0)
"""Round and attempt of an answer that is for the open attempt, whichever that is."""

THERE = ("", 0)
"""Invocation and attempt of an answer that is for the first open call."""

SCHEMA: JsonObject = {"type": "object", "properties": {"value": {"type": "string"}}}
BINDING = "temporal:default/default"


def tool(
    name: str,
    idempotency: ToolIdempotency = ToolIdempotency.PURE,
    concurrency: ToolConcurrency = ToolConcurrency.PER_RUN_SERIAL,
    *,
    reconciles: bool = False,
) -> BoundTool:
    """A bound tool with the id `test/<name>`."""
    bounds = ToolPolicyBounds(approval=ApprovalPolicy.NOT_REQUIRED, max_timeout_ms=1_000)
    return BoundTool(
        descriptor=ToolDescriptor(
            tool_id=f"test/{name}",
            model_schema=ModelToolSchema(name=name, description=f"The tool {name}", input_schema=SCHEMA),
            output_schema={},
            restriction=ToolRestriction(bounds=bounds),
            idempotency=idempotency,
            concurrency=concurrency,
        ),
        view_contract="orchestral.model-output/identity/v1",
        reconciles=reconciles,
    )


def run_part(**changes: object) -> RunPart:
    """The run worker's part, with the capabilities of part 1."""
    descriptor = AgentDescriptor(
        provider_id="orchestral-temporal",
        agent_id="default",
        supported_protocol_versions=(ProtocolVersion(major=1, minor=0),),
        accepted_content_types=("text/plain", "application/json"),
        capabilities=AgentCapabilities(
            session_reuse=True,
            structured_output=False,
            controls=ControlCapabilities(steer=True, cancel=CancelSupport.CONFIRMED, recover=True),
            supported_limits=(RunLimitKind.MODEL_STEPS, RunLimitKind.TOOL_CALLS),
            effect_mediation=EffectMediation.HOST_MEDIATED,
        ),
        extensions={INPUT_QUEUE: {"version": 1}},
    )
    part = RunPart(binding_ref=BINDING, descriptor=seal_descriptor(descriptor), instructions="Be brief.")
    return part.model_copy(update=changes)


def model_part(**changes: object) -> ModelPart:
    """The model worker's part."""
    part = ModelPart(
        descriptor=ModelDescriptor(
            backend_id="test/model",
            capabilities=ModelCapabilities(
                streaming=True, tool_calls=True, parallel_tool_calls=True, structured_output=False
            ),
        ),
        meter=ModelTokenMeterDescriptor(
            strategy="bytes", version="1", accounting=ModelTokenAccounting.EXACT, config_digest="0" * 64
        ),
        redispatchable=True,
        max_context_tokens=100_000,
        reserved_output_tokens=1_000,
    )
    return part.model_copy(update=changes)


def tools_part(*tools: BoundTool) -> ToolsPart:
    """The tool worker's part; one pure tool `echo` unless others are given."""
    return ToolsPart(tools=tools or (tool("echo"),))


def binding(**changes: object) -> Binding:
    """All three parts in one answer."""
    whole = Binding(
        queues=Queues(runs="q", models="q", tools="q"),
        timeouts=Timeouts(),
        attributes=True,
        run=run_part(),
        model=model_part(),
        tools=tools_part(),
    )
    return whole.model_copy(update=changes)


def said(
    text: str, *, reason: ModelFinishReason = ModelFinishReason.STOP, usage: ModelUsage | None = None
) -> ModelFinished:
    """A turn of text."""
    return finished(ModelObservation(finish_reason=reason, response=text, usage=usage))


def called(
    *calls: tuple[str, str], text: str = "", ended: bool = True, usage: ModelUsage | None = None
) -> ModelFinished:
    """A turn of calls, each a name and its raw argument text."""
    observed = tuple(
        ObservedToolCall(call_id=f"c{index}", name=name, arguments=arguments, extensions={}, ended=ended)
        for index, (name, arguments) in enumerate(calls)
    )
    return finished(
        ModelObservation(finish_reason=ModelFinishReason.TOOL_CALLS, response=text, tool_calls=observed, usage=usage)
    )


def finished(observation: ModelObservation) -> ModelFinished:
    """A turn as the model worker reports it."""
    item = turn_item(observation)
    measured = measure(item) if item is not None else None
    return ModelFinished(
        *NOW, ModelResult(observation=observation, item=measured, request_digest="1" * 64, input_bound=10)
    )


def model_failed(
    code: ModelErrorCode,
    *,
    retryable: bool = True,
    generated: bool = False,
    usage: ModelUsage | None = None,
    details: Json = None,
) -> ModelFailed:
    """An attempt that ended with a backend's error, before any output unless said otherwise."""
    error = ModelError(code=code, message="the backend says no", retryable=retryable, details=details)
    return ModelFailed(*NOW, failure_code(code), error, generated=generated, usage=usage)


def model_lost(*, abandoned: bool) -> ModelLost:
    """An attempt that will never answer."""
    return ModelLost(*NOW, abandoned=abandoned, reason="gone")


def tool_lost(*, abandoned: bool, fenced: bool = True, stored: str | None = None) -> ToolLost:
    """A call that will never answer."""
    return ToolLost(*THERE, abandoned=abandoned, reason="gone", fenced=fenced, stored=stored)


def answered(value: Json) -> ToolObserved:
    """A completed call."""
    return observed(Completed(output=InlineOutput(value=value)))


def observed(outcome: ToolOutcome) -> ToolObserved:
    """An ended call, its item measured as a worker does it (with the first call's id)."""
    item = None if isinstance(outcome, UnknownEffect) else measure(ResultItem(part=tool_result("c0", outcome)))
    return ToolObserved(*THERE, ToolObservation(outcome=outcome, item=item))


@dataclass
class World:
    """One run: its state, and all that came out of it in order."""

    state: RunState
    steps: list[Step] = field(default_factory=list[Step])
    given: list[Input] = field(default_factory=list[Input])

    @property
    def effects(self) -> list[Effect]:
        """Every effect so far."""
        return [effect for step in self.steps for effect in step.effects]

    @property
    def events(self) -> list[str]:
        """Every event's type so far."""
        return [record.event.payload.type for step in self.steps for record in step.events]

    @property
    def wal(self) -> list[str]:
        """Every WAL record's type so far."""
        return [draft.payload.type for step in self.steps for draft in step.wal]

    @property
    def status(self) -> str:
        """The run's status."""
        return status(self.state.run)

    @property
    def last(self) -> Effect:
        """The newest effect."""
        return self.effects[-1]

    def bring(self, given: Input) -> Step:
        """Bring one input, and confirm every session batch at once."""
        step = self._step(given)
        for effect in step.effects:
            if isinstance(effect, AppendSession):
                batch = effect.batch
                last = batch.first_seq + len(batch.records) - 1
                self._step(BatchAppended(batch.number, SessionAppended(head="h", last_seq=last)))
        return step

    def only(self, given: Input) -> Step:
        """Bring one input and leave session batches on their way."""
        return self._step(given)

    def _step(self, given: Input) -> Step:
        given = self._addressed(given)
        self.given.append(given)
        step = advance(self.state, given)
        self.state = step.state
        self.steps.append(step)
        return step

    def _addressed(self, given: Input) -> Input:
        """Fill in what an answer is for: the open attempt, or the first open call."""
        phase = self.state.phase
        match given:
            case ModelFinished() | ModelFailed() | ModelLost() if (given.round, given.attempt) == NOW:
                attempt = phase.attempt if isinstance(phase, ModelOpen) else 0
                return replace(given, round=self.state.round, attempt=attempt)
            case ToolObserved() | ToolLost() | ToolBroken() if given.invocation_id == THERE[0]:
                calls = phase.calls if isinstance(phase, ToolsOpen) else ()
                call = next((each for each in calls if each.at is CallAt.OPEN), None)
                return given if call is None else replace(given, invocation_id=call.invocation_id, attempt=call.attempt)
            case _:
                return given

    def play(self, turns: Sequence[ModelFinished], tools: Callable[[InvokeTool], ToolObserved]) -> None:
        """Answer model calls with turns and tool calls with `tools` until no call is open."""
        left = list(turns)
        while isinstance(self.last, CallModel | InvokeTool):
            effect = self.last
            self.bring(left.pop(0) if isinstance(effect, CallModel) else tools(effect))


def start(task: str = "the task", **fields: Json) -> Start:
    """A sealed start in the short form."""
    return read_start({"input": task, **fields}, RUN)


def world(given: Start | None = None, bound: Binding | None = None, *, ready: bool = True) -> World:
    """A run that has begun; `ready` opens its session too, so that the first model call is out."""
    answer = bound if bound is not None else binding()
    assert answer.run is not None
    step = begin(given if given is not None else start(), answer.run, answer)
    made = World(step.state, [step])
    if ready:
        made.bring(SessionReady(SessionOpened()))
    return made
