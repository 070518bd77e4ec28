"""A server of our own, one process of workers, and the contenders that can be imported."""

import importlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import ours
import raw
from measures import payload_sizes, wait
from server import connect, own_server
from temporalio.client import Client
from workload import Contender, Load

from orchestral_temporal.temporal import converter, names

PEERS: Final = (
    ("peer_pydantic_ai", "PydanticAi", "pydantic-ai-slim"),
    ("peer_openai_agents", "OpenAiAgents", "temporalio-openai-agents"),
)
"""Module, class and distribution of each peer."""

WARM_UP: Final = 8
"""Rounds of the runs that warm a worker up and show how large our payloads are."""


@dataclass(frozen=True)
class Stage:
    """The contenders on one server: ours, raw activities, ours with a fenced tool, and the peers that are installed."""

    client: Client
    contenders: tuple[Contender, ...]
    missing: tuple[str, ...]


@asynccontextmanager
async def stage(sizes: tuple[int, ...]) -> AsyncGenerator[Stage, None]:
    """A new server, and warm workers for results of these sizes.

    Raises:
        RuntimeError: as `own_server`.
    """
    async with AsyncExitStack() as held:
        address = await held.enter_async_context(own_server())
        client = await connect(address, data_converter=converter.DATA_CONVERTER, plugins=[raw.PLUGIN])
        mine = ours.Ours(client)
        for worker in mine.workers():
            await held.enter_async_context(worker)
        measured = {size: await _our_sizes(mine, size) for size in sizes}
        contenders: list[Contender] = [mine, raw.Raw(client, names.DEFAULT_QUEUE, measured), ours.Fenced(client)]
        missing: list[str] = []
        for module, kind, distribution in PEERS:
            try:
                peer = getattr(importlib.import_module(module), kind)
            except ModuleNotFoundError:
                missing.append(distribution)
                continue
            contender = peer(await connect(address, plugins=[peer.plugin()]))
            await held.enter_async_context(contender.worker())
            contenders.append(contender)
        for contender in contenders[1:]:
            await wait(await contender.start(Load(WARM_UP, sizes[0]), f"warm-{contender.model_activity}"))
        yield Stage(client, tuple(contenders), tuple(missing))


async def _our_sizes(mine: ours.Ours, size: int) -> raw.Sizes:
    """What the payloads of our rounds weigh, so that the raw ones weigh the same."""
    handle = await mine.start(Load(WARM_UP, size), f"warm-ours-{size}")
    await wait(handle)
    found = payload_sizes(await handle.fetch_history())
    model, tool = found[names.CALL_MODEL], found[names.INVOKE_TOOL]
    return raw.Sizes(model.given, model.answered, tool.given, tool.answered)
