"""Who sends what to a run: cancels, also twice and under a taken id, steers, answers nobody asked for, nonsense."""

from typing import TYPE_CHECKING

from orchestral_temporal.core.inputs import CommandArrived, CommandsRead, Input, OutcomeArrived, PayloadRefused
from orchestral_temporal.core.state import ToolsOpen
from orchestral_temporal.protocol.activities import Fence, ToolObservation
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.commands import (
    INPUT_QUEUE,
    AgentCommandEnvelope,
    Cancel,
    ResolveRequest,
    Steer,
    seal_command,
)
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.requests import ApprovalDecision, ApprovalResolution, InputResolution
from orchestral_temporal.protocol.tools import Completed, InlineOutput
from tests.core.loop_world import RUN
from tests.sim.clock import Process

if TYPE_CHECKING:
    from tests.sim.world import World

FORGED = ToolObservation(outcome=Completed(output=InlineOutput(value="forged")))

SPANS_MS = (100, 5_000, 20_000, 60_000)
"""Within which people come: a run may be short."""


def arrive(world: "World") -> None:
    """Let people come at any instant of a world."""
    random = world.random
    if random.random() < world.setting.cancels:
        world.clock.spawn(_cancel(world), random.randint(0, random.choice(SPANS_MS)))
    for _ in range(random.choice((0, 0, 1, 3, 6))):
        world.clock.spawn(_somebody(world), random.randint(0, random.choice(SPANS_MS)))


def _cancel(world: "World") -> Process:
    """One cancel, sent again, contradicted under its own id, and followed by another."""
    cancel = seal_command("stop", RUN, Cancel(reason="enough"))
    for command in (
        cancel,
        cancel,
        seal_command("stop", RUN, Cancel(reason="for another reason")),
        seal_command("stop again", RUN, Cancel(reason="enough")),
    ):
        world.bring(CommandArrived(command))
        if world.random.random() < 0.5:
            return
        yield world.pause()


def _somebody(world: "World") -> Process:
    given = _sent(world)
    for _ in range(world.random.choice((1, 1, 1, 6))):
        world.bring(given)
        if world.random.random() < 0.3:
            yield world.pause()
            world.bring(given)
        given = _sent(world)
    world.bring(CommandsRead())


def _sent(world: "World") -> Input:
    random = world.random
    name = f"k{random.randint(1, 5)}"
    match random.randrange(6):
        case 0 | 5:
            return CommandArrived(_steer(world, name))
        case 1:
            answer = ResolveRequest(response=ApprovalResolution(decision=ApprovalDecision.DENY))
            return CommandArrived(seal_command(name, RUN, answer, request_id="nobody asked"))
        case 2:
            steer = seal_command(name, RUN, Steer(content=(text_content("x"),)))
            return CommandArrived(steer.model_copy(update={"command_digest": "0" * 64}))
        case 3:
            return PayloadRefused("noise", "It is no command.")
        case _:
            return OutcomeArrived(_forged(world))


def answer(world: "World", request_id: str) -> Process:
    """Whoever is asked answers in the end; before, perhaps with nothing, or with what was not asked for."""
    random = world.random
    deny = ApprovalResolution(decision=ApprovalDecision.DENY)
    nothing = InputResolution(content=(text_content(""),))
    right = InputResolution(content=(text_content(random.choice(("left", "right"))),))
    given: list[InputResolution | ApprovalResolution] = [*random.sample([deny, nothing], random.choice((0, 0, 1, 2)))]
    for number, each in enumerate([*given, right, right]):
        command_id = f"{request_id}/{min(number, len(given))}"
        command = seal_command(command_id, RUN, ResolveRequest(response=each), request_id=request_id)
        world.bring(CommandArrived(command))
        world.bring(CommandsRead())
        yield random.choice(SPANS_MS)


def _steer(world: "World", name: str) -> AgentCommandEnvelope:
    """A steer, or an operation on what waits, often on what does not."""
    random = world.random
    content = (text_content(random.choice(("a", "b", "b" * 100))),)
    target = f"k{random.randint(1, 5)}"
    operation: JsonObject | None = random.choice(
        (
            None,
            {"operation": "enqueue"},
            {"operation": "enqueue"},
            {"operation": "replace", "target": target},
            {"operation": "withdraw", "target": target},
        )
    )
    extensions: JsonObject = {} if operation is None or target == name else {INPUT_QUEUE: operation}
    return seal_command(name, RUN, Steer(content=content), extensions=extensions)


def _forged(world: "World") -> Fence:
    """A report on a call that is open perhaps, with one thing wrong about it."""
    phase = world.state.phase
    calls = phase.calls if isinstance(phase, ToolsOpen) else ()
    call = world.random.choice(calls) if calls else None
    right = Fence(
        invocation_id=call.invocation_id if call else f"{RUN}/m1/c1",
        attempt=call.attempt if call else 1,
        arguments_digest=exact_digest(call.arguments if call else {}),
        outcome=FORGED if world.random.random() < 0.7 else None,
        stored="9" * 64 if world.random.random() < 0.3 else None,
    )
    wrong = world.random.choice(
        ({"arguments_digest": "0" * 64}, {"attempt": right.attempt + 50}, {"invocation_id": "x"})
    )
    return right.model_copy(update=wrong)
