"""Budgets of tokens and money: reserved before a request goes out, settled by what its turn reports.

Spec: agent-loop sheet §7, F3. Money is the quote of the summed tokens, at the price that the agent's authority holds.
"""

from collections.abc import Iterator

from orchestral_temporal.core.state import ModelOpen, RunState
from orchestral_temporal.protocol.base import LARGEST_U64
from orchestral_temporal.protocol.limits import MoneyAmount, RunLimitKind, RunLimits
from orchestral_temporal.protocol.model import ModelUsage
from orchestral_temporal.protocol.price import output_within, quote


def _limits(state: RunState) -> RunLimits:
    """The budgets of the run: each limit of its own, or else its agent's default (`answers.md` 12)."""
    own, default = state.start.envelope.spec.limits, state.run_part.run_limits
    return RunLimits(
        max_input_tokens=own.max_input_tokens or default.max_input_tokens,
        max_output_tokens=own.max_output_tokens or default.max_output_tokens,
        max_cost=own.max_cost or default.max_cost,
    )


def bound(state: RunState) -> bool:
    """Whether the run has a budget of tokens or money."""
    return any(_standing(state))


def spent(state: RunState) -> RunLimitKind | None:
    """The budget of which nothing is left: input before output before cost (P3, P12)."""
    return next((kind for kind, limit, used in _standing(state) if used >= limit), None)


def _standing(state: RunState) -> Iterator[tuple[RunLimitKind, int, int]]:
    """Each budget of the run, in the order in which they are told: its limit, and what is used of it."""
    given, usage = _limits(state), state.usage
    if given.max_input_tokens is not None:
        yield RunLimitKind.INPUT_TOKENS, given.max_input_tokens, usage.input_tokens or 0
    if given.max_output_tokens is not None:
        yield RunLimitKind.OUTPUT_TOKENS, given.max_output_tokens, usage.output_tokens or 0
    if given.max_cost is not None:
        yield RunLimitKind.COST, given.max_cost.microunits, _price(state).microunits


def _price(state: RunState) -> MoneyAmount:
    policy, usage = state.run_part.price, state.usage
    assert policy is not None, "no cost limit is admitted without a price"
    return quote(policy, usage.input_tokens or 0, usage.output_tokens or 0)


def cost(state: RunState) -> MoneyAmount | None:
    """What the run has cost; null without a price, or while no token is known."""
    return None if state.run_part.price is None or state.usage == ModelUsage() else _price(state)


def output_left(state: RunState) -> int | None:
    """What a request may ask for at the most, whatever its model could say; none where there is no budget."""
    limit = _limits(state).max_output_tokens
    return None if limit is None else max(0, limit - (state.usage.output_tokens or 0))


def input_left(state: RunState) -> int | None:
    """What a request may hold at the most, by its hard count (P5); none where there is no budget."""
    limit = _limits(state).max_input_tokens
    return None if limit is None else max(0, limit - (state.usage.input_tokens or 0))


def affordable(state: RunState, hard_count: int, cap: int) -> int:
    """The largest output cap up to `cap` that the run can pay for beside its request; 0 if there is none (P5)."""
    ceiling, policy, used = _limits(state).max_cost, state.run_part.price, state.usage
    if ceiling is None or policy is None:
        return cap
    within = output_within(policy, ceiling.microunits, (used.input_tokens or 0) + hard_count, used.output_tokens or 0)
    return cap if within is None else max(0, min(cap, within))


def added(total: ModelUsage, more: ModelUsage) -> ModelUsage:
    """The sum of two usages: what is not known adds nothing, and no sum is above what the wire can hold."""

    def plus(left: int | None, right: int | None) -> int | None:
        return right if left is None else min(LARGEST_U64, left + (right or 0))

    return ModelUsage(
        input_tokens=plus(total.input_tokens, more.input_tokens),
        output_tokens=plus(total.output_tokens, more.output_tokens),
    )


def breach(state: RunState, phase: ModelOpen, reported: ModelUsage | None) -> tuple[str, str] | None:
    """Code and sentence of a failure where a turn's usage, now counted, is missing or above what was reserved (P10)."""
    wants_input, wants_output = _needed(state)
    if reported is None and (wants_input or wants_output):
        return "model_usage_missing", "The run has a budget, and the model does not report what it used."
    usage = reported or ModelUsage()
    if wants_input and usage.input_tokens is None:
        return "model_input_usage_missing", "A budget of the run counts input, and the model does not report it."
    if wants_output and usage.output_tokens is None:
        return "model_output_usage_missing", "A budget of the run counts output, and the model does not report it."
    # Without a budget a provider's hidden tokens harm nobody (divergence 23).
    if wants_input and (usage.input_tokens or 0) > phase.bound:
        message = f"The model reports {usage.input_tokens} input tokens; the request has at most {phase.bound}."
        return "model_input_usage_exceeded_reservation", message
    if (usage.output_tokens or 0) > phase.cap:
        message = f"The model reports {usage.output_tokens} output tokens; {phase.cap} were reserved."
        return "model_output_usage_exceeded_reservation", message
    return _violation(state)


def _needed(state: RunState) -> tuple[bool, bool]:
    """Whether a budget counts the input of a turn, and whether one counts its output."""
    given, policy = _limits(state), state.run_part.price
    rates = (0, 0)
    if given.max_cost is not None and policy is not None:
        rates = (policy.input_microunits_per_million_tokens, policy.output_microunits_per_million_tokens)
    return given.max_input_tokens is not None or rates[0] > 0, given.max_output_tokens is not None or rates[1] > 0


def _violation(state: RunState) -> tuple[str, str] | None:
    """A sum above its limit although its turn kept to its reservation: that was wrong, and it must be seen."""
    for kind, limit, used in _standing(state):
        if used > limit:
            code = f"model_{kind.removesuffix('_tokens')}_limit_violated"
            return code, f"The run has used {used} of its {kind} limit, which is {limit}."
    return None
