"""A connection that needs no settings of ours: what the SDK's own environment says, our payload forms on it."""

from typing import Final

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from orchestral_temporal.temporal.converter import DATA_CONVERTER

LOCAL_SERVER: Final = "127.0.0.1:7233"
"""Where Temporal listens unless somebody says otherwise."""


async def connected() -> Client:
    """A client for the server that `TEMPORAL_*` variables or `temporal.toml` name, else for one on this machine.

    Raises:
        RuntimeError: no server answers there.
    """
    found = ClientConfig.load_client_connect_config()
    return await Client.connect(
        found.get("target_host", LOCAL_SERVER),
        namespace=found.get("namespace", "default"),
        api_key=found.get("api_key"),
        tls=found.get("tls"),
        rpc_metadata=found.get("rpc_metadata", {}),
        data_converter=DATA_CONVERTER,
    )
