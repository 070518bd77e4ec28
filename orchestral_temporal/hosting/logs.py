"""Logs: one line for what deserves a look, to a file or standard error; standard output belongs to answers."""

import logging
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

import structlog
from structlog.typing import Processor
from temporalio import workflow
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

_SHARED: Final[tuple[Processor, ...]] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logs(file: Path | None = None) -> None:
    """Send warnings of ours, of the SDK and of its core to `file`, else to standard error; once in a process.

    The file is made with the first line. A replay says nothing again.
    """
    handler = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file, delay=True)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    structlog.configure(
        processors=[
            _once,
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Left to itself the core writes to standard output.
    forwarding = LogForwardingConfig(logging.getLogger("temporalio.core"), append_target_to_name=False)
    core = LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarding)
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=core)))


def _once(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:  # structlog's own types
    """Drop what a replay says again."""
    if workflow.in_workflow() and workflow.unsafe.is_replaying_history_events():
        raise structlog.DropEvent
    return event
