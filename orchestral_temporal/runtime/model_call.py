"""One model attempt: build the request, meter it, stream it, assemble the turn (decisions 6–8, 27)."""

from collections.abc import Callable

from orchestral_temporal.core.assembly import Assembly, Breach, failure_code, step, unfinished
from orchestral_temporal.core.calls import bounded, turn_item
from orchestral_temporal.core.items import WrittenItem, context_digest, messages, request_body
from orchestral_temporal.core.limits import MODEL_TURN_BYTES
from orchestral_temporal.ports import ModelBackend, ModelFault, TokenMeter
from orchestral_temporal.protocol.activities import Heartbeat, Item, Measure, ModelAttempt, ModelResult, ToolsItem
from orchestral_temporal.protocol.digest import sha256
from orchestral_temporal.protocol.model import (
    ModelError,
    ModelErrorCode,
    ModelObservation,
    ModelRequest,
    TextDelta,
)
from orchestral_temporal.protocol.words import to_json
from orchestral_temporal.runtime.context_items import Context

LIVE_TAIL_CHARACTERS = 4_096
"""Characters of live text in a heartbeat: at four bytes each the 16 KB of decision 27."""


class ModelCallFailed(Exception):  # noqa: N818 -- the run's failure, not an error of ours
    """The attempt ended without a turn; `code` is the run's failure code, `error` the wire's value."""

    def __init__(self, code: str, error: ModelError) -> None:
        super().__init__(error.message)
        self.code, self.error = code, error


class LiveText:
    """The newest text of an attempt as its heartbeat shows it: a window with its offset, so that no part is missed."""

    def __init__(self) -> None:
        self.request_digest: str | None = None
        self._text = ""
        self._offset = 0

    def add(self, delta: str) -> None:
        """Append text; what leaves the window moves the offset."""
        self._text += delta
        if len(self._text) > 2 * LIVE_TAIL_CHARACTERS:
            cut = len(self._text) - LIVE_TAIL_CHARACTERS
            self._text, self._offset = self._text[cut:], self._offset + cut

    def beat(self) -> Heartbeat:
        """The details of the next heartbeat."""
        cut = max(0, len(self._text) - LIVE_TAIL_CHARACTERS)
        return Heartbeat(
            request_digest=self.request_digest,
            offset=self._offset + cut,
            text=self._text[cut:].encode("utf-8", "replace").decode("utf-8"),
        )


def build_request(attempt: ModelAttempt, context: Context) -> tuple[ModelRequest, bytes]:
    """The request of an attempt from its context, and its canonical form.

    Raises:
        ModelCallFailed: `context_mismatch`; the items are not the context that the run asked for.
    """
    tools = context.tools.item
    named = context_digest(attempt.config_digest, context.digests, attempt.tools, attempt.max_output_tokens)
    if named != attempt.context or not isinstance(tools, ToolsItem):
        error = ModelError(code=ModelErrorCode.INTERNAL, message="The context found is not the one the run named.")
        raise ModelCallFailed("context_mismatch", error)
    request = ModelRequest(
        request_id=attempt.request_id,
        messages=messages([each.item for each in context.items]),
        tools=tools.tools,
        output_schema=None,
        max_output_tokens=attempt.max_output_tokens,
        extensions={},
    )
    return request, request_body(request, context.items, context.tools)


async def call_model(
    attempt: ModelAttempt,
    context: Context,
    backend: ModelBackend,
    meter: TokenMeter,
    live: LiveText,
    *,
    remember: Callable[[Item], WrittenItem],
) -> ModelResult:
    """Run one attempt to its end; `remember` keeps the turn's item for the next one.

    Raises:
        ModelCallFailed: the request is over budget, the backend failed, or its stream broke a rule.
    """
    request, body = build_request(attempt, context)
    count = meter.count(body)
    if count.estimate > attempt.trace.input_budget_tokens:
        message = f"The request needs about {count.estimate} tokens; {attempt.trace.input_budget_tokens} are free."
        error = ModelError(
            code=ModelErrorCode.CONTEXT_LENGTH_EXCEEDED,
            message=message,
            details={"used": count.estimate, "budget": attempt.trace.input_budget_tokens},
        )
        raise ModelCallFailed("context_overflow", error)
    live.request_digest = sha256(body)
    try:
        observation = bounded(await _observe(request, backend, live.add))
    except ModelFault as fault:
        raise ModelCallFailed(failure_code(fault.error.code), fault.error) from fault
    size = len(to_json(observation).encode())
    if size > MODEL_TURN_BYTES:
        message = f"The model's turn has {size} bytes; at most {MODEL_TURN_BYTES} can be kept."
        raise ModelCallFailed("model_output_too_large", ModelError(code=ModelErrorCode.INTERNAL, message=message))
    return ModelResult(
        observation=observation,
        item=_remembered(observation, meter, remember),
        request_digest=live.request_digest,
        input_bound=count.bound,
    )


async def _observe(request: ModelRequest, backend: ModelBackend, said: Callable[[str], None]) -> ModelObservation:
    state = Assembly(request.request_id)
    async for event in backend.stream(request):
        if isinstance(event.payload, TextDelta):
            said(event.payload.delta)
        match step(state, event):
            case Assembly() as following:
                state = following
            case ModelObservation() as turn:
                return turn
            case Breach(code, error):
                raise ModelCallFailed(code, error)
    breach = unfinished(state)
    raise ModelCallFailed(breach.code, breach.error)


def _remembered(
    observation: ModelObservation, meter: TokenMeter, remember: Callable[[Item], WrittenItem]
) -> Measure | None:
    item = turn_item(observation)
    if item is None:
        return None
    kept = remember(item)
    count = meter.count(kept.body)
    return Measure(digest=kept.digest, size=len(kept.body), bound=count.bound, estimate=count.estimate)
