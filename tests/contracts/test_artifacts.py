"""Artifact stores: every store keeps bytes by digest; the local one survives a crash, other processes and bad disks."""

import asyncio
import hashlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestral_temporal.adapters.artifacts.local import LocalArtifacts
from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.testing.artifacts import MemoryArtifacts
from tests.temporal.world import until

ROOT = Path(__file__).parents[2]

WRITER = """
import asyncio, os, sys
from pathlib import Path
from orchestral_temporal.adapters.artifacts.local import LocalArtifacts

async def main():
    store = LocalArtifacts(Path(sys.argv[1]))
    while True:
        await store.put(os.urandom(1_000_000))

asyncio.run(main())
"""

STORES: list[Callable[[Path], ArtifactStore]] = [LocalArtifacts, lambda _: MemoryArtifacts()]


@pytest.fixture(params=STORES, ids=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """Each store that there is, empty."""
    made: ArtifactStore = request.param(tmp_path / "store")
    return made


def files(folder: Path) -> list[Path]:
    """All files below a folder."""
    return [each for each in folder.rglob("*") if each.is_file()]


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 8_000], ids=["empty", "small", "large"])
async def test_bytes_come_back_under_their_digest(store: ArtifactStore, data: bytes) -> None:
    """What was put is there under its lower-case SHA-256, byte for byte."""
    digest = await store.put(data)

    assert digest == hashlib.sha256(data).hexdigest()
    assert await store.get(digest) == data


async def test_putting_twice_is_putting_once(store: ArtifactStore) -> None:
    """The same bytes get the same digest, also side by side."""
    digests = await asyncio.gather(*[store.put(b"same") for _ in range(8)])

    assert set(digests) == {hashlib.sha256(b"same").hexdigest()}
    assert await store.get(digests[0]) == b"same"


@pytest.mark.parametrize("digest", ["0" * 64, "", "../secret", "A" * 64, "0" * 64 + "/x"])
async def test_an_unknown_digest_is_a_key_error(store: ArtifactStore, digest: str) -> None:
    """What is not there is a KeyError, and so is what is no digest at all."""
    with pytest.raises(KeyError):
        await store.get(digest)


async def test_the_local_store_keeps_one_file_for_equal_bytes(tmp_path: Path) -> None:
    """Equal bytes take their place once, and nothing else is left behind."""
    store = LocalArtifacts(tmp_path / "store")
    for data in (b"a", b"a", b"b"):
        await store.put(data)

    assert sorted(each.read_bytes() for each in files(tmp_path)) == [b"a", b"b"]


async def test_a_digest_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    """A name that climbs out of the store reads nothing, even where there is something."""
    (tmp_path / "outside").write_bytes(b"secret")
    store = LocalArtifacts(tmp_path / "store")
    await store.put(b"x")

    with pytest.raises(KeyError):
        await store.get("../outside")


async def test_damaged_bytes_count_as_missing_and_are_mended(tmp_path: Path) -> None:
    """Bytes that do not fit their digest are never handed out; putting the right ones again repairs the store."""
    store = LocalArtifacts(tmp_path / "store")
    digest = await store.put(b"good")
    (only,) = files(tmp_path)
    only.write_bytes(b"baad")

    with pytest.raises(KeyError):
        await store.get(digest)
    assert await store.put(b"good") == digest
    assert await store.get(digest) == b"good"


async def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    """Where there is no room the caller hears of it, and nothing is half there."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(OSError, match="file"):
        await LocalArtifacts(tmp_path / "file" / "store").put(b"x")


async def test_a_killed_writer_leaves_whole_artifacts(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing: everything with a final name has all its bytes, and others can go on."""
    folder = tmp_path / "store"
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(folder), cwd=ROOT)
    try:
        await until(lambda: len(files(folder)) > 5, "the writer has written")
    finally:
        writer.send_signal(signal.SIGKILL)
        await writer.wait()

    finished = [each for each in files(folder) if not each.name.startswith(".new-")]
    assert finished
    for each in finished:
        assert hashlib.sha256(each.read_bytes()).hexdigest() == each.parent.name + each.name
    assert await LocalArtifacts(folder).put(b"after") == hashlib.sha256(b"after").hexdigest()
