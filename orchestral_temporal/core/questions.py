"""What the model asks people by the tool `orchestral_request_input`: request and answer (agent-loop sheet §10)."""

from typing import Final

from orchestral_temporal.core import input_queue
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.items import REQUEST_INPUT
from orchestral_temporal.core.limits import ANSWERS_BYTES
from orchestral_temporal.core.state import CallAt, OpenCall, Phase, RunState, ToolsOpen
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import ToolObservation
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    CommandAccepted,
    CommandRejected,
    ProviderCommandOutcome,
    ResolveRequest,
)
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode
from orchestral_temporal.protocol.events import RequestOpened, RequestResolved
from orchestral_temporal.protocol.ids import is_blank
from orchestral_temporal.protocol.requests import (
    InputRequest,
    InputResolution,
    PendingRequest,
    resolution_digest,
)
from orchestral_temporal.protocol.run import PendingRequestKind
from orchestral_temporal.protocol.tools import Completed, InlineOutput
from orchestral_temporal.protocol.words import JsonObject, dump

NAME: Final = REQUEST_INPUT.name


def may_ask(state: RunState) -> bool:
    """Whether this run's model is offered the tool, and the agent declares such requests (D2)."""
    part = state.tools_part
    return part is not None and part.input_requests and PendingRequestKind.INPUT in state.run.request_kinds


def prompt_of(arguments: JsonObject) -> str | None:
    """The question in a call's arguments; none if they are anything but one."""
    prompt = arguments.get("prompt")
    return prompt if isinstance(prompt, str) and not is_blank(prompt) and len(arguments) == 1 else None


def open_request(work: Work, call: OpenCall) -> None:
    """Ask: the run waits from here on (D1)."""
    prompt = prompt_of(call.arguments)
    assert prompt is not None, "a question is judged before its turn is opened"
    request = PendingRequest(
        request_id=request_id(work.state, call),
        blocking=True,
        payload=InputRequest(prompt=(text_content(prompt),)),
    )
    opened = ids.request_event_id(work.run_id, "input", work.state.round, call.call_id, "opened")
    work.provider((opened, RequestOpened(request=request), None))


def request_id(state: RunState, call: OpenCall) -> str:
    """The id under which the question of a call is answered."""
    return ids.request_id(state.start.run_id, "input", state.round, call.call_id)


def decide(phase: Phase, command: ResolveRequest) -> ProviderCommandOutcome:
    """What becomes of an answer to a question that is pending (reducer sheet, §7.4 rows 12 to 15)."""
    answer = command.response
    assert isinstance(answer, InputResolution), "an answer of another kind than its request's is not received"
    if not all(map(input_queue.is_text, answer.content)):
        message = "The answer must hold non-empty inline text/plain contents in this version."
        return CommandRejected(code=AgentProtocolErrorCode.INVALID_SPEC, message=message)
    asked = sum(each.name == NAME for each in phase.calls) if isinstance(phase, ToolsOpen) else 1
    limit = ANSWERS_BYTES // max(1, asked)
    if input_queue.size(answer.content) > limit:
        message = f"The answer is longer than {limit} bytes; put what is long into a file, and say which."
        return CommandRejected(code=AgentProtocolErrorCode.INVALID_SPEC, message=message)
    return CommandAccepted()


def resolve(
    work: Work, phase: ToolsOpen, command: AgentCommandEnvelope, answer: InputResolution
) -> tuple[OpenCall, ToolObservation]:
    """Commit an accepted answer; the call that asked, and what the answer is to it."""
    asked = command.request_id or ""
    call = next(each for each in phase.calls if each.at is CallAt.ASKING and request_id(work.state, each) == asked)
    resolved = RequestResolved(request_id=asked, resolution=answer, resolution_digest=resolution_digest(answer))
    event_id = ids.request_event_id(work.run_id, "input", work.state.round, call.call_id, "resolved")
    work.provider((event_id, resolved, command.command_id))
    said = Completed(output=InlineOutput(value={"content": [dump(each) for each in answer.content]}))
    return call, ToolObservation(outcome=said)
