"""Derived ids and the small rules of texts (`spec/agent-loop.md` §16, `spec/wire.md` §2.3, §20.1)."""

import inspect

import pytest

from orchestral_temporal.protocol import ids

DERIVED = [
    (ids.host_run_accepted_id("r"), "host-run-accepted-r"),
    (ids.host_resource_skip_id("r", "b"), "host-resource-skip-r-b"),
    (ids.host_command_received_id("r", "k"), "host-command-received-r-k"),
    (ids.host_continuity_lost_id("r", 7), "host-continuity-lost-r-7"),
    (ids.host_continuity_restored_id("r", 6), "host-continuity-restored-r-6"),
    (ids.recovery_proof_ref("r", 6), "host-recovery/r/6"),
    (ids.disposition_id("r", "k"), "provider-command-disposition-r-k"),
    (ids.generic_event_id("r", "started"), "generic-r-started"),
    (ids.steer_committed_id("r", "k"), "generic-r-steer-k-committed"),
    (ids.request_event_id("r", "approval", 2, "c", "opened"), "generic-r-approval-2-c-opened"),
    (ids.grant_ref("approval:r:2:c", "n"), "approval:approval:r:2:c:n"),
    (ids.workflow_event_id("r", 2, "c"), "generic-r-workflow-2-c"),
    (ids.attempt_interrupted_id("r", 2, 1), "generic-r-model-attempt-interrupted-2"),
    (ids.attempt_interrupted_id("r", 2, 3), "generic-r-model-attempt-interrupted-2-a3"),
    (ids.request_id("r", "input", 2, "c"), "input:r:2:c"),
    (ids.model_request_id("r", 2), "model-r-2"),
    (ids.invocation_id("r", 2, 1), "r/m2/c1"),
    (ids.invocation_id("r", 2, 1, attempt=2), "r/m2/c1/a2"),
    (ids.plan_id("r", "c"), "workflow:r:c"),
    (ids.delivery_id("r"), "generic-r-delivery"),
    (ids.partial_delivery_id("r"), "generic-r-partial"),
    (ids.response_output_id("r"), "generic-r-response"),
    (ids.wal_boundary_id("r", 1), "generic-r-boundary-1"),
    (ids.wal_attempt_id("r", 1), "generic-r-model-attempt-1"),
    (ids.wal_attempt_id("r", 1, attempt=2), "generic-r-model-attempt-1-a2"),
    (ids.wal_observed_id("r", 1), "generic-r-model-observed-1"),
    (ids.wal_retry_id("r", 1, 2), "generic-r-model-retry-1-2"),
    (ids.wal_context_rejected_id("r", 1), "generic-r-context-rejected-1"),
    (ids.wal_workflow_started_id("r", 1, "c"), "generic-r-workflow-started-1-c"),
    (ids.wal_command_id("r", "k"), "generic-r-command-k"),
    (ids.wal_provider_id("r", "a", "b"), "generic-r-provider-a-b"),
    (ids.session_input_id("r"), "generic-r-input"),
    (ids.session_steer_id("r", "k"), "generic-r-steer-k"),
    (ids.session_exchange_id("r", 1), "generic-r-tool-exchange-1"),
    (ids.session_output_id("r", 1), "generic-r-output-1"),
    (ids.session_skill_id("r", 1, "c"), "generic-r-skill-1-c"),
    (ids.session_uncertainty_id("r", 1, "c"), "generic-r-effect-uncertainty-1-c"),
    (ids.session_compaction_id("s", 1, 9), "compaction-s-1-9"),
    (ids.active_compaction_id("s", "r", 1, 9), "active-run-compaction-s-r-1-9"),
]


@pytest.mark.parametrize(("found", "expected"), DERIVED, ids=lambda value: value)
def test_derived_id(found: str, expected: str) -> None:
    """Every derived id has the form of the sheet, so that journals of the source and ours agree (F060)."""
    assert found == expected


def test_every_derived_id_is_tested() -> None:
    """No form of an id is left out."""
    predicates = {"trimmed", "is_blank", "has_control", "is_namespaced"}
    functions = {name for name, _ in inspect.getmembers(ids, inspect.isfunction) if not name.startswith("_")}
    attempts = 3  # three functions are tested with and without an attempt number
    assert len(functions - predicates) == len(DERIVED) - attempts


def test_blank_is_the_white_space_of_the_wire() -> None:
    """Unicode white space is blank; the separators U+001C to U+001F, which Python strips, are not."""
    assert ids.is_blank("")
    assert ids.is_blank(" \t\n\u0085\u00a0\u2028\u3000")
    assert not ids.is_blank("\u001c")
    assert not ids.is_blank("\u200b")


def test_control_characters() -> None:
    """Both blocks of control characters count, and nothing else."""
    assert ids.has_control("a\x7f")
    assert ids.has_control("\x9f")
    assert not ids.has_control("a\u2028é")
