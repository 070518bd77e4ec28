"""Budgets: what is reserved fits what is left, what is reported fits what was reserved (agent-loop sheet §7, F3)."""

from orchestral_temporal.core.inputs import ModelFailed, ModelFinished
from orchestral_temporal.core.state import InvokeTool
from orchestral_temporal.protocol.activities import ModelAttempt
from orchestral_temporal.protocol.delivery import LimitReached
from orchestral_temporal.protocol.events import DeliveryCommitted, RunIncomplete
from orchestral_temporal.protocol.limits import MoneyAmount, RunLimitKind
from orchestral_temporal.protocol.model import ModelErrorCode, ModelFinishReason, ModelUsage
from orchestral_temporal.protocol.price import quote
from tests.sim.law import require
from tests.sim.seen import Seen
from tests.sim.setting import Setting

LAW = "F3, agent-loop 7"


class BudgetLaws:
    """What the run may use, held against what it has used by the count of `RoundLaws`."""

    def __init__(self, setting: Setting) -> None:
        self._limits = setting.start.envelope.spec.limits
        self._price = setting.run.price

    def sent(self, attempt: ModelAttempt, used: ModelUsage) -> None:
        """A request goes out: all that it may use is still there."""
        require(self._spent(used) is None, LAW, f"a request is sent with {used} used")
        most = ModelUsage(
            input_tokens=(used.input_tokens or 0) + attempt.trace.used_input_tokens,
            output_tokens=(used.output_tokens or 0) + attempt.max_output_tokens,
        )
        for kind, limit, count in self._standing(most):
            require(count <= limit, LAW, f"a request may use {count} of {kind}, where {limit} is the limit")

    def affords(self, attempt: ModelAttempt, used: ModelUsage) -> bool:
        """Whether the budgets let the same request go out again, for one token of an answer at least."""
        least = ModelUsage(
            input_tokens=(used.input_tokens or 0) + attempt.trace.used_input_tokens,
            output_tokens=(used.output_tokens or 0) + 1,
        )
        return self._spent(used) is None and all(count <= limit for _, limit, count in self._standing(least))

    def unfit(self, reported: ModelUsage | None, attempt: ModelAttempt) -> str | None:
        """Why a turn's usage ends the run (P10)."""
        wants_input, wants_output = self._wants()
        if reported is None and (wants_input or wants_output):
            return "model_usage_missing"
        usage = reported or ModelUsage()
        if wants_input and usage.input_tokens is None:
            return "model_input_usage_missing"
        if wants_output and usage.output_tokens is None:
            return "model_output_usage_missing"
        if wants_input and (usage.input_tokens or 0) > attempt.trace.used_input_tokens:
            return "model_input_usage_exceeded_reservation"
        over = (usage.output_tokens or 0) > attempt.max_output_tokens
        return "model_output_usage_exceeded_reservation" if over else None

    def repeats(self, given: ModelFailed) -> bool:
        """Whether the limits let a failed request go out again (§4)."""
        clean = given.error.code is ModelErrorCode.RATE_LIMITED and given.usage is None
        return clean or not self._standing(ModelUsage())

    def saw(self, seen: Seen, used: ModelUsage) -> None:
        """A step is done: nothing is begun on a spent budget, and what is reported is what was used."""
        if isinstance(seen.given, ModelFinished) and any(isinstance(each, InvokeTool) for each in seen.step.effects):
            require(self._spent(used) is None, "F3", "a tool works for an answer that no budget can pay for")
        end = seen.terminal
        report = None
        if isinstance(end, DeliveryCommitted):
            report = end.delivery.usage
        elif isinstance(end, RunIncomplete):
            self._limited(seen, end, used)
            report = end.partial_delivery.usage if end.partial_delivery is not None else None
        if report is not None:
            told = (report.input_tokens, report.output_tokens)
            require(told == (used.input_tokens, used.output_tokens), LAW, f"{told} is reported, {used} was used")
            require(report.cost == self._cost(used), LAW, f"a report says {report.cost}, it is {self._cost(used)}")

    def _limited(self, seen: Seen, end: RunIncomplete, used: ModelUsage) -> None:
        kind = end.reason.limit if isinstance(end.reason, LimitReached) else None
        turn = seen.given.result.observation if isinstance(seen.given, ModelFinished) else None
        if kind is RunLimitKind.OUTPUT_TOKENS and turn is not None and turn.finish_reason is ModelFinishReason.LENGTH:
            return
        if kind in (RunLimitKind.INPUT_TOKENS, RunLimitKind.OUTPUT_TOKENS, RunLimitKind.COST):
            bound = [each for each, _, _ in self._standing(used)]
            require(kind in bound, "F6", f"the run is ended by its limit of {kind}, and has none")
        if kind is RunLimitKind.OUTPUT_TOKENS:
            require(self._spent(used) is kind, LAW, f"the output limit ends a run that has used {used}")

    def _standing(self, used: ModelUsage) -> list[tuple[RunLimitKind, int, int]]:
        limits, cost = self._limits, self._cost(used)
        money = limits.max_cost.microunits if limits.max_cost is not None else None
        every = (
            (RunLimitKind.INPUT_TOKENS, limits.max_input_tokens, used.input_tokens),
            (RunLimitKind.OUTPUT_TOKENS, limits.max_output_tokens, used.output_tokens),
            (RunLimitKind.COST, money, cost.microunits if cost is not None else None),
        )
        return [(kind, limit, count or 0) for kind, limit, count in every if limit is not None]

    def _spent(self, used: ModelUsage) -> RunLimitKind | None:
        return next((kind for kind, limit, count in self._standing(used) if count >= limit), None)

    def _cost(self, used: ModelUsage) -> MoneyAmount | None:
        if self._price is None or used == ModelUsage():
            return None
        return quote(self._price, used.input_tokens or 0, used.output_tokens or 0)

    def _wants(self) -> tuple[bool, bool]:
        limits, price = self._limits, self._price
        paid = price if limits.max_cost is not None else None
        return (
            limits.max_input_tokens is not None or (paid is not None and paid.input_microunits_per_million_tokens > 0),
            limits.max_output_tokens is not None
            or (paid is not None and paid.output_microunits_per_million_tokens > 0),
        )
