"""A text that lies in the artifact store: the run knows its beginning, and names the whole (F010)."""

from orchestral_temporal.core.calls import abridged, turn_item
from orchestral_temporal.core.inputs import ModelFinished
from orchestral_temporal.core.items import measure
from orchestral_temporal.core.limits import MESSAGE_CHARACTERS, RESULT_BYTES, TAIL_BYTES
from orchestral_temporal.core.result import result
from orchestral_temporal.core.state import CallModel, RunState
from orchestral_temporal.protocol.activities import ModelResult, StoredText, ToolObservation
from orchestral_temporal.protocol.content import stored_text, text_content
from orchestral_temporal.protocol.digest import canonical, sha256
from orchestral_temporal.protocol.model import ModelFinishReason, ModelObservation, ObservedToolCall
from orchestral_temporal.protocol.tools import Completed, InlineOutput
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import dump, parse, to_json
from tests.core.loop_world import NOW, World, answered, called, said, start, world

TEXT = "tea " * 62_500
STORED = StoredText(digest=sha256(TEXT.encode()), size=len(TEXT))
CALL = ObservedToolCall(call_id="c0", name="echo", arguments="{}", ended=True)


LIMITED = start(limits={"max_tool_calls": 1})


def told(*calls: ObservedToolCall, reason: ModelFinishReason = ModelFinishReason.STOP) -> ModelFinished:
    """A turn whose text lies in the store, as the model worker reports it."""
    whole = ModelObservation(finish_reason=reason, response=TEXT, tool_calls=calls)
    item = turn_item(whole)
    assert item is not None
    observation = abridged(whole, STORED)
    value = ModelResult(
        observation=observation, item=measure(item), request_digest="1" * 64, input_bound=10, stored=STORED
    )
    return ModelFinished(*NOW, value)


def response(made: World, kind: str) -> object:
    """The content of a delivery or a partial delivery."""
    delivery = result(made.state)[kind]
    assert isinstance(delivery, dict)
    return delivery["final_response" if kind == "delivery" else "response"]


def test_an_observation_is_cut_to_a_beginning_that_names_the_whole() -> None:
    """The rest of a turn stays as it is, and its text says what is missing and where that lies."""
    whole = ModelObservation(finish_reason=ModelFinishReason.STOP, response=TEXT, tool_calls=(CALL,))
    cut = abridged(whole, STORED)
    assert cut.model_copy(update={"response": TEXT}) == whole
    assert cut.response.startswith(TEXT[:MESSAGE_CHARACTERS])
    assert (STORED.digest in cut.response, str(STORED.size) in cut.response) == (True, True)
    assert len(cut.response) < 2 * MESSAGE_CHARACTERS


def test_a_stored_answer_is_delivered_by_reference() -> None:
    """The delivery names the artifact, its result has no text and stays small, and the session gets the whole item."""
    made = world()
    step = made.only(told())
    content = stored_text(STORED.digest)
    validate(content)
    assert response(made, "delivery") == dump(content)
    value = result(made.state)
    assert (value["status"], value["text"]) == ("delivered", None)
    assert (value["view"] is None, value["journal"] is None) == (False, False)
    assert len(canonical(value)) < RESULT_BYTES / 10
    cursor = step.state.session
    assert cursor is not None
    assert cursor.appending is not None
    record = cursor.appending.records[-1]
    assert record.items == (step.state.headers[-1].digest,)
    assert record.size > STORED.size


def test_the_next_request_names_the_whole_item() -> None:
    """Beside calls a stored text goes on by digest, never as a tail, and its size counts in the plan (decision 8)."""
    made = world()
    made.bring(told(CALL, reason=ModelFinishReason.TOOL_CALLS))
    made.bring(answered("x"))
    sent = made.last
    assert isinstance(sent, CallModel)
    whole = turn_item(ModelObservation(finish_reason=ModelFinishReason.STOP, response=TEXT, tool_calls=(CALL,)))
    assert whole is not None
    assert sent.attempt.add[0] == measure(whole).digest
    assert len(canonical([dump(item) for item in sent.attempt.tail])) < TAIL_BYTES
    assert sent.attempt.trace.used_input_tokens > STORED.size


def test_a_limit_keeps_a_stored_text_until_the_model_says_more() -> None:
    """A partial delivery names what lies in the store; a later short text takes its place (§13)."""
    cut, silent, short = world(), world(LIMITED), world(LIMITED)
    cut.bring(told(reason=ModelFinishReason.LENGTH))
    for made in (silent, short):
        made.bring(told(CALL, reason=ModelFinishReason.TOOL_CALLS))
        made.bring(answered("x"))
    silent.bring(called(("echo", "{}")))
    short.bring(called(("echo", "{}"), text="short"))
    assert response(cut, "partial_delivery") == dump(stored_text(STORED.digest))
    assert response(silent, "partial_delivery") == dump(stored_text(STORED.digest))
    assert response(short, "partial_delivery") == dump(text_content("short"))


def test_where_a_text_lies_is_part_of_the_state() -> None:
    """It survives being written and read, as continue-as-new will do it, and a plain answer forgets it."""
    made = world()
    made.bring(told(CALL, reason=ModelFinishReason.TOOL_CALLS))
    assert parse(RunState, to_json(made.state)) == made.state
    assert made.state.last_stored == STORED
    made.bring(answered("x"))
    made.bring(said("short"))
    assert made.state.last_stored is None
    assert response(made, "delivery") == dump(text_content("short"))


def test_what_was_changed_stands_beside_the_turn_and_the_outcome() -> None:
    """Notes and a stored text are written where there are any, and older histories read on (F041)."""
    plain = ModelResult(
        observation=ModelObservation(finish_reason=ModelFinishReason.STOP), item=None, request_digest="", input_bound=1
    )
    noted = plain.model_copy(update={"stored": STORED, "notes": ("changed",)})
    assert not dump(plain).keys() & {"stored", "notes"}
    assert (parse(ModelResult, to_json(plain)), parse(ModelResult, to_json(noted))) == (plain, noted)
    outcome = ToolObservation(outcome=Completed(output=InlineOutput(value=1)))
    changed = outcome.model_copy(update={"notes": ("changed",)})
    assert "notes" not in dump(outcome)
    assert (parse(ToolObservation, to_json(outcome)), parse(ToolObservation, to_json(changed))) == (outcome, changed)
