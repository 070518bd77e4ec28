"""What must be shown again before a lost continuity counts as restored (`spec/wire.md` §14, `spec/reducer.md` §6)."""

from collections.abc import Collection, Sequence
from enum import StrEnum

from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, require
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentEventDraft,
    CommandDispositionRecorded,
    RequestClosed,
    RequestOpened,
    RequestResolved,
    StopRequested,
)
from orchestral_temporal.protocol.ids import RequestId, RunId
from orchestral_temporal.protocol.validation import require_unique, validate_each


class ReplayEvidence(StrEnum):
    """Who must still know an event after a loss: the provider, or the host's journal alone."""

    PROVIDER_EVIDENCE_REQUIRED = "provider_evidence_required"
    HOST_JOURNAL_SUFFICIENT = "host_journal_sufficient"


def replay_evidence(event: AgentEvent, pending: Collection[RequestId]) -> ReplayEvidence:
    """Who must still know an event; of a request that is `pending` no longer, the journal is enough."""
    over = isinstance(event, RequestOpened) and event.request.request_id not in pending
    settled = isinstance(event, CommandDispositionRecorded | StopRequested | RequestResolved | RequestClosed)
    return ReplayEvidence.HOST_JOURNAL_SUFFICIENT if over or settled else ReplayEvidence.PROVIDER_EVIDENCE_REQUIRED


def check_committed_prefix(run_id: RunId, prefix: Sequence[AgentEventDraft]) -> None:
    """Check the committed events of a provider that a recovery holds up to it.

    Raises:
        ProtocolError: an event is malformed, of another run, or there twice (invalid_spec).
    """
    validate_each(prefix)
    require(
        all(draft.run_id == run_id for draft in prefix),
        AgentProtocolErrorCode.INVALID_SPEC,
        "`committed_provider_prefix` holds an event of another run.",
    )
    require_unique("committed_provider_prefix", (draft.event_id for draft in prefix))
