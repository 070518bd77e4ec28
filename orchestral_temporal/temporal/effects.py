"""What became of the tool calls of a run, and how an operator settles an unknown effect (divergence 30)."""

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NoReturn

from temporalio.api.enums.v1 import EventType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHistory,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.core.effect_notes import CallEffect, at_work, calls_of
from orchestral_temporal.core.start import StartRefused
from orchestral_temporal.core.table import EffectPhase
from orchestral_temporal.protocol.activities import EffectSettled, EffectSettlement, Heartbeat, ToolRequest
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError, refuse
from orchestral_temporal.protocol.words import parse, parse_value
from orchestral_temporal.temporal import names, visibility
from orchestral_temporal.temporal.client_errors import raise_if_cancelled, refused
from orchestral_temporal.temporal.history import HistoryUnread, Undecodable, plain, replay, start_of
from orchestral_temporal.temporal.turn import ContinuityUnknown

RPC_TIMEOUT: Final = timedelta(seconds=10)

NO_BATCH: Final = 2**53
"""A sequence number after which no session has records: then `read` answers without any."""


async def read_effects(client: Client, run_id: str) -> Sequence[CallEffect]:
    """What became of every call of a run, with the settlements of its unknown effects; as `RunHandle.effects`."""
    session_id, calls = await _look(client, await _see(client, run_id))
    if all(call.state is not EffectPhase.UNKNOWN_EFFECT for call in calls):
        return calls
    known = await _settlements(client, session_id)
    if isinstance(known, str):
        return [
            call.model_copy(update={"settlement_unknown": known}) if call.state is EffectPhase.UNKNOWN_EFFECT else call
            for call in calls
        ]
    return [call.model_copy(update={"settlement": known.get(call.call)}) for call in calls]


async def settle_effect(
    client: Client,
    run_id: str,
    call: str,
    *,
    happened: str | None,
    did_not: bool,
    by: str | None,
    session_id: str | None,
) -> EffectSettled:
    """Settle an unknown effect; as `RunHandle.settle`."""
    if (happened is None) is not did_not:
        _invalid("Say either what happened or that it did not; exactly one of the two.")
    named = f"{run_id}/{call.removeprefix(f'{run_id}/')}"
    said: JsonObject = {"call": named, "happened": happened, "by": by if by is not None else _os_user()}
    wanted = parse_value(EffectSettlement, said)
    known = await _admitted(client, run_id, named)
    session = session_id or known or run_id
    try:
        return await _settle(client, session, wanted)
    except ProtocolError as fault:
        if (
            known is not None
            or session_id is not None
            or fault.error.code is not AgentProtocolErrorCode.INVALID_TRANSITION
        ):
            raise
        message = (
            f"The run {run_id!r} cannot be read any more, and no session of its name knows of its unknown effect; "
            "name the session that it belonged to, with --session or `session_id`."
        )
        refuse(AgentProtocolErrorCode.RUN_NOT_FOUND, message)


async def _admitted(client: Client, run_id: str, call: str) -> str | None:
    """The run's session, if the run does not know better than that the call's effect is unknown.

    None where that cannot be seen, as of a run that retention has taken. The session decides in any case; a run that
    can be replayed has more to say to a person.

    Raises:
        ProtocolError: the run's own history says that the effect is known, open, or of no call.
    """
    try:
        seen = await _see(client, run_id)
    except RPCError as fault:
        if fault.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    try:
        session_id, calls = await _look(client, seen)
    except HistoryUnread:
        return await _session_of(client, seen)
    found = next((each for each in calls if each.call == call), None)
    if found is None:
        short = call.removeprefix(f"{run_id}/")
        _invalid(f"The run {run_id!r} has made no call {short!r}; `orchestral effects` shows those that it has made.")
    if found.state is not EffectPhase.UNKNOWN_EFFECT:
        message = f"The call {found.call!r} is {found.standing}; only an UnknownEffect can be settled."
        refuse(AgentProtocolErrorCode.INVALID_TRANSITION, message)
    return session_id


@dataclass(frozen=True)
class _Seen:
    """A run as the server has it."""

    described: WorkflowExecutionDescription
    history: WorkflowHistory


async def _see(client: Client, run_id: str) -> _Seen:
    """A run's description and history; the former first, so that no heartbeat in it is newer than a call."""
    described = await client.get_workflow_handle(run_id).describe(rpc_timeout=RPC_TIMEOUT)
    if described.workflow_type != names.AGENT_RUN:
        message = f"{run_id!r} is no run but {described.workflow_type!r}; `orchestral list` shows the runs there are."
        refuse(AgentProtocolErrorCode.RUN_NOT_FOUND, message)
    return _Seen(described, await client.get_workflow_handle(run_id, run_id=described.run_id).fetch_history())


async def _look(client: Client, seen: _Seen) -> tuple[str, Sequence[CallEffect]]:
    """The run's session and its calls.

    Raises:
        HistoryUnread: the history cannot be replayed.
    """
    run = await replay(seen.history, client.data_converter)
    if run.state is None:
        return "", ()
    calls = calls_of(run.notes)
    if seen.described.status is WorkflowExecutionStatus.RUNNING:
        pending = seen.described.raw_description.pending_activities
        beats = await _beats(client, seen.history, {each.activity_id: each for each in pending})
        calls = at_work(calls, run.state.phase, run.state.uncertainty_grace_ms, beats)
    return run.state.start.session_id, calls


async def _session_of(client: Client, seen: _Seen) -> str | None:
    """The session of a run whose history nobody here can replay: by its first event, else by its search attribute."""
    try:
        return (await start_of(seen.history.events[0], seen.described.id, client.data_converter)).session_id
    except (StartRefused, ProtocolError, Undecodable, ValueError):
        return seen.described.typed_search_attributes.get(visibility.SESSION)


async def _beats(
    client: Client, history: WorkflowHistory, pending: Mapping[str, PendingActivityInfo]
) -> Mapping[str, Heartbeat | None]:
    """The last heartbeat of each call that is pending, by invocation id; none of one that cannot be read."""
    beats: dict[str, Heartbeat | None] = {}
    for event in history.events:
        scheduled = event.activity_task_scheduled_event_attributes
        if (
            event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
            or scheduled.activity_type.name != names.INVOKE_TOOL
            or scheduled.activity_id not in pending
        ):
            continue
        converter = client.data_converter
        details = pending[scheduled.activity_id].heartbeat_details.payloads
        try:
            request = parse(ToolRequest, await plain(scheduled.input.payloads[0], converter))
            beat = parse(Heartbeat, await plain(details[0], converter)) if details else None
        except (ProtocolError, Undecodable):
            continue
        beats[request.invocation_id] = beat
    return beats


async def _settlements(client: Client, session_id: str) -> Mapping[str, EffectSettlement] | str:
    """What the session has on record, by invocation id; why it cannot be asked where it cannot."""
    handle = client.get_workflow_handle(names.session_workflow_id(session_id))
    try:
        answer: JsonObject = await handle.query(
            names.SESSION_READ, {"after": NO_BATCH}, result_type=dict, rpc_timeout=RPC_TIMEOUT
        )
    except (WorkflowQueryFailedError, RPCError) as fault:
        return f"The session {session_id!r} cannot be asked for settlements: {fault}."
    listed = answer.get("settlements")
    known = [parse_value(EffectSettlement, each) for each in listed] if isinstance(listed, list) else []
    return {each.call: each for each in known}


async def _settle(client: Client, session_id: str, wanted: EffectSettlement) -> EffectSettled:
    handle = client.get_workflow_handle(names.session_workflow_id(session_id))
    try:
        value: Json = await handle.execute_update(
            names.SESSION_SETTLE, wanted, result_type=dict, rpc_timeout=RPC_TIMEOUT
        )
    except WorkflowUpdateFailedError as failed:
        refused(failed)
    except (RPCError, RPCTimeoutOrCancelledError) as fault:
        raise_if_cancelled(fault)
        if isinstance(fault, RPCError) and fault.status is RPCStatusCode.NOT_FOUND:
            message = (
                f"There is no session {session_id!r}, or it was closed from outside; nothing can be settled in it."
            )
            refuse(AgentProtocolErrorCode.INVALID_TRANSITION, message)
        message = f"The session {session_id!r} does not answer; settle the call again later, twice is as once."
        raise ContinuityUnknown(message) from None
    return parse_value(EffectSettled, value)


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # which of them depends on Python's version
        _invalid("This process runs under no user name; say `by` whom the effect is settled.")


def _invalid(message: str) -> NoReturn:
    refuse(AgentProtocolErrorCode.INVALID_SPEC, message)
