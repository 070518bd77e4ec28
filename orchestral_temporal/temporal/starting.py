"""Starting a run: once by its id, and with the same spec ever after (I6)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue, TypedSearchAttributes, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.core.limits import START_BYTES, TASK_SECONDS
from orchestral_temporal.core.start import Start, StartRefused, read_start, start_refused
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.errors import AgentRejectionCode, ProtocolError
from orchestral_temporal.temporal import names, visibility
from orchestral_temporal.temporal.payloads import read_json

RPC_TIMEOUT: Final = timedelta(seconds=10)


async def start_once(client: Client, value: JsonObject, run_id: str, task_queue: str) -> None:
    """Start a run from a start argument in any of its forms, or find the one that has this id and the same spec.

    Raises:
        StartRefused: a field is wrong, the task is empty or too large, or the id was used for another spec.
        RPCError: the server refuses or does not answer.
    """
    start = read_start(value, run_id)
    try:
        handle = await _start(client, value, start, task_queue, _pairs(start))
    except RPCError as fault:
        if not _lacks_attributes(fault):
            raise
        # A run that is hard to find is better than none (`orchestral setup` registers the attributes).
        handle = await _start(client, value, start, task_queue, None)
    await _same_spec(client, handle, start)


async def _start(
    client: Client, value: JsonObject, start: Start, task_queue: str, attributes: TypedSearchAttributes | None
) -> WorkflowHandle[object, object]:
    try:
        return await client.start_workflow(
            names.AGENT_RUN,
            value,
            id=start.run_id,
            task_queue=task_queue,
            task_timeout=timedelta(seconds=TASK_SECONDS),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            search_attributes=attributes,
            static_summary=visibility.summary(_first_text(start)),
            rpc_timeout=RPC_TIMEOUT,
        )
    except WorkflowAlreadyStartedError:
        return client.get_workflow_handle(start.run_id)


async def _same_spec(client: Client, handle: WorkflowHandle[object, object], start: Start) -> None:
    """Compare with the input of the execution that has the id (`answers.md` 8)."""
    first = client.get_workflow_handle(start.run_id, run_id=handle.first_execution_run_id)
    async for event in first.fetch_history_events(page_size=1):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            given = event.workflow_execution_started_event_attributes.input.payloads
            if await _digest_of(client, given, start.run_id) == start.envelope.spec_digest:
                return
        break
    raise start_refused(
        f"The run id {start.run_id!r} is in use for another spec; choose another id.",
        AgentRejectionCode.RUN_ID_CONFLICT,
    )


async def _digest_of(client: Client, given: Sequence[Payload], run_id: str) -> str | None:
    """The spec digest of a start argument; none if it is none that a run could begin with."""
    codec = client.data_converter.payload_codec
    plain = given if codec is None else await codec.decode(given)
    try:
        return read_start(read_json([RawValue(each) for each in plain], START_BYTES), run_id).envelope.spec_digest
    except (ProtocolError, StartRefused):
        return None


def _pairs(start: Start) -> TypedSearchAttributes:
    options = start.options
    return TypedSearchAttributes(visibility.client_pairs(options.agent, start.session_id, options.tenant))


def _lacks_attributes(fault: RPCError) -> bool:
    """Whether a start was refused because the namespace does not know our search attributes."""
    return fault.status is RPCStatusCode.INVALID_ARGUMENT and "search attribute" in fault.message


def _first_text(start: Start) -> str:
    for content in start.envelope.spec.input:
        if isinstance(content.body.value, str):
            return content.body.value
    return ""
