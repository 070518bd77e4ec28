"""What the model sees of an outcome (`spec/tools.md` §15)."""

import pytest

from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.protocol.content import ArtifactRefWithDigest
from orchestral_temporal.protocol.tools import (
    ArtifactOutput,
    Cancelled,
    Completed,
    Failed,
    InlineOutput,
    Rejected,
    ToolArtifact,
)
from orchestral_temporal.protocol.words import Json


def test_a_completed_call_shows_its_output() -> None:
    """An inline output is the result itself and no error."""
    part = tool_result("call_7", Completed(output=InlineOutput(value={"a": [1]})))
    assert (part.call_id, part.result, part.is_error) == ("call_7", {"a": [1]}, False)


def test_an_artifact_shows_its_reference() -> None:
    """Of an artifact the model sees reference, digest and summary, never the bytes (E6)."""
    artifact = ToolArtifact(
        artifact=ArtifactRefWithDigest(artifact_ref="blob-1", digest="0" * 64),
        media_type="application/json",
        byte_size=2_500,
        summary="JSON object with 2 top-level fields; 2500 bytes. Preview: {",
    )
    part = tool_result("call_7", Completed(output=ArtifactOutput(value=artifact)))
    assert part.is_error is False
    assert part.result == {
        "kind": "artifact",
        "artifact": {"artifact_ref": "blob-1", "digest": "0" * 64},
        "media_type": "application/json",
        "byte_size": 2_500,
        "summary": "JSON object with 2 top-level fields; 2500 bytes. Preview: {",
    }


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (Rejected(code="c", message="m"), {"status": "rejected", "code": "c", "message": "m"}),
        (
            Failed(code="timeout", message="m", retryable=False),
            {"status": "failed", "code": "timeout", "message": "m", "retryable": False},
        ),
        (Cancelled(), {"status": "cancelled"}),
    ],
)
def test_what_did_not_complete_shows_its_outcome(outcome: Rejected | Failed | Cancelled, result: Json) -> None:
    """A rejected, failed or cancelled call shows the outcome object as an error (E2)."""
    part = tool_result("call_7", outcome)
    assert part.result == result
    assert part.is_error is True
