"""A server of our own in memory, with the settings of `temporal-dev.yaml`, and quiet clients of it."""

import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache
from typing import Any

from temporalio.client import Client, GrpcCompression
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.loading import PACKAGED, load_settings
from orchestral_temporal.hosting.settings import TemporalSettings


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
async def own_server() -> AsyncGenerator[str]:
    """The address of a new server, which ends with the block.

    Raises:
        RuntimeError: something else took the port of our server.
    """
    async with AsyncExitStack() as held:
        with ignored_environment():
            server = await held.enter_async_context(dev_server(_settings()))
        if not server.started:
            message = f"Another server answers at {server.address}; try again."
            raise RuntimeError(message)
        yield server.address


async def connect(address: str, **options: Any) -> Client:
    """A client of that server, as `Client.connect` makes it with these options."""
    return await Client.connect(address, grpc_compression=GrpcCompression.NONE, runtime=_runtime(), **options)


def _settings() -> TemporalSettings:
    given = load_settings(PACKAGED).temporal
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    server = given.server.model_copy(update={"db": None, "ui_port": None, "sqlite_pragma": {}})
    return given.model_copy(update={"address": f"127.0.0.1:{port}", "server": server})


@cache
def _runtime() -> Runtime:
    """One for the process; it writes to standard output, where our table stands, so it says only what is an error."""
    quiet = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet)))
