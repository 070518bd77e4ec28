"""The manifest: each promise that is shown so far, and the tests that show it on a real server.

An id of `spec/behaviours.md` is entered when its tests run and fail once the behaviour is taken away: for each one
`tests/house/mutants` holds a patch that does so, and `python tests/house/run_mutants.py` shows it. `CASES` are the
situations of `cases/given.md` that are settled so far. `tests/house/test_laws.py` keeps both lists honest.
"""

from collections.abc import Mapping
from typing import Final

_ROOM: Final = "tests/temporal"

LAWS: Final[Mapping[str, tuple[str, ...]]] = {
    "A1": (f"{_ROOM}/test_delivery.py::test_text_answer_is_delivered",),
    "A2": (
        f"{_ROOM}/test_delivery.py::test_client_cli_and_raw_reads_show_one_run",
        f"{_ROOM}/test_delivery.py::test_client_and_raw_query_show_one_open_run",
    ),
    "A3": (f"{_ROOM}/test_delivery.py::test_every_surface_yields_the_same_run",),
    "A5": (f"{_ROOM}/test_delivery.py::test_run_without_limits_goes_on_as_long_as_it_is_useful",),
    "B1": (f"{_ROOM}/test_write_ahead.py::test_attempt_is_written_before_the_backend_starts",),
    "B2": (f"{_ROOM}/test_write_ahead.py::test_delivered_run_folds_to_terminal",),
    "E2": (f"{_ROOM}/test_tools.py::test_model_goes_on_after_a_tool_that_did_not_work",),
    "F4": (f"{_ROOM}/test_limits.py::test_model_steps_end_the_run_at_the_boundary",),
    "F5": (f"{_ROOM}/test_limits.py::test_tool_calls_end_the_run_at_the_boundary",),
    "I1": (f"{_ROOM}/test_replay.py::test_finished_run_replays_on_a_new_worker_with_identical_events",),
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
    "I1": (
        "tests/crash/test_server_killed.py::test_an_outage_shorter_than_the_heartbeat_time_out_costs_nothing",
        "tests/crash/test_server_killed.py::test_a_machine_that_dies_with_all_on_it",
        "tests/crash/test_worker_killed.py::test_another_process_goes_on",
        "tests/crash/test_worker_killed.py::test_a_stream_starts_again",
        "tests/crash/test_worker_stopped.py::test_a_stream_is_handed_on",
    ),
}
"""Promise → further tests with a real server that would fail without it."""

CASES: Final = (
    *("F008", "F014", "F019", "F043", "F044", "F046", "F047", "F049", "F050", "F052", "F053", "F055", "F056"),
    *("F085", "F097", "F098", "F109", "F110", "F128", "F133", "F134"),
)
"""Given cases that are settled, those whose rest comes in a later part included."""
