"""Model attempts: one at a time, repeated by the rules, paid for, made of what history holds (`spec/agent-loop.md`)."""

from typing import Final

from orchestral_temporal.core.assembly import failure_code
from orchestral_temporal.core.inputs import (
    CommandsRead,
    ModelFailed,
    ModelFinished,
    ModelLost,
    TimeReached,
    ToolObserved,
)
from orchestral_temporal.core.items import context_digest, measure, system_item, user_item
from orchestral_temporal.core.limits import ATTEMPTS_PER_ROUND
from orchestral_temporal.core.state import CallModel, CancelModelCall, WakeAfter
from orchestral_temporal.protocol.activities import ModelAttempt, ModelPart
from orchestral_temporal.protocol.events import RunFailed, RunIncomplete
from orchestral_temporal.protocol.limits import RunLimitKind
from orchestral_temporal.protocol.model import ModelErrorCode, ModelUsage
from orchestral_temporal.protocol.wal import ModelContextRejected, ModelRetryScheduled
from tests.sim.law import require
from tests.sim.laws_of_budgets import BudgetLaws
from tests.sim.seen import Seen
from tests.sim.setting import Setting

TRANSIENT: Final = (ModelErrorCode.RATE_LIMITED, ModelErrorCode.UNAVAILABLE)


class RoundLaws:
    """The attempt that is open, what its round has seen, and what the run has used."""

    def __init__(self, setting: Setting) -> None:
        self.open: CallModel | None = None
        self.usage = ModelUsage()
        self._latest: CallModel | None = None
        self._setting = setting
        self._budgets = BudgetLaws(setting)
        self._retries = 0
        self._losses = 0
        self._due: tuple[str, int] | None = None
        self._contexts: dict[str, tuple[str, ...]] = {}
        limits = setting.start.envelope.spec.limits
        ceilings = [limits.max_model_steps, setting.run.max_model_steps]
        self._ceiling = min((each for each in ceilings if each is not None), default=None)
        first = [system_item(setting.run), user_item(setting.start.envelope.spec.input)]
        self._held = {measure(item).digest for item in first if item is not None}

    @property
    def _part(self) -> ModelPart:
        parts = [self._setting.binding.model, *(part.model for part in self._setting.parts)]
        return next(part for part in parts if part is not None)

    def saw(self, seen: Seen) -> None:
        """Judge one step."""
        match seen.given:
            case ModelFinished() | ModelFailed() | ModelLost():
                self._ended(seen, seen.given)
            case ToolObserved(observation=observation) if observation.item is not None:
                self._held.add(observation.item.digest)
            case _:
                pass
        sent = [effect for effect in seen.step.effects if isinstance(effect, CallModel)]
        require(len(sent) <= 1, "wal-recovery 4", "two model attempts are started at once")
        if any(isinstance(effect, CancelModelCall) for effect in seen.step.effects):
            if isinstance(seen.given, CommandsRead) and self.open is not None:
                self._charge_whole(self.open.attempt)
            self.open = None
        for effect in sent:
            self._sent(seen, effect)
        usage = seen.step.state.usage
        require(usage == self.usage, "divergence 8, F118", f"the run counts {usage}, {self.usage} was used")
        if isinstance(seen.terminal, RunIncomplete):
            self._limited(seen.terminal)
        self._budgets.saw(seen, usage)

    # -- the end of an attempt -------------------------------------------------------------------------------------

    def _ended(self, seen: Seen, given: ModelFinished | ModelFailed | ModelLost) -> None:
        attempt = self.open.attempt if self.open is not None else None
        if attempt is None or (attempt.round, attempt.attempt) != (given.round, given.attempt):
            require(not seen.changed, "wal-recovery 4", "an answer for an attempt that is not open has an effect")
            return
        self.open = None
        match given:
            case ModelFinished(result=result):
                if result.item is not None:
                    self._held.add(result.item.digest)
                usage = result.observation.usage or ModelUsage()
                self._charge(usage)
                code = self._budgets.unfit(result.observation.usage, attempt)
                if code is not None:
                    self._fails(seen, code)
            case ModelFailed():
                self._failed(seen, given)
            case ModelLost():
                self._losses += 1
                self._charge_whole(attempt)
                self._lost(seen, given)

    def _failed(self, seen: Seen, given: ModelFailed) -> None:
        delay = self._delay(given)
        scheduled = [each.payload for each in seen.step.wal if isinstance(each.payload, ModelRetryScheduled)]
        rejected = [each.payload for each in seen.step.wal if isinstance(each.payload, ModelContextRejected)]
        if given.usage is not None:
            self._charge(given.usage)
        if delay is not None:
            self._retries += 1
            found = [(each.retry_number, each.delay_ms) for each in scheduled]
            require(found == [(self._retries, delay)], "agent-loop 4", f"retry {self._retries} after {delay}: {found}")
            woken = [effect for effect in seen.step.effects if isinstance(effect, WakeAfter)]
            require([each.ms for each in woken] == [delay], "divergence 7", f"another timer than one of {delay} ms")
            self._due = (woken[0].timer, seen.now + delay)
            return
        require(not scheduled, "agent-loop 4, F068", f"{given.code} is repeated")
        if rejected:
            shorter = given.error.code is ModelErrorCode.CONTEXT_LENGTH_EXCEEDED and given.usage is None
            named = given.code == failure_code(given.error.code)
            require(shorter and named and not given.generated, "F067", f"{given.code} is taken for a lack of room")
            allowed = self._part.context_recovery.max_retries
            require(rejected[0].retry_number <= allowed, "G7", "a context is rejected too often")
        else:
            self._fails(seen, given.code)

    def _delay(self, given: ModelFailed) -> int | None:
        """How long to wait before this failure is tried again; null if it is final (§4, divergence 7)."""
        part, error = self._part, given.error
        if given.generated or error.code not in TRANSIENT or not error.retryable:
            return None
        if given.code != failure_code(error.code) or self._retries >= part.retry.max_retries:
            return None
        if not self._budgets.repeats(given):
            return None
        wanted = error.details.get("retry_after_ms") if isinstance(error.details, dict) else None
        if isinstance(wanted, int):
            return min(wanted, part.retry_after_cap_ms)
        return min(part.retry.base_delay_ms * 2**self._retries, part.retry.max_delay_ms)

    def _lost(self, seen: Seen, given: ModelLost) -> None:
        again = given.abandoned or self._part.redispatchable
        sent = any(isinstance(effect, CallModel) for effect in seen.step.effects)
        if again and self._latest is not None and self._latest.attempt.attempt < ATTEMPTS_PER_ROUND:
            paid = self._budgets.affords(self._latest.attempt, self.usage)
            require(sent is paid, "I2, decision 18", "a lost attempt is sent again if its run can pay for it, or not")
            return
        end = seen.terminal
        interrupted = isinstance(end, RunIncomplete) and end.reason.type == "interrupted"
        require(interrupted and not sent, "I2", "an attempt that must not be sent again does not end the run")
        require(isinstance(end, RunIncomplete) and end.partial_delivery is None, "I2", "interrupted, with a partial")

    def _fails(self, seen: Seen, code: str) -> None:
        found = seen.terminal.failure.code if isinstance(seen.terminal, RunFailed) else None
        require(found == code, "agent-loop 14", f"the run should fail {code}, it has {found}")

    def _charge_whole(self, attempt: ModelAttempt) -> None:
        """Nobody knows what a lost or steered attempt has used: all of its reservation, then (divergence 8)."""
        self._charge(ModelUsage(input_tokens=attempt.trace.used_input_tokens, output_tokens=attempt.max_output_tokens))

    def _charge(self, more: ModelUsage) -> None:
        total = self.usage
        self.usage = ModelUsage(
            input_tokens=_plus(total.input_tokens, more.input_tokens),
            output_tokens=_plus(total.output_tokens, more.output_tokens),
        )

    # -- the beginning of one --------------------------------------------------------------------------------------

    def _sent(self, seen: Seen, effect: CallModel) -> None:
        attempt, former = effect.attempt, self._latest
        require(self.open is None, "wal-recovery 4", "a second model attempt is open")
        if former is not None and former.attempt.round == attempt.round:
            require(attempt.attempt == former.attempt.attempt + 1, "divergence 29", "an attempt number is skipped")
            require(self._losses < ATTEMPTS_PER_ROUND, "decision 18", "a round loses attempts without end")
            if not isinstance(seen.given, ModelLost):
                self._woken(seen)
            else:
                self._retries = 0
        else:
            expected = 1 if former is None else former.attempt.round + 1
            require((attempt.round, attempt.attempt) == (expected, 1), "agent-loop 5", "a round is skipped")
            self._retries = self._losses = 0
        require(self._ceiling is None or attempt.round <= self._ceiling, "F4", f"round {attempt.round} is one too many")
        require(not isinstance(seen.given, ModelFinished) or attempt.attempt == 1, "B1", "an answer is asked for twice")
        self._budgets.sent(attempt, self.usage)
        self._context(effect)
        self.open = self._latest = effect
        self._due = None

    def _woken(self, seen: Seen) -> None:
        require(self._due is not None and isinstance(seen.given, TimeReached), "agent-loop 4", "repeated with no pause")
        assert self._due is not None
        timer, due = self._due
        on_time = isinstance(seen.given, TimeReached) and seen.given.timer == timer and seen.now >= due
        require(on_time, "agent-loop 4", f"repeated at {seen.now}, it was due at {due}")

    def _context(self, effect: CallModel) -> None:
        """A worker that has nothing but the history can build the request (decisions 6 and 7)."""
        attempt, trace = effect.attempt, effect.attempt.trace
        base = () if attempt.base is None else self._contexts.get(attempt.base)
        require(base is not None, "decision 6", "an attempt extends a context that no attempt had")
        items = (*(base or ()), *attempt.add)
        named = context_digest(attempt.config_digest, items, attempt.tools, attempt.max_output_tokens)
        require(named == attempt.context, "decision 6", "the name of a context is not that of its items")
        self._contexts[attempt.context] = items
        self._held.update(measure(item).digest for item in attempt.tail)
        lacking = [each for each in attempt.add if each not in self._held]
        require(not lacking, "decision 7", f"no history holds the text of {lacking}")
        estimate = trace.context_estimate
        planned = estimate.tokens if estimate is not None else trace.used_input_tokens
        require(planned <= trace.input_budget_tokens, "G1", "a request over its budget is sent")

    def _limited(self, end: RunIncomplete) -> None:
        steps = end.reason.type == "limit_reached" and end.reason.limit is RunLimitKind.MODEL_STEPS
        if steps and self._latest is not None:
            used = self._latest.attempt.round
            require(used == self._ceiling, "F4", f"the step limit ends a run after {used} rounds")


def _plus(left: int | None, right: int | None) -> int | None:
    return right if left is None else left + (right or 0)
