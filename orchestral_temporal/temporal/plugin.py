"""A plugin of the SDK that makes a user's own client, workers and replayers ours (fact 10.5)."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Final

from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig

from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.activities import Queues, Role, Timeouts
from orchestral_temporal.runtime.agents import HostedAgent
from orchestral_temporal.temporal import converter, sandbox
from orchestral_temporal.temporal.run_workflow import AgentRun
from orchestral_temporal.temporal.session_workflow import AgentSession
from orchestral_temporal.temporal.worker import (
    HEARTBEAT_THROTTLE,
    TASKS_AT_ONCE,
    UNVERSIONED,
    WorkerSettings,
    distinct,
    served,
    work_grace,
)

NAME: Final = "orchestral-temporal"

SDK_STICKY: Final = timedelta(seconds=10)
"""What the SDK takes for the sticky time-out where nobody chose one: a dead worker would hold its runs up that long."""


class HostingPlugin(SimplePlugin):
    """Adds our workflows and activities to every worker, all roles on the worker's own queue.

    Give it once: to `Client.connect` it also reaches the workers of that client, and their payloads are ours from the
    start; to `Worker` or `Replayer` it is enough as well. The user's codec, storage, sandbox and activities stay.

    Args:
        host: The agents to serve in a namespace, by name.
        artifacts: Where large values go.
        timeouts: When a silent call counts as lost.
        lifetime: What surrounds the life of each worker, such as the connections of models.
    """

    def __init__(
        self,
        host: Callable[[str], Mapping[str, HostedAgent]],
        *,
        artifacts: ArtifactStore,
        timeouts: Timeouts,
        lifetime: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(
            NAME,
            data_converter=converter.compose,
            workflows=[AgentRun, AgentSession],
            workflow_runner=sandbox.widen,
        )
        self._host = host
        self._artifacts = artifacts
        self._timeouts = timeouts
        self._lifetime = lifetime

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add what we serve, and our promises about silence; a grace or a sticky time-out that was chosen stays."""
        config = super().configure_worker(config)
        given, queue = config.get("client"), config.get("task_queue")
        assert given is not None
        assert queue is not None
        settings = WorkerSettings(queues=Queues(runs=queue, models=queue, tools=queue), timeouts=self._timeouts)
        if chosen := config.get("graceful_shutdown_timeout"):
            settings = replace(settings, grace=chosen)
        activities = served(self._host(given.namespace), settings, self._artifacts)
        config["client"] = converter.converted(given)
        config["activities"] = [*config.get("activities", ()), *distinct(activities, tuple(Role))]
        config["max_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        config["default_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        config["graceful_shutdown_timeout"] = chosen or work_grace(settings.grace)
        if config.get("sticky_queue_schedule_to_start_timeout") == SDK_STICKY:
            config["sticky_queue_schedule_to_start_timeout"] = settings.sticky
        if not config.get("tuner") and not config.get("max_concurrent_workflow_tasks"):
            config["max_concurrent_workflow_tasks"] = TASKS_AT_ONCE
        if not config.get("build_id") and not config.get("deployment_config"):
            config["deployment_config"] = UNVERSIONED
        return config

    async def run_worker(
        self,
        worker: Worker,
        next: Callable[[Worker], Awaitable[None]],  # noqa: A002 -- the SDK's name
    ) -> None:
        """Run a worker inside its lifetime."""
        # The SDK gives activities the client that the worker was made with; this hands them ours.
        worker.client = worker.client
        async with self._lifetime():
            await super().run_worker(worker, next)
