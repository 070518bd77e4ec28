"""What every command does around its own work: read the settings, set the logs up, end with an exit code."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NoReturn

from orchestral_temporal.hosting import process
from orchestral_temporal.hosting.loading import find_config, load_settings
from orchestral_temporal.hosting.locks import runtime_folder
from orchestral_temporal.hosting.logs import configure_logs
from orchestral_temporal.hosting.settings import Settings

LOG_NAME: Final = "orchestral.log"


def log_file() -> Path | None:
    """Where logs go that nobody asked to see; standard error where there is no such place."""
    try:
        return runtime_folder() / LOG_NAME
    except OSError:
        return None


def conclude(
    work: Callable[[Settings], Awaitable[int]], *, config: str | None, debug: bool, service: bool = False
) -> NoReturn:
    """Do a command's work with the settings and end the process.

    Args:
        work: Returns the exit code.
        config: The settings file, if one was named.
        debug: Whether logs and an error's traceback are shown.
        service: Whether standard error is the log of this process anyway.
    """

    async def whole() -> int:
        settings = load_settings(find_config(config))
        configure_logs(None if debug or service else log_file())
        return await work(settings)

    process.conclude(whole(), debug=debug)
