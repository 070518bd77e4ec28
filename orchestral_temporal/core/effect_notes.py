"""What became of the calls of a run: the fold of its notes, with what is known of the calls at work."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from orchestral_temporal.core.state import CallAt, EffectNote, Phase, ToolsOpen
from orchestral_temporal.core.table import EffectPhase
from orchestral_temporal.core.typed import typed
from orchestral_temporal.protocol.activities import EffectSettlement, Heartbeat
from orchestral_temporal.protocol.base import Word
from orchestral_temporal.protocol.tools import ToolIdempotency


class CallEffect(Word):
    """One call of a run and what became of it.

    `call` is the invocation id. `idempotency` is null for a call that the run itself refused. `outcome` is the
    outcome's status, `reason` why the last attempt was lost or the effect is unknown. `fenced` says, of a call at work,
    whether its fence stands; null when nobody can see. `waits_ms` is set while a lost call's outcome is waited for, in
    milliseconds at the most. `settlement` is null until an operator settles an unknown effect; where the session cannot
    be asked, `settlement_unknown` says why.
    """

    call: str
    tool: str
    idempotency: ToolIdempotency | None
    state: EffectPhase = EffectPhase.ABSENT
    attempts: int = 0
    outcome: str | None = None
    reason: str | None = None
    fenced: bool | None = None
    waits_ms: int | None = None
    settlement: EffectSettlement | None = None
    settlement_unknown: str | None = None

    @property
    def remedy(self) -> str | None:
        """The command that says what happened; none where there is nothing to settle, or nobody knows."""
        unsettled = self.settlement is None and self.settlement_unknown is None
        return (
            settle_command(self.call, "--happened TEXT")
            if self.state is EffectPhase.UNKNOWN_EFFECT and unsettled
            else None
        )

    @property
    def standing(self) -> str:
        """Where it stands, for people: the phase as the sheets spell it, or that its outcome is waited for."""
        if self.waits_ms is not None:
            return f"uncertain: waits up to {self.waits_ms // 1000} s for its outcome"
        return "".join(word.capitalize() for word in self.state.split("_"))


def settle_command(invocation_id: str, option: str | None = None) -> str:
    """What an operator types; with the option that says what happened, or without any (divergence 30)."""
    run_id, round_, index = invocation_id.rsplit("/", 2)
    return typed("effects settle", run_id, f"{round_}/{index}", option=option)


def calls_of(notes: Sequence[EffectNote]) -> tuple[CallEffect, ...]:
    """The calls of a run in the order in which they were prepared."""
    calls: dict[str, CallEffect] = {}
    for note in notes:
        call = calls.get(note.invocation_id)
        if call is None:
            call = CallEffect(call=note.invocation_id, tool=note.tool, idempotency=note.idempotency)
        calls[call.call] = _after(call, note)
    return tuple(calls.values())


def _after(call: CallEffect, note: EffectNote) -> CallEffect:
    changes: dict[str, object] = {"attempts": note.attempt}
    match note.at:
        case "lost":
            changes |= {"reason": note.said}
        case "prepared" | "invoked":
            changes |= {"state": EffectPhase(note.at)}
        case "observed" | "committed":
            changes |= {"state": EffectPhase(note.at), "outcome": note.said, "reason": None}
        case "unknown_effect":
            changes |= {"state": EffectPhase.UNKNOWN_EFFECT, "reason": note.said}
        case _:
            assert_never(note.at)
    return call.model_copy(update=changes)


def at_work(
    calls: Sequence[CallEffect], phase: Phase, grace_ms: int, beats: Mapping[str, Heartbeat | None]
) -> tuple[CallEffect, ...]:
    """The calls of a run that goes on, with what its `phase` and the last heartbeats tell of those at work.

    `beats` has an entry, perhaps null, for each call that a worker holds or that waits for one.
    """
    open_calls = {each.invocation_id: each.at for each in phase.calls} if isinstance(phase, ToolsOpen) else {}

    def seen(call: CallEffect) -> CallEffect:
        match open_calls.get(call.call):
            case CallAt.UNCERTAIN:
                return call.model_copy(update={"waits_ms": grace_ms})
            case CallAt.OPEN if call.call in beats:
                return _with_beat(call, beats[call.call])
            case _:
                return call

    return tuple(seen(call) for call in calls)


def _with_beat(call: CallEffect, beat: Heartbeat | None) -> CallEffect:
    fence = beat.fence if beat is not None else None
    if fence is None:
        return call.model_copy(update={"fenced": False})
    state = EffectPhase.OBSERVED if fence.told else EffectPhase.INVOKED
    return call.model_copy(update={"fenced": True, "state": state})
