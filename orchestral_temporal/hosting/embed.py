"""Agents in a user's own program: one worker with everything, or a plugin for the workers that are there already."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.worker import Worker

from orchestral_temporal.adapters.artifacts.local import LocalArtifacts
from orchestral_temporal.api import Agent
from orchestral_temporal.hosting.compose import close_models, compose_agents
from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.activities import Timeouts
from orchestral_temporal.temporal.names import DEFAULT_QUEUE
from orchestral_temporal.temporal.plugin import HostingPlugin

ARTIFACTS: Final = Path(".orchestral/artifacts")
"""Where artifacts go unless something else is said, from the working directory."""

DEFAULT_TIMEOUTS: Final = Timeouts()


class OrchestralPlugin(HostingPlugin):
    """Serves agents on a user's own workers.

    `Client.connect(plugins=[OrchestralPlugin(agents=[…])])` makes `Worker(client, task_queue="orchestral")` serve them.
    The models are closed when the last worker stops that the plugin is on.

    Args:
        agents: The agents.
        artifacts: Where large values go; by default a folder below the working directory.
        timeouts: When a silent call counts as lost, and how often live text is shown.

    Raises:
        ValueError: two agents share a name, or a workspace is no folder.
        WordError: a tool cannot be one.
    """

    def __init__(
        self,
        *,
        agents: Sequence[Agent],
        artifacts: ArtifactStore | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        agents = tuple(agents)
        compose_agents(agents, "")  # what is wrong with them is said here, not when a worker is made
        models = [agent.model for agent in agents]
        serving = 0

        @asynccontextmanager
        async def lifetime() -> AsyncGenerator[None]:
            nonlocal serving
            serving += 1
            try:
                yield
            finally:
                serving -= 1
                if not serving:
                    await close_models(models)

        super().__init__(
            partial(compose_agents, agents),
            artifacts=artifacts or LocalArtifacts(ARTIFACTS.absolute()),
            timeouts=timeouts,
            lifetime=lifetime,
        )


def build_worker(
    client: Client,
    *,
    agents: Sequence[Agent],
    task_queue: str = DEFAULT_QUEUE,
    artifacts: ArtifactStore | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Worker:
    """A worker that serves runs, models and tools of these agents on one queue; any client will do.

    Raises:
        ValueError, WordError: as `OrchestralPlugin`.
    """
    plugin = OrchestralPlugin(agents=agents, artifacts=artifacts, timeouts=timeouts)
    return Worker(client, task_queue=task_queue, plugins=[plugin])
