"""Ids: what each names, when one is empty, and the form of every id that is derived (`spec/agent-loop.md` §16).

Ids are derived, never drawn, so that a replay makes the same ones. `call_id` is the model's id of a call unless said
otherwise; rounds, indices and attempts count from 1.
"""

import re
from typing import Annotated, Final

AgentSessionId = Annotated[str, "one conversation"]
RunId = Annotated[str, "one logical run, the id of its workflow"]
AgentEventId = Annotated[str, "one event of a run"]
CommandId = Annotated[str, "one command, its idempotency key"]
RequestId = Annotated[str, "one pending request"]
DeliveryId = Annotated[str, "one final delivery"]
PartialDeliveryId = Annotated[str, "one partial delivery"]
OutputId = Annotated[str, "one committed output"]
AgentProviderId = Annotated[str, "who provides agents"]
AgentId = Annotated[str, "one agent of a provider"]
ProviderBindingRef = Annotated[str, "one binding of a provider at its host"]
ResourceBindingId = Annotated[str, "one resource binding of a run"]
ResourceId = Annotated[str, "one resource"]
ResourceRevision = Annotated[str, "one revision of a resource, never changed"]
ResourceKind = Annotated[str, "a kind of resource, namespaced"]
SchemaRef = Annotated[str, "one schema"]
ArtifactRef = Annotated[str, "one artifact in its store"]
ApprovalGrantRef = Annotated[str, "one grant of an approver"]
ReconciliationProofRef = Annotated[str, "one proof of a recovery"]
TelemetryId = Annotated[str, "one telemetry item"]
ToolActivityId = Annotated[str, "one tool activity over its states"]
Digest = Annotated[str, "a SHA-256 in hex"]

_WHITE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space. Python's own notion also has U+001C to U+001F, which the wire does not take for blank."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


def trimmed(text: str) -> str:
    """The text without white space at its ends (`spec/wire.md` §2.3)."""
    return text.strip(_WHITE)


def is_blank(text: str) -> bool:
    """Whether nothing is left of a text once it is trimmed."""
    return not trimmed(text)


def has_control(text: str) -> bool:
    """Whether a text holds a control character (Unicode Cc)."""
    return _CONTROL.search(text) is not None


def is_namespaced(key: str) -> bool:
    """Whether a key is `namespace/name`, cut at the first slash, both not empty."""
    namespace, _, name = key.partition("/")
    return bool(namespace and name)


def host_run_accepted_id(run_id: str) -> str:
    """The event with which a run begins."""
    return f"host-run-accepted-{run_id}"


def host_resource_skip_id(run_id: str, binding_id: str) -> str:
    """The event that an optional binding is skipped."""
    return f"host-resource-skip-{run_id}-{binding_id}"


def host_command_received_id(run_id: str, command_id: str) -> str:
    """The event that a command has arrived."""
    return f"host-command-received-{run_id}-{command_id}"


def host_continuity_lost_id(run_id: str, run_seq: int) -> str:
    """The event that continuity is lost; `run_seq` is its own, the last one + 1."""
    return f"host-continuity-lost-{run_id}-{run_seq}"


def host_continuity_restored_id(run_id: str, last_confirmed_seq: int) -> str:
    """The event that continuity is restored."""
    return f"host-continuity-restored-{run_id}-{last_confirmed_seq}"


def recovery_proof_ref(run_id: str, last_confirmed_seq: int) -> str:
    """The proof behind a restored continuity."""
    return f"host-recovery/{run_id}/{last_confirmed_seq}"


def disposition_id(run_id: str, command_id: str) -> str:
    """The event that a command has its disposition; a rule of the protocol."""
    return f"provider-command-disposition-{run_id}-{command_id}"


def generic_event_id(run_id: str, fact: str) -> str:
    """An event that happens once: started, output, delivered, incomplete, deadline, failed, stop, cancelled."""
    return f"generic-{run_id}-{fact}"


def steer_committed_id(run_id: str, command_id: str) -> str:
    """The event that a steer has become input."""
    return f"generic-{run_id}-steer-{command_id}-committed"


def request_event_id(run_id: str, kind: str, round_: int, call_id: str, fact: str) -> str:
    """An event of a request: kind input or approval, fact opened or resolved."""
    return f"generic-{run_id}-{kind}-{round_}-{call_id}-{fact}"


def workflow_event_id(run_id: str, round_: int, call_id: str) -> str:
    """The event that a plan's output is committed; also the id of that output."""
    return f"generic-{run_id}-workflow-{round_}-{call_id}"


def attempt_interrupted_id(run_id: str, round_: int, attempt: int) -> str:
    """The event that a model attempt was interrupted; from the second attempt on it ends in `-a<k>` (divergence 29)."""
    return f"generic-{run_id}-model-attempt-interrupted-{round_}{_again(attempt)}"


def request_id(run_id: str, kind: str, round_: int, call_id: str) -> str:
    """A pending request: kind input or approval."""
    return f"{kind}:{run_id}:{round_}:{call_id}"


def grant_ref(request: str, nonce: str) -> str:
    """The grant that answers an approval request, by the nonce of its capability (`spec/tools.md` §8.4)."""
    return f"approval:{request}:{nonce}"


def model_request_id(run_id: str, round_: int) -> str:
    """The request of one round, the same for every attempt."""
    return f"model-{run_id}-{round_}"


def invocation_id(run_id: str, round_: int, index: int, attempt: int = 1) -> str:
    """One call by its place in the turn, its idempotency key; a later attempt adds `/a<k>` (divergence 6)."""
    return f"{run_id}/m{round_}/c{index}" + (f"/a{attempt}" if attempt > 1 else "")


def plan_id(run_id: str, call_id: str) -> str:
    """One plan of a run."""
    return f"workflow:{run_id}:{call_id}"


def delivery_id(run_id: str) -> str:
    """A run's final delivery."""
    return f"generic-{run_id}-delivery"


def partial_delivery_id(run_id: str) -> str:
    """A run's partial delivery."""
    return f"generic-{run_id}-partial"


def response_output_id(run_id: str) -> str:
    """The output that holds a run's answer."""
    return f"generic-{run_id}-response"


def wal_boundary_id(run_id: str, round_: int) -> str:
    """The WAL record that a round may begin."""
    return f"generic-{run_id}-boundary-{round_}"


def wal_attempt_id(run_id: str, round_: int, attempt: int = 1) -> str:
    """The WAL record that a model attempt begins; from the second on it ends in `-a<k>` (divergence 29)."""
    return f"generic-{run_id}-model-attempt-{round_}{_again(attempt)}"


def wal_observed_id(run_id: str, round_: int) -> str:
    """The WAL record of a finished turn."""
    return f"generic-{run_id}-model-observed-{round_}"


def wal_retry_id(run_id: str, round_: int, retry: int, attempt: int = 1) -> str:
    """The WAL record that an attempt will be repeated: the one on record, from the second on by `-a<k>` as there."""
    return f"generic-{run_id}-model-retry-{round_}-{retry}{_again(attempt)}"


def wal_context_rejected_id(run_id: str, round_: int) -> str:
    """The WAL record that a backend found the context too long."""
    return f"generic-{run_id}-context-rejected-{round_}"


def wal_workflow_started_id(run_id: str, round_: int, call_id: str) -> str:
    """The WAL record that a plan may begin."""
    return f"generic-{run_id}-workflow-started-{round_}-{call_id}"


def wal_command_id(run_id: str, command_id: str) -> str:
    """The WAL record of a command and its outcome."""
    return f"generic-{run_id}-command-{command_id}"


def wal_provider_id(run_id: str, first_event_id: str, last_event_id: str) -> str:
    """The WAL record of provider events, by its first and last one."""
    return f"generic-{run_id}-provider-{first_event_id}-{last_event_id}"


def session_input_id(run_id: str) -> str:
    """The session record of a run's first input."""
    return f"generic-{run_id}-input"


def session_steer_id(run_id: str, command_id: str) -> str:
    """The session record of a steer."""
    return f"generic-{run_id}-steer-{command_id}"


def session_exchange_id(run_id: str, round_: int) -> str:
    """The session record of a turn's calls and results."""
    return f"generic-{run_id}-tool-exchange-{round_}"


def session_output_id(run_id: str, round_: int) -> str:
    """The session record of an answer."""
    return f"generic-{run_id}-output-{round_}"


def session_skill_id(run_id: str, round_: int, call_id: str) -> str:
    """The session record of a loaded skill."""
    return f"generic-{run_id}-skill-{round_}-{call_id}"


def session_uncertainty_id(run_id: str, round_: int, call_id: str) -> str:
    """The session record that nobody knows whether an effect happened."""
    return f"generic-{run_id}-effect-uncertainty-{round_}-{call_id}"


def session_compaction_id(session_id: str, first_seq: int, last_seq: int) -> str:
    """The session record that a range of other runs' records is compacted."""
    return f"compaction-{session_id}-{first_seq}-{last_seq}"


def active_compaction_id(session_id: str, run_id: str, first_seq: int, last_seq: int) -> str:
    """The session record that a range of the run's own records is compacted."""
    return f"active-run-compaction-{session_id}-{run_id}-{first_seq}-{last_seq}"


def _again(attempt: int) -> str:
    return f"-a{attempt}" if attempt > 1 else ""
