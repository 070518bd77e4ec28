"""The manifest: each promise that is shown so far, and the tests that show it on a real server.

An id of `spec/behaviours.md` is entered when its tests run and fail once the behaviour is taken away: for each one
`tests/house/mutants` holds a patch that does so, and `python tests/house/run_mutants.py` shows it. `CASES` are the
situations of `cases/given.md` that are settled so far. `tests/house/test_laws.py` keeps both lists honest.
"""

from collections.abc import Mapping
from typing import Final

_ROOM: Final = "tests/temporal"
_CRASH: Final = "tests/crash"

LAWS: Final[Mapping[str, tuple[str, ...]]] = {
    "A1": (f"{_ROOM}/test_delivery.py::test_text_answer_is_delivered",),
    "A2": (
        f"{_ROOM}/test_delivery.py::test_client_cli_and_raw_reads_show_one_run",
        f"{_ROOM}/test_delivery.py::test_client_and_raw_query_show_one_open_run",
    ),
    "A3": (f"{_ROOM}/test_delivery.py::test_every_surface_yields_the_same_run",),
    "A4": (
        f"{_ROOM}/test_origin.py::test_the_origin_reaches_every_run_and_is_read_back",
        f"{_ROOM}/test_origin.py::test_a_run_with_conflicting_metadata_is_not_created",
        f"{_ROOM}/test_origin.py::test_a_finished_run_is_found_as_it_was",
    ),
    "A5": (f"{_ROOM}/test_delivery.py::test_run_without_limits_goes_on_as_long_as_it_is_useful",),
    "A6": (
        f"{_ROOM}/test_yielding.py::test_what_a_tool_says_of_its_progress_is_seen_and_not_kept",
        f"{_ROOM}/test_yielding.py::test_that_the_model_is_asked_again_is_progress",
    ),
    "B1": (f"{_ROOM}/test_write_ahead.py::test_attempt_is_written_before_the_backend_starts",),
    "B2": (f"{_ROOM}/test_write_ahead.py::test_delivered_run_folds_to_terminal",),
    "B5": (f"{_ROOM}/test_commands.py::test_a_command_over_a_broken_line_is_not_reported_as_done",),
    "B6": (f"{_ROOM}/test_write_ahead.py::test_a_tool_runs_only_after_its_turn_is_written",),
    "B7": (
        f"{_ROOM}/test_steering.py::test_burst_of_steers_reaches_the_model_in_order",
        f"{_ROOM}/test_commands.py::test_fifty_steers_sent_three_times_are_fifty",
    ),
    "C1": (
        f"{_ROOM}/test_commands.py::test_a_signal_is_one_command_however_often_it_is_sent",
        f"{_ROOM}/test_commands.py::test_fifty_steers_sent_three_times_are_fifty",
    ),
    "C2": (f"{_ROOM}/test_commands.py::test_an_acknowledgement_can_be_asked_for_later",),
    "C3": (
        f"{_ROOM}/test_steering.py::test_burst_of_steers_reaches_the_model_in_order",
        f"{_ROOM}/test_bursts.py::test_what_waits_for_a_worker_is_read_before_the_run_begins",
    ),
    "C4": (f"{_ROOM}/test_yielding.py::test_a_steer_asks_the_tool_at_work_to_yield",),
    "C5": (f"{_ROOM}/test_cancel.py::test_cancel_ends_a_waiting_model",),
    "C6": (
        f"{_ROOM}/test_cancel.py::test_a_cancel_wins_over_what_is_ready_in_the_same_instant",
        f"{_ROOM}/test_cancel.py::test_a_model_that_is_cancelled_without_a_cancel_fails_the_run",
    ),
    "C7": (f"{_ROOM}/test_commands.py::test_the_input_queue_waits_for_the_boundary",),
    "D1": (f"{_ROOM}/test_questions.py::test_a_person_answers_the_question_of_a_run",),
    "D2": (f"{_ROOM}/test_questions.py::test_an_unattended_run_is_offered_no_question",),
    "D3": (f"{_ROOM}/test_questions.py::test_an_unattended_run_whose_model_asks_fails",),
    "E2": (f"{_ROOM}/test_tools.py::test_model_goes_on_after_a_tool_that_did_not_work",),
    "E3": (
        f"{_CRASH}/test_cuts.py::test_a_call_observed_and_not_yet_run_runs_once",
        f"{_CRASH}/test_cuts.py::test_a_committed_call_is_served_from_the_history",
        f"{_CRASH}/test_fence.py::test_a_killed_tool_worker_doubles_no_effect",
    ),
    "E4": (
        f"{_CRASH}/test_fence.py::test_a_killed_tool_worker_doubles_no_effect",
        f"{_CRASH}/test_fence.py::test_a_worker_frozen_before_its_fence_makes_no_late_effect",
        f"{_CRASH}/test_fence.py::test_a_worker_frozen_behind_its_fence_reports_that_nothing_happened",
        f"{_CRASH}/test_fence.py::test_a_worker_frozen_for_too_long_makes_no_late_effect",
    ),
    "E7": (
        f"{_ROOM}/test_groups.py::test_safe_calls_run_side_by_side_and_answer_in_call_order",
        f"{_ROOM}/test_groups.py::test_other_calls_run_one_after_another",
    ),
    "F1": (f"{_ROOM}/test_limits.py::test_a_deadline_that_is_past_starts_no_model",),
    "F2": (f"{_ROOM}/test_limits.py::test_a_deadline_ends_a_silent_model",),
    "F3": (
        f"{_ROOM}/test_limits.py::test_an_output_budget_caps_each_request",
        f"{_ROOM}/test_limits.py::test_exact_budgets_pay_for_one_request_and_no_tool",
    ),
    "F4": (f"{_ROOM}/test_limits.py::test_model_steps_end_the_run_at_the_boundary",),
    "F5": (f"{_ROOM}/test_limits.py::test_tool_calls_end_the_run_at_the_boundary",),
    "F6": (f"{_ROOM}/test_limits.py::test_only_declared_limits_are_accepted",),
    "I1": (f"{_ROOM}/test_replay.py::test_finished_run_replays_on_a_new_worker_with_identical_events",),
    "I2": (
        f"{_CRASH}/test_worker_killed.py::test_a_model_that_must_not_be_asked_twice_is_not",
        f"{_CRASH}/test_worker_killed.py::test_a_lost_attempt_is_made_again_and_paid_for",
        f"{_CRASH}/test_worker_stopped.py::test_a_stream_is_handed_on",
        f"{_CRASH}/test_worker_stopped.py::test_work_is_handed_on",
    ),
    "I3": (f"{_CRASH}/test_cuts.py::test_a_registered_input_is_committed_once",),
    "I6": (
        f"{_ROOM}/test_identity.py::test_open_run_started_again_is_the_same_run",
        f"{_ROOM}/test_identity.py::test_finished_run_started_again_is_the_same_run",
        f"{_ROOM}/test_identity.py::test_failed_run_started_again_is_the_same_failure",
    ),
}
"""Promise → the tests that show it."""

SUPPORTING: Final[Mapping[str, tuple[str, ...]]] = {
    "A1": (f"{_ROOM}/test_cli.py::test_a_question_about_the_folder_is_answered_with_nothing_there",),
    "A2": (f"{_ROOM}/test_cli.py::test_one_run_is_the_same_whoever_looks",),
    "A3": (f"{_ROOM}/test_cli.py::test_one_run_is_the_same_whoever_looks",),
    "B7": (f"{_ROOM}/test_scenarios_commands.py::test_a_hundred_steers_stay_in_order",),
    "C1": (
        f"{_ROOM}/test_cancel.py::test_cancel_ends_a_waiting_model",
        f"{_ROOM}/test_say.py::test_a_steer_is_acknowledged_and_heard",
        f"{_ROOM}/test_scenarios_commands.py::test_queued_input_waits_for_the_boundary",
        f"{_ROOM}/test_steering.py::test_steer_interrupts_a_model_by_every_road",
    ),
    "C2": (
        f"{_ROOM}/test_acks.py::test_an_acknowledgement_is_found_when_the_result_has_no_room_for_it",
        f"{_ROOM}/test_say.py::test_a_steer_is_acknowledged_and_heard",
        f"{_ROOM}/test_scenarios_commands.py::test_queued_input_waits_for_the_boundary",
        f"{_ROOM}/test_steering.py::test_steer_interrupts_a_model_by_every_road",
    ),
    "C3": (
        f"{_ROOM}/test_scenarios_commands.py::test_a_hundred_steers_stay_in_order",
        f"{_ROOM}/test_steering.py::test_steer_interrupts_a_model_by_every_road",
    ),
    "C4": (f"{_ROOM}/test_scenarios_commands.py::test_steer_makes_a_working_tool_yield",),
    "C5": (
        f"{_ROOM}/test_bursts.py::test_a_cancel_behind_a_burst_is_answered_in_its_turn",
        f"{_ROOM}/test_endings.py::test_a_call_that_no_worker_had_is_cancelled",
        f"{_ROOM}/test_scenarios_commands.py::test_a_cancel_reaches_the_tool_at_work",
    ),
    "C6": (f"{_ROOM}/test_scenarios_commands.py::test_an_accepted_cancel_wins_over_a_model_that_ends_with_it",),
    "C7": (
        f"{_ROOM}/test_say.py::test_queued_input_is_replaced_and_withdrawn",
        f"{_ROOM}/test_scenarios_commands.py::test_queued_input_waits_for_the_boundary",
    ),
    "D1": (
        f"{_ROOM}/test_chat.py::test_a_question_is_asked_and_answered_at_the_terminal",
        f"{_ROOM}/test_say.py::test_what_waits_for_a_person_is_one_command",
    ),
    "E4": (
        f"{_ROOM}/test_fencing.py::test_the_fence_is_on_record_while_the_tool_works",
        f"{_ROOM}/test_fencing.py::test_a_call_that_was_given_up_before_its_fence_does_not_begin",
        f"{_ROOM}/test_fencing.py::test_a_worker_that_was_frozen_looks_before_it_acts",
        f"{_ROOM}/test_fencing.py::test_a_second_try_behind_a_fence_does_not_run",
        f"{_ROOM}/test_endings.py::test_a_broken_call_whose_outcome_is_stored_has_it",
        f"{_ROOM}/test_fence_faults.py::test_a_codec_that_is_broken_for_ever_lets_nothing_run",
        f"{_ROOM}/test_fence_faults.py::test_a_call_that_is_given_up_while_its_fence_overtakes_does_not_begin",
        f"{_ROOM}/test_fence_faults.py::test_whatever_breaks_beside_a_call_leaves_no_tool_at_work",
        f"{_ROOM}/test_scenarios_commands.py::test_a_cancel_reaches_the_tool_at_work",
        f"{_ROOM}/test_writing.py::test_a_run_writes_edits_and_patches_files",
        f"{_CRASH}/test_server_killed.py::test_a_call_that_ends_while_the_server_is_away_keeps_its_outcome",
        f"{_CRASH}/test_worker_stopped.py::test_a_call_with_effects_is_given_back_with_its_fence",
    ),
    "F1": (f"{_ROOM}/test_scenarios_limits.py::test_a_deadline_that_is_past_starts_no_model",),
    "F2": (
        f"{_ROOM}/test_limits.py::test_a_deadline_ends_a_working_tool",
        f"{_ROOM}/test_scenarios_limits.py::test_a_deadline_ends_a_blocked_model",
    ),
    "F3": (
        f"{_ROOM}/test_scenarios_limits.py::test_exact_budgets_cap_the_request_and_end_the_run",
        f"{_ROOM}/test_scenarios_limits.py::test_what_a_failed_attempt_may_have_cost_decides_on_a_retry",
    ),
    "F6": (f"{_ROOM}/test_scenarios_limits.py::test_exact_budgets_cap_the_request_and_end_the_run",),
    "I1": (
        f"{_CRASH}/test_server_killed.py::test_an_outage_shorter_than_the_heartbeat_time_out_costs_nothing",
        f"{_CRASH}/test_server_killed.py::test_a_machine_that_dies_with_all_on_it",
        f"{_CRASH}/test_worker_killed.py::test_another_process_goes_on",
        f"{_CRASH}/test_worker_killed.py::test_a_stream_starts_again",
        f"{_CRASH}/test_worker_stopped.py::test_a_stream_is_handed_on",
    ),
    "I3": (f"{_ROOM}/test_cli.py::test_a_run_is_not_started_a_second_time",),
}
"""Promise → further tests with a real server that would fail without it."""

CASES: Final = (
    *("F002", "F004", "F005", "F008", "F010", "F013", "F014", "F016", "F017", "F019", "F020", "F031", "F032", "F034"),
    *("F035", "F040", "F041", "F043", "F044", "F046", "F047", "F049", "F050", "F052", "F053", "F055", "F056", "F058"),
    *("F059", "F061", "F062", "F064", "F065", "F067", "F068", "F070", "F071", "F073", "F074", "F076", "F077", "F085"),
    *("F086", "F094", "F095", "F097", "F098", "F100", "F101", "F109", "F110", "F112", "F113", "F118", "F119", "F127"),
    *("F128", "F133", "F134"),
)
"""Given cases that are settled, those whose rest comes in a later part included."""
