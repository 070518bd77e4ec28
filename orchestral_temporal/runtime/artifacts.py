"""Reading artifacts: what a store gives back is taken for what was asked only if it has that digest."""

from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.digest import sha256


class ArtifactMissing(Exception):  # noqa: N818 -- a fact about a store
    """A store does not hold an artifact; one sentence, which names it."""


async def read_artifact(store: ArtifactStore, digest: str) -> bytes:
    """The bytes of an artifact.

    Raises:
        ArtifactMissing: the store does not hold it, or holds other bytes under its name.
        OSError: the store cannot be read now.
    """
    try:
        data = await store.get(digest)
    except KeyError:
        raise ArtifactMissing(f"The artifact store does not hold {digest!r}.") from None
    if sha256(data) != digest:
        raise ArtifactMissing(f"The artifact store holds other bytes under {digest!r}.")
    return data
