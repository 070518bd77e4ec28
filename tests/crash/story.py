"""The run that the tests of this room disturb: what its model says, and its steps when nobody disturbs it."""

from collections.abc import Sequence
from typing import Final

from orchestral_temporal.protocol.base import Json
from tests.temporal.world import calls, says

TASK: Final = f"Look three times. {'Take your time. ' * 1_000}"
"""A task too long for the tail that an attempt carries, like each of the results."""

ROUNDS: Final[Sequence[Json]] = [*(calls(("look", {"key": f"v{number}"})) for number in (1, 2, 3)), says("Done.")]
"""Three looks, one a round, and an answer."""

CALM: Final = [
    *("run_accepted", "run_started"),
    *("model 1.1", "tool v1.1", "model 2.1", "tool v2.1", "model 3.1", "tool v3.1", "model 4.1"),
    *("output_committed", "delivery_committed", "append"),
]
"""Its steps, as `Scene.steps` tells them."""

LOST: Final = ["continuity_lost", "continuity_restored"]
"""The journal of a loss that the run got over."""


def after(step: str, *more: str) -> list[str]:
    """The calm steps, with more after one of them."""
    place = CALM.index(step) + 1
    return [*CALM[:place], *more, *CALM[place:]]
