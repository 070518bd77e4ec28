"""Who serves a queue: what the server knows of workers, and how long that may be trusted."""

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ListWorkersRequest
from temporalio.client import Client
from temporalio.service import RPCError

from orchestral_temporal.hosting.settings import QueueSettings
from orchestral_temporal.protocol.activities import Role

FRESH: Final = timedelta(seconds=75)
"""A worker asks again at least every 60 s, but the server remembers one that is gone for 5 minutes."""

RPC_TIMEOUT: Final = timedelta(seconds=10)

_GONE: Final = (WorkerStatus.WORKER_STATUS_SHUTTING_DOWN, WorkerStatus.WORKER_STATUS_SHUTDOWN)


def queue_of(queues: QueueSettings, role: Role) -> str:
    """The task queue of a role."""
    return {Role.RUN: queues.runs, Role.MODEL: queues.models, Role.TOOLS: queues.tools}[role]


async def unserved(client: Client, queues: QueueSettings) -> tuple[Role, ...]:
    """The roles that nobody serves, as far as the server knows; a worker that was killed counts for `FRESH` longer.

    Raises:
        RPCError: the server does not say.
    """
    gone = await _gone(client)
    return tuple([role for role in Role if not await _polled(client, role, queue_of(queues, role), gone)])


async def _polled(client: Client, role: Role, queue: str, gone: frozenset[tuple[str, str]]) -> bool:
    workflow, activity = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    found = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=workflow if role is Role.RUN else activity,
        ),
        timeout=RPC_TIMEOUT,
    )
    since = datetime.now(UTC) - FRESH
    return any(
        each.last_access_time.ToDatetime(UTC) > since and (queue, each.identity) not in gone for each in found.pollers
    )


async def _gone(client: Client) -> frozenset[tuple[str, str]]:
    """Queue and identity of workers that said good-bye and have no successor in the same process."""
    try:
        listed = await client.workflow_service.list_workers(
            ListWorkersRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
        )
    except RPCError:  # an older server keeps no list
        return frozenset()
    beats = [each.worker_heartbeat for each in listed.workers_info]
    here = {(each.task_queue, each.worker_identity) for each in beats if each.status not in _GONE}
    return frozenset((each.task_queue, each.worker_identity) for each in beats if each.status in _GONE) - here
