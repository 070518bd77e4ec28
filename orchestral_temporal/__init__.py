"""An AI-agent run that cannot be lost, doubled or forged, on Temporal.

The names in `__all__` are the public ones. Each is imported when it is first used, so that `import orchestral_temporal`
loads neither Temporal's SDK nor a vendor's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orchestral_temporal.adapters.artifacts.local import LocalArtifacts
    from orchestral_temporal.adapters.models.offline import OfflineModel
    from orchestral_temporal.adapters.models.openai import OpenAIModel
    from orchestral_temporal.api import (
        Agent,
        Policy,
        RunLimits,
        Tool,
        ToolCall,
        ToolFailed,
        ToolRejected,
        tool,
    )
    from orchestral_temporal.core.start import StartRefused
    from orchestral_temporal.hosting.embed import OrchestralPlugin, build_worker
    from orchestral_temporal.protocol.errors import ProtocolError
    from orchestral_temporal.runtime.artifacts import ArtifactMissing
    from orchestral_temporal.temporal.client import AgentClient, ContinuityUnknown, RunHandle, Turn
    from orchestral_temporal.temporal.watch import Frame

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentClient",
    "ArtifactMissing",
    "ContinuityUnknown",
    "Frame",
    "LocalArtifacts",
    "OfflineModel",
    "OpenAIModel",
    "OrchestralPlugin",
    "Policy",
    "ProtocolError",
    "RunHandle",
    "RunLimits",
    "StartRefused",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolRejected",
    "Turn",
    "build_worker",
    "tool",
]

_HOMES: Final = {
    "adapters.artifacts.local": ("LocalArtifacts",),
    "adapters.models.offline": ("OfflineModel",),
    "adapters.models.openai": ("OpenAIModel",),
    "api": ("Agent", "Policy", "RunLimits", "Tool", "ToolCall", "ToolFailed", "ToolRejected", "tool"),
    "core.start": ("StartRefused",),
    "hosting.embed": ("OrchestralPlugin", "build_worker"),
    "protocol.errors": ("ProtocolError",),
    "runtime.artifacts": ("ArtifactMissing",),
    "temporal.client": ("AgentClient", "ContinuityUnknown", "RunHandle", "Turn"),
    "temporal.watch": ("Frame",),
}
"""Where each public name lives."""


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
