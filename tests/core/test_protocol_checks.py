"""Checks that need a second value, against the golden vectors."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from orchestral_temporal.protocol import commands, events, ids, limits, model, retry, run, telemetry
from orchestral_temporal.protocol.admission import (
    AgentAdmission,
    AgentCompatibility,
    AgentExecutionRef,
    Incompatible,
    ResourceBindingSkip,
    ResourceBindingSkipCode,
    check_compatibility,
    execution_for,
    validate_admission,
    validate_admission_for_run,
    validate_execution,
)
from orchestral_temporal.protocol.digest import digest, is_sha256, sha256
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.words import dump, parse_value
from tests.golden import Row, matches, read_value, rows

LATER = {
    "AgentEvent::recovery_replay_policy",
    "AgentRecoveryRequest::new",
    "AgentRecoveryRequest::with_committed_provider_prefix",
    "AgentSessionHistoryAnchor::from_extensions",
    "ContinuationPolicy::effective_model_steps",
    "JsonSizeTokenMeter::count_request_input",
    "JsonSizeTokenMeter::new",
    "McpToolAnnotations::requires_approval",
    "ModelCostPolicy::new",
    "ModelCostPolicy::quote",
    "SessionHistoryStatus::of_run",
    "SessionOrigin::extensions",
    "SessionOrigin::from_extensions",
    "SkillCatalogDescriptor::seal",
}
"""Functions of parts that come later; those of a foreign provider's recovery are void (divergence 20)."""

REFUSED = {("QueuedInputOperation::from_command", "enqueue with a stray field")}
"""A stray key beside a unit variant (divergence 26)."""


def compatibility(inputs: Row) -> Any:
    """What an agent says to a run."""
    descriptor = parse_value(run.AgentDescriptor, inputs["descriptor"])
    try:
        found = check_compatibility(descriptor, parse_value(run.AgentRunEnvelope, inputs["run"]))
    except Incompatible as fault:
        rejection = dump(fault.rejection)
        del rejection["message"]
        return {"rejection": rejection}
    return {"skipped": dump(found)["skipped_optional_bindings"]}


def admission_for_run(inputs: Row) -> None:
    """An admission beside its run."""
    validate_admission_for_run(parse_value(AgentAdmission, inputs["admission"]), envelope(inputs))


def admission_against(inputs: Row) -> None:
    """An admission beside what compatibility foresaw."""
    skips = tuple(
        ResourceBindingSkip(binding_id=binding_id, code=ResourceBindingSkipCode(code), reason="foreseen")
        for binding_id, code in inputs["compatibility_codes"].items()
    )
    foreseen = AgentCompatibility(skipped_optional_bindings=skips)
    validate_admission(parse_value(AgentAdmission, inputs["admission"]), envelope(inputs), foreseen)


def envelope(inputs: Row) -> run.AgentRunEnvelope:
    """The run of a row."""
    return parse_value(run.AgentRunEnvelope, inputs["run"])


def request_of(inputs: Row) -> tuple[run.AgentStartRequest, run.AgentDescriptorEnvelope]:
    """The start request and the descriptor of a row."""
    request = parse_value(run.AgentStartRequest, inputs["request"])
    return request, parse_value(run.AgentDescriptorEnvelope, inputs["descriptor"])


def execution(inputs: Row) -> None:
    """An execution beside its request."""
    validate_execution(parse_value(AgentExecutionRef, inputs["execution"]), *request_of(inputs))


def disposition(inputs: Row) -> commands.ProviderCommandDisposition:
    """The disposition of a row."""
    return parse_value(commands.ProviderCommandDisposition, inputs["disposition"])


def draft(inputs: Row) -> Any:
    """The event that a disposition becomes."""
    found = events.disposition_draft(disposition(inputs))
    return {"draft": dump(found), "draft_digest": digest(found)}


def delay(inputs: Row) -> int | None:
    """The delay before a retry."""
    policy = parse_value(retry.ModelRetryPolicy, inputs["policy"])
    return retry.retry_delay_ms(policy, parse_value(model.ModelError, inputs["error"]), inputs["retry_number"])


def stream_event(inputs: Row) -> None:
    """A stream event beside its request."""
    event = parse_value(model.ModelStreamEvent, inputs["event"])
    model.validate_stream_event(event, inputs["request_id"], inputs["expected_sequence"])


def dumped(word: Any) -> Any:
    """A word's JSON value, or null."""
    return None if word is None else dump(word)


CHECKS: dict[str, Callable[[Any], Any]] = {
    "AgentAdmission::validate_against": admission_against,
    "AgentAdmission::validate_for_run": admission_for_run,
    "AgentDescriptor::check_run_compatibility": compatibility,
    "AgentEvent::is_host_event": lambda event: isinstance(read_value("AgentEvent", event), events.HOST_EVENTS),
    "AgentExecutionRef::for_start": lambda inputs: dump(execution_for(*request_of(inputs))),
    "AgentExecutionRef::validate_for": execution,
    "AgentStartRequest::validate_for_descriptor": lambda inputs: run.validate_for_descriptor(*request_of(inputs)),
    "ContextUsageReport::from_telemetry": lambda each: dumped(
        telemetry.context_usage(read_value("AgentTelemetry", each))
    ),
    "Digest::is_sha256": is_sha256,
    "Digest::sha256": lambda inputs: sha256(inputs["utf8"].encode()),
    "ModelRetryPolicy::delay_ms": delay,
    "ModelStreamEvent::validate_for": stream_event,
    "ProtocolVersion::is_compatible_with": lambda inputs: run.is_compatible(
        parse_value(run.ProtocolVersion, inputs["requested"]), parse_value(run.ProtocolVersion, inputs["supported"])
    ),
    "ProviderCommandDisposition::to_event_draft": draft,
    "ProviderCommandDisposition::validate_for": lambda inputs: commands.validate_disposition(
        disposition(inputs), parse_value(commands.AgentCommandEnvelope, inputs["command"])
    ),
    "QueuedInputOperation::from_command": lambda each: dumped(
        commands.queued_input(parse_value(commands.AgentCommandEnvelope, each))
    ),
    "QueuedInputOperation::is_supported": lambda inputs: commands.queued_input_supported(
        inputs["descriptor_extensions"]
    ),
    "ResourceKind::is_namespaced": ids.is_namespaced,
    "RunLimits::requested_kinds": lambda each: limits.requested_kinds(parse_value(limits.RunLimits, each)),
}


@pytest.mark.parametrize("function", CHECKS)
def test_check(function: str) -> None:
    """A check answers, or refuses with its code, as in the source."""
    found = [row for row in rows("checks") if row["function"] == function]
    assert found
    for row in found:
        try:
            answer = CHECKS[function](row["inputs"])
        except WordError as fault:
            answer = {"error": str(fault.code)}
        else:
            answer = "ok" if answer is None and row["output"] is not None else answer
        expected = {"error": "invalid_spec"} if (function, row["name"]) in REFUSED else row["output"]
        assert matches(json.loads(json.dumps(answer)), expected), row["name"]


def test_every_check_is_here_or_named_as_later() -> None:
    """No function of the file is left out in silence."""
    assert {row["function"] for row in rows("checks")} == CHECKS.keys() | LATER
