"""What was found at an MCP server, pinned by digest (`spec/builtin-tools.md` §14)."""

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from orchestral_temporal.protocol.base import Json, JsonObject, OpenWord, Word
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import require
from orchestral_temporal.protocol.ids import Digest
from orchestral_temporal.protocol.validation import (
    require_sealed,
    require_sha256,
    require_text,
    require_unique,
    validate,
    validate_each,
)
from orchestral_temporal.protocol.words import dump

McpServerId = Annotated[str, "one MCP server"]

MCP_PROTOCOL: Final = "orchestral.mcp-tools/v1"
"""Ours, under which a server is pinned; that of the server itself is a date."""

STATELESS_VERSION: Final = "2026-07-28"
"""The one version of MCP without a handshake."""

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class McpErrorCode(StrEnum):
    """What is wrong with a snapshot; never on the wire."""

    INVALID = "Invalid"


_INVALID = McpErrorCode.INVALID


class McpTransportKind(StrEnum):
    """How a server is reached."""

    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable_http"


class McpProtocolEra(StrEnum):
    """Whether a connection begins with a handshake."""

    STATELESS = "stateless"
    LEGACY_HANDSHAKE = "legacy_handshake"


class McpToolAnnotations(OpenWord):
    """What a server says of a tool, null where it says nothing; hints, never authority."""

    model_config = ConfigDict(serialize_by_alias=True)

    title: str | None = None
    read_only_hint: bool | None = Field(default=None, alias="readOnlyHint")
    destructive_hint: bool | None = Field(default=None, alias="destructiveHint")
    idempotent_hint: bool | None = Field(default=None, alias="idempotentHint")
    open_world_hint: bool | None = Field(default=None, alias="openWorldHint")


class McpToolSnapshot(Word):
    """One tool of a server as it was found."""

    server_id: McpServerId
    name: str
    description: str
    input_schema: Json
    output_schema: Json = None
    annotations: McpToolAnnotations = McpToolAnnotations()
    schema_digest: Digest


class McpServerSnapshot(Word):
    """A server as it was found, its tools by name; the revision seals all of it."""

    protocol: str
    server_id: McpServerId
    transport: McpTransportKind
    transport_binding_digest: Digest
    mcp_protocol_version: str
    mcp_protocol_era: McpProtocolEra
    tools: tuple[McpToolSnapshot, ...]
    revision: Digest


def tool_digest(tool: McpToolSnapshot) -> Digest:
    """The digest of all that a server says of a tool."""
    covered: JsonObject = {**dump(tool), "protocol": MCP_PROTOCOL}
    del covered["schema_digest"]
    return digest(covered)


def server_revision(server: McpServerSnapshot) -> Digest:
    """The digest of all of a snapshot but the revision itself."""
    covered = dump(server)
    del covered["revision"]
    return digest(covered)


def needs_approval(annotations: McpToolAnnotations) -> bool:
    """Whether the hints alone ask for a person: the tool destroys, or it writes to the open world."""
    writes_outside = annotations.read_only_hint is False and annotations.open_world_hint is True
    return annotations.destructive_hint is True or writes_outside


@validate.register
def _(tool: McpToolSnapshot) -> None:
    require_text("server_id", tool.server_id, _INVALID)
    require_text("name", tool.name, _INVALID)
    require(isinstance(tool.input_schema, dict), _INVALID, "`input_schema` is no object; give one.")
    require(isinstance(tool.output_schema, dict | None), _INVALID, "`output_schema` is no object; give one, or null.")
    require_sealed("schema_digest", tool.schema_digest, tool_digest(tool), _INVALID)


@validate.register
def _(server: McpServerSnapshot) -> None:
    require(server.protocol == MCP_PROTOCOL, _INVALID, f"`protocol` is another one than {MCP_PROTOCOL}.")
    require_text("server_id", server.server_id, _INVALID)
    require_sha256("transport_binding_digest", server.transport_binding_digest, _INVALID)
    version, stateless = server.mcp_protocol_version, server.mcp_protocol_era is McpProtocolEra.STATELESS
    require(_DATE.fullmatch(version) is not None, _INVALID, "`mcp_protocol_version` is no date; give YYYY-MM-DD.")
    require(stateless == (version == STATELESS_VERSION), _INVALID, f"`mcp_protocol_era` is not that of {version}.")
    validate_each(server.tools)
    require(
        all(tool.server_id == server.server_id for tool in server.tools), _INVALID, "`tools` has one of another server."
    )
    names = [tool.name for tool in server.tools]
    require_unique("tools", names, _INVALID)
    require(names == sorted(names), _INVALID, "`tools` are not sorted by name; pin the server again.")
    require_sealed("revision", server.revision, server_revision(server), _INVALID)
