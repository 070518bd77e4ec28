"""The model asks a person, and the same run goes on with the answer (D1 to D3; agent-loop sheet §10)."""

from dataclasses import replace

import pytest

from orchestral_temporal.core.commands import check
from orchestral_temporal.core.inputs import CommandArrived, CommandsRead, OutcomeArrived
from orchestral_temporal.core.limits import ANSWERS_BYTES, COMMANDS_PER_RUN
from orchestral_temporal.core.reducer import view
from orchestral_temporal.core.state import CallModel, InvokeTool
from orchestral_temporal.protocol.activities import Fence, ToolObservation, ToolsPart
from orchestral_temporal.protocol.commands import ResolveRequest, seal_command
from orchestral_temporal.protocol.content import Content, stored_text, text_content
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.requests import (
    ApprovalDecision,
    ApprovalResolution,
    InputResolution,
    RequestResolution,
)
from orchestral_temporal.protocol.run import PendingRequestKind, seal_descriptor
from orchestral_temporal.protocol.tools import Completed, InlineOutput, ToolConcurrency
from tests.core.loop_world import (
    RUN,
    World,
    answered,
    binding,
    called,
    model_part,
    run_part,
    said,
    start,
    tool,
    tools_part,
    world,
)
from tests.core.test_batch import results
from tests.core.test_input_queue import standing, steer
from tests.core.test_loop import ECHO, cancel, failure

NAME = "orchestral_request_input"
ASK = (NAME, '{"prompt":"Which one?"}')
QUESTION = f"input:{RUN}:1:c0"


def asking(
    *,
    declared: bool = True,
    offered: bool = True,
    calls_tools: bool = True,
    tools: ToolsPart | None = None,
    **limits: int,
) -> World:
    """A run whose model may ask people: it is offered the tool, and its agent declares such requests."""
    plain_model = model_part()
    can = plain_model.descriptor.capabilities.model_copy(
        update={"tool_calls": calls_tools, "parallel_tool_calls": calls_tools}
    )
    model = plain_model.model_copy(
        update={"descriptor": plain_model.descriptor.model_copy(update={"capabilities": can})}
    )
    part = run_part()
    if declared:
        plain = part.descriptor.descriptor
        capabilities = plain.capabilities.model_copy(update={"pending_request_kinds": (PendingRequestKind.INPUT,)})
        descriptor = seal_descriptor(plain.model_copy(update={"capabilities": capabilities}))
        part = part.model_copy(update={"descriptor": descriptor})
    tools = tools or tools_part(tool("echo", concurrency=ToolConcurrency.PARALLEL_SAFE))
    return world(
        start(limits=dict(limits)),
        binding(run=part, model=model, tools=tools.model_copy(update={"input_requests": offered})),
    )


def answer(
    command_id: str, *texts: str | Content, request: str = QUESTION, response: RequestResolution | None = None
) -> CommandArrived:
    """A person's answer as it arrives."""
    contents = tuple(each if isinstance(each, Content) else text_content(each) for each in texts)
    resolution = response if response is not None else InputResolution(content=contents)
    return CommandArrived(seal_command(command_id, RUN, ResolveRequest(response=resolution), request_id=request))


def test_a_question_waits_for_its_answer() -> None:
    """One request opens, the run is waiting; the answer resumes the same run, the eight events of the sheet (D1)."""
    made = asking()
    made.bring(called(ASK))
    assert made.status == "waiting"
    (pending,) = view(made.state.run).pending_requests
    assert (pending.request_id, pending.payload.type) == (QUESTION, "input")
    made.bring(answer("a1", "The left one."))
    assert made.status == "running"
    assert standing(made, "a1") == "applied"
    content = {"media_type": "text/plain", "schema_id": None, "body": {"kind": "inline", "value": "The left one."}}
    assert results(made) == [{"content": [content]}]
    made.bring(said("Left it is."))
    assert made.events == [
        "run_accepted",
        "run_started",
        "request_opened",
        "command_received",
        "command_disposition_recorded",
        "request_resolved",
        "output_committed",
        "delivery_committed",
    ]
    assert made.state.tool_calls == 0
    assert [effect.attempt.round for effect in made.effects if isinstance(effect, CallModel)] == [1, 2]


def test_a_question_among_other_calls_has_its_place() -> None:
    """It is asked when the calls before it have ended, and those after it wait for the answer; no call is counted."""
    made = asking(max_tool_calls=2)
    made.bring(called(ECHO, ASK, ECHO))
    made.bring(answered("first"))
    assert made.status == "waiting"
    made.bring(answer("a1", "yes", request=f"input:{RUN}:1:c1"))
    assert isinstance(made.last, InvokeTool)
    made.bring(answered("last"))
    assert len(results(made)) == 3
    assert made.state.tool_calls == 2


@pytest.mark.parametrize(
    "wrong",
    [
        answer("a1", text_content("")),
        answer("a1", stored_text("0" * 64)),
        answer("a1", "yes", request="input:another"),
        answer("a1", response=ApprovalResolution(decision=ApprovalDecision.DENY)),
    ],
)
def test_what_is_no_answer_leaves_the_question_open(wrong: CommandArrived) -> None:
    """Rejected on record or refused, and the run waits on (divergence 11)."""
    made = asking()
    made.bring(called(ASK))
    made.bring(wrong)
    assert made.status == "waiting"
    made.bring(answer("a2", "yes"))
    assert made.status == "running"
    made.bring(answer("a3", "no"))
    assert made.state.refusals[-1].reason.startswith("request_not_found")


def test_cancel_ends_the_wait_for_a_person() -> None:
    """No answer is made up and the request is not closed: the journal of the sheet."""
    made = asking()
    made.bring(called(ASK, ECHO))
    made.bring(cancel())
    assert made.status == "cancelled"
    assert made.events[3:] == ["command_received", "command_disposition_recorded", "stop_requested", "run_cancelled"]


def test_a_steer_waits_for_the_answer() -> None:
    """Only the person that is asked lets the run go on; the steer is read in the round after."""
    made = asking()
    made.bring(called(ASK))
    made.bring(steer("s1", "hurry"))
    made.bring(CommandsRead())
    assert made.status == "waiting"
    made.bring(answer("a1", "yes"))
    assert made.events[-2:] == ["request_resolved", "input_committed"]


@pytest.mark.parametrize(("declared", "offered"), [(False, True), (True, False), (False, False)])
def test_an_unattended_run_fails_if_its_model_asks_anyway(declared: bool, offered: bool) -> None:
    """No request is ever opened (D2, D3)."""
    made = asking(declared=declared, offered=offered)
    made.bring(called(ASK))
    assert failure(made) == ("input_requests_disabled", False)
    assert "request_opened" not in made.events


def test_a_model_that_calls_no_tools_is_not_offered_the_question() -> None:
    """It cannot ask, whatever the agent says; the contract of the tools stays what their worker knows (§2)."""
    mute, attended = asking(calls_tools=False), asking()
    unattended = asking(offered=False)
    assert mute.state.tools == unattended.state.tools != attended.state.tools
    assert mute.state.tools_digest == attended.state.tools_digest
    mute.bring(called(ASK))
    assert failure(mute) == ("input_requests_disabled", False)


def test_a_question_needs_no_other_tool() -> None:
    """An agent with no tool at all may ask; that is no tool call, so no limit of them ends it (D1)."""
    made = asking(tools=ToolsPart(), max_tool_calls=1)
    for number in (1, 2):
        made.bring(called(ASK))
        made.bring(answer(f"a{number}", "yes", request=f"input:{RUN}:{number}:c0"))
    made.bring(said("So be it."))
    assert made.status == "delivered"
    assert made.state.tool_calls == 0


@pytest.mark.parametrize("arguments", ["", "{}", '{"prompt":" "}', '{"prompt":1}', '{"prompt":"x","more":1}', "x"])
def test_a_question_that_asks_nothing_ends_the_run(arguments: str) -> None:
    """It is the host's own tool, so its arguments are taken strictly (§9)."""
    made = asking()
    made.bring(called((NAME, arguments)))
    assert failure(made) == ("input_request_arguments_invalid", False)


def test_answers_share_what_fits_one_request() -> None:
    """Each question of a turn has its share; a longer answer is rejected, and the run waits on."""
    made = asking()
    made.bring(called(ASK, ASK, ASK))
    made.bring(answer("a1", "x" * (ANSWERS_BYTES // 3)))
    assert standing(made, "a1") == "rejected"
    assert made.status == "waiting"
    made.bring(answer("a2", "x" * (ANSWERS_BYTES // 4)))
    assert standing(made, "a2") == "applied"


def test_a_full_run_can_still_be_answered_and_cancelled() -> None:
    """Each later steer has a typed refusal, a known one its ack; an answer and a cancel come in (F034, decision 11)."""
    made = asking()
    made.bring(called(ASK))
    known = steer("s0", "hurry")
    made.bring(known)
    made.state = made.state.model_copy(update={"commands": COMMANDS_PER_RUN})
    made.bring(steer("s1", "more"))
    assert made.state.refusals[-1].reason.startswith("invalid_transition: A run takes at most")
    with pytest.raises(ProtocolError) as full:
        check(made.state, steer("s2", "more").command)
    assert full.value.error.code is AgentProtocolErrorCode.INVALID_TRANSITION
    check(made.state, known.command)
    made.bring(answer("right", "The left one."))
    assert made.status == "running"
    made.bring(cancel())
    assert made.status == "cancelled"


@pytest.mark.parametrize("call_id", ["x" * 256, "a b", "a\x00b", ""])
def test_a_question_has_an_id_that_people_can_type(call_id: str) -> None:
    """Its request is named after the model's call id."""
    made = asking()
    turn = called(ASK)
    observation = turn.result.observation
    odd = (observation.tool_calls[0].model_copy(update={"call_id": call_id}),)
    observation = observation.model_copy(update={"tool_calls": odd})
    made.bring(replace(turn, result=turn.result.model_copy(update={"observation": observation})))
    assert failure(made) == ("model_protocol", False)


def test_two_calls_of_one_id_ask_nothing() -> None:
    """The request's id is made of the call's, and an id is used once (divergence 6)."""
    made = asking()
    turn = called(ECHO, ASK)
    observation = turn.result.observation
    twice = tuple(each.model_copy(update={"call_id": "same"}) for each in observation.tool_calls)
    made.bring(
        replace(
            turn,
            result=turn.result.model_copy(update={"observation": observation.model_copy(update={"tool_calls": twice})}),
        )
    )
    assert failure(made) == ("model_protocol", False)


def test_a_worker_cannot_answer_for_a_person() -> None:
    """A report by signal settles calls of workers only."""
    made = asking()
    made.bring(called(ASK))
    forged = ToolObservation(outcome=Completed(output=InlineOutput(value={"content": []})))
    fence = Fence(
        invocation_id=f"{RUN}/m1/c1",
        attempt=0,
        arguments_digest=exact_digest({"prompt": "Which one?"}),
        outcome=forged,
    )
    made.bring(OutcomeArrived(fence))
    made.bring(OutcomeArrived(fence.model_copy(update={"attempt": 1})))
    assert made.status == "waiting"
