"""The wire types against the golden vectors: what is accepted, in which form, and what is refused, when and why."""

from collections.abc import Callable
from typing import Any

import pytest

from orchestral_temporal.protocol import (
    approval,
    commands,
    effects,
    events,
    mcp,
    requests,
    run,
    session,
    skills,
    state,
    wal,
)
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.protocol.digest import canonical, digest, sha256
from orchestral_temporal.protocol.errors import ProtocolError, WordError
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import same, to_json
from tests.golden import Row, kind, read, read_value, rows, rows_by_type, text_of, value_of

VALID = rows_by_type("wire_valid")
INVALID = rows_by_type("wire_invalid")

REFUSED_LENIENT = {
    "struct given as an array in field order",
    "empty array uses the defaults",
    "tagged enum given as an array",
    "unit variant given as an array",
    "adjacently tagged enum given as an array",
    "unknown field beside a unit variant is dropped",
    "unit selector with a null value",
    "selector with an unknown field",
}
"""Lenient forms that the crates never write and that we refuse (divergence 26)."""

OPEN = {
    "McpToolAnnotations",
    "Plan",
    "Scope",
    "SessionHistorySummary",
    "Step",
    "StepIoBinding",
    "StepOutcome",
    "WorkingSet",
}
"""Types that drop unknown keys, as their sheets say; any other refuses them."""

DIGESTS: dict[str, Callable[[Any], str]] = {
    "AgentRunEnvelope::compute_digest": lambda word: run.seal(getattr(word, "spec", word)).spec_digest,
    "AgentDescriptorEnvelope::seal": lambda word: (
        run.seal_descriptor(getattr(word, "descriptor", word)).descriptor_digest
    ),
    "AgentCommandEnvelope::computed_digest": commands.command_digest,
    "RequestResolution::digest": requests.resolution_digest,
    "ReconciliationProof::computed_evidence_digest": events.evidence_digest,
    "AgentEventDraft::computed_digest": digest,
    "AgentEventEnvelope::computed_draft_digest": lambda word: digest(events.draft_of(word)),
    "AgentEventEnvelope::computed_digest": lambda word: word.event_digest,
    "AgentRunView::projection_digest": state.projection_digest,
    "CapabilityRequest::digest": digest,
    "ToolDescriptor::digest": digest,
    "ToolOutcome::digest": digest,
    "ApprovalBinding::digest": digest,
    "ToolInvocation::args_digest": lambda word: digest(word.arguments),
    "ToolOperationPlan::digest": approval.operation_digest,
    "AgentSessionEventDraft::digest": lambda word: session.seal_session(word, 1).draft_digest,
    "AgentSessionRecord::computed_event_digest": lambda word: resealed(word).event_digest,
    "GenericCheckpointDraft::digest": lambda word: wal.seal_checkpoint(word, 1).draft_digest,
    "McpServerSnapshot::computed_digest": mcp.server_revision,
    "McpToolSnapshot::computed_digest": mcp.tool_digest,
    "PreparedToolEffect::identity_digest": digest,
    "SessionCompactionPolicy::digest": digest,
    "SkillCatalogDescriptor::seal (revision)": lambda word: (
        skills.seal_catalog(word.resource_id, word.skills[::-1]).revision
    ),
    "SkillPackage::computed_digest": skills.package_digest,
    "ToolEffectEventDraft::digest": lambda word: effects.seal_effect(word, 1).draft_digest,
    "ToolEffectJournalRecord::computed_event_digest": effects.effect_event_digest,
    "orchestral_runtime::workflow_plan_digest": digest,
}


def resealed(record: session.AgentSessionRecord) -> session.AgentSessionRecord:
    """A session record made again from its draft."""
    draft = session.AgentSessionEventDraft(
        event_id=record.event_id, session_id=record.session_id, run_id=record.run_id, payload=record.payload
    )
    return session.seal_session(draft, record.session_seq)


def checked(row: Row) -> str | None:
    """Parse and validate a row: the stage and code that refuse it, or nothing.

    A few fields must be objects by a rule of the second stage; reading refuses them already, with that rule's code.
    """
    try:
        word = read(row["type"], text_of(row))
    except ProtocolError:
        return "deserialize"
    except WordError as fault:
        return f"validate {fault.code}"
    if isinstance(word, Word):
        try:
            validate(word)
        except WordError as fault:
            return f"validate {fault.code}"
    return None


@pytest.mark.parametrize("name", VALID)
def test_valid_values_are_read_and_written_back_alike(name: str) -> None:
    """A valid value parses, passes validation, and has the same JSON, canonical form and digests as in the source."""
    for row in VALID[name]:
        word = read_value(name, row["json"])
        if isinstance(word, Word):
            assert read(name, to_json(word)) == word, row["name"]
        if row.get("validator"):
            validate(word)
        assert value_of(word) == row["json"], row["name"]
        assert canonical(word).decode() == row["canonical"], row["name"]
        assert sha256(canonical(word)) == row["sha256"], row["name"]
        for function, expected in row.get("digests", {}).items():
            assert DIGESTS[function](word) == expected, (row["name"], function)


@pytest.mark.parametrize("name", INVALID)
def test_invalid_values_are_refused_at_their_stage(name: str) -> None:
    """An invalid value is refused while parsing or validating, as in the source, and with its code."""
    wrong: list[object] = []
    for row in INVALID[name]:
        stage, code = row["error"]["stage"], row["error"]["code"]
        expected = "deserialize" if stage == "deserialize" else f"validate {code}"
        if (found := checked(row)) != expected:
            wrong.append((row["name"], expected, found))
    assert not wrong


def test_lenient_forms() -> None:
    """Missing defaults and unsorted sets are accepted and normalised, the rest is refused (divergence 26)."""
    for name, found in rows_by_type("wire_lenient").items():
        for row in found:
            unknown = row["name"].startswith("sweep: unknown field") and name not in OPEN
            if row["name"] in REFUSED_LENIENT or unknown:
                with pytest.raises(ProtocolError):
                    read(name, text_of(row))
                continue
            word = read(name, text_of(row))
            expected = read_value(name, row["accepted_as"])
            assert same(word, expected) if isinstance(word, Word) else word == expected, (name, row["name"])
            assert canonical(word).decode() == row["canonical"], (name, row["name"])


def test_every_wire_type_is_here() -> None:
    """No wire type of the vectors is left out."""
    names = {row["type"] for file in ("wire_valid", "wire_invalid", "wire_lenient") for row in rows(file)}
    assert len([kind(name) for name in names]) == 208
