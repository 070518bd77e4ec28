"""The way to a Temporal server: which one, how, and in one sentence why not."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, GrpcCompression, Plugin, RPCError, RPCStatusCode, TLSConfig
from temporalio.envconfig import ClientConfig
from temporalio.service import ConnectConfig, ServiceClient

from orchestral_temporal.hosting.settings import TemporalSettings
from orchestral_temporal.hosting.values import split_address
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.temporal.converter import DATA_CONVERTER

CONNECT_SECONDS: Final = 5.0
"""Longest wait for a connection and its first call: a person is waiting, and the SDK alone would take 30 s."""

PROBE_SECONDS: Final = 2.0
"""Longest wait for a sign of life on this machine, where a server answers within milliseconds."""

_REFUSED: Final = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


class ConnectionFailed(Exception):  # noqa: N818 -- it says what happened, as `ModelFault` does
    """No usable server: the message is one sentence, `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Target:
    """Where to connect; what could be a secret stays out of its repr."""

    address: str
    host: str
    port: int
    namespace: str
    tls: bool | TLSConfig | None = field(repr=False)
    api_key: str | None = field(repr=False)
    metadata: Mapping[str, str] = field(repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it is a plain loopback address, so that a server of our own could stand there."""
        return not self.tls and not self.api_key and (self.host == "localhost" or _is_loopback(self.host))


class Answer(Enum):
    """What stands at an address."""

    NOTHING = auto()
    TEMPORAL = auto()
    OTHER = auto()


def resolve_target(settings: TemporalSettings) -> Target:
    """The target of the settings, after `TEMPORAL_*` variables and then `temporal.toml` had their say.

    Raises:
        SettingsError: the environment or that file cannot be used.
    """
    try:
        found = ClientConfig.load_client_connect_config()
    except (RuntimeError, OSError, ValueError) as error:
        # Later lines of a TOML error quote the file, where a key may stand.
        reason = str(error).partition("\n")[0]
        raise SettingsError([f"TEMPORAL_* variables or temporal.toml cannot be used: {reason}."]) from None
    address = found.get("target_host", settings.address)
    place = split_address(address)
    if place is None:
        raise SettingsError([f"TEMPORAL_ADDRESS or temporal.toml must give HOST:PORT, not {address!r}."])
    return Target(
        address=address,
        host=place[0],
        port=place[1],
        namespace=found.get("namespace", settings.namespace),
        tls=found.get("tls"),
        api_key=found.get("api_key"),
        metadata=found.get("rpc_metadata", {}),
    )


async def connect(
    settings: TemporalSettings, *, plugins: Sequence[Plugin] = (), check_namespace: bool = True
) -> Client:
    """Connect to the server of the settings and of the environment.

    Args:
        settings: Address, namespace and compression, where the environment says nothing else.
        plugins: Plugins of the client, and of every worker made with it.
        check_namespace: Whether to refuse a namespace that is not there; `setup` creates it, so it does not ask.

    Raises:
        SettingsError: as `resolve_target`.
        ConnectionFailed: nothing, or nothing usable, answers there within `CONNECT_SECONDS`.
    """
    target = resolve_target(settings)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await Client.connect(
                target.address,
                namespace=target.namespace,
                api_key=target.api_key,
                tls=target.tls,
                rpc_metadata=target.metadata,
                data_converter=DATA_CONVERTER,
                connect_timeout=timedelta(seconds=CONNECT_SECONDS),
                grpc_compression=await _compression(settings, target.host),
                plugins=plugins,
            )
            if check_namespace:
                await _require_namespace(client, target)
    except (RuntimeError, ValueError, TimeoutError) as error:
        raise await _explained(target, str(error)) from None
    except RPCError as error:
        raise await _explained(target, error.status.name) from None
    return client


async def probe(target: Target) -> Answer:
    """Look what answers at a local target, within about `PROBE_SECONDS`."""
    if not await _listens(target):
        return Answer.NOTHING
    config = ConnectConfig(target_host=target.address, lazy=True, grpc_compression=GrpcCompression.NONE)
    with suppress(RuntimeError, RPCError, TimeoutError):
        async with asyncio.timeout(PROBE_SECONDS):
            if await (await ServiceClient.connect(config)).check_health():
                return Answer.TEMPORAL
    return Answer.OTHER


async def _require_namespace(client: Client, target: Target) -> None:
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=target.namespace))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise ConnectionFailed(
                f"The server at {target.address} has no namespace {target.namespace}.",
                f"Run `orchestral setup --namespace {target.namespace}`, or name another in temporal.namespace.",
            ) from None
        # A key that may run workflows need not be allowed to describe its namespace.
        if error.status != RPCStatusCode.PERMISSION_DENIED:
            raise


async def _explained(target: Target, reason: str) -> ConnectionFailed:
    """Say what is wrong; the SDK's own text names neither remedy nor address in words for people."""
    if any(status.name.replace("_", "").lower() in reason.replace("_", "").lower() for status in _REFUSED):
        return ConnectionFailed(
            f"The server at {target.address} refuses our credentials.",
            "Check TEMPORAL_API_KEY, TEMPORAL_TLS_* and the profile in temporal.toml.",
        )
    if await _listens(target):
        return ConnectionFailed(
            f"What answers at {target.address} is no Temporal server that we can speak to.",
            "Check the port, and whether the server wants TLS (TEMPORAL_TLS).",
        )
    return ConnectionFailed(
        f"Nothing answers at {target.address}.",
        "Start a server with `orchestral dev`, or set temporal.address or TEMPORAL_ADDRESS.",
    )


async def _listens(target: Target) -> bool:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(target.host, target.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _compression(settings: TemporalSettings, host: str) -> GrpcCompression:
    """Compression makes near servers five times slower and far ones bearable (decision 7)."""
    match settings.grpc_compression:
        case "gzip":
            return GrpcCompression.GZIP
        case "none":
            return GrpcCompression.NONE
        case "auto":
            return GrpcCompression.NONE if await _is_near(host) else GrpcCompression.GZIP


async def _is_near(host: str) -> bool:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None)
    except OSError:
        return False
    return all(ipaddress.ip_address(place[0]).is_private for *_, place in found)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
