"""Workers: what one process serves, made of settings and hosted agents (decisions 4, 17, 21)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Worker, WorkerDeploymentConfig

from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.activities import Queues, Role, Timeouts
from orchestral_temporal.runtime.agents import HostedAgent
from orchestral_temporal.runtime.context_items import ContextItems
from orchestral_temporal.temporal import names, visibility
from orchestral_temporal.temporal.activities import CallActivities
from orchestral_temporal.temporal.beating import HEARTBEAT_THROTTLE
from orchestral_temporal.temporal.run_workflow import AgentRun
from orchestral_temporal.temporal.session_activities import SessionActivities
from orchestral_temporal.temporal.session_workflow import AgentSession

UNVERSIONED: Final = WorkerDeploymentConfig(
    version=WorkerDeploymentVersion(deployment_name="orchestral-temporal", build_id="unversioned"),
    use_worker_versioning=False,
)
"""Left to itself the SDK names a build by hashing every module of the process, which takes a second and more."""

CACHED_WORKFLOWS: Final = 1_000
"""Runs kept in memory; an idle one takes 50 to 80 KB."""

STOP_MARGIN: Final = timedelta(seconds=0.5)
"""What is kept of the grace to stop what is still at work, and to give it back with a word (decision 21)."""

TASKS_AT_ONCE: Final = 3
"""Workflow tasks in work at once: they share one interpreter, so more are no faster, and a restarted worker that
replays all its runs side by side is done with none within the time that a task may take (`TASK_SECONDS`)."""


@dataclass(frozen=True)
class WorkerSettings:
    """How a process serves: queues by role, time-outs, cache, grace on a stop."""

    queues: Queues = field(
        default_factory=lambda: Queues(runs=names.DEFAULT_QUEUE, models=names.DEFAULT_QUEUE, tools=names.DEFAULT_QUEUE)
    )
    timeouts: Timeouts = field(default_factory=Timeouts)
    sticky: timedelta = timedelta(seconds=1)
    grace: timedelta = timedelta(seconds=5)
    max_cached_workflows: int = CACHED_WORKFLOWS


Activity = Callable[..., Any]  # pyright: ignore[reportExplicitAny] -- the SDK's own type for an activity


def served(
    agents: Mapping[str, HostedAgent], settings: WorkerSettings, artifacts: ArtifactStore
) -> Mapping[Role, Sequence[Activity]]:
    """The activities of each role; they share one memory of context items."""
    items = ContextItems()
    calls = CallActivities(
        agents,
        queues=settings.queues,
        timeouts=settings.timeouts,
        items=items,
        attributes=AttributeCheck().registered,
        artifacts=artifacts,
        grace=work_grace(settings.grace),
    )
    session = SessionActivities(artifacts=artifacts, items=items)
    return {
        Role.RUN: (calls.bind, session.open_session, session.append_session),
        Role.MODEL: (calls.bind, calls.call_model),
        Role.TOOLS: (calls.bind, calls.invoke_tool),
    }


def work_grace(grace: timedelta) -> timedelta:
    """How long calls may go on in a worker that stops: its grace without the margin, at least three quarters of it."""
    return max(grace - STOP_MARGIN, grace * 3 / 4)


def build_workers(
    client: Client,
    agents: Mapping[str, HostedAgent],
    *,
    settings: WorkerSettings,
    artifacts: ArtifactStore,
    roles: Sequence[Role] = tuple(Role),
) -> Sequence[Worker]:
    """One worker for each task queue that the roles use; roles on one queue share a worker."""
    activities = served(agents, settings, artifacts)
    by_queue: dict[str, list[Role]] = {}
    for role in roles:
        by_queue.setdefault(_queue(settings.queues, role), []).append(role)
    return [_worker(client, queue, each, activities, settings) for queue, each in by_queue.items()]


def _queue(queues: Queues, role: Role) -> str:
    return {Role.RUN: queues.runs, Role.MODEL: queues.models, Role.TOOLS: queues.tools}[role]


def distinct(activities: Mapping[Role, Sequence[Activity]], roles: Sequence[Role]) -> Sequence[Activity]:
    """The activities of some roles, each once: `bind` belongs to all of them."""
    return list({id(getattr(each, "__func__", each)): each for role in roles for each in activities[role]}.values())


def _worker(
    client: Client,
    queue: str,
    roles: Sequence[Role],
    activities: Mapping[Role, Sequence[Activity]],
    settings: WorkerSettings,
) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=[AgentRun, AgentSession] if Role.RUN in roles else [],
        activities=distinct(activities, roles),
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_workflow_tasks=TASKS_AT_ONCE,
        sticky_queue_schedule_to_start_timeout=settings.sticky,
        graceful_shutdown_timeout=work_grace(settings.grace),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        deployment_config=UNVERSIONED,
    )


class AttributeCheck:
    """Whether the namespace knows our search attributes: without them a run goes on, it is only harder to find."""

    def __init__(self) -> None:
        self._known: bool | None = None
        self._lock = asyncio.Lock()

    async def registered(self, client: Client) -> bool:
        """Ask the server once; an answer of yes is kept, one of no is asked again with the next run."""
        async with self._lock:
            if not self._known:
                self._known = await _registered(client)
            return self._known


async def _registered(client: Client) -> bool:
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError:
        return False
    return all(each.name in listed.custom_attributes for each in visibility.ATTRIBUTES)
