"""The state machine of a run under whatever may come (`spec/reducer.md` §13).

`Life` makes lives up: lawful steps, which must take effect, and strays, repetitions and forgeries, of which the run
must make the right thing. `reducer_watch` holds every step and state to the numbered invariants. When one breaks,
Hypothesis prints the steps that break it: they become a test of their own at the end of this file.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from orchestral_temporal.core.reducer import Appended, Author, Outcome, Run, admit, append, replay, view
from orchestral_temporal.core.table import Phase
from orchestral_temporal.protocol.commands import (
    AgentCommandEnvelope,
    Cancel,
    ProviderCommandOutcome,
    ResolveRequest,
    Steer,
)
from orchestral_temporal.protocol.delivery import Interrupted
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentJournalRecord,
    CommandDispositionRecorded,
    CommandReceived,
    ContinuityLost,
    DeliveryCommitted,
    InputCommitted,
    OutputCommitted,
    ProviderAuthority,
    RequestClosed,
    RequestOpened,
    RequestResolved,
    ResourceBindingSkipped,
    RunCancelled,
    RunIncomplete,
    RunStarted,
    StopRequested,
    draft_of,
    seal_record,
)
from orchestral_temporal.protocol.requests import (
    request_kind,
    resolution_digest,
)
from orchestral_temporal.protocol.state import ContinuityUnknown, projection_digest
from orchestral_temporal.protocol.words import Json, dump, parse, parse_value, to_json
from tests.core import reducer_world as world
from tests.core.reducer_strays import Strays
from tests.core.reducer_watch import Watched, author_of, kept

LONG = 15
"""So many records make a life that may end."""

SEEDS = st.integers(0, 2**32 - 1)
"""The choices inside a step, drawn as one number: even and cheap; Hypothesis chooses and shrinks the steps."""

Move = Callable[[Random], None]


def leaves(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths to all parts of a JSON value that hold no others."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [leaf for key, each in inner for leaf in leaves(each, (*path, key))] or [path]


def altered(value: Json, path: tuple[str | int, ...]) -> Json:
    """A JSON value with another leaf at a path."""
    if path:
        twin = dict(value) if isinstance(value, dict) else list(value)
        twin[path[0]] = altered(value[path[0]], path[1:])
        return twin
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value or ''}x"


class Life(RuleBasedStateMachine):
    """One run, and all that may happen to it."""

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        """A run before its first event, or some steps towards its work."""
        self.path = str(seed)
        chance = self.chance(seed)
        self.first = chance.choice([world.BOUND, world.FREE])
        self.it = Watched(self.first)
        for _ in range(chance.choice([0, 1, 2, 4, 4, 4])):
            if not self.it.is_in(Phase.RUNNING):
                self.begin_work()

    def teardown(self) -> None:
        """At the end of a life all of it comes once more, in both ways; the run reads back as it was written."""
        if not hasattr(self, "it"):
            return
        run = self.it.run
        for record, author in zip(run.records, self.it.authors, strict=True):
            assert replay(run, record) == Appended(run, record, Outcome.DUPLICATE)  # [9]
            assert self.it.offer(draft_of(record.event), author) is Outcome.DUPLICATE  # [9]
        assert projection_digest(view(run)) == projection_digest(view(self.it.again))  # [26]
        assert parse(Run, to_json(run)) == run

    @rule(seed=SEEDS)
    def live(self, seed: int) -> None:
        """Some lawful things happen; one rule, since of many Hypothesis would leave half out of each life."""
        chance = self.chance(seed)
        for _ in range(chance.randint(1, 6)):
            if self.moves():
                chance.choice(self.moves())(chance)
                self.go_astray(chance, 3)

    @rule(seed=SEEDS)
    def stray(self, seed: int) -> None:
        """Anything comes, of its lawful author; what it is worth is the run's to say."""
        chance = self.chance(seed)
        self.go_astray(chance, 3)
        if self.it.run.records:
            self.come(chance, self.it)
        else:
            self.begin_work()  # a run that begins astray leads nowhere

    def go_astray(self, chance: Random, times: int) -> None:
        """As `stray`, two in a row, but on a branch that is thrown away; now and then from the very beginning."""
        for _ in range(times):
            branch = self.it.branch() if chance.random() < 0.95 else Watched(self.first)
            self.come(chance, branch)
            self.come(chance, branch)

    def come(self, chance: Random, it: Watched) -> None:
        """A stray event comes to a run; the harm is mended, as a rule."""
        payload, cause = Strays(chance, it.run).event()
        it.offer(world.draft(f"e{len(it.run.records)}", payload, cause), author_of(payload))
        if isinstance(it.run.continuity, ContinuityUnknown) and chance.random() < 0.7:
            it.bring(world.restored(it.run))

    @rule(seed=SEEDS)
    def attack(self, seed: int) -> None:
        """All comes that may change nothing."""
        chance = self.chance(seed)
        self.admission(chance)
        self.wrong_author(chance)
        if self.it.run.records:
            self.repeat(chance)
            self.altered_record(chance)
            self.misplaced_record(chance)

    def chance(self, seed: int) -> Random:
        """The choices of one step: of all seeds so far, since Hypothesis likes to draw the same one again."""
        self.path = f"{self.path}/{seed}"
        return Random(self.path)  # noqa: S311 -- nothing here is secret

    def moves(self) -> list[Move]:
        """What is lawful here."""
        it = self.it
        if isinstance(it.run.continuity, ContinuityUnknown):
            return [self.restore]
        if not it.run.records:
            return [self.begin_work]
        if it.run.phase is Phase.ACCEPTED:
            return [self.begin_work, self.begin_work, self.command, self.late_command, self.lose]
        late: list[Move] = [self.lose, self.end] if len(it.run.records) > LONG else []
        if it.run.phase is Phase.RUNNING:
            return [self.command, self.command, self.late_command, self.ask, self.ask, self.close, self.output, *late]
        if it.run.phase is Phase.STOPPING:
            return [self.command, self.command, self.late_command, self.close, self.output, *late]
        return []

    # -- what is lawful ------------------------------------------------------------------------------------------

    def begin_work(self, _: Random | None = None) -> None:
        """Accept the run, report what it skips, start it."""
        reported = [payload.skip for _, payload in self.it.effects(ResourceBindingSkipped)]
        left = [skip for skip in self.it.run.admission.skipped_optional_bindings if skip not in reported]
        if not self.it.run.records:
            self.it.bring(world.accepted(self.it.run))
        else:
            self.it.bring(ResourceBindingSkipped(skip=left[0]) if left else RunStarted())

    def command(self, chance: Random) -> None:
        """A command comes, an answer if one is wanted; then at most its disposition and its effect."""
        command_id = f"c{len(self.it.run.records)}"
        given = world.command(world.order(chance), command_id)
        if self.it.pending() and chance.random() < 0.7:
            request = chance.choice(self.it.pending())
            answer = world.answer(chance, request_kind(request))
            given = world.command(ResolveRequest(response=answer), command_id, request.request_id)
        assert admit(self.it.run, given) is None
        self.it.bring(CommandReceived(command=given), command_id)
        for _ in range(chance.choice([0, 1, 1, 1, 2])):
            self.go_on(given, world.outcome(chance))

    def late_command(self, chance: Random) -> None:
        """A command that came earlier goes on."""
        if self.it.open_commands():
            self.go_on(chance.choice(self.it.open_commands()), world.outcome(chance))

    def go_on(self, given: AgentCommandEnvelope, outcome: ProviderCommandOutcome) -> None:
        """A command gets its disposition, or an accepted one has its effect, where it still can."""
        payload: AgentEvent | None = None
        match given.payload:
            case _ if given not in self.it.open_commands():
                pass
            case _ if given.command_id not in self.it.decided():
                payload = CommandDispositionRecorded(command_id=given.command_id, outcome=outcome)
            case Steer(content=content) if self.it.is_in(Phase.RUNNING):
                payload = InputCommitted(content=content)
            case Cancel(reason=reason) if not self.it.is_in(Phase.STOPPING):
                payload = StopRequested(reason=reason)
            case ResolveRequest(response=response) if given.request_id in self.it.run.pending:
                payload = RequestResolved(
                    request_id=given.request_id, resolution=response, resolution_digest=resolution_digest(response)
                )
            case _:
                pass
        if payload is not None:
            self.it.bring(payload, given.command_id)

    def ask(self, chance: Random) -> None:
        """The run asks somebody, in a kind that its agent declares."""
        request = world.request(chance, f"q{len(self.it.run.records)}")
        if request_kind(request) in self.it.run.request_kinds:
            self.it.bring(RequestOpened(request=request))

    def close(self, chance: Random) -> None:
        """A request needs no answer any more."""
        if self.it.pending():
            self.it.bring(RequestClosed(request_id=chance.choice(self.it.pending()).request_id, reason="elsewhere"))

    def output(self, _: Random) -> None:
        """An output."""
        self.it.bring(OutputCommitted(output_id=f"o{len(self.it.run.records)}", content=world.HELLO))

    def end(self, chance: Random) -> None:
        """One of the ends that are lawful here."""
        run = self.it.run
        support = chance.choice(run.records).event.event_id
        partial = RunIncomplete(reason=Interrupted(reason="cut"), partial_delivery=world.partial(run, support))
        ends: list[AgentEvent] = [world.FAILED, partial]
        if not self.it.pending():
            ends.append(DeliveryCommitted(delivery=world.delivery(run, support)))
        if run.phase is Phase.STOPPING:
            ends.append(RunCancelled(reason="another reason"))
        self.it.bring(chance.choice(ends))

    def lose(self, _: Random) -> None:
        """Continuity is lost."""
        self.it.bring(ContinuityLost(last_confirmed_seq=len(self.it.run.records), reason="gone"))

    def restore(self, _: Random) -> None:
        """Continuity is restored, whatever took it."""
        self.it.bring(world.restored(self.it.run))

    # -- what may change nothing ---------------------------------------------------------------------------------

    def admission(self, chance: Random) -> None:
        """Admission says yes to a new command exactly when its receipt would take effect, and changes nothing."""
        run, before = self.it.run, kept(self.it.run)
        given = Strays(chance, run).command()
        admitted = lawful = False
        with suppress(ProtocolError):
            admitted = admit(run, given) is None
        with suppress(ProtocolError):
            received = world.draft("receipt", CommandReceived(command=given), given.command_id)
            lawful = append(run, received, Author.HOST).outcome is Outcome.OK
        assert run == before  # [2]
        assert admitted == lawful or given.command_id in self.it.received()

    def wrong_author(self, chance: Random) -> None:
        """An event of somebody who may not say it is refused, not quarantined."""
        payload, cause = Strays(chance, self.it.run).event()
        given = world.draft(f"e{len(self.it.run.records)}", payload, cause)
        for other in set(Author) - {author_of(payload)}:
            assert self.it.offer(given, other) is None  # [23]

    def repeat(self, chance: Random) -> None:
        """A draft comes again: a duplicate of its author, a conflict of another or with another content."""
        record, author = chance.choice(list(zip(self.it.run.records, self.it.authors, strict=True)))
        given = draft_of(record.event)
        assert self.it.offer(given, author) is Outcome.DUPLICATE  # [9]
        for other in set(Author) - {author}:
            assert self.it.offer(given, other) is None  # [23]
        assert self.it.offer(given.model_copy(update={"source_fingerprint": "ab" * 32}), author) is None  # [21]

    def altered_record(self, chance: Random) -> None:
        """The newest record with any leaf changed is refused, by the run that has it and by the run before it."""
        value = dump(self.it.run.records[-1])
        wrong = altered(value, chance.choice(leaves(value)))
        for run in (self.it.before, self.it.run):
            with pytest.raises(ProtocolError):
                replay(run, parse_value(AgentJournalRecord, wrong))  # [29]

    def misplaced_record(self, chance: Random) -> None:
        """A record of another run, beyond a gap, in a taken place or with a taken id does not move the run."""
        run, last = self.it.run, len(self.it.run.records)
        fresh, first = world.draft("fresh", RunStarted()), run.records[0]
        foreign = fresh.model_copy(update={"run_id": "another"})
        for given, run_seq, authority, code in (
            (foreign, last + 1, ProviderAuthority(), "run_id_conflict"),
            (fresh, last + 2 + chance.randint(0, 9), ProviderAuthority(), "sequence_gap"),
            (fresh, chance.randint(1, last), ProviderAuthority(), "sequence_conflict"),
            (draft_of(first.event), last + 1, first.authority, "duplicate_conflict"),
        ):
            with pytest.raises(ProtocolError) as refused:
                replay(run, seal_record(given, run_seq, authority))
            assert refused.value.code == code  # [30]
        assert self.it.offer(foreign, Author.PROVIDER) is None  # [30]


TestLife = Life.TestCase
"""Lives that Hypothesis makes up, the same ones each time."""

TestLife.settings = settings(derandomize=True, database=None, deadline=None, max_examples=130, stateful_step_count=12)
