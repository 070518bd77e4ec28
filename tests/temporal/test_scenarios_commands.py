"""Transcripts of the source in which people talk to a run: bursts, queued input, yields, cancels (part 3)."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.activities import Queues, Role
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.protocol.tools import ToolIdempotency
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.runtime.agents import host
from orchestral_temporal.temporal import names
from orchestral_temporal.temporal.worker import build_workers
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.scenario_checks import (
    check,
    check_acks,
    check_outcome,
    check_requests,
    check_session,
    check_start,
    check_wal,
    steps_of,
)
from tests.temporal.scenario_play import Ended, Played, cast, outcome_of
from tests.temporal.scenarios import RecordedCommand, RecordedRun, Row, recorded_runs, sealed, transcript, wal_line
from tests.temporal.test_steering import heard
from tests.temporal.world import RecordingTool, World, calls, events_of, plan, says, until

QUEUED = "queued_input.queued_input_edits_wait_for_the_model_boundary_and_consumption_is_final"
STEERS = "one_hundred_steers_are_committed_in_order_without_crossing_the_run"
YIELD = "steer_yields_a_dispatched_tool_and_commits_its_observation_without_replay"
RACE = "cancellation_race.accepted_host_cancel_wins_over_a_ready_model_error_or_eof"
TOOL_CANCELS = (
    "tool_runtime.post_dispatch_non_idempotent_cancellation_is_unknown_effect",
    "tool_runtime.run_cancellation_reaches_executor_and_closes_the_call",
)


async def test_queued_input_waits_for_the_boundary(world: World, tmp_path: Path) -> None:
    """Six operations, each sent twice, leave two inputs in the next request; a late edit is refused (C1, C2, C7).

    The second sends go round the server, which would answer an update id that it knows by itself.
    """
    (recorded,) = recorded_runs(QUEUED, tmp_path)
    check(await cast(world, recorded).play())


async def test_steer_makes_a_working_tool_yield(world: World, tmp_path: Path) -> None:
    """The tool returns what it has, once, and the steer follows its observation (C4).

    Not ours: the call that the source's test makes after the end, and that its effect journal answers. Here nobody can
    call a tool of a run that has ended.
    """

    async def when_asked(row: Row, call: ToolCall) -> Json:
        await until(call.should_yield, "the tool is asked to yield")
        return await outcome_of(row, call)

    (recorded,) = recorded_runs(YIELD, tmp_path)
    ended = await cast(world, recorded, ending=when_asked).play()
    check(ended)
    assert len(ended.played.tools[0].calls) == 1
