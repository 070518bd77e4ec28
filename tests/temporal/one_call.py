"""One call before a real server, without a run around it: what `test_fencing` and `test_fence_faults` play on.

The run is played by `OneCall`, which schedules one call as a run does and keeps what its worker signals.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from google.protobuf.message import Message
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import AsyncActivityHandle, Client, WorkflowHandle
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError, RPCStatusCode, ServiceClient
from temporalio.worker import Worker
from temporalio.workflow import ActivityCancellationType

from orchestral_temporal.core.limits import FENCE_OUTCOME_BYTES
from orchestral_temporal.ports import ArtifactStore, Clock, Tool, ToolCall
from orchestral_temporal.protocol.activities import (
    Fence,
    Heartbeat,
    Queues,
    Timeouts,
    ToolObservation,
    ToolRequest,
)
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.tools import (
    Completed,
    InlineOutput,
    ToolConcurrency,
    ToolIdempotency,
)
from orchestral_temporal.protocol.words import parse_value
from orchestral_temporal.runtime.agents import AgentPlan, HostedTools, host
from orchestral_temporal.runtime.context_items import ContextItems
from orchestral_temporal.temporal import failures, names
from orchestral_temporal.temporal.activities import CallActivities
from orchestral_temporal.temporal.beating import HEARTBEAT_THROTTLE
from orchestral_temporal.temporal.fencing import since_boot
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import RecordingTool, until

CALL = "run-1/m1/c1"
BARE = Fence(invocation_id=CALL, attempt=1, arguments_digest=exact_digest({"value": 1}))
ECHO = Completed(output=InlineOutput(value={"result": 1}))

NON_IDEMPOTENT, KEYED, PURE = (
    ToolIdempotency.NON_IDEMPOTENT,
    ToolIdempotency.IDEMPOTENT_WITH_KEY,
    ToolIdempotency.PURE,
)


@dataclass(frozen=True)
class Ended:
    """How the activity ended: an observation, or the type and details of its failure."""

    observation: JsonObject | None = None
    failure: str = ""
    details: list[JsonObject] = field(default_factory=list[JsonObject])

    @property
    def outcome(self) -> object:
        """The outcome of a call that was observed."""
        assert self.observation is not None, self
        return parse_value(ToolObservation, self.observation).outcome

    @property
    def fence(self) -> Fence | None:
        """The fence that a failure tells of."""
        (beat,) = self.details
        return parse_value(Heartbeat, beat).fence


@workflow.defn(name="OneCall", sandboxed=False)
class OneCall:
    """One call, scheduled as a run does it; it lasts until it is told to go."""

    def __init__(self) -> None:
        self.ended: Ended | None = None
        self.signalled: list[JsonObject] = []
        self.may_go = False
        self.cancel_wanted = False

    @workflow.run
    async def run(self, request: ToolRequest, heartbeat_ms: int, seconds: int) -> None:
        """Schedule it, and keep how it ends."""
        call = workflow.start_activity(
            names.INVOKE_TOOL,
            request,
            result_type=ToolObservation,
            activity_id="call",
            start_to_close_timeout=timedelta(seconds=seconds),
            heartbeat_timeout=timedelta(milliseconds=heartbeat_ms),
            retry_policy=failures.CALL_RETRIES,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.wait_condition(lambda: call.done() or self.cancel_wanted)
        if self.cancel_wanted:
            call.cancel()
        await workflow.wait_condition(call.done)
        try:
            self.ended = Ended(observation=call.result().model_dump(mode="json"))
        except ActivityError as error:
            cause = error.cause
            known = isinstance(cause, ApplicationError)
            details = list(cause.details) if known else list(getattr(cause, "last_heartbeat_details", ()))
            self.ended = Ended(failure=(known and cause.type) or type(cause).__name__, details=details)
        await workflow.wait_condition(lambda: self.may_go)

    @workflow.signal(name=names.SIGNAL_OUTCOME)
    def told(self, fence: JsonObject) -> None:
        """Keep it."""
        self.signalled.append(fence)

    @workflow.signal
    def cancel_call(self) -> None:
        """Cancel the call."""
        self.cancel_wanted = True

    @workflow.signal
    def go(self) -> None:
        """End."""
        self.may_go = True

    @workflow.query
    def how(self) -> Ended | None:
        """How the call ended."""
        return self.ended

    @workflow.query
    def heard(self) -> list[JsonObject]:
        """What was signalled."""
        return self.signalled


@dataclass
class Call:
    """A call that was started."""

    client: Client
    handle: WorkflowHandle[OneCall, None]

    @property
    def activity(self) -> AsyncActivityHandle:
        """The activity, as anybody may settle it from outside."""
        return self.client.get_async_activity_handle(workflow_id=self.handle.id, run_id=None, activity_id="call")

    async def give_up(self) -> None:
        """Let the server give the attempt up, as after a heartbeat time-out."""
        await self.activity.fail(ApplicationError("given up", non_retryable=True))

    async def beat(self) -> Heartbeat | None:
        """The details of the newest heartbeat, as the server has them."""
        described = await self.handle.describe()
        for pending in described.raw_description.pending_activities:
            for payload in pending.heartbeat_details.payloads[:1]:
                (value,) = await self.client.data_converter.decode([payload])
                return parse_value(Heartbeat, value)
        return None

    async def ended(self) -> Ended:
        """How it ended, once it has."""
        found: Ended | None = None

        async def over() -> bool:
            nonlocal found
            found = await self.handle.query(OneCall.how)
            return found is not None

        await until(over, "the call ends")
        assert found is not None
        return found

    async def beats(self) -> bool:
        """Whether the server has a heartbeat of it."""
        return await self.beat() is not None

    async def at_worker(self) -> bool:
        """Whether a worker has it."""
        described = await self.handle.describe()
        return any(each.HasField("last_started_time") for each in described.raw_description.pending_activities)

    async def told(self) -> bool:
        """Whether its worker has signalled anything."""
        return bool(await self.signalled())

    async def signalled(self) -> list[Fence]:
        """What its worker has signalled."""
        return [parse_value(Fence, each) for each in await self.handle.query(OneCall.heard)]

    async def settled(self) -> Fence:
        """The first signal that says more than that the call is at work."""
        found: list[Fence] = []

        async def said() -> bool:
            found[:] = [each for each in await self.signalled() if each.outcome or each.stored]
            return bool(found)

        await until(said, "the outcome is signalled")
        return found[0]


@dataclass
class Stage:
    """A worker that serves one tool, and calls of it."""

    client: Client
    queue: str
    tools: HostedTools | None
    worker: Worker
    started: list[Call] = field(default_factory=list[Call])

    async def start(self, **changes: object) -> Call:
        """Start one call."""
        times = [changes.pop("heartbeat_ms", 20_000), changes.pop("seconds", 60)]
        request = ToolRequest(
            run_id="run-1",
            session_id="s",
            agent="default",
            invocation_id=CALL,
            attempt=1,
            call_id="call-1",
            tool_id=self.tools.part.tools[0].descriptor.tool_id if self.tools else "none",
            arguments={"value": 1},
            part_digest=self.tools.digest if self.tools else "none",
        ).model_copy(update=changes)
        handle = await self.client.start_workflow(
            OneCall.run,
            args=[request, *times],
            id=f"{self.queue}.{len(self.started)}",
            task_queue=self.queue,
        )
        self.started.append(Call(self.client, handle))
        return self.started[-1]


@asynccontextmanager
async def serving(
    client: Client,
    served: Tool,
    *,
    grace_ms: int = 200,
    artifacts: ArtifactStore | None = None,
    items: ContextItems | None = None,
    clock: Clock = since_boot,
) -> AsyncGenerator[Stage]:
    """Serve a tool; a lost call says three times in 0.9 s that it is at work."""
    hosted = host(AgentPlan("default", ScriptedModel([]), [served]), client.namespace)
    assert hosted.tools is not None

    async def no_attributes(_client: Client) -> bool:
        return False

    calls = CallActivities(
        {"default": hosted},
        queues=Queues(runs="runs", models="models", tools="tools"),
        timeouts=Timeouts(uncertainty_grace_ms=900),
        items=items or ContextItems(),
        attributes=no_attributes,
        artifacts=artifacts or MemoryArtifacts(),
        grace=timedelta(milliseconds=grace_ms),
        clock=clock,
    )
    async with one_activity(client, calls.invoke_tool, tools=hosted.tools, grace_ms=grace_ms) as stage:
        yield stage


@asynccontextmanager
async def one_activity(
    client: Client,
    invoke_tool: Callable[[ToolRequest], Awaitable[ToolObservation]],
    *,
    tools: HostedTools | None = None,
    grace_ms: int = 200,
) -> AsyncGenerator[Stage]:
    """Serve an activity in a worker of its own, so that a test may stop it; in the end all runs are let go."""
    queue = f"q-{uuid.uuid4().hex[:10]}"
    worker = Worker(
        client,
        task_queue=queue,
        activities=[invoke_tool],
        graceful_shutdown_timeout=timedelta(milliseconds=grace_ms),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
    )
    async with Worker(client, task_queue=queue, workflows=[OneCall]):
        stage = Stage(client, queue, tools, worker)
        async with worker:
            yield stage
        for each in stage.started:
            described = await each.handle.describe()
            if described.close_time is None:
                await each.handle.signal(OneCall.go)
                await each.handle.result()


class Gate:
    """A tool whose work waits until the test lets it go on."""

    def __init__(self, idempotency: ToolIdempotency = NON_IDEMPOTENT, *, serial: bool = False) -> None:
        self.reached, self.open, self.told = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.yielding: Callable[[], bool] = bool
        self.tool = RecordingTool("gate", self._work, idempotency=idempotency, timeout_ms=None)
        if serial:
            changed = {"concurrency": ToolConcurrency.GLOBAL_SERIAL}
            self.tool.descriptor = self.tool.descriptor.model_copy(update=changed)

    async def _work(self, arguments: JsonObject, call: ToolCall) -> Json:
        self.yielding = call.should_yield
        self.reached.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.told.set()
            raise
        return {"result": arguments["value"]}


async def big(_arguments: JsonObject, _call: ToolCall) -> Json:
    """More than rides in a heartbeat, and a number that a double cannot hold."""
    return {"text": "x" * FENCE_OUTCOME_BYTES, "exact": 2**60 + 1}


BIG = Completed(output=InlineOutput(value={"text": "x" * FENCE_OUTCOME_BYTES, "exact": 2**60 + 1}))


OUTCOME, NO_FENCE, A_FENCE = b'"output_digest"', b'"fence":null', b'"fence":{'
"""What payloads hold: an observation, a heartbeat before the fence, one with it."""


class Held(PayloadCodec):
    """A codec that changes nothing, and lets what holds a text out when the test says so."""

    def __init__(self, text: bytes) -> None:
        self.asked, self.open, self._text = asyncio.Event(), asyncio.Event(), text

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_fault: object) -> None:
        """Hold nothing back when a test ends, or a test that fails would hang."""
        self.open.set()

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Wait with that text."""
        if any(self._text in each.data for each in payloads):
            self.asked.set()
            await self.open.wait()
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Let everything in."""
        return list(payloads)


class Away(PayloadCodec):
    """A codec that changes nothing, and fails at what holds a text while its key service is away."""

    def __init__(self, text: bytes, *, away: bool = True) -> None:
        self.away, self.failed, self._text = away, 0, text

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Fail at that text."""
        if self.away and any(self._text in each.data for each in payloads):
            self.failed += 1
            raise OSError("the key service is away")
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Let everything in."""
        return list(payloads)


def behind(codec: PayloadCodec, client: Client) -> Client:
    """The same client behind a codec."""
    config = client.config()
    config["data_converter"] = replace(client.data_converter, payload_codec=codec)
    return Client(**config)


class Line(ServiceClient):
    """The line of a client: it counts what was asked, and loses or refuses what the test says."""

    def __init__(self, given: ServiceClient) -> None:
        super().__init__(given.config)
        self._given = given
        self.asked = Counter[str]()
        self.faults: dict[str, RPCStatusCode] = {}

    @classmethod
    def of(cls, client: Client) -> tuple["Line", Client]:
        """A line, and the same client on it."""
        config = client.config()
        line = config["service_client"] = cls(client.service_client)
        return line, Client(**config)

    @property
    def worker_service_client(self) -> Any:
        """What the SDK's own core speaks through: nothing of it is counted or lost."""
        return self._given.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Pass it on."""
        self._given.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        """Pass it on."""
        self._given.update_api_key(api_key)

    async def _rpc_call(self, rpc: str, req: Message, resp_type: type[Any], **options: Any) -> Any:
        """Ask, whether or not the answer is heard; what is refused does not reach the server."""
        fault = self.faults.get(rpc)
        self.asked[rpc] += 1
        if fault is RPCStatusCode.INVALID_ARGUMENT:
            raise RPCError("a test refuses it", fault, b"")
        try:
            answer = await self._given._rpc_call(rpc, req, resp_type, **options)
        except RPCError:
            if fault is None:
                raise
        else:
            if fault is None:
                return answer
        raise RPCError("a test loses the answer", fault, b"")
