"""Context items: messages and their names (decisions 6 to 8)."""

import pytest

from orchestral_temporal.core.items import (
    assistant_item,
    context_digest,
    inline_text,
    measure,
    messages,
    request_body,
    user_item,
    written,
)
from orchestral_temporal.protocol.activities import MessageItem, ResultItem, ToolsItem
from orchestral_temporal.protocol.content import ArtifactBody, ArtifactRefWithDigest, Content, text_content
from orchestral_temporal.protocol.digest import canonical, digest
from orchestral_temporal.protocol.model import (
    ModelFinishReason,
    ModelMessage,
    ModelObservation,
    ModelRequest,
    ModelRole,
    ModelToolDefinition,
    ObservedToolCall,
    TextPart,
    ToolResultPart,
)


def text(role: ModelRole, said: str) -> MessageItem:
    """A message of one text part."""
    return MessageItem(message=ModelMessage(role=role, content=(TextPart(text=said),)))


def test_neighbouring_results_share_one_tool_message() -> None:
    """The results of one turn are one message, wherever it stands."""
    part = ToolResultPart(call_id="c", result=1, is_error=False)
    items = [text(ModelRole.USER, "a"), ResultItem(part=part), ResultItem(part=part), text(ModelRole.USER, "b")]
    assert [message.role for message in messages(items)] == ["user", "tool", "user"]
    assert len(messages([*items, ResultItem(part=part)])[-1].content) == 1


def test_an_assistant_message_is_text_continuations_and_calls() -> None:
    """Text, then continuations by namespace, then calls in stream order with parsed arguments (§8)."""
    call = ObservedToolCall(call_id="c", name="echo", arguments="{}", extensions={}, ended=True)
    observation = ModelObservation(
        finish_reason=ModelFinishReason.TOOL_CALLS,
        response="so",
        continuation={"b/x": 1, "a/x": 2},
        tool_calls=(call,),
    )
    item = assistant_item(observation, [{}])
    assert item is not None
    assert item.kind == "message"
    kinds = [part.type for part in item.message.content]
    assert kinds == ["text", "continuation", "continuation", "tool_call"]
    assert assistant_item(ModelObservation(finish_reason=ModelFinishReason.STOP, response=""), []) is None


def test_a_measure_counts_canonical_bytes() -> None:
    """The bound is one token a byte, the estimate a third of it, the name the digest (divergence 31)."""
    item = user_item([text_content("€" * 100)])
    found = measure(item)
    body = canonical(item)
    assert (found.size, found.bound, found.estimate) == (len(body), len(body), -(-len(body) // 3))
    assert found.digest == digest(item)


@pytest.mark.parametrize(
    "tools", [(), (ModelToolDefinition(name="t", description="d", input_schema={"b": 1, "a": 2}),)]
)
def test_a_request_is_put_together_as_it_would_be_written(tools: tuple[ModelToolDefinition, ...]) -> None:
    """The canonical form made of the items' own is, byte for byte, that of the request (decision 6)."""
    part = ToolResultPart(call_id="c", result={"z": [1, "\u20ac"], "a": None}, is_error=False)
    call = ObservedToolCall(call_id="c", name="t", arguments="{}", extensions={"a/b": 1}, ended=True)
    turn = assistant_item(
        ModelObservation(finish_reason=ModelFinishReason.TOOL_CALLS, response="so", tool_calls=(call,)), [{"x": 1}]
    )
    assert turn is not None
    context = [text(ModelRole.SYSTEM, 'quoted "\n'), text(ModelRole.USER, "q"), turn]
    context += [ResultItem(part=part), ResultItem(part=part), text(ModelRole.USER, "more"), ResultItem(part=part)]
    for length in range(1, len(context) + 1):
        request = ModelRequest(
            request_id='model-"r"-1', messages=messages(context[:length]), tools=tools, max_output_tokens=4_096
        )
        body = request_body(request, [written(item) for item in context[:length]], written(ToolsItem(tools=tools)))
        assert body == canonical(request)


def test_only_inline_text_has_text() -> None:
    """Anything else reads as empty; admission refuses it before."""
    artifact = ArtifactBody(value=ArtifactRefWithDigest(artifact_ref="a", digest="0" * 64))
    assert inline_text(text_content("x")) == "x"
    assert inline_text(Content(media_type="text/plain", schema_id=None, body=artifact)) == ""


def test_every_part_of_a_context_names_it() -> None:
    """Contract, items, their order, tools and output cap each change the digest (decision 6)."""
    names = {
        context_digest("c", ["a", "b"], "t", 1),
        context_digest("d", ["a", "b"], "t", 1),
        context_digest("c", ["b", "a"], "t", 1),
        context_digest("c", ["a", "b"], "u", 1),
        context_digest("c", ["a", "b"], "t", 2),
    }
    assert len(names) == 5


def test_tools_are_no_message() -> None:
    """The tool list goes beside the messages, not among them."""
    assert messages([ToolsItem(tools=())]) == ()
