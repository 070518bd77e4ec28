"""What every `ModelBackend` must do, fakes included: run each check of `MODEL_CONTRACT` against yours.

    @pytest.mark.parametrize("check", MODEL_CONTRACT)
    async def test_contract(check: ModelCheck) -> None:
        await check(serve)

`serve(turn)` yields a backend whose endpoint answers every request with `turn`. Of a backend without an endpoint
`checked` holds what can be held of any answer.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from orchestral_temporal.core.assembly import Assembly, Breach, step, unfinished
from orchestral_temporal.ports import ModelBackend, ModelFault
from orchestral_temporal.protocol.ids import is_blank
from orchestral_temporal.protocol.model import (
    Finish,
    ModelErrorCode,
    ModelFinishReason,
    ModelMessage,
    ModelObservation,
    ModelRequest,
    ModelRole,
    ModelStreamEvent,
    ModelUsage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UsageSnapshot,
)
from orchestral_temporal.protocol.validation import validate


@dataclass(frozen=True, slots=True)
class TurnCall:
    """A call that the endpoint streams: its argument text in pieces."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """What the endpoint answers with.

    `refusal` replaces all else. Without `finish` the connection breaks after what was said; `silent` means that after
    that nothing comes, for ever.
    """

    text: tuple[str, ...] = ()
    calls: tuple[TurnCall, ...] = ()
    usage: ModelUsage | None = None
    finish: ModelFinishReason | None = ModelFinishReason.STOP
    refusal: ModelErrorCode | None = None
    silent: bool = False


Serve = Callable[[Turn], AbstractAsyncContextManager[ModelBackend]]
ModelCheck = Callable[[Serve], Awaitable[None]]

REQUEST = ModelRequest(
    request_id="model-contract-1",
    messages=(ModelMessage(role=ModelRole.USER, content=(TextPart(text="What is the weather?"),)),),
    max_output_tokens=256,
)

PATIENCE_S = 30
"""Seconds after which a check gives up: far above what any of them needs."""


async def assembled(
    stream: AsyncIterator[ModelStreamEvent], request: ModelRequest = REQUEST
) -> ModelObservation | Breach:
    """Read a stream to its turn, by the rules of `core.assembly`.

    Raises:
        ModelFault: the backend refused or broke off.
    """
    state: Assembly | ModelObservation | Breach = Assembly(request.request_id)
    async for event in stream:
        state = step(state, event)
        if not isinstance(state, Assembly):
            return state
    return unfinished(state)


async def checked(backend: ModelBackend, request: ModelRequest) -> ModelObservation:
    """Ask twice, and hold the stream against what every backend owes, whatever it answers.

    The repetition is the same, event by event; event ids differ; the events stand in legal order and end with their
    finish; the usage is the last snapshot; a call has an id that the conversation does not know (divergence 6).

    Raises:
        ModelFault: the backend refused or broke off.
    """
    events = [event async for event in backend.stream(request)]
    assert [event async for event in backend.stream(request)] == events
    assert len({event.event_id for event in events}) == len(events)
    assert [event for event in events if isinstance(event.payload, Finish)] == events[-1:]
    turn = await assembled(_replayed(events), request)
    assert isinstance(turn, ModelObservation), turn
    snapshots = [event.payload.usage for event in events if isinstance(event.payload, UsageSnapshot)]
    assert turn.usage == (snapshots[-1] if snapshots else None)
    ids = [call.call_id for call in turn.tool_calls]
    parts = (part for message in request.messages for part in message.content)
    known = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    assert len(set(ids) - known) == len(ids)
    return turn


def answered(request: ModelRequest, turn: ModelObservation, request_id: str) -> ModelRequest:
    """The request after a turn with calls: each call in it has a result."""
    calls = tuple(ToolCallPart(call_id=call.call_id, name=call.name, arguments={}) for call in turn.tool_calls)
    results = tuple(ToolResultPart(call_id=call.call_id, result="ok", is_error=False) for call in turn.tool_calls)
    exchange = (
        ModelMessage(role=ModelRole.ASSISTANT, content=calls),
        ModelMessage(role=ModelRole.TOOL, content=results),
    )
    return request.model_copy(update={"request_id": request_id, "messages": (*request.messages, *exchange)})


async def the_descriptor_is_valid(serve: Serve) -> None:
    """A backend says who it is, by the rules of the word."""
    async with serve(Turn(text=("hi",))) as backend:
        validate(backend.descriptor)
        assert not is_blank(backend.descriptor.backend_id)


async def a_text_turn_arrives_whole(serve: Serve) -> None:
    """Deltas join to the text, usage and finish reason come with it."""
    usage = ModelUsage(input_tokens=11, output_tokens=3)
    async with serve(Turn(text=("Sun", "ny, ", "21 °C ☀"), usage=usage)) as backend:
        turn = await assembled(backend.stream(REQUEST))
    assert turn == ModelObservation(finish_reason=ModelFinishReason.STOP, response="Sunny, 21 °C ☀", usage=usage)


async def calls_keep_their_order_and_text(serve: Serve) -> None:
    """Parallel calls arrive in order, each ended, with the argument text as it was written and an id of its own."""
    calls = (
        TurnCall("weather", ('{"city": ', '"Bern"}')),
        TurnCall("weather", ('{"city":"Oslo"}',)),
        TurnCall("now", ()),
    )
    async with serve(Turn(text=("Let me look.",), calls=calls, finish=ModelFinishReason.TOOL_CALLS)) as backend:
        turn = await assembled(backend.stream(REQUEST))
    assert isinstance(turn, ModelObservation)
    assert [(call.name, call.arguments, call.ended) for call in turn.tool_calls] == [
        (call.name, "".join(call.arguments), True) for call in calls
    ]
    ids = [call.call_id for call in turn.tool_calls]
    assert len(set(ids)) == len(calls)
    assert not any(map(is_blank, ids))


async def every_turn_keeps_the_rules(serve: Serve) -> None:
    """Text, calls, usage and their absence: nothing is drawn by chance, nothing is out of order, nothing is made up."""
    call = TurnCall("now", ("{", "}"))
    usage = ModelUsage(input_tokens=7, output_tokens=2)
    for turn in (
        Turn(text=("hi",)),
        Turn(text=("hi",), usage=usage),
        Turn(text=("Let me look.",), calls=(call, call), usage=usage, finish=ModelFinishReason.TOOL_CALLS),
    ):
        async with serve(turn) as backend:
            seen = await checked(backend, REQUEST)
        assert (seen.usage, len(seen.tool_calls)) == (turn.usage, len(turn.calls))


async def call_ids_are_new_to_the_conversation(serve: Serve) -> None:
    """An endpoint that counts its calls from zero in each round still gets results that can be told apart (F059)."""
    call = TurnCall("now", ("{}",))
    async with serve(Turn(calls=(call, call), finish=ModelFinishReason.TOOL_CALLS)) as backend:
        request = REQUEST
        for number in (2, 3):
            request = answered(request, await checked(backend, request), f"model-contract-{number}")
        await checked(backend, request)


async def every_finish_reason_arrives(serve: Serve) -> None:
    """Why a turn ended is not lost on the way."""
    for reason in (ModelFinishReason.STOP, ModelFinishReason.LENGTH, ModelFinishReason.CONTENT_FILTER):
        async with serve(Turn(text=("cut",), finish=reason)) as backend:
            turn = await assembled(backend.stream(REQUEST))
        assert isinstance(turn, ModelObservation)
        assert turn.finish_reason is reason


async def a_refusal_is_a_fault_with_its_code(serve: Serve) -> None:
    """A refused request raises `ModelFault` before any event, retryable only where another try can help."""
    for code, retryable in (
        (ModelErrorCode.AUTHENTICATION, False),
        (ModelErrorCode.INVALID_REQUEST, False),
        (ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, False),
        (ModelErrorCode.RATE_LIMITED, True),
        (ModelErrorCode.UNAVAILABLE, True),
    ):
        async with serve(Turn(refusal=code)) as backend:
            fault = await _ending(backend)
        assert isinstance(fault, ModelFault)
        assert (fault.error.code, fault.error.retryable) == (code, retryable)
        assert fault.error.message


async def a_broken_stream_is_no_turn(serve: Serve) -> None:
    """A stream that breaks off fails or just ends; it is never finished (F070)."""
    async with serve(Turn(text=("All", " done"), finish=None)) as backend:
        ending = await _ending(backend)
    if isinstance(ending, ModelFault):
        assert ending.error.code is ModelErrorCode.UNAVAILABLE
        assert ending.error.retryable
    else:
        assert isinstance(ending, Breach)


async def a_silent_stream_can_be_left(serve: Serve) -> None:
    """A cancelled reader gets out at once, and the backend serves the next one."""
    async with serve(Turn(text=("Hm",), silent=True)) as backend:
        for _ in range(2):
            said = asyncio.Event()
            reader = asyncio.create_task(_read(backend, said))
            async with asyncio.timeout(PATIENCE_S):
                await said.wait()
                reader.cancel()
                await asyncio.wait([reader])
            assert reader.cancelled()


async def _replayed(events: Sequence[ModelStreamEvent]) -> AsyncIterator[ModelStreamEvent]:
    for event in events:
        yield event


async def _ending(backend: ModelBackend) -> ModelObservation | Breach | ModelFault:
    try:
        return await assembled(backend.stream(REQUEST))
    except ModelFault as fault:
        return fault


async def _read(backend: ModelBackend, said: asyncio.Event) -> None:
    async for _ in backend.stream(REQUEST):
        said.set()


MODEL_CONTRACT: tuple[ModelCheck, ...] = (
    the_descriptor_is_valid,
    a_text_turn_arrives_whole,
    calls_keep_their_order_and_text,
    every_turn_keeps_the_rules,
    call_ids_are_new_to_the_conversation,
    every_finish_reason_arrives,
    a_refusal_is_a_fault_with_its_code,
    a_broken_stream_is_no_turn,
    a_silent_stream_can_be_left,
)
"""Every check; each takes `serve`."""
