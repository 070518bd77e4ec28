"""Finding a Temporal server, connecting, and preparing a namespace."""

import ipaddress
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, RemoveSearchAttributesRequest
from temporalio.client import Client, GrpcCompression
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from orchestral_temporal.hosting.connection import ConnectionFailed, connect, resolve_target
from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.namespace import SetupFailed, check, setup
from orchestral_temporal.hosting.settings import TemporalSettings
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.temporal.visibility import ATTRIBUTES, STATUS, WAITING

SENTINEL = "SENTINEL-7f3a91"


@pytest.mark.usefixtures("alone")
async def test_nothing_there_is_one_sentence_and_a_hint(free_port: int) -> None:
    """A silent address is named with what to do about it."""
    with pytest.raises(ConnectionFailed, match=rf"^Nothing answers at 127\.0\.0\.1:{free_port}\.$") as caught:
        await connect(TemporalSettings(address=f"127.0.0.1:{free_port}"))
    assert "`orchestral dev`" in caught.value.hint


@pytest.mark.usefixtures("alone")
async def test_environment_goes_before_file_and_file_before_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`TEMPORAL_*`, then `temporal.toml`, then the YAML; the key of the file is used and never shown."""
    settings = TemporalSettings(address="127.0.0.1:1", namespace="yaml")
    assert (resolve_target(settings).address, resolve_target(settings).namespace) == ("127.0.0.1:1", "yaml")
    toml = tmp_path / "temporal.toml"
    toml.write_text(f'[profile.default]\naddress = "10.0.0.1:2"\nnamespace = "toml"\napi_key = "{SENTINEL}"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(toml))
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "env")
    target = resolve_target(settings)
    assert (target.address, target.namespace, target.api_key) == ("10.0.0.1:2", "env", SENTINEL)
    assert SENTINEL not in repr(target)


@pytest.mark.usefixtures("alone")
async def test_an_environment_that_cannot_be_used_is_refused_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken file, an unknown profile and a bad address are configuration errors, in one line each."""
    toml = tmp_path / "temporal.toml"
    toml.write_text(f'[profile.default]\napi_key = "{SENTINEL}\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(toml))
    with pytest.raises(SettingsError, match=r"temporal\.toml cannot be used: .*line 2") as caught:
        resolve_target(TemporalSettings())
    assert SENTINEL not in str(caught.value)
    toml.write_text("")
    monkeypatch.setenv("TEMPORAL_PROFILE", "gone")
    with pytest.raises(SettingsError, match="Profile 'gone' not found"):
        resolve_target(TemporalSettings())
    monkeypatch.delenv("TEMPORAL_PROFILE")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "localhost")
    with pytest.raises(SettingsError, match="must give HOST:PORT, not 'localhost'"):
        resolve_target(TemporalSettings())


@pytest.mark.usefixtures("alone")
async def test_no_server_is_started_for_an_address_with_a_key(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who brings credentials means a server that exists; the key is not in the error."""
    monkeypatch.setenv("TEMPORAL_API_KEY", SENTINEL)
    with pytest.raises(ConnectionFailed, match=r"^Nothing answers") as caught:
        await dev_server(TemporalSettings(address=f"127.0.0.1:{free_port}")).__aenter__()
    assert SENTINEL not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    ("wish", "expected"),
    [("auto", GrpcCompression.NONE), ("none", GrpcCompression.NONE), ("gzip", GrpcCompression.GZIP)],
)
async def test_compression_is_off_where_the_server_is_near(
    client: Client, temporal_settings: TemporalSettings, wish: str, expected: GrpcCompression
) -> None:
    """`auto` compresses for far addresses only; the other words are obeyed."""
    assert ipaddress.ip_address(temporal_settings.address.partition(":")[0]).is_loopback
    chosen = await connect(temporal_settings.model_copy(update={"grpc_compression": wish}))
    assert chosen.service_client.config.grpc_compression == expected
    assert client.service_client.config.grpc_compression == GrpcCompression.NONE


async def test_setup_makes_a_namespace_ready_and_does_nothing_twice(client: Client) -> None:
    """It creates, registers and sets; a second time reports no change, a third only another retention."""
    before = await check(client, "made")
    assert (before.exists, before.ready, before.retention) == (False, False, None)
    assert before.missing == tuple(key.name for key in ATTRIBUTES)
    first = await setup(client, "made", timedelta(hours=48))
    assert first.created
    assert first.added == before.missing
    assert (await check(client, "made")).ready
    second = await setup(client, "made", timedelta(hours=48))
    assert (second.created, second.added, second.retention_before) == (False, (), timedelta(hours=48))
    await setup(client, "made", timedelta(hours=72))
    assert (await check(client, "made")).retention == timedelta(hours=72)


async def test_a_run_can_start_the_moment_setup_returns(client: Client, temporal_settings: TemporalSettings) -> None:
    """Each of two fresh namespaces can be used with our attributes in the same moment."""
    words = TypedSearchAttributes(
        [SearchAttributePair(STATUS, "running"), SearchAttributePair(WAITING, ["input", "approval"])]
    )
    for n in range(2):
        await setup(client, f"fresh-{n}", timedelta(hours=24))
        there = await connect(temporal_settings.model_copy(update={"namespace": f"fresh-{n}"}))
        await there.start_workflow("AgentRun", id="r1", task_queue="nobody", search_attributes=words)


async def test_an_attribute_of_another_type_is_refused(client: Client) -> None:
    """A namespace where our name means something else is left alone, and the name is said."""
    await setup(client, "odd", timedelta(hours=24))
    await client.operator_service.remove_search_attributes(
        RemoveSearchAttributesRequest(namespace="odd", search_attributes=[STATUS.name])
    )
    number = IndexedValueType.INDEXED_VALUE_TYPE_INT
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace="odd", search_attributes={STATUS.name: number})
    )
    assert (await check(client, "odd")).mistyped == (STATUS.name,)
    with pytest.raises(SetupFailed, match=f"another type than ours: {STATUS.name}"):
        await setup(client, "odd", timedelta(hours=24))


async def test_a_server_that_refuses_is_quoted(client: Client) -> None:
    """What the server says against a namespace is in the error."""
    with pytest.raises(SetupFailed, match=r"cannot look at namespace xxx.*length exceeds limit"):
        await setup(client, "x" * 2_000, timedelta(hours=24))
    with pytest.raises(SetupFailed, match=r"cannot prepare namespace brief: .*etention"):
        await setup(client, "brief", timedelta(0))
