"""What the OpenAI adapter makes of a stream, from a real endpoint on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from openai import Timeout

from orchestral_temporal.core.assembly import Breach
from orchestral_temporal.ports import ModelBackend
from orchestral_temporal.protocol.model import (
    ModelErrorCode,
    ModelFinishReason,
    ModelMessage,
    ModelObservation,
    ModelRole,
    ModelUsage,
    ToolCallPart,
)
from orchestral_temporal.testing.model_contract import MODEL_CONTRACT, REQUEST, ModelCheck, Turn, assembled
from tests.contracts.openai_endpoint import (
    DONE,
    adapter_at,
    call_chunk,
    chunk,
    error_reply,
    frame,
    text_reply,
    turn_of,
    usage_chunk,
)
from tests.contracts.sse_server import Reply, serving

STATUS = {
    ModelErrorCode.AUTHENTICATION: 401,
    ModelErrorCode.INVALID_REQUEST: 400,
    ModelErrorCode.CONTEXT_LENGTH_EXCEEDED: 413,
    ModelErrorCode.RATE_LIMITED: 429,
    ModelErrorCode.UNAVAILABLE: 503,
}


def _reply(turn: Turn) -> Reply:
    """The turn of a contract check as this endpoint streams it."""
    if turn.refusal is not None:
        return error_reply(STATUS[turn.refusal], {"error": {"message": "no", "code": turn.refusal.value}})
    pieces = [chunk({"content": delta}) for delta in turn.text]
    for index, call in enumerate(turn.calls):
        pieces.append(call_chunk(index, f"call_{index}", call.name, None))
        pieces.extend(call_chunk(index, None, None, delta) for delta in call.arguments)
    if turn.silent or turn.finish is None:
        return Reply(pieces, cut=not turn.silent, hold=turn.silent)
    pieces.append(chunk(finish=turn.finish.value))
    if turn.usage is not None:
        pieces.append(usage_chunk(turn.usage.input_tokens, turn.usage.output_tokens))
    return Reply([*pieces, DONE])


@asynccontextmanager
async def _serve(turn: Turn) -> AsyncIterator[ModelBackend]:
    async with serving(_reply(turn)) as endpoint, adapter_at(endpoint) as model:
        yield model


def _calls(turn: ModelObservation) -> list[tuple[str, str, str]]:
    return [(call.call_id, call.name, call.arguments) for call in turn.tool_calls]


@pytest.mark.parametrize("check", MODEL_CONTRACT, ids=lambda check: check.__name__)
async def test_contract(check: ModelCheck) -> None:
    """The adapter passes what every backend must."""
    await check(_serve)


async def test_text_may_be_cut_anywhere_on_the_wire() -> None:
    """Bytes arrive in any pieces, even inside a character."""
    body = b"".join(text_reply("Grüße ☀", " 😀").pieces)
    assert (await turn_of(Reply([body[at : at + 1] for at in range(len(body))]))).response == "Grüße ☀ 😀"


async def test_a_pair_split_between_two_deltas_is_one_character() -> None:
    """Two halves of a surrogate pair, escaped in two chunks, meet again; a lone half is replaced (F041)."""
    assert (await turn_of(text_reply("\ud83d", "\ude00 \ud835 end"))).response == "😀 \ufffd end"


async def test_usage_is_kept_as_reported_last() -> None:
    """Servers that report as they go report totals; what a later report leaves out is not forgotten (F119)."""
    pieces = [
        usage_chunk(9, 1),
        frame({"choices": [{"delta": {"content": "a"}, "usage": {"completion_tokens": 2}}], "usage": None}),
        usage_chunk(None, None),
        chunk(finish="stop"),
    ]
    assert (await turn_of(Reply([*pieces, DONE]))).usage == ModelUsage(input_tokens=9, output_tokens=2)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "total_tokens": 7}])
async def test_usage_that_says_nothing_is_unknown(usage: Any) -> None:
    """Null, empty and foreign usage is no count of zero."""
    reply = Reply([frame({"choices": [], "usage": usage}), chunk({"content": "a"}), chunk(finish="stop"), DONE])
    assert (await turn_of(reply)).usage is None


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
async def test_events_under_another_name_are_read(kind: str) -> None:
    """A stream of events that claims to be something else is one still."""
    pieces = [b": hello\n\n", *text_reply("a", "b").pieces]
    assert (await turn_of(Reply(pieces, headers={"content-type": kind}))).response == "ab"


async def test_comments_and_foreign_events_are_passed_over() -> None:
    """What servers send to keep a connection open says nothing."""
    pieces = [b": keep-alive\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', *text_reply("a").pieces]
    assert (await turn_of(Reply(pieces))).response == "a"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", ModelFinishReason.STOP),
        ("length", ModelFinishReason.LENGTH),
        ("tool_calls", ModelFinishReason.TOOL_CALLS),
        ("function_call", ModelFinishReason.TOOL_CALLS),
        ("content_filter", ModelFinishReason.CONTENT_FILTER),
        ("eos", ModelFinishReason.STOP),
        ("end_turn", ModelFinishReason.STOP),
        ("model_length", ModelFinishReason.LENGTH),
        ("MAX_TOKENS", ModelFinishReason.LENGTH),
        ("tool_use", ModelFinishReason.TOOL_CALLS),
        ("SAFETY", ModelFinishReason.CONTENT_FILTER),
        ("error", ModelFinishReason.OTHER),
    ],
)
async def test_finish_reasons_are_mapped(theirs: str, ours: ModelFinishReason) -> None:
    """Each reason of the endpoint has a word of ours, unknown ones are `other` (F071)."""
    assert (await turn_of(text_reply("a", finish=theirs))).finish_reason is ours


async def test_an_id_used_in_an_earlier_round_is_made_unique() -> None:
    """A model that counts from zero in each round still gets results it can tell apart (divergence 6)."""
    earlier = ToolCallPart(call_id="call_0", name="now", arguments={})
    message = ModelMessage(role=ModelRole.ASSISTANT, content=(earlier,))
    request = REQUEST.model_copy(update={"messages": (*REQUEST.messages, message)})
    turn = await turn_of(Reply([call_chunk(0, "call_0", "now", "{}"), chunk(finish="tool_calls"), DONE]), request)
    assert _calls(turn) == [("call_0-2", "now", "{}")]


async def test_calls_without_index_and_id_are_told_by_their_names() -> None:
    """Neither index nor id: a name begins a call, arguments alone continue it (F074)."""
    pieces = [
        call_chunk(None, "", "weather", '{"city":'),
        call_chunk(None, None, None, ' "Bern"}'),
        call_chunk(None, "", "weather", '{"city": "Oslo"}'),
    ]
    turn = await turn_of(Reply([*pieces, chunk(finish="stop"), DONE]))
    assert _calls(turn) == [("call", "weather", '{"city": "Bern"}'), ("call-2", "weather", '{"city": "Oslo"}')]


async def test_interleaved_and_repeated_fragments_find_their_call() -> None:
    """The index tells calls apart; an id or a name that is repeated begins nothing."""
    pieces = [
        call_chunk(0, "a", "weigh", '{"n":'),
        call_chunk(1, "b", "count", "{"),
        call_chunk(0, "a", "weigh", "1}"),
        call_chunk(1, None, "count", "}"),
        chunk({"tool_calls": [{"index": 1}]}),
    ]
    turn = await turn_of(Reply([*pieces, chunk(finish="tool_calls"), DONE]))
    assert _calls(turn) == [("a", "weigh", '{"n":1}'), ("b", "count", "{}")]


async def test_a_call_goes_on_with_another_id_but_without_a_name() -> None:
    """Servers that draw an id for each fragment, or give it late, still make one call."""
    pieces = [
        call_chunk(0, "r1", "weigh", '{"n":'),
        call_chunk(0, "r2", "", "1"),
        call_chunk(None, "r3", None, "}"),
        call_chunk(None, None, "count", "{"),
        call_chunk(None, "late", None, "}"),
    ]
    turn = await turn_of(Reply([*pieces, chunk(finish="tool_calls"), DONE]))
    assert _calls(turn) == [("r1", "weigh", '{"n":1}'), ("call", "count", "{}")]


async def test_calls_without_index_are_told_by_their_ids() -> None:
    """Fragments that carry an id alone find the call that began under it."""
    pieces = [
        call_chunk(None, "a", "weigh", "{"),
        call_chunk(None, "b", "count", "{"),
        call_chunk(None, "a", None, "}"),
        call_chunk(None, None, None, "}"),
    ]
    turn = await turn_of(Reply([*pieces, chunk(finish="tool_calls"), DONE]))
    assert _calls(turn) == [("a", "weigh", "{}"), ("b", "count", "{}")]


async def test_a_name_may_come_after_the_call_began() -> None:
    """Id and arguments wait for the name."""
    pieces = [
        call_chunk(0, None, None, "{"),
        call_chunk(0, "a", None, None),
        call_chunk(0, None, "weigh", "}"),
    ]
    turn = await turn_of(Reply([*pieces, chunk(finish="tool_calls"), DONE]))
    assert _calls(turn) == [("a", "weigh", "{}")]


async def test_the_older_form_of_one_call_is_read() -> None:
    """`function_call` streams name and arguments without index and id (F076)."""
    pieces = [
        chunk({"function_call": {"name": "search", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"q":'}}),
        chunk({"function_call": {"arguments": ' "tea"}'}}),
    ]
    turn = await turn_of(Reply([*pieces, chunk(finish="function_call"), DONE]))
    assert _calls(turn) == [("call", "search", '{"q": "tea"}')]
    assert turn.finish_reason is ModelFinishReason.TOOL_CALLS


async def test_arguments_that_are_no_text_keep_their_value() -> None:
    """An object, even with a large number, becomes its text; null is blank (F040 F076)."""
    whole = {"order_id": 123456789012345678901234567890}
    calls = [{"index": at, "function": {"name": "t", "arguments": it}} for at, it in enumerate((whole, [1], None))]
    turn = await turn_of(Reply([chunk({"tool_calls": calls}), chunk(finish="tool_calls"), DONE]))
    assert [call[2] for call in _calls(turn)] == ['{"order_id":123456789012345678901234567890}', "[1]", ""]


async def test_text_has_more_than_one_place() -> None:
    """A content in parts and a refusal are text, reasoning is not."""
    pieces = [
        chunk({"reasoning_content": "Hm.", "reasoning": "Hm."}),
        chunk({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "I "}]}),
        chunk({"refusal": "cannot."}),
    ]
    assert (await turn_of(Reply([*pieces, chunk(finish="stop"), DONE]))).response == "I cannot."


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_no_end_is_claimed_for_a_call_that_may_be_cut(finish: str) -> None:
    """After a cut turn nobody knows whether the call was complete (F071)."""
    turn = await turn_of(Reply([call_chunk(0, "q1", "append", '{"text": "x"}'), chunk(finish=finish), DONE]))
    assert not turn.tool_calls[0].ended


async def test_a_call_without_a_name_breaks_the_protocol() -> None:
    """The empty name is left to the stream rules (F056)."""
    reply = Reply([call_chunk(0, "q", "", "{}"), chunk(finish="tool_calls"), DONE])
    async with serving(reply) as endpoint, adapter_at(endpoint) as model:
        turn = await assembled(model.stream(REQUEST))
    assert isinstance(turn, Breach)
    assert turn.code == "model_protocol"


async def test_a_connection_lost_after_the_finish_reason_loses_only_usage() -> None:
    """The turn was complete; what follows it may be missing."""
    turn = await turn_of(Reply([chunk({"content": "Done."}), chunk(finish="stop")], cut=True))
    assert (turn.response, turn.finish_reason, turn.usage) == ("Done.", ModelFinishReason.STOP, None)


async def test_a_slow_first_byte_is_waited_for() -> None:
    """The connect time-out does not count for the first byte (F085, scaled down)."""
    reply = Reply(text_reply("late").pieces, first_byte_after=0.8)
    async with serving(reply) as endpoint, adapter_at(endpoint, connect_timeout=timedelta(seconds=0.5)) as model:
        turn = await assembled(model.stream(REQUEST))
    assert isinstance(turn, ModelObservation)
    assert turn.response == "late"


async def test_a_model_may_think_for_minutes() -> None:
    """Only connecting has a short time-out; an open connection may be silent for ten minutes (F085)."""
    async with serving(text_reply("a")) as endpoint, adapter_at(endpoint) as model:
        timeout = model._client.timeout
    assert isinstance(timeout, Timeout)
    assert (timeout.connect, timeout.read, timeout.write) == (10, 600, 600)
