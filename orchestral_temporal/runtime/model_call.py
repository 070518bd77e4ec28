"""One model attempt: build the request, meter it, stream it, assemble the turn (decisions 6–8, 27)."""

from collections.abc import Callable

from orchestral_temporal.core.assembly import Assembly, Breach, failure_code, step, unfinished
from orchestral_temporal.core.calls import abridged, bounded, turn_item
from orchestral_temporal.core.items import WrittenItem, context_digest, messages, request_body
from orchestral_temporal.core.limits import MODEL_STREAM_BYTES, MODEL_TEXT_BYTES, MODEL_TURN_BYTES
from orchestral_temporal.ports import ArtifactStore, ModelBackend, ModelFault, TokenMeter
from orchestral_temporal.protocol.activities import (
    Heartbeat,
    Item,
    Measure,
    ModelAttempt,
    ModelResult,
    StoredText,
    ToolsItem,
)
from orchestral_temporal.protocol.digest import canonical, sha256
from orchestral_temporal.protocol.model import (
    ModelError,
    ModelErrorCode,
    ModelObservation,
    ModelRequest,
    ModelUsage,
    TextDelta,
    ToolCallArgumentsDelta,
)
from orchestral_temporal.protocol.words import mended_text, to_json
from orchestral_temporal.runtime.context_items import Context

REPLACEMENT = "\ufffd"
"""What stands where a character was none; a model may also write it itself."""

LIVE_TAIL_CHARACTERS = 4_096
"""Characters of live text in a heartbeat: at four bytes each the 16 KB of decision 27."""


class ModelCallFailed(Exception):  # noqa: N818 -- the run's failure, not an error of ours
    """The attempt ended without a turn; `code` is the run's failure code, `error` the wire's value.

    `generated` says that something other than usage was received, `usage` is the last snapshot seen.
    """

    def __init__(
        self, code: str, error: ModelError, *, generated: bool = False, usage: ModelUsage | None = None
    ) -> None:
        super().__init__(error.message)
        self.code, self.error = code, error
        self.generated, self.usage = generated, usage


class LiveText:
    """The newest text of an attempt as its heartbeat shows it: a window with its offset, so that no part is missed."""

    def __init__(self) -> None:
        self.request_digest: str | None = None
        self._text = self._half = ""
        self._offset = 0

    def add(self, delta: str) -> None:
        """Append text; what leaves the window moves the offset. Half a surrogate pair waits for the other one."""
        delta = self._half + delta
        self._half = delta[-1:] if "\ud800" <= delta[-1:] <= "\udbff" else ""
        whole = delta.removesuffix(self._half)
        self._text += mended_text(whole)
        if len(self._text) > 2 * LIVE_TAIL_CHARACTERS:
            cut = len(self._text) - LIVE_TAIL_CHARACTERS
            self._text, self._offset = self._text[cut:], self._offset + cut

    def beat(self) -> Heartbeat:
        """The details of the next heartbeat."""
        cut = max(0, len(self._text) - LIVE_TAIL_CHARACTERS)
        return Heartbeat(
            request_digest=self.request_digest,
            offset=self._offset + cut,
            text=self._text[cut:],
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
    artifacts: ArtifactStore,
    remember: Callable[[Item], WrittenItem],
) -> ModelResult:
    """Run one attempt to its end; `remember` keeps the turn's item for the next one, `artifacts` a text of any size.

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
    whole, notes = await _observe(request, backend, live.add)
    whole = bounded(whole)
    stored = await _stored(whole.response, artifacts)
    observation = whole if stored is None else abridged(whole, stored)
    size = len(to_json(observation).encode())
    if size > MODEL_TURN_BYTES:
        breach = _too_large(f"The model's turn has {size} bytes beside its text; {MODEL_TURN_BYTES} can be kept.")
        raise ModelCallFailed(breach.code, breach.error, generated=True, usage=whole.usage)
    return ModelResult(
        observation=observation,
        item=_remembered(whole, meter, remember),
        request_digest=live.request_digest,
        input_bound=count.bound,
        stored=stored,
        notes=notes,
    )


async def _observe(
    request: ModelRequest, backend: ModelBackend, said: Callable[[str], None]
) -> tuple[ModelObservation, tuple[str, ...]]:
    """The turn, and a sentence on what was changed in it."""
    state, received = Assembly(request.request_id), _Received()
    try:
        async for event in backend.stream(request):
            if isinstance(event.payload, TextDelta):
                said(event.payload.delta)
            if isinstance(event.payload, TextDelta | ToolCallArgumentsDelta) and not received.add(event.payload.delta):
                raise _failed(_too_large(f"The model streamed more than {MODEL_STREAM_BYTES} bytes."), state)
            match step(state, event):
                case Assembly() as following:
                    state = following
                case ModelObservation() as turn:
                    return turn, received.notes(turn)
                case Breach() as breach:
                    raise _failed(breach, state)
    except ModelFault as fault:
        raise _failed(Breach(failure_code(fault.error.code), fault.error), state) from fault
    raise _failed(unfinished(state), state)


class _Received:
    """Counts what a stream has brought: bytes, and the U+FFFD that the model itself wrote."""

    def __init__(self) -> None:
        self._size = self._marks = 0

    def add(self, delta: str) -> bool:
        """Count a piece of text; false once there is too much."""
        self._size += len(delta.encode("utf-8", "surrogatepass"))
        self._marks += delta.count(REPLACEMENT)
        return self._size <= MODEL_STREAM_BYTES

    def notes(self, turn: ModelObservation) -> tuple[str, ...]:
        """What assembly has replaced: each lone surrogate became one U+FFFD (divergence 15)."""
        texts = (turn.response, *(call.arguments for call in turn.tool_calls))
        replaced = sum(text.count(REPLACEMENT) for text in texts) - self._marks
        return (f"{replaced} characters of the turn were not Unicode and became U+FFFD.",) if replaced else ()


async def _stored(text: str, artifacts: ArtifactStore) -> StoredText | None:
    """Put a text that is too large for a history into the artifact store."""
    if len(canonical(text)) <= MODEL_TEXT_BYTES:
        return None
    data = text.encode()
    return StoredText(digest=await artifacts.put(data), size=len(data))


def _too_large(message: str) -> Breach:
    return Breach("model_output_too_large", ModelError(code=ModelErrorCode.INTERNAL, message=message))


def _failed(breach: Breach, state: Assembly) -> ModelCallFailed:
    return ModelCallFailed(breach.code, breach.error, generated=state.generated, usage=state.usage)


def _remembered(
    observation: ModelObservation, meter: TokenMeter, remember: Callable[[Item], WrittenItem]
) -> Measure | None:
    item = turn_item(observation)
    if item is None:
        return None
    kept = remember(item)
    count = meter.count(kept.body)
    return Measure(digest=kept.digest, size=len(kept.body), bound=count.bound, estimate=count.estimate)
