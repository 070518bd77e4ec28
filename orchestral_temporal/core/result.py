"""The result object: one for all who look at a finished run (`design/surface.md`)."""

from orchestral_temporal.core import ending
from orchestral_temporal.core.limits import ACKS_BYTES, RESULT_BYTES, RESULT_JOURNAL_BYTES
from orchestral_temporal.core.reducer import ack, status, view
from orchestral_temporal.core.state import RunState
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.delivery import AgentDelivery, PartialDelivery
from orchestral_temporal.protocol.digest import canonical, digest
from orchestral_temporal.protocol.errors import AgentRejection
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.state import StateTerminal, TerminalCancelled, TerminalFailed, TerminalIncomplete
from orchestral_temporal.protocol.words import dump


def journal_head(records: tuple[AgentJournalRecord, ...]) -> str | None:
    """The digest chain over a run journal: each link covers the link before and an event's digest (divergence 21)."""
    head: str | None = None
    for record in records:
        head = digest({"event_digest": record.event.event_digest, "previous": head})
    return head


def result(state: RunState) -> JsonObject:
    """What a run leaves behind; the journal and then the view are left out where they would not fit one payload."""
    seen = view(state.run)
    records = state.run.records
    terminal = seen.state.terminal if isinstance(seen.state, StateTerminal) else None
    usage = ending.usage_report(state)
    value: JsonObject = {
        "run_id": state.start.run_id,
        "session_id": state.start.session_id,
        "status": status(state.run),
        "text": _text(seen.delivery or seen.partial_delivery),
        "delivery": dump(seen.delivery) if seen.delivery else None,
        "partial_delivery": dump(seen.partial_delivery) if seen.partial_delivery else None,
        "failure": dump(terminal.failure) if isinstance(terminal, TerminalFailed) else None,
        "reason": _reason(terminal),
        "usage": dump(usage) if usage else None,
        "view": dump(seen),
        "head_digest": journal_head(records),
        "acks": _acks(state),
        "journal": [dump(each) for each in records],
    }
    if len(canonical(value["journal"])) > RESULT_JOURNAL_BYTES:
        value["journal"] = None
    if len(canonical(value)) > RESULT_BYTES:
        value["view"] = None
    return value


def _acks(state: RunState) -> list[Json]:
    """The newest acknowledgements that fit, in the order in which their commands came."""
    kept: list[Json] = []
    size = 0
    for command_id in reversed(state.run.commands):
        value = dump(ack(state.run, command_id))
        size += len(canonical(value))
        if size > ACKS_BYTES:
            break
        kept.append(value)
    return kept[::-1]


def refused_result(rejection: AgentRejection, run_id: str) -> JsonObject:
    """The result object of a start that created nothing."""
    empty: JsonObject = dict.fromkeys(
        ("session_id", "text", "delivery", "partial_delivery", "reason", "usage", "view", "head_digest", "journal")
    )
    return {**empty, "run_id": run_id, "status": "failed", "failure": dump(rejection), "acks": []}


def _reason(terminal: object) -> Json:
    if isinstance(terminal, TerminalIncomplete):
        return dump(terminal.reason)
    return terminal.reason if isinstance(terminal, TerminalCancelled) else None


def _text(delivery: AgentDelivery | PartialDelivery | None) -> str | None:
    if delivery is None:
        return None
    response = delivery.final_response if isinstance(delivery, AgentDelivery) else delivery.response
    value = response.body.value if response is not None else None
    return value if isinstance(value, str) else None
