"""A payload codec that has lost a key: what was written under it cannot be read."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec


class Locked(PayloadCodec):
    """Fails on the payloads whose text `locks` names, and leaves all others as they are."""

    def __init__(self, locks: Callable[[bytes], bool]) -> None:
        self.locks = locks
        self.refused = 0

    async def encode(self, payloads: Iterable[Payload]) -> list[Payload]:
        """Write as it is."""
        return list(payloads)

    async def decode(self, payloads: Iterable[Payload]) -> list[Payload]:
        """Read what is not locked."""
        found = list(payloads)
        if any(self.locks(each.data) for each in found):
            self.refused += 1
            raise ValueError("the key is gone")
        return found

    def used_by(self, client: Client) -> Client:
        """A client like this one that reads through the codec."""
        config = client.config()
        config["data_converter"] = replace(client.data_converter, payload_codec=self)
        return Client(**config)
