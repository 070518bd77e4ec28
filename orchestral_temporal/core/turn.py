"""A finished turn: count it, act on its finish reason (`spec/agent-loop.md` §5 P9–P11, §7, §8)."""

from orchestral_temporal.core import attempts, batch, budgets, calls, context, ending, input_queue
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.items import assistant_item
from orchestral_temporal.core.state import ModelOpen
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import ModelResult
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelFinishReason, ModelObservation, ModelUsage
from orchestral_temporal.protocol.wal import ModelAttemptObserved


def observe(work: Work, phase: ModelOpen, result: ModelResult) -> None:
    """Commit the observation, count its usage, act on its finish reason (P9–P11)."""
    state = work.state
    observation = result.observation
    request_id = ids.model_request_id(work.run_id, state.round)
    work.record(
        ids.wal_observed_id(work.run_id, state.round),
        ModelAttemptObserved(round=state.round, request_id=request_id, observation=observation),
    )
    # What the model reports was used, so it counts also where it ends the run: the result says what was paid for.
    attempts.charge(work, observation.usage or ModelUsage())
    fault = budgets.breach(work.state, phase, observation.usage)
    if fault is not None:
        ending.fail(work, *fault)
        return
    learned = state.capacity
    # An input that never had to shrink is free again; a smaller output cap stays (`spec/agent-loop.md` §4).
    budget = learned.input_budget if learned.input_shrunk else None
    work.set(capacity=learned.model_copy(update={"retries": 0, "input_budget": budget}))
    if observation.response:
        work.set(last_response=observation.response, last_stored=result.stored)
    _act(work, observation, result)


def _act(work: Work, observation: ModelObservation, result: ModelResult) -> None:
    """The table of `spec/agent-loop.md` §8."""
    match observation.finish_reason:
        case ModelFinishReason.STOP | ModelFinishReason.TOOL_CALLS if observation.tool_calls:
            batch.open_calls(work, observation, result)
        case ModelFinishReason.STOP if observation.response:
            _answer(work, observation, result)
        case ModelFinishReason.LENGTH:
            ending.limit(work, RunLimitKind.OUTPUT_TOKENS, observation.response)
        case ModelFinishReason.CANCELLED:
            ending.fail(
                work,
                "unexpected_model_cancellation",
                "The model ended its turn as cancelled, and nobody asked for that.",
                retryable=True,
            )
        case _:
            ending.fail(
                work,
                "model_incomplete",
                f"The model ended its turn ({observation.finish_reason}) without an answer to deliver.",
            )


def _answer(work: Work, observation: ModelObservation, result: ModelResult) -> None:
    item = assistant_item(observation, ())
    assert item is not None, "an answer has text"
    digest_of = context.add_item(work, item, result.item)
    ending.remember(
        work,
        event_id=ids.session_output_id(work.run_id, work.state.round),
        kind="run_output_committed",
        items=(digest_of,),
        request_id=ids.model_request_id(work.run_id, work.state.round),
        usage=observation.usage,
    )
    if work.state.queue:
        _go_on(work, observation)
    else:
        ending.deliver(work)


def _go_on(work: Work, observation: ModelObservation) -> None:
    """Input that nobody has read waits: the answer stays in the session, and is not delivered (`SteerPending`, §13)."""
    reached = calls.last_step(work.state)
    if reached is not None:
        ending.limit(work, reached, observation.response)
        return
    input_queue.drain(work)
    attempts.next_round(work)
