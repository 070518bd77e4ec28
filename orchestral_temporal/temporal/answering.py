"""Calls to the server that a tool call cannot do without: asked until answered (decision 15).

They go around the SDK's handles, which repeat a call by themselves at ever longer pauses and then give up: what waits
here is an effect, or an outcome that nobody else knows.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Final, TypeVar

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    RecordActivityTaskHeartbeatRequest,
    RespondActivityTaskCompletedRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.protocol.activities import Fence, Heartbeat, ToolObservation
from orchestral_temporal.temporal import names

RPC_TIMEOUT: Final = timedelta(seconds=3)
"""How long one try may take: a server that answers at all does so in a tenth of this."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds between tries: an outage of a second costs no more, and its end is noticed at once."""

T = TypeVar("T")


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
        self._run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")

    async def beat(self, details: Heartbeat) -> Answer:
        """Record a heartbeat; one try. A pause or reset of the activity is no reason not to go on.

        Raises:
            RPCError: there was no answer.
        """
        request = RecordActivityTaskHeartbeatRequest(
            namespace=self._client.namespace,
            identity=self._client.identity,
            task_token=self._token,
            details=await self._client.data_converter.encode_wrapper([details]),
        )
        asked = self._client.workflow_service.record_activity_task_heartbeat(request, timeout=RPC_TIMEOUT)
        response = await _unless_gone(asked)
        if response is None:
            return Answer.GONE
        return Answer.CANCELLED if response.cancel_requested else Answer.WANTED

    async def complete(self, observation: ToolObservation) -> bool:
        """Complete the activity with an outcome; one try. Whether the server still wanted it.

        Raises:
            RPCError: there was no answer.
        """
        request = RespondActivityTaskCompletedRequest(
            namespace=self._client.namespace,
            identity=self._client.identity,
            task_token=self._token,
            result=await self._client.data_converter.encode_wrapper([observation]),
        )
        asked = self._client.workflow_service.respond_activity_task_completed(request, timeout=RPC_TIMEOUT)
        return await _unless_gone(asked) is not None

    async def report(self, fence: Fence) -> bool:
        """Tell the run by the signal `outcome`; one try. Whether the run is there.

        Raises:
            RPCError: there was no answer.
        """
        request = SignalWorkflowExecutionRequest(
            namespace=self._client.namespace,
            identity=self._client.identity,
            workflow_execution=self._run,
            signal_name=names.SIGNAL_OUTCOME,
            input=await self._client.data_converter.encode_wrapper([fence]),
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


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the server answers, for as long as that takes.

    Raises:
        RPCError: the server says that the question itself is wrong; asking again would not help.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return await ask()
        except RPCError as fault:
            if fault.status is RPCStatusCode.INVALID_ARGUMENT:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
