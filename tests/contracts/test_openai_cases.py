"""The given cases of chat-completions dialects, served byte for byte, as the OpenAI adapter reads and answers them."""

import hashlib
import json
import re
from typing import Any

import pytest

from orchestral_temporal.core.assembly import Breach, failure_code
from orchestral_temporal.core.calls import read_arguments, turn_item
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.activities import MessageItem
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.model import (
    ModelErrorCode,
    ModelFinishReason,
    ModelMessage,
    ModelObservation,
    ModelRequest,
    ModelRole,
    ModelUsage,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UsageSnapshot,
)
from orchestral_temporal.testing.model_contract import REQUEST, answered, assembled
from tests.contracts.openai_endpoint import (
    DONE,
    adapter_at,
    call_chunk,
    case_data,
    case_message,
    case_stream,
    chunk,
    fault_of,
    frame,
    heard,
    only_short_ids,
    sent_ids,
    text_reply,
    turn_of,
    usage_chunk,
    whole_reply,
)
from tests.contracts.sse_server import Endpoint, Reply, serving

ANSWER_BYTES = 2_600_000


def _calls(turn: ModelObservation) -> list[tuple[str, str, Any]]:
    return [(call.call_id, call.name, json.loads(call.arguments)) for call in turn.tool_calls]


async def _breach_of(reply: Reply) -> Breach:
    async with serving(reply) as endpoint, adapter_at(endpoint) as model:
        turn = await assembled(model.stream(REQUEST))
    assert isinstance(turn, Breach)
    return turn


async def _asked_next(endpoint: Endpoint, **settings: Any) -> ModelObservation:
    """Two rounds at an endpoint: the turn of the first, whose calls all get results."""
    async with adapter_at(endpoint, **settings) as model:
        turn = await assembled(model.stream(REQUEST))
        assert isinstance(turn, ModelObservation)
        following = answered(REQUEST, turn, "model-contract-2")
        assert isinstance(await assembled(model.stream(following), following), ModelObservation)
    return turn


async def test_arguments_cut_at_the_output_cap_are_not_repaired() -> None:
    """The whole call is whole, the cut one arrives as it is and is no JSON (F058)."""
    turn = await turn_of(case_stream("F058"))
    whole, cut = turn.tool_calls
    assert (whole.call_id, whole.name, json.loads(whole.arguments)) == ("k1", "notes_read", {"id": 7})
    assert cut.arguments == '{"path": "report.md", "content": "# Report\\n\\nFirst part of the te'
    assert read_arguments(cut.arguments)[1] is not None
    assert turn.usage == ModelUsage(input_tokens=900, output_tokens=64)


async def test_clashing_and_empty_ids_become_four_that_are_answered_once_each() -> None:
    """The next request has four distinct ids, the first as it came, and a repetition has the same ones (F059)."""
    found: list[tuple[list[str], list[str]]] = []
    for _ in range(2):
        async with serving([case_stream("F059"), text_reply("done")]) as endpoint:
            turn = await _asked_next(endpoint)
        assert [(name, arguments) for _, name, arguments in _calls(turn)] == [
            ("notes_append", {"text": str(number)}) for number in (1, 2, 3, 4)
        ]
        calls, results = sent_ids(endpoint.asked[1])
        assert calls == results == [call.call_id for call in turn.tool_calls]
        found.append((calls, results))
    assert found[0] == found[1]
    assert found[0][0] == ["x1", "x1-2", "call", "call-2"]


async def test_an_empty_answer_is_an_empty_turn_with_its_usage() -> None:
    """Nothing said and a stop is for the loop to judge (F061)."""
    usage = ModelUsage(input_tokens=1200, output_tokens=2)
    assert await turn_of(case_stream("F061")) == ModelObservation(
        finish_reason=ModelFinishReason.STOP, response="", usage=usage
    )


async def test_text_beside_a_call_stands_in_the_next_request() -> None:
    """The text of a turn with calls is not lost on the way out (F062)."""
    said = case_data("F062")["round_1"]
    turn = await turn_of(whole_reply({"role": "assistant", **said}, said["finish_reason"]))
    item = turn_item(turn)
    assert isinstance(item, MessageItem)
    request = REQUEST.model_copy(update={"messages": (*REQUEST.messages, item.message)})
    async with serving(text_reply("")) as endpoint, adapter_at(endpoint) as model:
        await assembled(model.stream(request))
    message = endpoint.asked[0].body["messages"][-1]
    assert message["content"] == said["content"]
    assert [call["id"] for call in message["tool_calls"]] == ["n1"]


async def test_an_error_inside_the_stream_keeps_its_message_and_code() -> None:
    """The text before it arrives, then the attempt fails with the endpoint's own words (F068)."""
    async with serving(case_stream("F068")) as endpoint, adapter_at(endpoint) as model:
        said, fault = await heard(model)
    assert said == [TextDelta(delta="The answer is")]
    error = fault.error
    assert (error.code, error.message) == (
        ModelErrorCode.UNAVAILABLE,
        "The upstream worker has no free place (17 of 16).",
    )
    assert error.details == {"status": 502, "code": "502", "type": "provider_unavailable"}
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("cut", [False, True], ids=["body ends", "connection breaks"])
@pytest.mark.parametrize("name", ["F070", "F070b", "F070c"])
async def test_a_stream_without_finish_reason_is_no_turn(name: str, cut: bool) -> None:
    """Neither the end of the body, nor an end marker, nor a break of the connection ends a turn (F070)."""
    breach = await _breach_of(Reply(case_stream(name).pieces, cut=cut))
    assert breach.code == "model_stream_ended"


async def test_a_body_cut_anywhere_is_no_turn() -> None:
    """Wherever the text or a call is cut, even inside a line, nothing is finished and nothing is misread (F070)."""
    whole = {name: b"".join(case_stream(name).pieces) for name in ("F070", "F059")}
    ends = {"F070": len(whole["F070"]), "F059": whole["F059"].index(b'"finish_reason": "tool_calls"')}
    replies = [Reply([body[:at]], cut=at % 2 == 1) for name, body in whole.items() for at in range(1, ends[name], 37)]
    endings: set[str] = set()
    async with serving(replies) as endpoint, adapter_at(endpoint) as model:
        for _ in replies:
            try:
                turn = await assembled(model.stream(REQUEST))
            except ModelFault as fault:
                endings.add(failure_code(fault.error.code))
            else:
                endings.add(turn.code if isinstance(turn, Breach) else "a turn")
    assert endings == {"model_unavailable", "model_stream_ended"}
    assert len(endpoint.asked) == len(replies) > 50


@pytest.mark.parametrize("name", ["F058", "F059", "F073", "F074"])
async def test_pieces_of_any_size_give_the_same_turn(name: str) -> None:
    """How a body is cut on the wire changes nothing."""
    body = b"".join(case_stream(name).pieces)
    assert await turn_of(Reply([body[at : at + 3] for at in range(0, len(body), 3)])) == await turn_of(Reply([body]))


@pytest.mark.parametrize("pieces", [[], [b": ping\n\n"], [chunk({"role": "assistant", "content": ""})]])
async def test_a_stream_that_ends_before_output_may_be_tried_again(pieces: list[bytes]) -> None:
    """The same body cut before any output is as if the endpoint had been unavailable (F070)."""
    assert (await fault_of(Reply(pieces, cut=True))).error.retryable
    breach = await _breach_of(Reply(pieces))
    assert (breach.error.code, breach.error.retryable) == (ModelErrorCode.UNAVAILABLE, True)


async def test_a_filtered_answer_says_so_and_its_call_has_no_end() -> None:
    """The finish reason arrives, and nobody claims that the call is complete (F071)."""
    turn = await turn_of(Reply([case_data("F071")["stream"].encode()]))
    assert (turn.finish_reason, turn.response) == (ModelFinishReason.CONTENT_FILTER, "First, take the")
    assert [call.ended for call in turn.tool_calls] == [False]


async def test_two_calls_at_one_index_are_two() -> None:
    """Another id at the same index is another call (F073)."""
    assert _calls(await turn_of(case_stream("F073"))) == [
        ("q1", "file_read", {"path": "a.txt"}),
        ("q2", "file_read", {"path": "b.txt"}),
    ]


async def test_calls_without_index_and_id_get_ids_that_stay() -> None:
    """Two chunks are two calls, and a second reading gives them the same ids (F074)."""
    turns = [await turn_of(case_stream("F074")) for _ in range(2)]
    assert _calls(turns[0]) == [("call", "weather", {"city": "Bern"}), ("call-2", "weather", {"city": "Oslo"})]
    assert turns[0] == turns[1]
    assert turns[0].finish_reason is ModelFinishReason.STOP


@pytest.mark.parametrize("number", range(4))
async def test_whole_messages_are_read_like_streamed_ones(number: int) -> None:
    """One JSON body gives one call with the same arguments and digest, and no text (F076)."""
    expect = case_data("F076")["expect"]
    turn = await turn_of(case_message(number))
    ((_, name, arguments),) = _calls(turn)
    assert (name, arguments, turn.response) == ("search", expect["arguments"], "")
    assert hashlib.sha256(canonical(arguments)).hexdigest() == expect["arguments_sha256_jcs"]
    assert turn.finish_reason in {ModelFinishReason.TOOL_CALLS, ModelFinishReason.STOP}
    assert turn.tool_calls[0].ended


def _history() -> ModelRequest:
    """The conversation of F077 as the journal has it."""
    messages: list[ModelMessage] = []
    for each in case_data("F077")["history"]:
        match each:
            case {"role": "user", "content": text}:
                messages.append(ModelMessage(role=ModelRole.USER, content=(TextPart(text=text),)))
            case {"tool_calls": calls}:
                parts = tuple(
                    ToolCallPart(
                        call_id=call["id"],
                        name=call["function"]["name"],
                        arguments=json.loads(call["function"]["arguments"]),
                    )
                    for call in calls
                )
                messages.append(ModelMessage(role=ModelRole.ASSISTANT, content=parts))
            case {"tool_call_id": call_id, "content": result}:
                part = ToolResultPart(call_id=call_id, result=result, is_error=False)
                messages.append(ModelMessage(role=ModelRole.TOOL, content=(part,)))
    return REQUEST.model_copy(update={"messages": tuple(messages)})


async def test_ids_fit_a_backend_that_takes_nine_letters_only() -> None:
    """They fit, differ, pair up, and are the same in later rounds and for another adapter (F077)."""
    request = _history()
    more = ToolCallPart(call_id="abcdefghi", name="search", arguments={})
    result = ToolResultPart(call_id="abcdefghi", result="D", is_error=False)
    later = request.model_copy(
        update={
            "messages": (
                *request.messages,
                ModelMessage(role=ModelRole.ASSISTANT, content=(more,)),
                ModelMessage(role=ModelRole.TOOL, content=(result,)),
            )
        }
    )
    async with serving(lambda number: only_short_ids(endpoint.asked[number - 1], text_reply("ok"))) as running:
        endpoint = running
        for each in (request, later, later):
            async with adapter_at(endpoint, call_ids="short9") as model:
                assert isinstance(await assembled(model.stream(each)), ModelObservation)
        async with adapter_at(endpoint) as model:
            with pytest.raises(ModelFault, match="Tool call id was odd"):
                await assembled(model.stream(request))
    first, *others = (sent_ids(asked)[0] for asked in endpoint.asked[:3])
    assert [ids[:3] for ids in others] == [first, first]
    assert [ids[3] for ids in others] == ["abcdefghi", "abcdefghi"]


async def test_an_id_that_looks_like_a_short_one_of_ours_stays_apart() -> None:
    """A model that repeats an id from the wire makes another call, in the journal and in the next request (F077)."""
    first = answered(REQUEST, await turn_of(Reply([call_chunk(0, "call_1", "now", "{}"), chunk(finish="stop")])), "r")
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint, call_ids="short9") as model:
        await assembled(model.stream(first), first)
    (short,), _ = sent_ids(endpoint.asked[0])

    replies = [Reply([call_chunk(0, short, "now", "{}"), chunk(finish="stop")]), text_reply("ok")]
    async with serving(replies) as endpoint, adapter_at(endpoint, call_ids="short9") as model:
        turn = await assembled(model.stream(first), first)
        assert isinstance(turn, ModelObservation)
        second = answered(first, turn, "r2")
        await assembled(model.stream(second), second)
    assert turn.tool_calls[0].call_id not in {short, "call_1"}
    calls, results = sent_ids(endpoint.asked[1])
    assert calls == results
    assert len(set(calls)) == 2
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in calls)


async def test_an_id_of_the_conversation_that_is_short_already_keeps_its_place() -> None:
    """Where the short form of one id is another id of the conversation, the later call gets the next form (F077)."""
    parts = [ToolCallPart(call_id="call_1", name="now", arguments={})]
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint, call_ids="short9") as model:
        for _ in range(2):
            message = ModelMessage(role=ModelRole.ASSISTANT, content=tuple(parts))
            request = REQUEST.model_copy(update={"messages": (*REQUEST.messages, message)})
            await assembled(model.stream(request))
            calls, _ = sent_ids(endpoint.asked[-1])
            parts.append(ToolCallPart(call_id=calls[0], name="now", arguments={}))
    assert len(set(calls)) == 2
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in calls)


async def test_two_calls_of_one_id_in_the_journal_are_sent_apart() -> None:
    """What a core let through is still answered one by one, in order (F059)."""
    call = ToolCallPart(call_id="x", name="now", arguments={})
    result = ToolResultPart(call_id="x", result="ok", is_error=False)
    messages = (
        *REQUEST.messages,
        ModelMessage(role=ModelRole.ASSISTANT, content=(call, call)),
        ModelMessage(role=ModelRole.TOOL, content=(result, result)),
        ModelMessage(role=ModelRole.ASSISTANT, content=(call,)),
        ModelMessage(role=ModelRole.TOOL, content=(result,)),
    )
    request = REQUEST.model_copy(update={"messages": messages})
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint) as model:
        await assembled(model.stream(request))
    assert sent_ids(endpoint.asked[0]) == (["x", "x-2", "x-3"], ["x", "x-2", "x-3"])


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("streamed", [True, False])
async def test_usage_is_counted_in_every_convention(number: int, streamed: bool) -> None:
    """Inclusive and additive counts give all input and all output tokens, streamed or not (F119)."""
    case = case_data("F119")["cases"][number]
    usage = frame({"choices": [], "usage": case["usage"]})
    whole = whole_reply({"role": "assistant", "content": "a"}, "stop", case["usage"])
    reply = Reply([chunk({"content": "a"}), chunk(finish="stop"), usage, DONE]) if streamed else whole
    expect = case["expect"]
    assert (await turn_of(reply)).usage == ModelUsage(input_tokens=expect["input"], output_tokens=expect["output"])


async def test_usage_before_an_error_is_reported() -> None:
    """What a failed attempt has cost is known to the run (F118)."""
    pieces = [usage_chunk(700, 50), frame({"error": {"message": "Busy.", "code": "server_error"}})]
    async with serving(Reply(pieces)) as endpoint, adapter_at(endpoint) as model:
        said, fault = await heard(model)
    assert said == [UsageSnapshot(usage=ModelUsage(input_tokens=700, output_tokens=50))]
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.UNAVAILABLE, True)


@pytest.mark.parametrize("characters", [40, 4_000, ANSWER_BYTES])
@pytest.mark.parametrize("text", ["abcdefgh" * (ANSWER_BYTES // 8), "😀" * (ANSWER_BYTES // 4)], ids=["ascii", "wide"])
async def test_a_long_answer_arrives_whole(text: str, characters: int) -> None:
    """2.6 MB of any characters in deltas of any size, even in one line, are read at a linear cost (F010)."""
    deltas = [text[at : at + characters] for at in range(0, len(text), characters)]
    body = b"".join(text_reply(*deltas).pieces)
    turn = await turn_of(Reply([body[at : at + 2**16] for at in range(0, len(body), 2**16)]))
    assert turn.response == text


async def test_a_lone_surrogate_is_replaced_in_text_and_in_arguments() -> None:
    """Half a letter becomes U+FFFD, and arguments that hold one can be sent again (F041)."""
    case = case_data("F041")
    pieces = [chunk({"content": case["model_text"]}), call_chunk(0, "c", "find", case["argument_text"])]
    turn = await turn_of(Reply([*pieces, call_chunk(0, None, None, "\ud800"), chunk(finish="tool_calls"), DONE]))
    assert turn.response == case["expect"]["model_text"]
    assert turn.tool_calls[0].arguments == case["argument_text"] + "\ufffd"
    message = ModelMessage(
        role=ModelRole.ASSISTANT, content=(ToolCallPart(call_id="c", name="find", arguments={"q": "\ud800"}),)
    )
    request = REQUEST.model_copy(update={"messages": (*REQUEST.messages, message)})
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint) as model:
        await assembled(model.stream(request))
    sent = endpoint.asked[0].body["messages"][-1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"q": "\ufffd"}
