"""What the next request holds, planned on headers alone (decision 8); without compaction only the overflow check."""

from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.items import context_digest, measure
from orchestral_temporal.core.limits import HISTORY_LIMIT, TAIL_BYTES
from orchestral_temporal.core.state import RecentItem, RunState
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import Item, Measure, ModelAttempt, ModelPart
from orchestral_temporal.protocol.model import ModelContextEstimate, ModelTokenAccounting
from orchestral_temporal.protocol.session import SessionSourceRange
from orchestral_temporal.protocol.wal import GenericModelContextTrace
from orchestral_temporal.protocol.words import Word

FRAME_TOKENS = 64
"""Bound of what wraps one item in a request: role, brackets and commas."""


class Plan(Word):
    """The size of the next request, what it may be, and the output cap it is planned for, in tokens."""

    bound: int
    estimate: int
    budget: int
    cap: int

    @property
    def overflows(self) -> bool:
        """Whether the estimate is above the budget: without a bound limit planning decides (agent-loop sheet, §6)."""
        return self.estimate > self.budget


def add_item(work: Work, item: Item, known: Measure | None = None, *, ours: bool = False) -> str:
    """Append an item and return its digest; `ours` marks a text that no start and no activity result holds."""
    header = measure(item) if known is None else known
    state = work.state
    sent = state.sent
    short = sum(each.size for each in state.headers[sent.items :]) + header.size <= TAIL_BYTES
    kept = tuple(each for each in sent.recent if short or each.ours)
    if short or ours:
        kept = (*kept, RecentItem(item=item, known=header, ours=ours))
    work.set(headers=(*state.headers, header), sent=sent.model_copy(update={"recent": kept}))
    return header.digest


def plan(state: RunState, part: ModelPart, output_left: int | None = None) -> Plan:
    """Measure the next request against the window; `output_left` is what the run's budget leaves for an answer."""
    tools = state.tools
    bound = sum(each.bound + FRAME_TOKENS for each in state.headers) + (tools.bound if tools else 0)
    estimate = sum(each.estimate for each in state.headers) + (tools.estimate if tools else 0)
    window = part.descriptor.capabilities.max_context_tokens
    limit = part.max_context_tokens if window is None else min(window, part.max_context_tokens)
    learned = state.capacity
    cap = part.reserved_output_tokens if learned.output_cap is None else learned.output_cap
    cap = cap if output_left is None else min(cap, output_left)
    budget = limit - cap if learned.input_budget is None else min(limit - cap, learned.input_budget)
    return Plan(bound=bound, estimate=estimate, budget=budget, cap=cap)


def attempt(state: RunState, planned: Plan, number: int) -> ModelAttempt:
    """The words of the next attempt: the context by name, its newest items by digest, their texts when short."""
    tools = state.tools.digest if state.tools else ""
    cap = planned.cap
    return ModelAttempt(
        run_id=state.start.run_id,
        agent=state.start.options.agent,
        round=state.round,
        attempt=number,
        request_id=ids.model_request_id(state.start.run_id, state.round),
        config_digest=state.config_digest,
        part_digest=state.model_digest,
        context=context_digest(state.config_digest, [each.digest for each in state.headers], tools, cap),
        base=state.sent.base,
        add=tuple(each.digest for each in state.headers[state.sent.items :]),
        tail=tuple(each.item for each in state.sent.recent),
        tools=tools,
        max_output_tokens=cap,
        trace=_trace(state, planned),
        live_text_ms=state.live_text_ms,
    )


def _trace(state: RunState, planned: Plan) -> GenericModelContextTrace:
    cursor = state.session
    assert cursor is not None, "a round opens only in a session"
    earlier = cursor.first_seq - 1
    return GenericModelContextTrace(
        through_session_seq=cursor.last_seq,
        included_ranges=(SessionSourceRange(first_session_seq=cursor.first_seq, last_session_seq=cursor.last_seq),),
        deferred_ranges=(SessionSourceRange(first_session_seq=1, last_session_seq=earlier),) if earlier else (),
        config_digest=state.config_digest,
        history_limit=HISTORY_LIMIT,
        used_input_tokens=planned.bound,
        context_estimate=ModelContextEstimate(tokens=planned.estimate, accounting=ModelTokenAccounting.ESTIMATED),
        input_budget_tokens=planned.budget,
    )
