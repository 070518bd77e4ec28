"""Rules of validation that the golden vectors do not reach."""

from typing import Any

import pytest

from orchestral_temporal.protocol.errors import JournalErrorCode, WordError
from orchestral_temporal.protocol.session import ToolExchangeCommitted
from orchestral_temporal.protocol.tools import FilesystemPolicy, HostToolPolicy, ToolPolicyBounds, ToolProtocolErrorCode
from orchestral_temporal.protocol.trace import GenericModelContextTrace
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.wal import CommandCommitted
from orchestral_temporal.protocol.words import parse_value
from tests.golden import rows

ARTIFACT = {"artifact_ref": "a", "digest": "ab" * 32}


def value(kind: str, name: str) -> Any:
    """A valid value of the golden vectors."""
    return next(row["json"] for row in rows("wire_valid") if (row["type"], row["name"]) == (kind, name))


def refused_trace(*path: str, **changes: Any) -> None:
    """A trace with planning is refused once a field below the path is changed."""
    trace = value("GenericModelContextTrace", "with estimate and planning")
    inner = trace = {**trace, "planning": {**trace["planning"]}}
    for key in path:
        inner[key] = dict(inner[key])
        inner = inner[key]
    inner.update(changes)
    with pytest.raises(WordError) as refused:
        validate(parse_value(GenericModelContextTrace, trace))
    assert refused.value.code is JournalErrorCode.INVALID_DATA


def test_a_trace_with_planning_is_valid() -> None:
    """An estimate with its signature and anchor is sound, and so is one without an anchor."""
    trace = value("GenericModelContextTrace", "with estimate and planning")
    validate(parse_value(GenericModelContextTrace, trace))
    planning = {key: each for key, each in trace["planning"].items() if key != "anchor"}
    validate(parse_value(GenericModelContextTrace, {**trace, "planning": planning}))


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ((), {"context_estimate": None}),
        ((), {"context_estimate": {"tokens": 800, "accounting": "exact"}}),
        ((), {"used_input_tokens": 799}),
        (("planning", "input"), {"raw_estimate_tokens": 901}),
        (("planning", "input"), {"messages_len": 0}),
        (("planning", "input"), {"messages_digest": "x"}),
        (("planning", "input"), {"tools_digest": "x"}),
        (("planning", "anchor"), {"run_id": " "}),
        (("planning", "anchor"), {"source_request_id": ""}),
        (("planning", "anchor"), {"config_digest": "x"}),
        (("planning", "anchor"), {"observed_input_tokens": 0}),
        (("planning", "anchor", "input"), {"messages_len": 0}),
    ],
)
def test_a_malformed_estimate_is_refused(path: tuple[str, ...], changes: dict[str, Any]) -> None:
    """Planning without an estimate, above what was used, or malformed inside (`wal-recovery.md` §2)."""
    refused_trace(*path, **changes)


def test_a_word_without_rules_is_as_valid_as_its_parts() -> None:
    """Parts are checked wherever they are, texts beside them are not."""
    validate(FilesystemPolicy(readable_roots=("/w",)))
    with pytest.raises(WordError) as refused:
        validate(HostToolPolicy(bounds=ToolPolicyBounds(max_timeout_ms=0)))
    assert refused.value.code is ToolProtocolErrorCode.INVALID_POLICY


def exchange(result: Any) -> ToolExchangeCommitted:
    """An exchange of one call that retains an artifact."""
    return parse_value(
        ToolExchangeCommitted,
        {
            "type": "tool_exchange_committed",
            "request_id": "m",
            "assistant": {
                "role": "assistant",
                "content": [{"type": "tool_call", "call_id": "c", "name": "t", "arguments": {}, "extensions": {}}],
            },
            "tool": {
                "role": "tool",
                "content": [{"type": "tool_result", "call_id": "c", "result": result, "is_error": False}],
            },
            "retained_artifacts": [ARTIFACT],
        },
    )


def test_a_retained_artifact_may_stand_anywhere_in_a_result() -> None:
    """The reference is looked for at any depth, in lists too, as a whole object."""
    validate(exchange({"pages": [1, [{"kind": "artifact", "artifact": ARTIFACT}]]}))
    for result in (None, "a", [{**ARTIFACT, "size": 3}]):
        with pytest.raises(WordError):
            validate(exchange(result))


def approval(run_id: str, authenticator: str) -> CommandCommitted:
    """An accepted allow with its capability."""
    envelopes = [row["json"] for row in rows("wire_valid") if row["type"] == "AgentCommandEnvelope"]
    allow = next(each for each in envelopes if each["payload"].get("response", {}).get("decision") == "allow")
    capability = value("ApprovalCapability", "unverified")
    binding = {**capability["claims"]["binding"], "run_id": run_id}
    return parse_value(
        CommandCommitted,
        {
            "type": "command_committed",
            "command": allow,
            "outcome": {"outcome": "accepted"},
            "approval_capability": {
                "claims": {**capability["claims"], "binding": binding},
                "authenticator": authenticator,
            },
        },
    )


def test_the_capability_of_an_allow_is_of_the_run_and_has_a_digest() -> None:
    """An accepted allow carries a capability of its own run, signed (`wal-recovery.md` §2)."""
    validate(approval("run-1", "ab" * 32))
    for run_id, authenticator in (("run-2", "ab" * 32), ("run-1", "x")):
        with pytest.raises(WordError) as refused:
            validate(approval(run_id, authenticator))
        assert refused.value.code is JournalErrorCode.INVALID_DATA
