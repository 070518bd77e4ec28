"""Calls to the server that a tool call cannot do without: asked until answered (decision 15).

They go around the SDK's handles, which repeat a call by themselves at ever longer pauses and then give up: what waits
here is an effect, or an outcome that nobody else knows. A payload codec that fails, since its key service is away, is
the same as a server that is away.
"""

import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Final, TypeVar

import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    RecordActivityTaskHeartbeatRequest,
    RespondActivityTaskCompletedRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.protocol.activities import Fence, Heartbeat, ToolObservation
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.temporal import names

RPC_TIMEOUT: Final = timedelta(seconds=3)
"""How long one try may take: a server that answers at all does so in a tenth of this."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds between tries: an outage of a second costs no more, and its end is noticed at once."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class UnavailableError(Exception):
    """What a user brought, a payload codec or an artifact store, fails: nobody has heard, and one may ask again."""

    def __init__(self, what: str, fault: Exception) -> None:
        super().__init__(f"The {what} failed with {type(fault).__name__}: {fault}")


UNHEARD: Final = (RPCError, UnavailableError)
"""How a try fails after which nothing is known."""


class Answer(Enum):
    """What the server says to a heartbeat."""

    WANTED = auto()
    CANCELLED = auto()
    GONE = auto()


class AttemptServer:
    """The server of the activity attempt that runs here."""

    def __init__(self) -> None:
        info = activity.info()
        self._client = activity.client()
        self._token = info.task_token
        self._attempt = (info.activity_id, info.attempt)
        self._run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
        self._kept: tuple[Heartbeat, Payloads] | None = None

    async def encoded(self, details: Heartbeat) -> Payloads:
        """The payloads of a heartbeat, kept: its next beats need no codec.

        Raises:
            UnavailableError: the codec failed.
        """
        if self._kept is None or self._kept[0] is not details:
            self._kept = (details, await self._encode(details))
        return self._kept[1]

    async def _encode(self, word: Word) -> Payloads:
        try:
            return await self._client.data_converter.encode_wrapper([word])
        except Exception as fault:
            raise UnavailableError("payload codec", fault) from fault

    async def beat(self, details: Heartbeat) -> Answer:
        """Record a heartbeat; one try. A pause or reset of the activity is no reason not to go on.

        Raises:
            RPCError: there was no answer.
            UnavailableError: the codec failed.
        """
        request = RecordActivityTaskHeartbeatRequest(
            namespace=self._client.namespace,
            identity=self._client.identity,
            task_token=self._token,
            details=await self.encoded(details),
        )
        asked = self._client.workflow_service.record_activity_task_heartbeat(request, timeout=RPC_TIMEOUT)
        response = await _unless_gone(asked)
        if response is None:
            return Answer.GONE
        return Answer.CANCELLED if response.cancel_requested else Answer.WANTED

    async def recorded(self) -> Heartbeat | None:
        """The newest heartbeat that the server has of the attempt; none if it does not wait for that any more.

        Raises:
            RPCError: there was no answer.
            UnavailableError: the codec failed.
        """
        request = DescribeWorkflowExecutionRequest(namespace=self._client.namespace, execution=self._run)
        asked = self._client.workflow_service.describe_workflow_execution(request, timeout=RPC_TIMEOUT)
        described = await _unless_gone(asked)
        for pending in described.pending_activities if described is not None else ():
            if (pending.activity_id, pending.attempt) == self._attempt:
                return await self._decoded(pending.heartbeat_details)
        return None

    async def _decoded(self, details: Payloads) -> Heartbeat:
        try:
            values = await self._client.data_converter.decode_wrapper(details, [Heartbeat])
        except Exception as fault:
            raise UnavailableError("payload codec", fault) from fault
        return values[0] if values else Heartbeat()

    async def complete(self, observation: ToolObservation) -> bool:
        """Complete the activity with an outcome; one try. Whether the server still wanted it.

        Raises:
            RPCError: there was no answer.
            UnavailableError: the codec failed.
        """
        request = RespondActivityTaskCompletedRequest(
            namespace=self._client.namespace,
            identity=self._client.identity,
            task_token=self._token,
            result=await self._encode(observation),
        )
        asked = self._client.workflow_service.respond_activity_task_completed(request, timeout=RPC_TIMEOUT)
        return await _unless_gone(asked) is not None

    async def report(self, fence: Fence) -> bool:
        """Tell the run by the signal `outcome`; one try. Whether the run is there.

        Raises:
            RPCError: there was no answer.
            UnavailableError: the codec failed.
        """
        request = SignalWorkflowExecutionRequest(
            namespace=self._client.namespace,
            identity=self._client.identity,
            workflow_execution=self._run,
            signal_name=names.SIGNAL_OUTCOME,
            input=await self._encode(fence),
            request_id=str(uuid.uuid4()),
        )
        asked = self._client.workflow_service.signal_workflow_execution(request, timeout=RPC_TIMEOUT)
        return await _unless_gone(asked) is not None


async def _unless_gone(asked: Awaitable[T]) -> T | None:
    """The server's answer; none if what is asked about is not there any more."""
    try:
        return await asked
    except RPCError as fault:
        if fault.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def answered(ask: Callable[[], Awaitable[T]], patience: float = math.inf) -> T:
    """Ask until somebody answers, for as long as that takes or for some seconds of patience.

    Raises:
        RPCError: the server says that the question itself is wrong, so that asking again would not help; or no more
            patience is left.
        UnavailableError: no more patience is left.
    """
    clock = asyncio.get_running_loop().time
    begun, pause = clock(), FIRST_PAUSE
    while True:
        try:
            return await ask()
        except UNHEARD as fault:
            wrong = isinstance(fault, RPCError) and fault.status is RPCStatusCode.INVALID_ARGUMENT
            if wrong or clock() - begun + pause > patience:
                raise
            if isinstance(fault, UnavailableError) and pause == FIRST_PAUSE:
                _log.warning("asked again until it answers", fault=str(fault))
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
