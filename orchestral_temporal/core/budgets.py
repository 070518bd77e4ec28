"""Token budgets: reserved before a request goes out, settled by what its turn reports (agent-loop sheet §7, F3)."""

from orchestral_temporal.core.state import ModelOpen, RunState
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelUsage


def input_limit(state: RunState) -> int | None:
    """Input tokens that the run may use; a run without its own limit takes the agent's default."""
    return state.start.envelope.spec.limits.max_input_tokens or state.run_part.run_limits.max_input_tokens


def output_limit(state: RunState) -> int | None:
    """Output tokens, likewise."""
    return state.start.envelope.spec.limits.max_output_tokens or state.run_part.run_limits.max_output_tokens


def bound(state: RunState) -> bool:
    """Whether the run has any token budget."""
    return input_limit(state) is not None or output_limit(state) is not None


def spent(state: RunState) -> RunLimitKind | None:
    """The budget of which nothing is left, input before output (P3, P12)."""
    if input_left(state) == 0:
        return RunLimitKind.INPUT_TOKENS
    if output_left(state) == 0:
        return RunLimitKind.OUTPUT_TOKENS
    return None


def output_left(state: RunState) -> int | None:
    """What a request may ask for at the most, whatever its model could say; none where there is no budget."""
    return _left(output_limit(state), state.usage.output_tokens)


def input_left(state: RunState) -> int | None:
    """What a request may hold at the most, by its hard count (P5); none where there is no budget."""
    return _left(input_limit(state), state.usage.input_tokens)


def _left(limit: int | None, used: int | None) -> int | None:
    return None if limit is None else max(0, limit - (used or 0))


def breach(state: RunState, phase: ModelOpen, reported: ModelUsage | None) -> tuple[str, str] | None:
    """Code and sentence of a failure where a turn's usage is missing, or above what was reserved (P10)."""
    wants_input, wants_output = input_limit(state) is not None, output_limit(state) is not None
    if reported is None and (wants_input or wants_output):
        return "model_usage_missing", "The run has a token budget, and the model does not report what it used."
    usage = reported or ModelUsage()
    if wants_input and usage.input_tokens is None:
        return "model_input_usage_missing", "The run has an input budget, and the model does not report its input."
    if wants_output and usage.output_tokens is None:
        return "model_output_usage_missing", "The run has an output budget, and the model does not report its output."
    # Without a budget a provider's hidden tokens harm nobody (divergence 23).
    if wants_input and (usage.input_tokens or 0) > phase.bound:
        message = f"The model reports {usage.input_tokens} input tokens; the request has at most {phase.bound}."
        return "model_input_usage_exceeded_reservation", message
    if (usage.output_tokens or 0) > phase.cap:
        message = f"The model reports {usage.output_tokens} output tokens; {phase.cap} were reserved."
        return "model_output_usage_exceeded_reservation", message
    return None
