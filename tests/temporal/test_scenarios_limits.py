"""Transcripts of the source in which budgets, deadlines and retries end a run or keep it from asking again (part 3)."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestral_temporal.protocol.limits import MoneyAmount, RunLimits
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.retry import ModelRetryPolicy
from orchestral_temporal.protocol.wal import ModelAttemptStarted
from orchestral_temporal.protocol.words import dump
from tests.temporal.scenario_checks import check
from tests.temporal.scenario_play import cast
from tests.temporal.scenarios import recorded_runs
from tests.temporal.world import World

PAST = "expired_deadline_commits_incomplete_without_starting_the_model"
LIVE = "deadline_cancels_a_blocked_model_and_stays_incomplete"
BUDGETS = "run_token_and_cost_budgets_cap_dispatch_and_block_tail_work"
RETRIES = "model_retry.usage_only_failures_respect_retry_limits_and_strict_usage_ceilings"
UNACCOUNTED = "model_retry.usage_ceiling_prevents_reissuing_an_unaccounted_request_but_allows_rate_limit_retry"

PER_TOKEN = 1_000_000
"""One microunit for each token, as the price of a million."""


async def test_a_deadline_that_is_past_starts_no_model(world: World, tmp_path: Path) -> None:
    """Input and start are on record, then the run is incomplete; no attempt (F1)."""
    (recorded,) = recorded_runs(PAST, tmp_path)
    check(await cast(world, recorded).play(RunLimits(deadline_unix_ms=1)))


async def test_a_deadline_ends_a_blocked_model(world: World, tmp_path: Path) -> None:
    """The open attempt gets no other record than the end of the run (F2)."""
    (recorded,) = recorded_runs(LIVE, tmp_path)
    deadline = round((time.time() + 1.5) * 1_000)
    check(await cast(world, recorded).play(RunLimits(deadline_unix_ms=deadline)))


async def test_exact_budgets_cap_the_request_and_end_the_run(world: World, tmp_path: Path) -> None:
    """Three budgets, all used up by one turn: it may say one token, its call is not made, input is told first (F3, F6).

    Ours: the meter counts bytes, so instead of 10 tokens the request has as many as a run like it tells beforehand;
    price, budgets and reported usage follow. A limit of cost is declared since the agent has a price.
    """
    (recorded,) = recorded_runs(BUDGETS, tmp_path)
    price = ModelCostPolicy(
        currency="USD", input_microunits_per_million_tokens=PER_TOKEN, output_microunits_per_million_tokens=PER_TOKEN
    )
    probe = await cast(world, recorded, 1, price=price).play(RunLimits(max_model_steps=1))
    attempts = [each.payload for each in probe.history.wal if isinstance(each.payload, ModelAttemptStarted)]
    size = attempts[0].context.used_input_tokens
    limits = recorded.request.run.spec.limits.model_copy(
        update={"max_input_tokens": size, "max_cost": MoneyAmount(currency="USD", microunits=size + 1)}
    )
    told = json.dumps(recorded.content).replace('"input_tokens": 10', f'"input_tokens": {size}')
    ended = await cast(world, replace(recorded, content=json.loads(told)), price=price).play(limits)
    check(ended)
    usage = ended.turn.result["usage"]
    assert isinstance(usage, dict)
    assert usage["cost"] == dump(MoneyAmount(currency="USD", microunits=size + 1))


@pytest.mark.parametrize(("name", "retries"), [(RETRIES, (0, 2, 2, 2, 2)), (UNACCOUNTED, (3, 3))])
async def test_what_a_failed_attempt_may_have_cost_decides_on_a_retry(
    world: World, tmp_path: Path, name: str, retries: Sequence[int]
) -> None:
    """No retry beyond the policy, of a lasting fault, or under a ceiling unless the request was refused unread (F3).

    Each run of the transcript has the policy that its host had.
    """
    for number, (recorded, allowed) in enumerate(zip(recorded_runs(name, tmp_path), retries, strict=True)):
        retry = ModelRetryPolicy(max_retries=allowed, base_delay_ms=1, max_delay_ms=8)
        check(await cast(world, recorded, number, retry=retry).play())
