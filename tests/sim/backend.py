"""The model: what an attempt ends with, sensible or not."""

from typing import TYPE_CHECKING, Final

from orchestral_temporal.core.assembly import failure_code
from orchestral_temporal.core.calls import turn_item
from orchestral_temporal.core.inputs import ModelFailed, ModelFinished, ModelLost
from orchestral_temporal.core.items import measure
from orchestral_temporal.core.limits import CALLS_PER_TURN
from orchestral_temporal.core.state import CallModel
from orchestral_temporal.protocol.activities import ModelResult
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.model import (
    ModelError,
    ModelErrorCode,
    ModelFinishReason,
    ModelObservation,
    ModelUsage,
    ObservedToolCall,
)
from tests.sim.clock import Process
from tests.sim.setting import ASKS, NAMES

if TYPE_CHECKING:
    from tests.sim.world import World

HEARTBEAT_MS: Final = 5_000
"""After this silence a model attempt is lost."""

ARGUMENTS: Final = ('{"value":"x"}', '{"value":"y"}', "", "{", "[1]", '{"value":')
"""Argument texts: two of three can be read."""

ENDINGS: Final = (
    ModelFinishReason.LENGTH,
    ModelFinishReason.CANCELLED,
    ModelFinishReason.CONTENT_FILTER,
    ModelFinishReason.OTHER,
)


class Backend:
    """Ends every attempt in one way or another; a calm one answers with text."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def answer(self, effect: CallModel) -> Process:
        """The end of one attempt."""
        world = self._world
        attempt = effect.attempt
        number = (attempt.round, attempt.attempt)
        if not world.chance(world.setting.model_faults):
            turn = self._turn(attempt.max_output_tokens)
            world.deliver(ModelFinished(*number, turn))
            if world.chance(world.setting.echoes):
                yield world.pause()
                world.bring(ModelFinished(attempt.round, attempt.attempt + 1, turn))
        elif world.random.random() < 0.3:
            yield HEARTBEAT_MS
            world.deliver(ModelLost(*number, abandoned=False, reason="its worker fell silent"))
        elif world.random.random() < 0.3:
            world.deliver(ModelLost(*number, abandoned=True, reason="its worker stops"))
        else:
            world.deliver(self._failure(*number))

    def _failure(self, round_: int, attempt: int) -> ModelFailed:
        random = self._world.random
        code = random.choice(
            [ModelErrorCode.RATE_LIMITED, ModelErrorCode.UNAVAILABLE, ModelErrorCode.CONTEXT_LENGTH_EXCEEDED] * 8
            + list(ModelErrorCode)
        )
        details: Json = random.choice(
            [None, None, {"retry_after_ms": 100}, {"retry_after_ms": 90_000}, {"retry_after_ms": "soon"}, ["x"]]
        )
        error = ModelError(code=code, message="no", retryable=random.random() < 0.95, details=details)
        named = failure_code(code) if random.random() < 0.97 else "session_context"
        return ModelFailed(
            round_,
            attempt,
            named,
            error,
            generated=random.random() < 0.04,
            usage=random.choice([None, self._usage(50)]),
        )

    def _usage(self, cap: int) -> ModelUsage | None:
        random = self._world.random
        if self._world.setting.budgeted and random.random() < 0.9:
            return ModelUsage(input_tokens=random.randint(1, 500), output_tokens=random.randint(1, cap))
        return random.choice(
            [
                None,
                ModelUsage(input_tokens=random.randint(1, 500), output_tokens=random.randint(1, cap)),
                ModelUsage(input_tokens=random.randint(1, 500)),
                ModelUsage(output_tokens=random.randint(1, cap)),
            ]
        )

    def _turn(self, cap: int) -> ModelResult:
        random = self._world.random
        usage = self._usage(cap)
        if self._world.chance(0.02):
            usage = ModelUsage(output_tokens=cap + 1)
        if self._world.calm or random.random() > self._world.setting.talkative:
            observation = ModelObservation(finish_reason=ModelFinishReason.STOP, response="done", usage=usage)
        elif random.random() < 0.04:
            observation = self._odd(usage)
        else:
            observation = ModelObservation(
                finish_reason=random.choice([ModelFinishReason.TOOL_CALLS, ModelFinishReason.STOP]),
                response=random.choice(["", "let me see"]),
                usage=usage,
                tool_calls=tuple(self._call(index) for index in range(random.choice([1, 1, 2, 3, 6]))),
            )
        return sealed(observation)

    def _odd(self, usage: ModelUsage | None) -> ModelObservation:
        """A turn that ends the run."""
        random = self._world.random
        match random.randrange(5):
            case 0:
                calls = tuple(self._call(index) for index in range(2))
                return ModelObservation(finish_reason=random.choice(ENDINGS), response="part", tool_calls=calls)
            case 1:
                silent = random.choice([ModelFinishReason.STOP, ModelFinishReason.TOOL_CALLS])
                return ModelObservation(finish_reason=silent, usage=usage)
            case 2:
                call = self._call(0).model_copy(update={"ended": False})
                return ModelObservation(finish_reason=ModelFinishReason.TOOL_CALLS, tool_calls=(call,), usage=usage)
            case 3:
                reserved = self._call(0).model_copy(update={"name": "skill_read"})
                return ModelObservation(finish_reason=ModelFinishReason.TOOL_CALLS, tool_calls=(reserved,))
            case _:
                many = tuple(self._call(index) for index in range(CALLS_PER_TURN + 1))
                return ModelObservation(finish_reason=ModelFinishReason.TOOL_CALLS, tool_calls=many)

    def _call(self, index: int) -> ObservedToolCall:
        random = self._world.random
        readable = random.random() < 0.9
        if self._world.chance(0.1):
            question = '{"prompt":"Which?"}' if random.random() < 0.95 else "{}"
            return ObservedToolCall(call_id=f"c{index}", name=ASKS, arguments=question, ended=True)
        return ObservedToolCall(
            call_id=f"c{index}",
            name=random.choice(NAMES) if random.random() < 0.95 else "nobody",
            arguments=ARGUMENTS[random.randrange(3) if readable else 3 + random.randrange(3)],
            ended=True,
        )


def sealed(observation: ModelObservation) -> ModelResult:
    """A turn as its worker reports it."""
    item = turn_item(observation)
    measured = measure(item) if item is not None else None
    return ModelResult(observation=observation, item=measured, request_digest="1" * 64, input_bound=10)
