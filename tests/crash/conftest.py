"""Scenes for the tests of this room, each once with the workflow cache and once without."""

import os
import statistics
from collections.abc import AsyncGenerator
from pathlib import Path
from random import SystemRandom

import pytest
import pytest_asyncio

from orchestral_temporal.hosting.devserver import DevServer
from orchestral_temporal.hosting.settings import TemporalSettings
from tests.crash.scene import RECOVERY, Scene, open_scene
from tests.temporal.conftest import alone, free_port, server, temporal_settings
from tests.temporal.world import open_world

__all__ = ["alone", "free_port", "scene", "server", "temporal_settings"]


@pytest_asyncio.fixture(params=[True, False], ids=["cached", "uncached"])
async def scene(
    server: DevServer,
    temporal_settings: TemporalSettings,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> AsyncGenerator[Scene]:
    """A scene on a server that stays; every history of it is looked at when the test is over."""
    async with open_world(server.address, temporal_settings.namespace, cached=request.param) as world:
        with open_scene(world, tmp_path, request.node) as opened:
            yield opened


HALF = SystemRandom().randrange(2)
"""Each cell is played once, with the workflow cache or without; `WHOLE_MATRIX=1` plays both."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take a half of this room, unless all of it is asked for."""
    if os.environ.get("WHOLE_MATRIX"):
        return
    cells = [each for each in items if "tests/crash" in each.nodeid and "cached" in each.nodeid]
    names = sorted({each.nodeid.replace("uncached", "cached") for each in cells})
    wanted = {name: (place + HALF) % 2 == 0 for place, name in enumerate(names)}
    left = [each for each in cells if wanted[each.nodeid.replace("uncached", "cached")] != ("uncached" in each.nodeid)]
    config.hook.pytest_deselected(items=left)
    items[:] = [each for each in items if each not in left]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long the runs of this room took to go on, and which half of it was played."""
    terminalreporter.write_line(f"Kills: half {HALF} of 0 and 1; WHOLE_MATRIX=1 plays both.")
    reports = [each for each in terminalreporter.getreports("passed") if each.when == "call"]
    took = [value for each in reports for name, value in each.user_properties if name == RECOVERY]
    if took:
        shown = f"{min(took):.1f} / {statistics.median(took):.1f} / {max(took):.1f} s"
        terminalreporter.write_line(f"Recovery after {len(took)} kills and stops, least / median / most: {shown}")
