"""Words for tests of the state machine: runs before their first event, and what may happen to them."""

from random import Random
from typing import Final, TypeVar

from orchestral_temporal.core.reducer import Run, begin
from orchestral_temporal.protocol.admission import AgentAdmission, check_compatibility
from orchestral_temporal.protocol.commands import (
    AgentCommand,
    AgentCommandEnvelope,
    Cancel,
    CommandAccepted,
    CommandRejected,
    CommandUnsupported,
    ProviderCommandDisposition,
    ProviderCommandOutcome,
    Steer,
    seal_command,
)
from orchestral_temporal.protocol.content import Content, text_content
from orchestral_temporal.protocol.delivery import (
    AgentDelivery,
    AgentFailure,
    PartialDelivery,
    Provenance,
)
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode
from orchestral_temporal.protocol.events import (
    AgentEvent,
    AgentEventDraft,
    ContinuityRestored,
    ReconciliationProof,
    RunAccepted,
    RunFailed,
    disposition_draft,
    evidence_digest,
)
from orchestral_temporal.protocol.requests import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovalResolution,
    ExternalActionRequest,
    ExternalResult,
    InputRequest,
    InputResolution,
    PendingRequest,
    RequestResolution,
    resolution_kind,
)
from orchestral_temporal.protocol.run import (
    AgentDescriptorEnvelope,
    AgentStartRequest,
    BindingRequirement,
    PendingRequestKind,
    ResourceBinding,
    ResourceBindingMode,
    ResourceRef,
    seal,
    seal_descriptor,
)
from orchestral_temporal.protocol.state import ContinuityUnknown
from orchestral_temporal.protocol.words import parse_value
from tests.golden import rows

D = TypeVar("D", AgentDelivery, PartialDelivery)

_GIVEN = next(row["start"] for row in rows("reducer") if row["name"] == "text run delivered")
_REQUEST: Final = parse_value(AgentStartRequest, _GIVEN["request"])
_DESCRIPTOR: Final = parse_value(AgentDescriptorEnvelope, _GIVEN["descriptor"])

HELLO: Final = (text_content("hello"),)
SCHEMA: Final = "schema-out"
FAILED: Final = RunFailed(failure=AgentFailure(code="x", message="y", retryable=False))


def _notes(binding_id: str) -> ResourceBinding:
    return ResourceBinding(
        binding_id=binding_id,
        resource=ResourceRef(kind="notes/v2", id=binding_id, revision="1"),
        requirement=BindingRequirement.OPTIONAL,
        mode=ResourceBindingMode.SNAPSHOT,
    )


def _bound() -> Run:
    """A run with all that a start can bind it to: two skips to report, a schema, one kind of request missing."""
    capabilities = _DESCRIPTOR.descriptor.capabilities.model_copy(
        update={"pending_request_kinds": (PendingRequestKind.INPUT, PendingRequestKind.APPROVAL)}
    )
    descriptor = seal_descriptor(_DESCRIPTOR.descriptor.model_copy(update={"capabilities": capabilities}))
    spec = _REQUEST.run.spec.model_copy(update={"resources": (_notes("a"), _notes("b")), "output_schema": SCHEMA})
    request = AgentStartRequest(
        run=seal(spec),
        provider_binding=_REQUEST.provider_binding,
        expected_descriptor_digest=descriptor.descriptor_digest,
    )
    skips = check_compatibility(descriptor.descriptor, request.run).skipped_optional_bindings
    return begin(request, descriptor, AgentAdmission(skipped_optional_bindings=skips))


FREE: Final = begin(_REQUEST, _DESCRIPTOR, AgentAdmission())
"""A run before its first event: no skip, no schema, every kind of request."""

BOUND: Final = _bound()
"""A run before its first event, with two skips, a schema, and no external actions."""

RUN_ID: Final = FREE.execution.run_id


def accepted(run: Run) -> RunAccepted:
    """The first event of a run."""
    return RunAccepted(session_id=run.execution.session_id, spec_digest=run.execution.spec_digest)


def draft(event_id: str, payload: AgentEvent, cause: str | None = None) -> AgentEventDraft:
    """A draft for either run."""
    return AgentEventDraft(event_id=event_id, run_id=RUN_ID, causation_id=cause, payload=payload)


def command(payload: AgentCommand, command_id: str = "c", request_id: str | None = None) -> AgentCommandEnvelope:
    """A sealed command for either run."""
    return seal_command(command_id, RUN_ID, payload, request_id=request_id)


def decided(command_id: str, outcome: ProviderCommandOutcome | None = None) -> AgentEventDraft:
    """The draft of a disposition; it accepts unless an outcome is given."""
    disposition = ProviderCommandDisposition(
        command_id=command_id, run_id=RUN_ID, outcome=outcome or CommandAccepted(), duplicate=False
    )
    return disposition_draft(disposition)


def restored(run: Run, ref: str = "proof", **changes: object) -> ContinuityRestored:
    """A restoration with a proof for the present loss, or for none; `changes` are made before it is sealed."""
    lost = run.continuity
    known = isinstance(lost, ContinuityUnknown)
    unsealed = ReconciliationProof(
        proof_ref=ref,
        last_confirmed_seq=lost.last_confirmed_seq if known else 0,
        loss_event_digest=lost.loss_event_digest if known else "ab" * 32,
        authoritative_snapshot_digest="cd" * 32,
        evidence_digest="",
    ).model_copy(update=changes)
    proof = unsealed.model_copy(update={"evidence_digest": evidence_digest(unsealed)})
    return ContinuityRestored(proof=proof, reason="found")


def _provenance(run: Run, support: tuple[str, ...]) -> Provenance:
    return Provenance(
        provider_id=run.execution.provider_id, agent_id=run.execution.agent_id, supporting_event_ids=support
    )


def response(run: Run) -> Content:
    """An answer in the schema that the run asked for."""
    return HELLO[0].model_copy(update={"schema_id": run.output_schema})


def delivery(run: Run, *support: str) -> AgentDelivery:
    """A delivery of the run."""
    return AgentDelivery(
        delivery_id="d",
        run_id=RUN_ID,
        spec_digest=run.execution.spec_digest,
        final_response=response(run),
        provenance=_provenance(run, support),
    )


def partial(run: Run, *support: str) -> PartialDelivery:
    """A partial delivery of the run."""
    return PartialDelivery(
        partial_delivery_id="d",
        run_id=RUN_ID,
        spec_digest=run.execution.spec_digest,
        response=response(run),
        provenance=_provenance(run, support),
    )


QUESTIONS: Final = (
    InputRequest(prompt=HELLO),
    ApprovalRequest(operation_digest="ab" * 32, requested_scope=("x",), reason="may I"),
    ExternalActionRequest(name="act", arguments={}),
)
"""One of each kind of request."""


def request(chance: Random, request_id: str) -> PendingRequest:
    """A request of any kind."""
    return PendingRequest(request_id=request_id, blocking=chance.random() < 0.5, payload=chance.choice(QUESTIONS))


def answer(chance: Random, kind: PendingRequestKind | None = None) -> RequestResolution:
    """An answer of a kind, or of any."""
    text = (text_content(chance.choice(["hello", "bye"])),)
    allowed = ApprovalResolution(decision=ApprovalDecision.ALLOW, grant_ref="grant")
    denied = ApprovalResolution(decision=ApprovalDecision.DENY)
    answers = [InputResolution(content=text), ExternalResult(result=text), chance.choice([allowed, denied])]
    return chance.choice([each for each in answers if kind in (None, resolution_kind(each))])


def order(chance: Random) -> Steer | Cancel:
    """What may be asked of a run at any time."""
    steer = Steer(content=(text_content(chance.choice(["hello", "bye"])),))
    return chance.choice([steer, Cancel(reason=chance.choice(["stop", "halt"]))])


def outcome(chance: Random) -> ProviderCommandOutcome:
    """A disposition; as a rule it accepts."""
    rejected = CommandRejected(code=AgentProtocolErrorCode.INVALID_TRANSITION, message="no")
    return chance.choice([*(CommandAccepted(),) * 6, rejected, CommandUnsupported(feature="it")])
