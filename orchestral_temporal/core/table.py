"""The transitions of a run and of an effect: phase and event in, phase out. Missing means no.

Runs: `spec/reducer.md` §4.1; effects: `spec/tools.md` §14.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """How far a run is; it never goes back. Waiting and unknown are views of a phase, not phases."""

    FRESH = "fresh"
    ACCEPTED = "accepted"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


def _stay(*phases: Phase) -> Mapping[Phase, Phase]:
    return {phase: phase for phase in phases}


def _go(target: Phase, *phases: Phase) -> Mapping[Phase, Phase]:
    return dict.fromkeys(phases, target)


_FRESH, _ACCEPTED, _RUNNING, _STOPPING, _ENDED = Phase

CONFIRMED: Final[Mapping[str, Mapping[Phase, Phase]]] = {
    "run_accepted": _go(_ACCEPTED, _FRESH),
    "resource_binding_skipped": _stay(_ACCEPTED),
    "run_started": _go(_RUNNING, _ACCEPTED),
    "command_received": _stay(_ACCEPTED, _RUNNING, _STOPPING),
    "command_disposition_recorded": _stay(_ACCEPTED, _RUNNING, _STOPPING),
    "input_committed": _stay(_RUNNING),
    "output_committed": _stay(_RUNNING, _STOPPING),
    "request_opened": _stay(_RUNNING),
    "request_resolved": _stay(_RUNNING, _STOPPING),
    "request_closed": _stay(_RUNNING, _STOPPING),
    "stop_requested": _go(_STOPPING, _ACCEPTED, _RUNNING),
    "delivery_committed": _go(_ENDED, _RUNNING, _STOPPING),
    "run_incomplete": _go(_ENDED, _ACCEPTED, _RUNNING, _STOPPING),
    "run_failed": _go(_ENDED, _ACCEPTED, _RUNNING, _STOPPING),
    "run_cancelled": _go(_ENDED, _STOPPING),
    "continuity_lost": _stay(_ACCEPTED, _RUNNING, _STOPPING),
}
"""While continuity is confirmed: event kind → phase → phase after it."""

UNKNOWN: Final[Mapping[str, Mapping[Phase, Phase]]] = {
    "continuity_restored": _stay(_FRESH, _ACCEPTED, _RUNNING, _STOPPING),
}
"""While continuity is unknown: only a restoration, whatever the phase behind it."""


class EffectPhase(StrEnum):
    """How far the effect of one call is; absent means that its journal is empty."""

    ABSENT = "absent"
    PREPARED = "prepared"
    INVOKED = "invoked"
    OBSERVED = "observed"
    COMMITTED = "committed"
    UNKNOWN_EFFECT = "unknown_effect"


EFFECTS: Final[Mapping[str, Mapping[EffectPhase, EffectPhase]]] = {
    "prepared": {EffectPhase.ABSENT: EffectPhase.PREPARED},
    "invoked": {EffectPhase.PREPARED: EffectPhase.INVOKED, EffectPhase.INVOKED: EffectPhase.INVOKED},
    "observed": {EffectPhase.INVOKED: EffectPhase.OBSERVED},
    "committed": {EffectPhase.OBSERVED: EffectPhase.COMMITTED},
    "effect_unknown": {EffectPhase.INVOKED: EffectPhase.UNKNOWN_EFFECT},
}
"""Event kind → phase of the effect → phase after it.

A second `invoked` is ours: a call that may be repeated is run again on record (divergence 3).
"""
