"""Steers and queued input: kept in order until the loop takes them (C3, C7; agent-loop sheet §11, reducer sheet §7.4).

A plain steer stops the open attempt and lets the next round begin with it; queued input waits for that round. Either is
taken where a round opens, all that wait together: so a burst shares one round, and no round is spent on a steer that
another one has already carried.
"""

from typing import assert_never

from orchestral_temporal.core import context, ending
from orchestral_temporal.core.fold import Work
from orchestral_temporal.core.items import user_item
from orchestral_temporal.core.limits import QUEUE_BYTES, QUEUED_INPUTS
from orchestral_temporal.core.state import ModelOpen, RunState, WaitingSteer
from orchestral_temporal.protocol import ids
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    CommandAccepted,
    CommandRejected,
    Enqueue,
    ProviderCommandOutcome,
    Replace,
    Steer,
    Withdraw,
    queued_input,
)
from orchestral_temporal.protocol.content import Content
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode
from orchestral_temporal.protocol.events import InputCommitted
from orchestral_temporal.protocol.words import dump


def is_text(content: Content) -> bool:
    """Whether a content is inline text that says something: nothing else reaches a model in this version."""
    value = content.body.value
    inline = content.media_type == "text/plain" and content.body.kind == "inline"
    return inline and isinstance(value, str) and bool(value)


def decide(state: RunState, command: AgentCommandEnvelope, steer: Steer) -> ProviderCommandOutcome:
    """What becomes of a steer or a queue operation, first match wins (reducer sheet, §7.4 rows 6 to 11)."""
    operation = queued_input(command)
    waiting = state.queue
    if isinstance(operation, Replace | Withdraw):
        waiting = tuple(each for each in state.queue if each.command_id != operation.target)
        if not any(each.command_id == operation.target and each.deferred for each in state.queue):
            message = f"No queued input {operation.target[:80]!r} waits: it was taken, withdrawn, or never queued."
            return CommandRejected(code=AgentProtocolErrorCode.INVALID_TRANSITION, message=message)
    if isinstance(operation, Withdraw):
        return CommandAccepted()
    if not all(map(is_text, steer.content)):
        message = "The field 'content' must hold non-empty inline text/plain contents in this version."
        return CommandRejected(code=AgentProtocolErrorCode.INVALID_SPEC, message=message)
    total = size(steer.content) + sum(each.size for each in waiting) + _unheard(state)
    if len(waiting) >= QUEUED_INPUTS or total > QUEUE_BYTES:
        message = f"Too much input waits: {QUEUED_INPUTS} with {QUEUE_BYTES} bytes at most; send it again later."
        return CommandRejected(code=AgentProtocolErrorCode.INVALID_TRANSITION, message=message)
    return CommandAccepted()


def take(work: Work, command: AgentCommandEnvelope, steer: Steer) -> None:
    """Put an accepted steer where it waits; a replacement takes the place of what it replaces."""
    operation, queue = queued_input(command), work.state.queue
    item = WaitingSteer(
        command_id=command.command_id,
        content=steer.content,
        size=size(steer.content),
        deferred=operation is not None,
    )
    match operation:
        case None | Enqueue():
            queue = (*queue, item)
        case Replace(target=target):
            queue = tuple(item if each.command_id == target else each for each in queue)
        case Withdraw(target=target):
            queue = tuple(each for each in queue if each.command_id != target)
        case _:
            assert_never(operation)
    work.set(queue=queue)


def _unheard(state: RunState) -> int:
    """Bytes of input that the loop has taken and no answered attempt has carried: a steer takes that along."""
    sent = state.phase.before if isinstance(state.phase, ModelOpen) else state.sent
    return sum(each.known.size for each in sent.recent if each.ours)


def size(contents: tuple[Content, ...]) -> int:
    """Canonical bytes of contents."""
    return len(canonical([dump(each) for each in contents]))


def drain(work: Work) -> None:
    """Commit all input that waits, in order, each caused by its own command (P2, B7)."""
    queue = work.state.queue
    work.set(queue=())
    for each in queue:
        # Its text came by signal or update: it stands in no start argument and in no activity's result.
        item = context.add_item(work, user_item(each.content), ours=True)
        ending.remember(
            work,
            event_id=ids.session_steer_id(work.run_id, each.command_id),
            kind="run_input_committed",
            items=(item,),
        )
        committed = ids.steer_committed_id(work.run_id, each.command_id)
        work.provider((committed, InputCommitted(content=each.content), each.command_id))
