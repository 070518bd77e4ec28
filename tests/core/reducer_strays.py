"""What may come to a run out of turn: right in most things, as a rule, and wrong in one."""

from random import Random
from typing import TypeVar

from orchestral_temporal.core.reducer import Run, command_of
from orchestral_temporal.core.table import CONFIRMED, UNKNOWN
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Cancel, ResolveRequest, Steer
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.delivery import AgentDelivery, Interrupted, PartialDelivery
from orchestral_temporal.protocol.events import (
    AgentEvent,
    CommandDispositionRecorded,
    CommandReceived,
    ContinuityLost,
    DeliveryCommitted,
    InputCommitted,
    OutputCommitted,
    RequestClosed,
    RequestOpened,
    RequestResolved,
    ResourceBindingSkipped,
    RunCancelled,
    RunIncomplete,
    RunStarted,
    StopRequested,
)
from orchestral_temporal.protocol.requests import resolution_digest, resolution_kind
from orchestral_temporal.protocol.state import ContinuityUnknown
from tests.core import reducer_world as world

T = TypeVar("T")
D = TypeVar("D", AgentDelivery, PartialDelivery)

SELDOM = ("run_accepted", "run_failed", "run_cancelled")
"""What begins or ends a life, right or not, comes as seldom as anything that its phase forbids."""

EFFECTS = ("input_committed", "request_resolved", "stop_requested")
"""What rests on a command, so can be wrong in most ways."""


class Strays:
    """Makes up what comes next to a run."""

    def __init__(self, chance: Random, run: Run) -> None:
        self._chance = chance
        self._run = run

    def command(self) -> AgentCommandEnvelope:
        """A command: known or new, an answer to a request that waits, that waits no more, or that never was."""
        payload = self._chance.choice([world.order(self._chance), ResolveRequest(response=world.answer(self._chance))])
        asked = self._request_id() if isinstance(payload, ResolveRequest) else None
        return world.command(payload, self._chance.choice([*self._run.commands, "c?", "c!"]), asked)

    def event(self) -> tuple[AgentEvent, str | None]:
        """An event and its cause."""
        table = UNKNOWN if isinstance(self._run.continuity, ContinuityUnknown) else CONFIRMED
        possible = [kind for kind, row in table.items() if self._run.phase in row and kind not in SELDOM]
        possible += [kind for kind in possible if kind in EFFECTS]
        lawful = bool(possible) and self._chance.random() < 0.8
        payload, cause = self._of_kind(self._chance.choice(possible if lawful else [*CONFIRMED, *UNKNOWN]))
        return payload, self._mostly(cause, self._chance.choice([None, "c?", *self._run.commands]))

    def _of_kind(self, kind: str) -> tuple[AgentEvent, str | None]:  # noqa: C901, PLR0911, PLR0912 -- a case a kind
        chance, run = self._chance, self._run
        match kind:
            case "run_accepted":
                changes = chance.choice([{}, {"session_id": "another"}, {"spec_digest": "ab" * 32}])
                return world.accepted(run).model_copy(update=changes), None
            case "resource_binding_skipped":
                admitted = world.BOUND.admission.skipped_optional_bindings
                another = admitted[0].model_copy(update={"reason": "another"})
                return ResourceBindingSkipped(skip=chance.choice([*admitted, another])), None
            case "run_started":
                return RunStarted(), None
            case "command_received":
                given = self.command()
                return CommandReceived(command=given), given.command_id
            case "command_disposition_recorded":
                undecided = [each for each, entry in run.commands.items() if entry.disposition_seq is None]
                named = self._mostly(chance.choice([*undecided, "c?"]), chance.choice([*run.commands, "c?"]))
                return CommandDispositionRecorded(command_id=named, outcome=world.outcome(chance)), named
            case _ if kind in EFFECTS:
                return self._effect(kind)
            case "output_committed":
                return OutputCommitted(output_id=chance.choice([*run.outputs, "o?"]), content=world.HELLO), None
            case "request_opened":
                return RequestOpened(request=world.request(chance, self._request_id())), None
            case "request_closed":
                return RequestClosed(request_id=self._request_id(), reason="elsewhere"), None
            case "delivery_committed":
                return DeliveryCommitted(delivery=self._spoilt(world.delivery(run))), None
            case "run_incomplete":
                partial = self._spoilt(world.partial(run))
                return RunIncomplete(reason=Interrupted(reason="cut"), partial_delivery=partial), None
            case "run_failed":
                return world.FAILED, None
            case "run_cancelled":
                return RunCancelled(reason="free"), None
            case "continuity_lost":
                place = self._mostly(len(run.records), chance.randint(0, len(run.records)))
                return ContinuityLost(last_confirmed_seq=place, reason="gone"), None
            case _:
                changes = chance.choice([{}, {"last_confirmed_seq": 99}, {"loss_event_digest": "ef" * 32}])
                return world.restored(run, **changes), None

    def _effect(self, kind: str) -> tuple[AgentEvent, str | None]:
        """The effect of some command of the right sort: as a rule of one that has a disposition and no effect."""
        chance, run = self._chance, self._run
        sort = {"input_committed": Steer, "stop_requested": Cancel}.get(kind, ResolveRequest)
        fitting = [each for each in run.commands if isinstance(command_of(run, each).payload, sort)]
        entries = {each: run.commands[each] for each in fitting}
        ripe = [each for each, entry in entries.items() if entry.disposition_seq and not entry.applied_seq]
        if sort is ResolveRequest:
            ripe = [each for each in ripe if command_of(run, each).request_id in run.pending]
        choices = self._mostly(ripe, fitting) or fitting
        given = command_of(run, chance.choice(choices)) if choices else self.command()
        match kind, given.payload:
            case "input_committed", payload:
                wanted = payload.content if isinstance(payload, Steer) else world.HELLO
                content = self._mostly(wanted, (text_content("another"),))
                return InputCommitted(content=content), given.command_id
            case "stop_requested", payload:
                reason = payload.reason if isinstance(payload, Cancel) else "stop"
                return StopRequested(reason=self._mostly(reason, "another")), given.command_id
            case _, payload:
                wanted = payload.response if isinstance(payload, ResolveRequest) else world.answer(chance)
                another = world.answer(chance, resolution_kind(wanted))
                resolution = chance.choice([wanted, wanted, another, world.answer(chance)])
                right = given.request_id or "q?"
                asked = chance.choice([right, right, self._request_id(), chance.choice([*run.pending, right])])
                resolved = RequestResolved(
                    request_id=asked, resolution=resolution, resolution_digest=resolution_digest(resolution)
                )
                return resolved, given.command_id

    def _request_id(self) -> str:
        return self._chance.choice([*self._run.pending, *self._run.settled, "q?"])

    def _mostly(self, right: T, wrong: T) -> T:
        return right if self._chance.random() < 0.8 else wrong

    def _spoilt(self, given: D) -> D:
        """A delivery, right or wrong in one thing."""
        origin = given.provenance
        field = "final_response" if isinstance(given, AgentDelivery) else "response"
        changes: list[dict[str, object]] = [
            {},
            {"run_id": "another"},
            {"spec_digest": "ab" * 32},
            {field: world.HELLO[0]},
            {"provenance": origin.model_copy(update={"provider_id": "another"})},
            {"provenance": origin.model_copy(update={"agent_id": "another"})},
            {"provenance": origin.model_copy(update={"supporting_event_ids": ("nowhere",)})},
        ]
        return given.model_copy(update=self._chance.choice(changes))
