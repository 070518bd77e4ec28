"""Transcripts of the source that are a run from start to end with at most some commands on the way (parts 1 and 3).

Those that need more than a start, commands and a model are in `test_scenarios_commands` and `test_scenarios_limits`.
"""

from pathlib import Path

import pytest

from tests.temporal.scenario_checks import check
from tests.temporal.scenario_play import cast
from tests.temporal.scenarios import recorded_runs
from tests.temporal.world import World

LOOP = (
    "agent_sdk_uses_the_same_controller_and_durable_run_projection",
    "default_continuation_policy_completes_beyond_legacy_step_and_tool_ceilings",
    "explicit_run_model_step_limit_still_stops_at_the_exact_boundary",
    "explicit_run_tool_call_limit_still_stops_at_the_exact_boundary",
    "model_attempt_is_in_the_private_wal_before_backend_start",
    "neutral_model_stream_becomes_an_inspectable_agent_delivery",
    "non_fatal_tool_errors_are_structured_and_the_model_can_use_a_fallback_tool",
    "sdk_and_api_share_the_same_agent_event_semantics",
    "terminal_private_wal_replays_from_a_new_generic_provider",
    "controller_cancel_terminates_a_generic_agent_model_run",
    "model_input_request_resolves_by_request_id_and_resumes_the_same_run",
    "sdk_and_api_preserve_host_session_origin_and_reject_conflicting_run_metadata",
    "unattended_host_omits_input_capability_and_tool_and_delivers_without_waiting",
    "unattended_host_rejects_an_unsolicited_input_call_without_opening_a_request",
)


@pytest.mark.parametrize("name", LOOP)
async def test_transcript_is_reproduced(world: World, name: str, tmp_path: Path) -> None:
    """The same input, limits, tools, commands and model answers give the transcript's journal, WAL and requests."""
    for number, recorded in enumerate(recorded_runs(name, tmp_path)):
        check(await cast(world, recorded, number).play())


def test_every_packed_transcript_is_acted() -> None:
    """None of them lies about without a test that names it."""
    folder = Path(__file__).parents[1]
    modules = [*folder.glob("temporal/test_scenarios*.py"), folder / "core" / "test_controller_scenarios.py"]
    text = "".join(module.read_text() for module in modules)
    names = [path.name.removesuffix(".json.gz") for path in (folder / "vectors" / "scenarios").glob("*.gz")]
    assert [name for name in names if f'"{name}"' not in text] == []
