"""Who sends what to a run: cancels, also twice and under a taken id, steers, answers nobody asked for, nonsense."""

from typing import TYPE_CHECKING

from orchestral_temporal.core.inputs import CommandArrived, Input, OutcomeArrived, PayloadRefused
from orchestral_temporal.core.state import ToolsOpen
from orchestral_temporal.protocol.activities import Fence, ToolObservation
from orchestral_temporal.protocol.commands import Cancel, ResolveRequest, Steer, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.requests import ApprovalDecision, ApprovalResolution
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
    for _ in range(random.choice((0, 0, 1, 3))):
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
    world.bring(given)
    if world.random.random() < 0.3:
        yield world.pause()
        world.bring(given)


def _sent(world: "World") -> Input:
    random = world.random
    name = f"k{random.randint(1, 3)}"
    match random.randrange(6):
        case 0:
            return CommandArrived(seal_command(name, RUN, Steer(content=(text_content(random.choice("ab")),))))
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
