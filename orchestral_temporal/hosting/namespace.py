"""What we need of a namespace: that it exists, its retention, our search attributes (decision 25)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    ListWorkflowExecutionsRequest,
    RegisterNamespaceRequest,
    UpdateNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.hosting.connection import ConnectionFailed
from orchestral_temporal.temporal.visibility import ATTRIBUTES

RPC_TIMEOUT: Final = timedelta(seconds=10)
"""For one administrative call: rare, and on a cluster it may wait for a database."""

USABLE_SECONDS: Final = 30.0
"""Longest wait until a server that was told of a namespace or an attribute uses it: its caches live about 10 s."""

_PAUSE: Final = 0.1
_TYPES: Final = {key.name: IndexedValueType.ValueType(key.indexed_value_type) for key in ATTRIBUTES}


class SetupFailed(ConnectionFailed):
    """The server did not let us prepare the namespace."""


@dataclass(frozen=True)
class NamespaceState:
    """What a namespace has; retention is none, and every attribute missing, if it does not exist."""

    exists: bool
    retention: timedelta | None
    missing: tuple[str, ...]
    mistyped: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether runs can be started and found."""
        return self.exists and not self.missing and not self.mistyped


@dataclass(frozen=True)
class SetupReport:
    """What `setup` changed; nothing, the second time."""

    created: bool
    added: tuple[str, ...]
    retention_before: timedelta | None
    retention: timedelta


async def check(client: Client, namespace: str) -> NamespaceState:
    """Look at a namespace without changing it.

    Raises:
        SetupFailed: the server does not let us look.
    """
    try:
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=namespace), timeout=RPC_TIMEOUT
        )
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace), timeout=RPC_TIMEOUT
        )
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return NamespaceState(exists=False, retention=None, missing=tuple(_TYPES), mistyped=())
        raise _refused(namespace, "look at", error) from None
    have = listed.custom_attributes
    return NamespaceState(
        exists=True,
        retention=described.config.workflow_execution_retention_ttl.ToTimedelta(),
        missing=tuple(name for name in _TYPES if name not in have),
        mistyped=tuple(name for name, kind in _TYPES.items() if name in have and have[name] != kind),
    )


async def setup(client: Client, namespace: str, retention: timedelta) -> SetupReport:
    """Create the namespace, set its retention and register our search attributes, each only where it is not so yet.

    Returns when the namespace can be used, which on a cluster takes some seconds.

    Raises:
        SetupFailed: the server refused, an attribute has another type there, or it was not usable in time.
    """
    state = await check(client, namespace)
    if state.mistyped:
        raise SetupFailed(
            f"In namespace {namespace} search attributes have another type than ours: {', '.join(state.mistyped)}.",
            "Rename or remove them there, or use another namespace.",
        )
    try:
        async with asyncio.timeout(USABLE_SECONDS):
            await _apply(client, namespace, retention, state)
    except RPCError as error:
        raise _refused(namespace, "prepare", error) from None
    except TimeoutError:
        raise SetupFailed(
            f"Namespace {namespace} could not be used {USABLE_SECONDS:.0f} s after it was prepared.",
            "Wait a minute and run `orchestral setup` again.",
        ) from None
    return SetupReport(
        created=not state.exists, added=state.missing, retention_before=state.retention, retention=retention
    )


async def _apply(client: Client, namespace: str, retention: timedelta, state: NamespaceState) -> None:
    service, period = client.workflow_service, Duration()
    period.FromTimedelta(retention)
    if not state.exists:
        register = RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=period)
        await service.register_namespace(register, timeout=RPC_TIMEOUT)
    elif state.retention != retention:
        config = NamespaceConfig(workflow_execution_retention_ttl=period)
        await service.update_namespace(UpdateNamespaceRequest(namespace=namespace, config=config), timeout=RPC_TIMEOUT)
    if state.missing:
        add = AddSearchAttributesRequest(
            namespace=namespace, search_attributes={name: _TYPES[name] for name in state.missing}
        )
        await _once_known(
            lambda: client.operator_service.add_search_attributes(add, timeout=RPC_TIMEOUT), RPCStatusCode.NOT_FOUND
        )
        # A search by all of them succeeds once the server knows namespace and attributes.
        query = " AND ".join(f"{name} IS NULL" for name in _TYPES)
        search = ListWorkflowExecutionsRequest(namespace=namespace, query=query, page_size=1)
        await _once_known(
            lambda: service.list_workflow_executions(search, timeout=RPC_TIMEOUT),
            RPCStatusCode.NOT_FOUND,
            RPCStatusCode.INVALID_ARGUMENT,
        )


async def _once_known(call: Callable[[], Awaitable[object]], *unknown: RPCStatusCode) -> None:
    """Repeat a call while the server's caches do not know yet what it was told."""
    while True:
        try:
            await call()
        except RPCError as error:
            if error.status not in unknown:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return


def _refused(namespace: str, verb: str, error: RPCError) -> SetupFailed:
    attributes = ", ".join(f"{key.name} ({key.indexed_value_type.name.lower()})" for key in ATTRIBUTES)
    if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED):
        return SetupFailed(
            f"The server does not let us {verb} namespace {namespace}.",
            f"Let its administrator create it with these search attributes: {attributes}.",
        )
    return SetupFailed(
        f"The server cannot {verb} namespace {namespace}: {error.message}.", "Try again, or see its log."
    )
