"""Scenes for the tests of this room, each once with the workflow cache and once without."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.crash.scene import Scene, open_scene
from tests.temporal.conftest import alone, server, temporal_settings
from tests.temporal.world import open_world

from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.hosting.settings import TemporalSettings

__all__ = ["alone", "scene", "server", "temporal_settings"]


@pytest_asyncio.fixture(params=[True, False], ids=["cached", "uncached"])
async def scene(
    server: DevServer,  # noqa: F811 -- the fixture
    temporal_settings: TemporalSettings,  # noqa: F811 -- the fixture
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> AsyncGenerator[Scene]:
    """A scene on a server that stays; every history of it is looked at when the test is over."""
    async with open_world(server.address, temporal_settings.namespace, cached=request.param) as world:
        with open_scene(world, tmp_path, record_property) as opened:
            yield opened
