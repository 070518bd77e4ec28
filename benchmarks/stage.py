"""A server of our own, one process of workers, and the contenders that can be imported."""

import importlib
import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ours
import raw
from measures import payload_sizes, wait
from temporalio.client import Client, GrpcCompression
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from workload import Contender, Load

from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.loading import PACKAGED, load_settings
from orchestral_temporal.hosting.settings import TemporalSettings
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
    """The contenders on one server: ours, raw activities, and the peers that are installed."""

    client: Client
    contenders: tuple[Contender, ...]
    missing: tuple[str, ...]


@contextmanager
def ignored_environment() -> Generator[None]:
    """Hide `TEMPORAL_*` and `temporal.toml`: a benchmark must never find somebody's cluster."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TEMPORAL_")}
    os.environ["TEMPORAL_CONFIG_FILE"] = os.devnull
    try:
        yield
    finally:
        del os.environ["TEMPORAL_CONFIG_FILE"]
        os.environ.update(kept)


@asynccontextmanager
async def stage(sizes: tuple[int, ...]) -> AsyncGenerator[Stage, None]:
    """A new server in memory with the settings of `temporal-dev.yaml`, and warm workers for results of these sizes.

    Raises:
        RuntimeError: something else took the port of our server.
    """
    async with AsyncExitStack() as held:
        with ignored_environment():
            server = await held.enter_async_context(dev_server(_settings()))
        if not server.started:
            message = f"Another server answers at {server.address}; try again."
            raise RuntimeError(message)
        client = await _connect(server.address, data_converter=converter.DATA_CONVERTER, plugins=[raw.PLUGIN])
        mine = ours.Ours(client)
        for worker in mine.workers():
            await held.enter_async_context(worker)
        measured = {size: await _our_sizes(mine, size) for size in sizes}
        contenders: list[Contender] = [mine, raw.Raw(client, names.DEFAULT_QUEUE, measured)]
        missing: list[str] = []
        for module, kind, distribution in PEERS:
            try:
                peer = getattr(importlib.import_module(module), kind)
            except ModuleNotFoundError:
                missing.append(distribution)
                continue
            contender = peer(await _connect(server.address, plugins=[peer.plugin()]))
            await held.enter_async_context(contender.worker())
            contenders.append(contender)
        for contender in contenders[1:]:
            await wait(await contender.start(Load(WARM_UP, sizes[0]), f"warm-{contender.model_activity}"))
        yield Stage(client, tuple(contenders), tuple(missing))


def _settings() -> TemporalSettings:
    given = load_settings(PACKAGED).temporal
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    server = given.server.model_copy(update={"db": None, "ui_port": None, "sqlite_pragma": {}})
    return given.model_copy(update={"address": f"127.0.0.1:{port}", "server": server})


async def _connect(address: str, **options: Any) -> Client:
    return await Client.connect(address, grpc_compression=GrpcCompression.NONE, runtime=_runtime(), **options)


@cache
def _runtime() -> Runtime:
    """One for the process; it writes to standard output, where our table stands, so it says only what is an error."""
    quiet = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet)))


async def _our_sizes(mine: ours.Ours, size: int) -> raw.Sizes:
    """What the payloads of our rounds weigh, so that the raw ones weigh the same."""
    handle = await mine.start(Load(WARM_UP, size), f"warm-ours-{size}")
    await wait(handle)
    found = payload_sizes(await handle.fetch_history())
    model, tool = found[names.CALL_MODEL], found[names.INVOKE_TOOL]
    return raw.Sizes(model.given, model.answered, tool.given, tool.answered)
