"""What a world is: the run it starts, the parts that are bound, and how often what goes wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from random import Random
from typing import Final

from orchestral_temporal.core.items import REQUEST_INPUT
from orchestral_temporal.core.start import Start
from orchestral_temporal.protocol.activities import (
    Binding,
    BoundTool,
    ModelPart,
    Queues,
    RunPart,
    SessionOpened,
    Timeouts,
    ToolsPart,
)
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.retry import ContextRecoveryPolicy, ModelRetryPolicy
from orchestral_temporal.protocol.run import PendingRequestKind, seal_descriptor
from orchestral_temporal.protocol.tools import ToolConcurrency, ToolIdempotency
from tests.core.loop_world import model_part, run_part, start, tool

SAFE: Final = ToolConcurrency.PARALLEL_SAFE
ALONE: Final = ToolConcurrency.PER_RUN_SERIAL

TOOLS: Final[tuple[BoundTool, ...]] = (
    tool("pure", ToolIdempotency.PURE, SAFE),
    tool("same", ToolIdempotency.IDEMPOTENT, ALONE),
    tool("keyed", ToolIdempotency.IDEMPOTENT_WITH_KEY, SAFE),
    tool("keyed_alone", ToolIdempotency.IDEMPOTENT_WITH_KEY, ToolConcurrency.GLOBAL_SERIAL),
    tool("keyed_asked", ToolIdempotency.IDEMPOTENT_WITH_KEY, ALONE, reconciles=True),
    tool("once", ToolIdempotency.NON_IDEMPOTENT, SAFE),
    tool("once_alone", ToolIdempotency.NON_IDEMPOTENT, ALONE),
    tool("asked", ToolIdempotency.NON_IDEMPOTENT, SAFE, reconciles=True),
    tool("asked_alone", ToolIdempotency.NON_IDEMPOTENT, ToolConcurrency.GLOBAL_SERIAL, reconciles=True),
)
BY_ID: Final = {each.descriptor.tool_id: each for each in TOOLS}
NAMES: Final = tuple(each.descriptor.model_schema.name for each in TOOLS)

Budget = tuple[int | None, int | None, int | None]
"""Limits of input tokens, output tokens, and cost in millionths of a dollar."""

NO_BUDGET: Final[Budget] = (None, None, None)

PRICES: Final = (
    None,
    *(
        ModelCostPolicy(
            currency="USD", input_microunits_per_million_tokens=read, output_microunits_per_million_tokens=written
        )
        for read, written in ((1_000_000, 2_000_000), (0, 3_000_001), (999_999, 0))
    ),
)

FENCED: Final = (ToolIdempotency.NON_IDEMPOTENT, ToolIdempotency.IDEMPOTENT_WITH_KEY)
"""The classes whose effect stands behind a fence (decision 15)."""


class Trouble(StrEnum):
    """What may befall the worker of a tool call."""

    KILLED = "killed"
    ABANDONED = "abandoned"
    LEFT = "left at work"
    BARE = "bare shutdown"
    BROKEN = "broken"
    CUT_OFF = "cut off"
    FROZEN = "frozen"


class Point(StrEnum):
    """How far a tool call has come when something befalls it."""

    BEGUN = "begun"
    FENCED = "fenced"
    WORKED = "worked"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Strike:
    """Always the same trouble at the same point; of the n-th call only when `nth` is given."""

    trouble: Trouble
    point: Point
    nth: int | None = None


@dataclass(frozen=True)
class Setting:
    """One world before it begins; rates are probabilities while the world is faulty.

    `wide`: each result fills a session batch.
    `calm_after` counts the inputs of the run after which nothing goes wrong any more, `crashes` those after which its
    worker dies.
    """

    start: Start
    run: RunPart
    binding: Binding
    parts: Sequence[Binding]
    opened: SessionOpened
    calm_after: int
    model_faults: float
    tool_faults: float
    session_faults: float
    wide: bool
    echoes: float
    talkative: float
    cancels: float
    strike: Strike | None
    crashes: tuple[int, ...]

    @property
    def budgeted(self) -> bool:
        """Whether a limit counts what a turn of the model uses."""
        limits = self.start.envelope.spec.limits
        return any((limits.max_input_tokens, limits.max_output_tokens, limits.max_cost))


@cache
def _start(steps: int | None, calls: int | None, budget: Budget, deadline: int | None = None) -> Start:
    read, written, cost = budget
    limits: dict[str, Json] = {
        "max_model_steps": steps,
        "max_tool_calls": calls,
        "max_input_tokens": read,
        "max_output_tokens": written,
        "max_cost": None if cost is None else {"currency": "USD", "microunits": cost},
        "deadline_unix_ms": deadline,
    }
    return start(limits={key: value for key, value in limits.items() if value is not None})


@cache
def _run_part(steps: int | None, strict: bool, price: ModelCostPolicy | None) -> RunPart:
    """A run part that takes every limit, and may ask people."""
    part = run_part(max_model_steps=steps, strict_calls=strict, price=price)
    descriptor = part.descriptor.descriptor
    capabilities = descriptor.capabilities.model_copy(
        update={"supported_limits": tuple(RunLimitKind), "pending_request_kinds": (PendingRequestKind.INPUT,)}
    )
    sealed = seal_descriptor(descriptor.model_copy(update={"capabilities": capabilities}))
    return part.model_copy(update={"descriptor": sealed})


@cache
def _model_part(window: int, reserve: int, retries: int, recoveries: int, redispatchable: bool) -> ModelPart:
    """Few retries come with long pauses, many with short ones; a cap below the back-off shows which one rules."""
    pause = 500 if retries < 4 else 40
    return model_part(
        max_context_tokens=window,
        reserved_output_tokens=reserve,
        redispatchable=redispatchable,
        retry=ModelRetryPolicy(max_retries=retries, base_delay_ms=pause, max_delay_ms=pause * 3),
        retry_after_cap_ms=5_000,
        context_recovery=ContextRecoveryPolicy(
            max_retries=recoveries, minimum_output_tokens=None if recoveries == 2 else 300
        ),
    )


TOOLS_PART: Final = ToolsPart(tools=TOOLS, input_requests=True)

ASKS: Final = REQUEST_INPUT.name


def dice(seed: int) -> Random:
    """The only chance there is in a world."""
    return Random(seed)  # noqa: S311 -- worlds must come again, not be hard to guess


def _money(random: Random, *, limited: bool) -> tuple[ModelCostPolicy | None, Budget]:
    """A price, and budgets if there are any: by dice of their own, so that the other chances of a seed stay."""
    own = dice(0)
    own.setstate(random.getstate())
    price = own.choice(PRICES)
    if not limited:
        return price, NO_BUDGET
    read = own.choice([None, 1_000_000, 40_000, 12_000])
    return price, (read, own.choice([None, None, 4_000, 1_500]), own.choice([None, 30_000, 8_000]) if price else None)


def draw(random: Random) -> Setting:
    """A setting by chance."""
    pick = random.choice
    calls = pick([None, None, None, None, 1, 3, 6])
    steps, limited = pick([None, None, None, None, 1, 3, 5]), pick([False, False, False, True])
    price, budget = _money(random, limited=limited)
    given = _start(steps, calls, budget, pick([*[None] * 8, 1, 3_000, 20_000, 60_000]))
    model = _model_part(
        pick([100_000, 100_000, 100_000, 3_000]),
        pick([1_000, 1_000, 2_000]),
        pick([0, 1, 3, 5]),
        pick([0, 1, 2, 4]),
        pick([True, True, False]),
    )
    binding = Binding(
        queues=Queues(runs="q", models="q", tools="q"),
        timeouts=Timeouts(uncertainty_grace_ms=pick([10_000, 30_000])),
        attributes=False,
        workspaces=("w",),
    )
    whole = {"model": model, "tools": TOOLS_PART}
    first = pick([("model", "tools"), ("model", "tools"), ("model",), ("tools",), ()])
    rest = [name for name in whole if name not in first]
    random.shuffle(rest)
    earlier = pick([0, 0, 7])
    stubborn = random.random() < 0.1
    return Setting(
        start=given,
        run=_run_part(pick([None, None, None, 4]), random.random() < 0.05, price),
        binding=binding.model_copy(update={name: whole[name] for name in first}),
        parts=tuple(binding.model_copy(update={name: whole[name]}) for name in rest),
        opened=SessionOpened(head=f"h{earlier}" if earlier else None, last_seq=earlier),
        calm_after=random.randint(40, 70) if stubborn else random.randint(0, 30),
        model_faults=pick([0.0, 0.1, 0.2, 0.5]),
        tool_faults=1.0 if stubborn else pick([0.0, 0.1, 0.2, 0.5, 0.8]),
        session_faults=pick([0.0, 0.0, 0.3]),
        wide=random.random() < 0.1,
        echoes=pick([0.0, 0.1, 0.4]),
        talkative=pick([0.7, 0.95, 1.0]),
        cancels=pick([0.0, 0.0, 1.0]),
        strike=Strike(pick(list(Trouble)), pick(list(Point))) if stubborn else None,
        crashes=tuple(random.randint(1, 30) for _ in range(pick([0, 0, 1, 1, 2]))),
    )


def quiet(strike: Strike | None) -> Setting:
    """A world in which nothing goes wrong but one strike."""
    whole = Binding(
        queues=Queues(runs="q", models="q", tools="q"),
        timeouts=Timeouts(),
        attributes=False,
        model=_model_part(100_000, 1_000, 3, 1, redispatchable=True),
        tools=TOOLS_PART,
    )
    return Setting(
        start=_start(None, None, NO_BUDGET),
        run=_run_part(None, strict=False, price=None),
        binding=whole,
        parts=(),
        opened=SessionOpened(),
        calm_after=14,
        model_faults=0.0,
        tool_faults=0.0,
        session_faults=0.0,
        wide=False,
        echoes=0.0,
        talkative=1.0,
        cancels=0.0,
        strike=strike,
        crashes=(),
    )
