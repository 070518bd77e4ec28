"""The calls of one turn, read from the raw text of the model (`spec/agent-loop.md` §8–§9, divergences 5 and 6)."""

from collections.abc import Sequence
from json import JSONDecodeError
from typing import Final

from orchestral_temporal.core import budgets, questions
from orchestral_temporal.core.items import assistant_item
from orchestral_temporal.core.limits import (
    ARGUMENT_BYTES,
    CALL_ID_BYTES,
    CALLS_PER_TURN,
    MESSAGE_CHARACTERS,
    UNREADABLE_TURNS,
)
from orchestral_temporal.core.schema import beyond_bounds
from orchestral_temporal.core.state import OpenCall, RunState
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.activities import BoundTool, Item, StoredText, ToolsPart
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelObservation, ObservedToolCall
from orchestral_temporal.protocol.tools import Rejected
from orchestral_temporal.protocol.words import JsonObject, Word, kind_of, parse_exact_json

RESERVED: Final = {
    questions.NAME: "input_requests_disabled",
    "skill_read": "skill_catalog_unavailable",
    "orchestral_workflow": "tool_not_found",
}
"""Tools of the host itself and the failure of a run whose model calls one that was not offered (D3)."""

LEFT_OUT: Final = "<arguments left out:"
"""How an argument text begins that was too long to keep; no JSON begins so."""

NAMES_CHARACTERS = 1_000
"""Characters of tool names that an unknown-tool answer lists: enough to choose from, short enough to read."""


class Opened(Word):
    """The calls of the turn; `unreadable` when at least one cannot be run."""

    calls: tuple[OpenCall, ...]
    unreadable: bool


class Fatal(Word):
    """The turn ends the run."""

    code: str
    message: str


def ceiling(state: RunState, kind: RunLimitKind) -> int | None:
    """The smaller of the run's limit and the host's; a run without its own takes the agent's default."""
    given, default, part = state.start.envelope.spec.limits, state.run_part.run_limits, state.run_part
    if kind is RunLimitKind.MODEL_STEPS:
        pair = (given.max_model_steps or default.max_model_steps, part.max_model_steps)
    else:
        pair = (given.max_tool_calls or default.max_tool_calls, part.max_tool_calls)
    return min((each for each in pair if each is not None), default=None)


def last_step(state: RunState) -> RunLimitKind | None:
    """The limit that lets no further round begin, so that nothing is done for one (P12)."""
    steps = ceiling(state, RunLimitKind.MODEL_STEPS)
    if steps is not None and state.round >= steps:
        return RunLimitKind.MODEL_STEPS
    return budgets.spent(state)


def bound_tool(part: ToolsPart, tool_id: str) -> BoundTool:
    """The bound tool of an id that `read` has resolved."""
    return next(tool for tool in part.tools if tool.descriptor.tool_id == tool_id)


def read(state: RunState, observation: ModelObservation) -> Opened | Fatal:
    """Judge every call of a turn before the first one runs."""
    if len(observation.tool_calls) > CALLS_PER_TURN:
        message = f"The model made {len(observation.tool_calls)} calls in one turn; at most {CALLS_PER_TURN} are taken."
        return Fatal(code="model_protocol", message=message)
    opened: list[OpenCall] = []
    for index, call in enumerate(observation.tool_calls, start=1):
        if not call.ended:
            return Fatal(code="model_protocol", message=f"The model never ended its call {call.call_id!r}.")
        asks = call.name == questions.NAME and questions.may_ask(state)
        if call.name in RESERVED and not asks:
            return Fatal(code=RESERVED[call.name], message=f"The model called {call.name!r}, which was not offered.")
        opened.append(_open(state, call, index))
        if asks:
            fault = _question_fault(opened)
            if fault is not None:
                return fault
    refusals = [each.refusal for each in opened if each.refusal is not None]
    if refusals and (state.run_part.strict_calls or state.unreadable_turns >= UNREADABLE_TURNS):
        return Fatal(code=refusals[0].code, message=refusals[0].message)
    return Opened(calls=tuple(opened), unreadable=bool(refusals))


def _question_fault(opened: Sequence[OpenCall]) -> Fatal | None:
    """Why the last call is no question that can be asked: it is the host's own tool, so the run fails (§9)."""
    call = opened[-1]
    if questions.prompt_of(call.arguments) is None:
        message = f"{call.name!r} takes {{'prompt': text}} and nothing else; the model sent other arguments."
        return Fatal(code="input_request_arguments_invalid", message=message)
    blank = not call.call_id or " " in call.call_id
    if blank or not call.call_id.isprintable() or len(call.call_id.encode()) > CALL_ID_BYTES:
        return Fatal(code="model_protocol", message=f"The model's call id {call.call_id[:80]!r} names no question.")
    if any(each.call_id == call.call_id for each in opened[:-1]):
        return Fatal(code="model_protocol", message=f"The model used the call id {call.call_id!r} twice in one turn.")
    return None


def _open(state: RunState, call: ObservedToolCall, index: int) -> OpenCall:
    arguments, fault = read_arguments(call.arguments)
    tool_id = _resolve(state, call.name)
    refusal = fault
    if tool_id is None and call.name != questions.NAME:
        refusal = Rejected(code="tool_not_found", message=_unknown_tool(state, call.name))
    return OpenCall(
        call_id=call.call_id,
        name=call.name,
        invocation_id=ids.invocation_id(state.start.run_id, state.round, index),
        tool_id=tool_id or "",
        arguments=arguments,
        refusal=refusal,
    )


def read_arguments(text: str) -> tuple[JsonObject, Rejected | None]:
    """Parse a call's argument text; blank is `{}`.

    What cannot be read is refused, never repaired, and stands in the exchange as an object that quotes it: the next
    request must carry valid JSON (F055).
    """
    if not text.strip():
        return {}, None
    if text.startswith(LEFT_OUT):
        return _quoted(text), _unreadable(f"they have more than {ARGUMENT_BYTES} bytes")
    try:
        value = parse_exact_json(text)
    except ProtocolError as fault:
        # The reader's own words on syntax differ between Python versions, and what stands here is part of a digest.
        syntax = isinstance(fault.__context__, JSONDecodeError)
        return _quoted(text), _unreadable("they are not JSON" if syntax else fault.error.message.rstrip("."))
    if not isinstance(value, dict):
        return _quoted(text), _unreadable(f"they are {kind_of(value)}")
    beyond = beyond_bounds(value)
    return (value, None) if beyond is None else (_quoted(text), _unreadable(f"the value {beyond}"))


def turn_item(observation: ModelObservation) -> Item | None:
    """The assistant item of a turn, made of its observation alone: run, workers and readers all make the same one."""
    return assistant_item(observation, [read_arguments(call.arguments)[0] for call in observation.tool_calls])


def bounded(observation: ModelObservation) -> ModelObservation:
    """An observation that history can hold: argument texts beyond the bound are replaced by a sentence that says so."""
    calls = tuple(
        call
        if len(call.arguments.encode("utf-8")) <= ARGUMENT_BYTES
        else call.model_copy(update={"arguments": f"{LEFT_OUT} {len(call.arguments)} characters>"})
        for call in observation.tool_calls
    )
    return observation.model_copy(update={"tool_calls": calls})


def abridged(observation: ModelObservation, stored: StoredText) -> ModelObservation:
    """An observation whose text lies in the artifact store: its beginning and a sentence that names the whole."""
    beginning = observation.response[:MESSAGE_CHARACTERS]
    said = f"{beginning}\n<cut here: the whole text, {stored.size} bytes, is the artifact {stored.digest}>"
    return observation.model_copy(update={"response": said})


def _quoted(text: str) -> JsonObject:
    return {"unreadable_arguments": text[:MESSAGE_CHARACTERS]}


def _unreadable(why: str) -> Rejected:
    message = f"The arguments must be one JSON object, and {why}."
    return Rejected(code="invalid_tool_arguments", message=message[:MESSAGE_CHARACTERS])


def _resolve(state: RunState, name: str) -> str | None:
    part = state.tools_part
    tools = part.tools if part is not None else ()
    return next((each.descriptor.tool_id for each in tools if each.descriptor.model_schema.name == name), None)


def _unknown_tool(state: RunState, name: str) -> str:
    part = state.tools_part
    names = sorted(each.descriptor.model_schema.name for each in part.tools) if part is not None else []
    listed = ", ".join(names)[:NAMES_CHARACTERS] or "none"
    return f"There is no tool named {name[:80]!r}; the tools are: {listed}."
