"""The artifact store that the settings name, and an artifact out of it."""

import asyncio
from pathlib import Path

from orchestral_temporal.adapters.artifacts.local import LocalArtifacts
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.runtime.artifacts import ArtifactMissing, read_artifact


def artifact_store(settings: Settings) -> ArtifactStore:
    """The store that the workers of these settings use."""
    return LocalArtifacts(settings.artifacts)


async def copy_artifact(settings: Settings, reference: str, file: Path) -> int:
    """Write an artifact's bytes into a file, and say how many they are.

    Raises:
        SettingsError: the store does not hold it, or the store or the file is not accessible.
    """
    try:
        data = await read_artifact(artifact_store(settings), reference)
        await asyncio.to_thread(file.write_bytes, data)
    except ArtifactMissing as missing:
        raise SettingsError([f"{missing} It is {settings.artifacts}."]) from None
    except OSError as fault:
        raise SettingsError([f"The artifact cannot be copied: {fault}."]) from None
    return len(data)
