"""Assembly of a model stream into one turn (`spec/agent-loop.md` §4)."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestral_temporal.core.assembly import Assembly, Breach, failure_code, step, unfinished
from orchestral_temporal.protocol.model import (
    Continuation,
    Finish,
    ModelErrorCode,
    ModelEvent,
    ModelFinishReason,
    ModelObservation,
    ModelStreamEvent,
    ModelUsage,
    ObservedToolCall,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageSnapshot,
)

STOP = Finish(reason=ModelFinishReason.STOP)


def _event(payload: ModelEvent, sequence: int = 1, request_id: str = "r", event_id: str = "e") -> ModelStreamEvent:
    return ModelStreamEvent(request_id=request_id, event_id=event_id, sequence=sequence, payload=payload)


def _read(*payloads: ModelEvent) -> Assembly | ModelObservation | Breach:
    """Read payloads as a well-numbered stream."""
    return _fold(_event(payload, number) for number, payload in enumerate(payloads, 1))


def _fold(events: Iterable[ModelStreamEvent]) -> Assembly | ModelObservation | Breach:
    state: Assembly | ModelObservation | Breach = Assembly("r")
    for each in events:
        assert isinstance(state, Assembly)
        state = step(state, each)
    return state


def _start(call_id: str = "c", name: str = "weigh") -> ToolCallStart:
    return ToolCallStart(call_id=call_id, name=name)


def _argue(delta: str, call_id: str = "c") -> ToolCallArgumentsDelta:
    return ToolCallArgumentsDelta(call_id=call_id, delta=delta)


def _end(call_id: str = "c") -> ToolCallEnd:
    return ToolCallEnd(call_id=call_id)


def _usage(given_tokens: int | None, written: int | None) -> UsageSnapshot:
    return UsageSnapshot(usage=ModelUsage(input_tokens=given_tokens, output_tokens=written))


def _code(state: Assembly | ModelObservation | Breach) -> str:
    assert isinstance(state, Breach)
    return state.code


def test_a_whole_turn_is_assembled() -> None:
    """Text, continuations, interleaved calls and usage become one observation; calls keep their order."""
    turn = _read(
        TextDelta(delta="Weigh"),
        _start("a"),
        _start("b", "count"),
        _argue('{"n":', "b"),
        _argue('{"basket"', "a"),
        TextDelta(delta="ing."),
        _argue("1}", "b"),
        _end("b"),
        Continuation(namespace="acme/state", value={"opaque": 1}),
        _argue(": 3}", "a"),
        _end("a"),
        _usage(900, 12),
        Finish(reason=ModelFinishReason.TOOL_CALLS),
    )
    assert turn == ModelObservation(
        finish_reason=ModelFinishReason.TOOL_CALLS,
        response="Weighing.",
        continuation={"acme/state": {"opaque": 1}},
        usage=ModelUsage(input_tokens=900, output_tokens=12),
        tool_calls=(
            ObservedToolCall(call_id="a", name="weigh", arguments='{"basket": 3}', extensions={}, ended=True),
            ObservedToolCall(call_id="b", name="count", arguments='{"n":1}', extensions={}, ended=True),
        ),
    )


def test_an_empty_turn_has_no_continuation() -> None:
    """A bare finish is the wire's minimal observation."""
    assert _read(STOP) == ModelObservation(finish_reason=ModelFinishReason.STOP, response="")


@pytest.mark.parametrize("reason", ModelFinishReason)
def test_the_finish_reason_is_kept(reason: ModelFinishReason) -> None:
    """Each reason reaches the loop, which decides what follows (§8)."""
    turn = _read(Finish(reason=reason))
    assert isinstance(turn, ModelObservation)
    assert turn.finish_reason is reason


def test_a_call_left_open_is_observed_as_such() -> None:
    """An open call is accepted into the observation and refused only after it."""
    turn = _read(_start(), _argue("{"), STOP)
    assert isinstance(turn, ModelObservation)
    assert turn.tool_calls == (ObservedToolCall(call_id="c", name="weigh", arguments="{", extensions={}, ended=False),)


def test_usage_replaces_the_former_whole() -> None:
    """A later null erases what was reported before."""
    turn = _read(_usage(5, 1), _usage(None, 7), STOP)
    assert isinstance(turn, ModelObservation)
    assert turn.usage == ModelUsage(output_tokens=7)


@pytest.mark.parametrize(
    "wrong",
    [
        _event(STOP, sequence=2),
        _event(STOP, sequence=0),
        _event(STOP, request_id="q"),
        _event(STOP, event_id=""),
        _event(STOP, event_id=" "),
    ],
    ids=["gap", "zero", "another request", "empty event id", "blank event id"],
)
def test_the_envelope_is_checked(wrong: ModelStreamEvent) -> None:
    """Another request's event, a gap, or an event without an id breaks the protocol."""
    assert _code(_fold([wrong])) == "model_protocol"


def test_a_repeated_sequence_is_a_breach() -> None:
    """A number comes once."""
    assert _code(_fold([_event(TextDelta(delta="a")), _event(TextDelta(delta="b"))])) == "model_protocol"


@pytest.mark.parametrize(
    "payloads",
    [
        [TextDelta(delta="")],
        [Continuation(namespace=" ", value=1)],
        [Continuation(namespace="v", value=1), Continuation(namespace="v", value=1)],
        [_start("")],
        [_start(name="")],
        [_start(), _start()],
        [_start(), _end(), _start()],
        [_argue("{}")],
        [_start(), _argue("")],
        [_start(), _end(), _argue("{}")],
        [_end()],
        [_start(), _end(), _end()],
    ],
    ids=[
        "empty text",
        "blank namespace",
        "namespace twice",
        "empty call id",
        "empty tool name (F056)",
        "call id twice",
        "call id again after its end",
        "arguments before start",
        "empty arguments",
        "arguments after end",
        "end before start",
        "end twice",
    ],
)
def test_a_payload_out_of_order_is_a_breach(payloads: list[ModelEvent]) -> None:
    """Each rule of the table fails the run as `model_protocol`, and no retry can help (F056)."""
    breach = _read(*payloads)
    assert _code(breach) == "model_protocol"
    assert isinstance(breach, Breach)
    assert not breach.error.retryable


def test_a_bad_extension_key_is_an_invalid_request() -> None:
    """Extension keys are `namespace/name`; the vectors give this breach another code."""
    wrong = ToolCallStart(call_id="c", name="n", extensions={"x": 1})
    right = ToolCallStart(call_id="c", name="n", extensions={"acme/x": 1})
    assert _code(_read(wrong)) == "model_invalidrequest"
    assert isinstance(_read(right), Assembly)


def test_an_unknown_event_is_named_so() -> None:
    """A backend that sends what we do not know fails the run, and does not break our code."""
    alien = _event(STOP).model_copy(update={"payload": ModelUsage()})
    assert _code(_fold([alien])) == "unknown_model_event"


def test_a_stream_that_only_reported_usage_was_unavailable() -> None:
    """Before any other event the retry window is open, and the usage is still known."""
    state = _read(_usage(4, 5))
    assert isinstance(state, Assembly)
    assert (state.generated, state.usage) == (False, ModelUsage(input_tokens=4, output_tokens=5))
    breach = unfinished(state)
    assert (breach.code, breach.error.code, breach.error.retryable) == (
        "model_unavailable",
        ModelErrorCode.UNAVAILABLE,
        True,
    )


@pytest.mark.parametrize("payload", [TextDelta(delta="a"), _start(), Continuation(namespace="v", value=1)])
def test_a_stream_cut_after_output_has_ended(payload: ModelEvent) -> None:
    """After output the end without finish is `model_stream_ended`, which the retry rule does not know (F070)."""
    state = _read(payload)
    assert isinstance(state, Assembly)
    assert state.generated
    breach = unfinished(state)
    assert (breach.code, breach.error.retryable) == ("model_stream_ended", True)
    assert breach.error.code not in {ModelErrorCode.UNAVAILABLE, ModelErrorCode.RATE_LIMITED}


def test_failure_codes_lose_their_underscores() -> None:
    """The failure codes of backend errors are those of the sheet."""
    assert {failure_code(each) for each in ModelErrorCode} == {
        "model_invalidrequest",
        "model_contextlengthexceeded",
        "model_unsupported",
        "model_unavailable",
        "model_ratelimited",
        "model_authentication",
        "model_protocol",
        "model_cancelled",
        "model_internal",
    }


def test_a_step_leaves_the_former_state_alone() -> None:
    """A state is a value: reading on from it twice gives two turns."""
    state = _read(_start(), _argue("{"))
    assert isinstance(state, Assembly)
    for tail in ("}", " }"):
        more = step(state, _event(_argue(tail), 3))
        assert isinstance(more, Assembly)
        turn = step(more, _event(STOP, 4))
        assert isinstance(turn, ModelObservation)
        assert turn.tool_calls[0].arguments == "{" + tail


def _utf16(text: str) -> str:
    """The text as the code units that JSON escapes may split it into."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(int.from_bytes(units[at : at + 2])) for at in range(0, len(units), 2))


texts = st.text(st.characters(codec="utf-8"), min_size=1).map(_utf16)


def _cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(edges)]


@given(texts, texts, st.lists(st.integers(0)), st.lists(st.integers(0)))
def test_any_split_gives_the_same_turn(said: str, argued: str, text_cuts: list[int], argument_cuts: list[int]) -> None:
    """However text and arguments are cut, even inside a surrogate pair, the turn is the same."""
    whole = _read(TextDelta(delta=said), _start(), _argue(argued), STOP)
    pieces = [TextDelta(delta=piece) for piece in _cut(said, text_cuts)]
    arguments = [_argue(piece) for piece in _cut(argued, argument_cuts)]
    assert isinstance(whole, ModelObservation)
    assert whole.response == said.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    assert _read(*pieces, _start(), *arguments, STOP) == whole
    assert _read(_start(), *arguments, *pieces, STOP) == whole


def test_a_lone_surrogate_is_replaced() -> None:
    """What no UTF-8 can carry becomes U+FFFD in text and arguments (F041)."""
    turn = _read(TextDelta(delta="half a letter: \ud835 end"), _start(), _argue('{"q": "\udc81"}'), STOP)
    assert isinstance(turn, ModelObservation)
    assert turn.response == "half a letter: \ufffd end"
    assert turn.tool_calls[0].arguments == '{"q": "\ufffd"}'


def test_ten_megabytes_are_not_copied_at_each_delta() -> None:
    """A state keeps long text in a few pieces, so the work of a delta does not grow with what came before."""
    state: Assembly | ModelObservation | Breach = Assembly("r")
    for number in range(1, 50_001):
        assert isinstance(state, Assembly)
        state = step(state, _event(TextDelta(delta="x" * 200), number))
    assert isinstance(state, Assembly)
    assert sum(map(len, state.text)) == 10_000_000
    assert all(len(a) >= 2 * len(b) for a, b in pairwise(state.text))
