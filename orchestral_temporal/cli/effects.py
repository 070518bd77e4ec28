"""`effects`: what became of a run's tool calls, and settling an unknown effect."""

from dataclasses import dataclass
from typing import Final

from orchestral_temporal.cli.look import runs_of
from orchestral_temporal.cli.screen import answer, answer_json, answer_table, note
from orchestral_temporal.hosting.process import GOOD
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.protocol.activities import EffectSettlement
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal.client import CallEffect

COLUMNS: Final = ("CALL", "TOOL", "CLASS", "STATE", "ATTEMPTS", "FENCE", "OUTCOME")

FENCE: Final = {True: "yes", False: "no", None: "-"}


@dataclass(frozen=True)
class Said:
    """What a person says of an unknown effect: what happened, or, where that is none, that nothing did.

    `session_id` is for a run that is there no more.
    """

    call: str
    happened: str | None
    by: str | None
    session_id: str | None


async def show_effects(settings: Settings, run_id: str, *, as_json: bool) -> int:
    """A table, or a JSON object for each call."""
    calls = await (await runs_of(settings)).run(run_id).effects()
    if as_json:
        for call in calls:
            answer_json(dump(call))
        return GOOD
    if not calls:
        note(f"The run {run_id} has made no tool call.")
        return GOOD
    answer_table(COLUMNS, [_row(call) for call in calls])
    for told in dict.fromkeys(call.settlement_unknown for call in calls if call.settlement_unknown is not None):
        note(told)
    for call in calls:
        if call.remedy is not None:
            note(f"Find out what became of {call.call} and say so: `{call.remedy}`, or `--did-not`.")
    return GOOD


def _row(call: CallEffect) -> tuple[str, ...]:
    kind = call.idempotency if call.idempotency is not None else "-"
    told = [each for each in (call.outcome, call.reason) if each]
    if call.settlement is not None:
        told.append(f"settled by {call.settlement.by}: {_what(call.settlement)}")
    return (
        call.call,
        call.tool,
        kind,
        call.standing,
        str(call.attempts),
        FENCE[call.fenced],
        " · ".join(told) or "-",
    )


def _what(settlement: EffectSettlement) -> str:
    return f"it happened: {settlement.happened}" if settlement.happened is not None else "it did not happen."


async def settle_effect(settings: Settings, run_id: str, said: Said, *, as_json: bool) -> int:
    """The settlement that stands, as a sentence or as JSON `{"settlement","repeated"}`."""
    run = (await runs_of(settings)).run(run_id)
    settled = await run.settle(
        said.call, happened=said.happened, did_not=said.happened is None, by=said.by, session_id=said.session_id
    )
    if as_json:
        answer_json(dump(settled))
        return GOOD
    standing = settled.settlement
    before = "was settled so before" if settled.repeated else "is settled"
    answer(f"{standing.call} {before}, by {standing.by}: {_what(standing)}")
    return GOOD
