"""Checks that need a second value, against the golden vectors."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from orchestral_temporal.core.calls import ceiling
from orchestral_temporal.protocol import (
    commands,
    continuity,
    events,
    ids,
    limits,
    mcp,
    model,
    price,
    recall,
    retry,
    run,
    skills,
    telemetry,
)
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
from orchestral_temporal.protocol.compaction import ContextErrorCode
from orchestral_temporal.protocol.digest import canonical, digest, is_sha256, sha256
from orchestral_temporal.protocol.errors import WordError, require
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.runtime.meter import DESCRIPTOR as METER
from orchestral_temporal.runtime.meter import ByteMeter
from tests.core.loop_world import binding, run_part, start, world
from tests.golden import Row, matches, read_value, rows

LABELS = {"invalid", "unknown_field", "invalid_type", "missing_field"}
"""What the source's reader says of an extension that it cannot read; ours says invalid_spec (`vectors/README.md`)."""

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
    request = parse_value(run.AgentStartRequest, inputs.get("request") or inputs["start_request"])
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


def prefix(inputs: Row) -> None:
    """The committed events of a provider beside their run."""
    drafts = [parse_value(events.AgentEventDraft, each) for each in inputs["committed_provider_prefix"]]
    continuity.check_committed_prefix(inputs["execution"]["run_id"], drafts)


def priced(inputs: Row) -> price.ModelCostPolicy:
    """The prices of a row."""
    names = ("currency", "input_microunits_per_million_tokens", "output_microunits_per_million_tokens")
    return parse_value(price.ModelCostPolicy, {name: inputs[name] for name in names})


def steps(inputs: Row) -> int | None:
    """The model steps a run may take under a host's ceiling."""
    asked = start(limits={"max_model_steps": inputs["requested"]})
    return ceiling(
        world(asked, binding(run=run_part(max_model_steps=inputs["host"]))).state, limits.RunLimitKind.MODEL_STEPS
    )


def metered(inputs: Row) -> int:
    """The bound on a request's tokens."""
    return ByteMeter().count(canonical([inputs["messages"], inputs["tools"]])).bound


def meter(inputs: Row) -> None:
    """A meter of so many bytes a token: ours has one rate, and its digest says so (divergence 31)."""
    ours = METER.config_digest == sha256(
        f"canonical-json-size/v1\0bytes_per_token={inputs['bytes_per_token']}".encode()
    )
    require(ours, ContextErrorCode.INVALID_REQUEST, "There is no meter of this rate.")


def catalog(inputs: Row) -> Any:
    """A catalog of skills in whatever order they come."""
    if "names" in inputs:
        known = next(row["json"] for row in rows("wire_valid") if row["type"] == "SkillDescriptor")
        given = [{**known, "name": name, "skill_id": str(at)} for at, name in enumerate(inputs["names"])]
    else:
        given = inputs["skills"]
    found = tuple(parse_value(skills.SkillDescriptor, each) for each in given)
    return dump(skills.seal_catalog(inputs.get("resource_id", "skills"), found))


CHECKS: dict[str, Callable[[Any], Any]] = {
    "AgentEvent::recovery_replay_policy": lambda inputs: continuity.replay_evidence(
        read_value("AgentEvent", inputs["event"]), inputs["pending_request_ids"]
    ),
    "AgentRecoveryRequest::new": execution,
    "AgentRecoveryRequest::with_committed_provider_prefix": prefix,
    "AgentSessionHistoryAnchor::from_extensions": lambda each: dumped(recall.history_anchor(each)),
    "ContinuationPolicy::effective_model_steps": steps,
    "JsonSizeTokenMeter::count_request_input": metered,
    "JsonSizeTokenMeter::new": meter,
    "McpToolAnnotations::requires_approval": lambda each: mcp.needs_approval(parse_value(mcp.McpToolAnnotations, each)),
    "ModelCostPolicy::new": lambda inputs: validate(priced(inputs)),
    "ModelCostPolicy::quote": lambda inputs: dump(
        price.quote(priced(inputs), inputs["input_tokens"], inputs["output_tokens"])
    ),
    "SessionHistoryStatus::of_run": lambda inputs: recall.history_status(inputs["event_types"]),
    "SessionOrigin::extensions": lambda each: recall.origin_extensions(parse_value(recall.SessionOrigin, each)),
    "SessionOrigin::from_extensions": lambda each: dumped(recall.session_origin(each)),
    "SkillCatalogDescriptor::seal": catalog,
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
        output = row["output"]
        unreadable = isinstance(output, dict) and output.get("error") in LABELS
        expected = {"error": "invalid_spec"} if unreadable or (function, row["name"]) in REFUSED else output
        assert matches(json.loads(json.dumps(answer)), expected), row["name"]


def test_every_check_is_here() -> None:
    """No function of the file is left out."""
    assert {row["function"] for row in rows("checks")} == CHECKS.keys()
