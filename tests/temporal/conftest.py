"""A real development server for this room: in memory, no UI, tuned as decision 34 says.

One for the whole session. It ends with pytest however that ends, SIGKILL included: the watchdog sees to it.
"""

import os
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client

from orchestral_temporal.hosting.connection import connect
from orchestral_temporal.hosting.devserver import DevServer, dev_server
from orchestral_temporal.hosting.loading import PACKAGED, load_settings
from orchestral_temporal.hosting.settings import TemporalSettings
from tests.temporal.world import World, open_world


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A folder for locks and logs, and an environment that points to no other server; lasts the whole session."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        for name in [each for each in os.environ if each.startswith("TEMPORAL_")]:
            patch.delenv(name)
        patch.setenv("TEMPORAL_CONFIG_FILE", str(folder / "none.toml"))
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture
def free_port() -> int:
    """A port that nothing listens at."""
    return _free_port()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def temporal_settings(alone: Path) -> TemporalSettings:
    """The `temporal` section of the development file, with an address of its own and no database file."""
    assert alone.is_dir()
    return a_server_of_its_own()


def a_server_of_its_own() -> TemporalSettings:
    """The settings of a server that nobody else uses."""
    temporal = load_settings(PACKAGED).temporal
    server = temporal.server.model_copy(update={"db": None, "ui_port": None})
    return temporal.model_copy(update={"address": f"127.0.0.1:{_free_port()}", "server": server})


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(temporal_settings: TemporalSettings) -> AsyncGenerator[DevServer]:
    """The server, with our search attributes registered."""
    async with dev_server(temporal_settings) as running:
        yield running


@pytest_asyncio.fixture
async def client(server: DevServer, temporal_settings: TemporalSettings) -> Client:
    """A client of the server, without plugins."""
    assert server.started
    return await connect(temporal_settings)


@pytest_asyncio.fixture(params=[True, False], ids=["cached", "uncached"])
async def world(
    server: DevServer, temporal_settings: TemporalSettings, request: pytest.FixtureRequest
) -> AsyncGenerator[World]:
    """A world of a test's own, once with the workflow cache and once without (`max_cached_workflows=0`)."""
    async with open_world(server.address, temporal_settings.namespace, cached=request.param) as opened:
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where a worker runs, a cancel that crosses the end of its activity on the way is only a warning of the SDK."""
    for item in items:
        if "world" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning"))
