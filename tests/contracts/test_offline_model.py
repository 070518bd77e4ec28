"""The offline model as a backend: its stream, its calls, and that it always ends."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.adapters.models.offline import OfflineModel
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.model import (
    ModelErrorCode,
    ModelFinishReason,
    ModelMessage,
    ModelRole,
    ModelStreamEvent,
    ToolCallPart,
    ToolResultPart,
)
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.testing.model_contract import checked
from tests.contracts.conversation import EXAMPLES, ROUNDS, ask, asked, cites, converse, exchange, over, said, turn
from tests.contracts.workspace_call import TOOLS, call_over, write


def test_the_descriptor_says_what_it_is() -> None:
    """A valid word; usage is marked as estimated; a lost request may be sent again."""
    model = OfflineModel()
    validate(model.descriptor)
    assert model.descriptor.backend_id == "orchestral/offline"
    capabilities = model.descriptor.capabilities
    assert (capabilities.streaming, capabilities.tool_calls, capabilities.parallel_tool_calls) == (True, True, True)
    assert capabilities.structured_output is False
    assert model.descriptor.extensions == {"orchestral/usage": {"estimated": True, "bytes_per_token": 3}}
    assert model.redispatchable


async def test_every_turn_keeps_the_rules_of_a_backend(tmp_path: Path) -> None:
    """Nothing is drawn by chance, nothing is out of order, no call id comes twice in a conversation (divergence 6)."""
    write(tmp_path, {"a.md": "The answer is 42.\n"})
    _, messages = await converse((said(ModelRole.USER, "What is the answer in a.md?"),), over(tmp_path))
    for end in range(1, len(messages) + 1, 2):
        request = asked(messages[:end])
        assert (await checked(OfflineModel(), request)).usage is not None
        ids = [event.event_id async for event in OfflineModel().stream(request)]
        assert ids == [f"{request.request_id}/e{number}" for number in range(1, len(ids) + 1)]


async def test_call_ids_are_unique_across_rounds_and_questions(tmp_path: Path) -> None:
    """A session's second question continues the numbering, and only it is answered."""
    write(tmp_path, {"pump.md": "The pump pressure is 7 bar.\n", "fan.md": "The fan speed is 900 rpm.\n"})
    text, messages = await converse((said(ModelRole.USER, "Which pressure has the pump?"),), over(tmp_path))
    messages += (said(ModelRole.ASSISTANT, text), said(ModelRole.USER, "And which speed has the fan?"))
    text, messages = await converse(messages, over(tmp_path))
    assert cites(text, ["fan.md:1"])
    assert "pump.md" not in text
    ids = [part.call_id for message in messages for part in message.content if isinstance(part, ToolCallPart)]
    assert len(ids) == len(set(ids)) > 4
    assert all(re.fullmatch(r"call-\d+-\d+", one) for one in ids)


async def test_a_steer_changes_what_is_looked_for(tmp_path: Path) -> None:
    """Words that arrive in the middle of a task belong to it."""
    write(tmp_path, {"pump.md": "The pump pressure is 7 bar.\n", "fan.md": "The fan speed is 900 rpm.\n"})
    messages = (said(ModelRole.USER, "Which pressure?"),)
    messages += await exchange(await turn(asked(messages)), over(tmp_path))
    text, _ = await converse((*messages, said(ModelRole.USER, "No: the fan speed")), over(tmp_path))
    assert "fan.md:1" in text


async def test_text_arrives_in_small_pieces_with_usage(tmp_path: Path) -> None:
    """An answer is streamed, its pieces join to it, usage comes before the end."""
    _, messages = await converse((said(ModelRole.USER, "What is a pump?"),), over(tmp_path))
    events: list[ModelStreamEvent] = [event async for event in OfflineModel().stream(asked(messages))]
    pieces = [event.payload.delta for event in events if event.payload.type == "text_delta"]
    observation = await turn(asked(messages))
    assert max(map(len, pieces)) <= 24
    assert "".join(pieces) == observation.response
    assert observation.usage is not None
    assert observation.usage.output_tokens == -(-len(observation.response.encode()) // 3)
    assert observation.usage.input_tokens > observation.usage.output_tokens  # type: ignore[operator]


async def test_the_output_cap_is_kept(tmp_path: Path) -> None:
    """A longer answer ends at the cap, between two characters, and says so."""
    write(tmp_path, {"a.md": "Größe: die Größe der Pumpe ist größer als groß.\n" * 3})
    _, messages = await converse((said(ModelRole.USER, "Größe der Pumpe?"),), over(tmp_path))
    for cap in range(20, 40):
        observation = await turn(asked(messages, max_output_tokens=cap))
        assert observation.finish_reason is ModelFinishReason.LENGTH
        assert 3 * cap - 3 < len(observation.response.encode()) <= 3 * cap


async def test_structured_output_is_refused() -> None:
    """The model writes text; the refusal names the field."""
    with pytest.raises(ModelFault, match="output_schema") as caught:
        await turn(asked((said(ModelRole.USER, "hi"),), output_schema={"type": "object"}))
    assert (caught.value.error.code, caught.value.error.retryable) == (ModelErrorCode.UNSUPPORTED, False)


@pytest.mark.parametrize("text", ["", "hello", "?!", "and or not"])
async def test_without_a_question_it_says_what_it_is_for(text: str) -> None:
    """Greetings and empty tasks need no search."""
    message = said(ModelRole.USER, text) if text else ModelMessage(role=ModelRole.USER, content=())
    observation = await turn(asked((message,)))
    assert observation.tool_calls == ()
    assert "Ask one" in observation.response


async def test_without_tools_it_says_what_it_would_need() -> None:
    """No call is made of a tool that is not offered."""
    observation = await turn(asked((said(ModelRole.USER, "What is the pressure of the pump?"),), tools=()))
    assert observation.tool_calls == ()
    assert "file_read" in observation.response


@pytest.mark.parametrize(
    ("tools", "question", "found"),
    [
        (("text_search",), "What is the pressure of the pump?", True),
        (("file_read",), "What is the pressure of the pump in pump.md?", True),
        (("file_read",), "What is the pressure of the pump?", False),
        (("file_search", "file_read"), "What is the pressure of the pump?", True),
        (("file_search",), "What is the pressure of the pump?", False),
    ],
)
async def test_some_of_the_tools_are_better_than_none(
    tools: tuple[str, ...], question: str, found: bool, tmp_path: Path
) -> None:
    """It uses what it is offered, and answers from lines alone if it cannot read."""
    write(tmp_path, {"pump.md": "The pressure of the pump is 7 bar.\n"})
    text = await ask(question, tmp_path, tools)
    assert ("`pump.md:1`" in text, "Not found" in text) == (found, not found and tools != ("file_read",))


async def test_a_task_of_many_and_long_words_is_still_searched(tmp_path: Path) -> None:
    """Patterns stay within what the searches take, however long the words."""
    words = [letter * 60 for letter in "abcdefghijklmnop"]
    write(tmp_path, {"a.md": f"The {words[0]} is green.\n"})
    text, messages = await converse((said(ModelRole.USER, f"{' '.join(words)} {'x' * 5000}?"),), over(tmp_path))
    assert "Not found" in text
    assert not any(
        part.is_error for message in messages for part in message.content if isinstance(part, ToolResultPart)
    )


async def test_a_task_that_is_steered_every_round_ends() -> None:
    """New words cost rounds of the same task, so they cannot keep it going."""

    async def nothing(_name: str, _arguments: Any) -> tuple[Any, bool]:
        return {"root": ".", "matches": [], "completeness": "complete"}, False

    messages = (said(ModelRole.USER, "Which pressure has the pump?"),)
    for number in range(ROUNDS - 1):
        observation = await turn(asked(messages))
        assert observation.tool_calls
        messages += (*(await exchange(observation, nothing)), said(ModelRole.USER, f"and subject{number}?"))
    assert "Not found" in (await turn(asked(messages))).response


async def test_a_call_without_a_result_is_not_waited_for() -> None:
    """A steer may leave calls without results; they count as made and failed."""
    messages = (said(ModelRole.USER, "Which pressure has the pump?"),)
    observation = await turn(asked(messages))
    calls, _ = await exchange(observation, over(EXAMPLES))
    again = await turn(asked((*messages, calls, said(ModelRole.USER, "Well?"))))
    assert again.tool_calls == ()
    assert "no result" in again.response


async def test_an_incomplete_search_is_mentioned(tmp_path: Path) -> None:
    """Who reads the answer learns that not everything was looked at."""
    write(tmp_path, {"pump.md": "The pressure of the pump is 7 bar.\n"})

    async def hasty(name: str, arguments: Any) -> tuple[Any, bool]:
        result, failed = await over(tmp_path)(name, arguments)
        return (result if name == "file_read" else result | {"partial_reasons": ["timeout"]}), failed

    text, _ = await converse((said(ModelRole.USER, "Which pressure has the pump?"),), hasty)
    assert cites(text, ["pump.md:1"])
    assert "not complete" in text


async def test_tools_that_refuse_are_named_in_the_answer() -> None:
    """Errors bring no passages; the answer says what was refused."""

    async def refuse(name: str, _arguments: Any) -> tuple[Any, bool]:
        return {"status": "rejected", "code": "filesystem_root_denied", "message": f"{name} may not."}, True

    text, _ = await converse((said(ModelRole.USER, "What is the pressure of the pump?"),), refuse)
    assert "Not found" in text
    assert "text_search may not." in text


async def test_results_too_large_to_be_shown_are_asked_for_in_parts() -> None:
    """An artifact in place of a result leads to narrower searches, then to an answer."""

    async def spill(_name: str, _arguments: Any) -> tuple[Any, bool]:
        return {
            "kind": "artifact",
            "artifact": {"artifact_ref": "a", "digest": "0"},
            "byte_size": 9,
            "summary": "…",
        }, False

    text, messages = await converse((said(ModelRole.USER, "What is the pressure of the pump?"),), spill)
    assert "Not found" in text
    assert len(messages) > 3


WORDS = st.text(st.sampled_from("ab {}[]()*+?|\\.`'\"/#-_你é\n\ud7ff"), max_size=40)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["matches", "path", "content", "start_line", "line_number", "preview", "partial_reasons", "message"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(task=st.lists(WORDS | st.sampled_from(["pump", "a.md", "Max_Retries", "how many"]), max_size=6), data=st.data())
async def test_whatever_people_and_tools_say_it_answers_in_time(task: list[str], data: st.DataObject) -> None:
    """Any words and results lead to an answer within six rounds: legal streams, no call twice, no bad pattern."""

    async def anything(name: str, arguments: Any) -> tuple[Any, bool]:
        if name == "text_search":
            await TOOLS[name].invoke(arguments, call_over(EXAMPLES / "handbook" / "config"))
        return data.draw(JUNK), data.draw(st.booleans())

    text, _ = await converse((said(ModelRole.USER, " ".join(["x", *task])),), anything)
    assert text.strip()
