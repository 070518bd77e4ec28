"""Context items: messages and their names (decisions 6 to 8)."""

from orchestral_temporal.core.items import assistant_item, context_digest, inline_text, measure, messages, user_item
from orchestral_temporal.protocol.activities import MessageItem, ResultItem, ToolsItem
from orchestral_temporal.protocol.content import ArtifactBody, ArtifactRefWithDigest, Content, text_content
from orchestral_temporal.protocol.digest import canonical, digest
from orchestral_temporal.protocol.model import (
    ModelFinishReason,
    ModelMessage,
    ModelObservation,
    ModelRole,
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
