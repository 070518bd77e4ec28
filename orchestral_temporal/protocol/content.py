"""Content: what people, models and tools exchange; bytes live behind an artifact reference (`spec/wire.md` §6)."""

from typing import Annotated, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import Json, Word
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.ids import ArtifactRef, Digest, SchemaRef
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_sha256,
    require_text,
    validate,
    validate_each,
)


class ArtifactRefWithDigest(Word):
    """An artifact and the digest of its bytes."""

    artifact_ref: ArtifactRef
    digest: Digest


class InlineBody(Word):
    """A value carried as it is."""

    kind: Literal["inline"] = "inline"
    value: Json


class ArtifactBody(Word):
    """A value kept in the artifact store."""

    kind: Literal["artifact"] = "artifact"
    value: ArtifactRefWithDigest


ContentBody = Annotated[InlineBody | ArtifactBody, Field(discriminator="kind")]


class Content(Word):
    """One typed value."""

    media_type: str
    schema_id: SchemaRef | None = None
    body: ContentBody


class NamedOutput(Word):
    """A delivery's output under its name."""

    name: str
    content: Content


def text_content(text: str) -> Content:
    """Inline plain text."""
    return Content(media_type="text/plain", body=InlineBody(value=text))


def stored_text(digest: Digest) -> Content:
    """Plain text in the artifact store, which knows an artifact by the digest of its bytes."""
    reference = ArtifactRefWithDigest(artifact_ref=digest, digest=digest)
    return Content(media_type="text/plain", body=ArtifactBody(value=reference))


def validate_list(name: str, contents: tuple[Content, ...]) -> None:
    """Check a content list: at least one, each valid; raises as `validate`."""
    require(bool(contents), AgentProtocolErrorCode.INVALID_SPEC, f"`{name}` is empty; give at least one content.")
    validate_each(contents)


@validate.register
def _(artifact: ArtifactRefWithDigest) -> None:
    require_filled("artifact_ref", artifact.artifact_ref, AgentProtocolErrorCode.INVALID_DIGEST)
    require_sha256("digest", artifact.digest, AgentProtocolErrorCode.INVALID_DIGEST)


@validate.register
def _(content: Content) -> None:
    require_text("media_type", content.media_type)
    require_filled("schema_id", content.schema_id)
    validate(content.body)


@validate.register
def _(output: NamedOutput) -> None:
    require_text("name", output.name)
    validate(output.content)
