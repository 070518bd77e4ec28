"""The offline model: no key, no network, the same answer each time."""

from orchestral_temporal.adapters.models.offline.model import OfflineModel

__all__ = ["OfflineModel"]
