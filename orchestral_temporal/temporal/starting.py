"""Starting a run: once by its id, and with the same spec ever after (I6)."""

from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue, TypedSearchAttributes, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.core.limits import START_BYTES, TASK_SECONDS
from orchestral_temporal.core.start import (
    Start,
    StartRefused,
    read_start,
    require_extensions,
    start_refused,
    with_extensions,
)
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.errors import AgentRejectionCode, ProtocolError
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.temporal import names, visibility
from orchestral_temporal.temporal.payloads import read_json

RPC_TIMEOUT: Final = timedelta(seconds=10)


async def start_once(
    client: Client, value: JsonObject, run_id: str, task_queue: str, extensions: JsonObject | None = None
) -> None:
    """Start a run from a start argument in any of its forms, or find the one that has this id and the same spec.

    `extensions` are those that its host puts on every run (A4).

    Raises:
        StartRefused: a field is wrong, the task is empty or too large, an extension is not that of the host, or the id
            was used for another spec. Nothing was created.
        RPCError: the server refuses or does not answer.
    """
    defaults = extensions or {}
    value = with_extensions(value, defaults)
    start = read_start(value, run_id)
    require_extensions(start, defaults)
    try:
        validate(start.envelope)
    except ProtocolError as fault:
        raise start_refused(fault.error.message) from None
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
    begun = await read_begun(client, start.run_id, handle.first_execution_run_id)
    if begun is None or begun.envelope.spec_digest != start.envelope.spec_digest:
        raise start_refused(
            f"The run id {start.run_id!r} is in use for another spec; choose another id.",
            AgentRejectionCode.RUN_ID_CONFLICT,
        )


async def read_begun(client: Client, run_id: str, execution: str | None = None) -> Start | None:
    """What an execution began with, the newest if none is named; none if no run could begin with that.

    Raises:
        RPCError: the run does not exist, or the server does not answer.
    """
    events = client.get_workflow_handle(run_id, run_id=execution).fetch_history_events(page_size=1)
    first = await anext(events)
    given = first.workflow_execution_started_event_attributes.input.payloads
    codec = client.data_converter.payload_codec
    plain = given if codec is None else await codec.decode(given)
    try:
        return read_start(read_json([RawValue(each) for each in plain], START_BYTES), run_id)
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
