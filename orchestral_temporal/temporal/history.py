"""A run's history: read backwards for the texts of its context, or replayed as journal and WAL (decisions 5 and 7)."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError
from temporalio.worker import Interceptor, Replayer, WorkflowInterceptorClassInput

from orchestral_temporal.core.calls import turn_item
from orchestral_temporal.core.items import system_item, tools_item, unattended, user_item
from orchestral_temporal.core.start import Start, StartRefused, read_start
from orchestral_temporal.core.state import EffectNote, RunState, Step
from orchestral_temporal.core.tool_result import tool_result
from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.activities import (
    Binding,
    Heartbeat,
    Item,
    ModelAttempt,
    ModelResult,
    ResultItem,
    StoredText,
    ToolObservation,
    ToolRequest,
)
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.model import ModelObservation
from orchestral_temporal.protocol.tools import UnknownEffect
from orchestral_temporal.protocol.wal import (
    GenericCheckpointDraft,
    GenericCheckpointRecord,
    ModelAttemptStarted,
    seal_checkpoint,
)
from orchestral_temporal.protocol.words import parse, parse_json
from orchestral_temporal.runtime.artifacts import ArtifactMissing, read_artifact
from orchestral_temporal.runtime.context_items import ContextMissing, Found, Manifest, StoredItem
from orchestral_temporal.temporal import converter, failures, names
from orchestral_temporal.temporal.run_workflow import RECORDER, AgentRun
from orchestral_temporal.temporal.turn import ContinuityUnknown

FIRST_PAGE: Final = 5
"""Stored batches on the first page (3 to 10 events each): most misses are one round old."""

LAST_PAGE: Final = 20
"""Stored batches on a page at the most: 0.4 to 2 MB at 10 to 50 KB a result (`temporal/shape-experiments.md` A)."""

PAGE_BYTES: Final = 2_000_000
"""Bytes of a page above which pages stop growing: a proxy's message may have 4 MB."""

SAID_CHARACTERS: Final = 200
"""Characters of a fault that a sentence quotes: the SDK's can hold a whole event."""


class RunHistorySource:
    """One execution's history, newest events first, as the items and manifests in it."""

    def __init__(self, client: Client, artifacts: ArtifactStore, workflow_id: str, execution: str) -> None:
        self._client = client
        self._artifacts = artifacts
        self._execution = WorkflowExecution(workflow_id=workflow_id, run_id=execution)
        self._answers: dict[int, Payload] = {}

    async def read(self) -> AsyncIterator[Sequence[Found]]:
        """Yield what each page holds; the answer of an activity waits for its question, which is older.

        Raises:
            ApplicationError: the server does not answer now; the activity is to be tried again.
            ContextMissing: the history holds what no run of ours writes.
        """
        token, size = b"", FIRST_PAGE
        while True:
            try:
                page = await self._page(token, size)
                found = [each for event in page.history.events for each in await self._read_event(event)]
            except RPCError as fault:
                raise failures.context_unreachable(f"The run's history cannot be read: {fault}") from None
            except (StartRefused, ProtocolError) as fault:
                raise ContextMissing(f"The run's history holds what this version does not read: {fault}") from None
            yield found
            token = page.next_page_token
            if not token:
                return
            if page.ByteSize() < PAGE_BYTES:
                size = min(2 * size, LAST_PAGE)

    async def _page(self, token: bytes, size: int) -> GetWorkflowExecutionHistoryReverseResponse:
        return await self._client.workflow_service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=self._client.namespace,
                execution=self._execution,
                maximum_page_size=size,
                next_page_token=token,
            ),
            retry=True,
        )

    async def _read_event(self, event: HistoryEvent) -> Sequence[Found]:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            if completed.result.payloads:
                self._answers[completed.scheduled_event_id] = completed.result.payloads[0]
            return ()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            if not scheduled.input.payloads:
                return ()
            question = scheduled.input.payloads[0]
            answer = self._answers.pop(event.event_id, None)
            return await self._read_activity(scheduled.activity_type.name, question, answer)
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            start = await start_of(event, self._execution.workflow_id, self._client.data_converter)
            return (user_item(start.envelope.spec.input),)
        return ()

    async def _read_activity(self, name: str, question: Payload, answer: Payload | None) -> Sequence[Found]:
        if name == names.CALL_MODEL:
            attempt = parse(ModelAttempt, await self._plain(question))
            found: list[Found] = [*attempt.tail, Manifest(attempt.context, attempt.base, attempt.add)]
            if answer is not None:
                found.extend(self._turn(parse(ModelResult, await self._plain(answer))))
            return found
        if answer is None:
            return ()
        if name == names.INVOKE_TOOL:
            request = parse(ToolRequest, await self._plain(question))
            outcome = parse(ToolObservation, await self._plain(answer)).outcome
            return (
                () if isinstance(outcome, UnknownEffect) else (ResultItem(part=tool_result(request.call_id, outcome)),)
            )
        if name == names.BIND:
            binding = parse(Binding, await self._plain(answer))
            system = system_item(binding.run) if binding.run is not None else None
            # What the model can do may stand in another binding, so here is either of what it may be offered.
            offered = () if binding.tools is None else (binding.tools, unattended(binding.tools))
            return (*((system,) if system is not None else ()), *map(tools_item, offered))
        return ()

    def _turn(self, result: ModelResult) -> Sequence[Found]:
        """The item of a turn, or where it lies; none of a turn that holds nothing."""
        stored, known = result.stored, result.item
        if stored is None or known is None:
            turn = turn_item(result.observation)
            return (turn,) if turn is not None else ()
        return (StoredItem(known.digest, lambda: self._load(result.observation, stored)),)

    async def _load(self, observation: ModelObservation, stored: StoredText) -> Item:
        try:
            text = (await read_artifact(self._artifacts, stored.digest)).decode()
        except ArtifactMissing as missing:
            raise ContextMissing(f"A text of the run is gone: {missing}") from None
        except OSError as fault:
            raise failures.context_unreachable(f"A text of the run cannot be read: {fault}") from None
        item = turn_item(observation.model_copy(update={"response": text}))
        assert item is not None, "a turn with a text has an item"
        return item

    async def _plain(self, payload: Payload) -> bytes:
        return await plain(payload, self._client.data_converter)


@dataclass(frozen=True)
class RunHistory:
    """A history read as what it means: the state it leads to, the run journal, the WAL."""

    state: RunState | None
    journal: tuple[AgentJournalRecord, ...]
    wal: tuple[GenericCheckpointRecord, ...]
    notes: tuple[EffectNote, ...]


class HistoryUnread(ContinuityUnknown):
    """A history that this version cannot replay: another one wrote it, or its texts cannot be decoded."""


class Undecodable(Exception):  # noqa: N818 -- what the payload is
    """A payload that its codec does not decode."""


async def read_history(client: Client, run_id: str, execution: str | None = None) -> RunHistory:
    """Read a run's history from the server and replay it.

    Raises:
        HistoryUnread: this version of the run would not have written it, or it cannot be decoded.
        RPCError: the run does not exist, or the server does not answer.
    """
    history = await client.get_workflow_handle(run_id, run_id=execution).fetch_history()
    return await replay(history, client.data_converter)


async def replay(history: WorkflowHistory, converter: DataConverter = converter.DATA_CONVERTER) -> RunHistory:
    """Replay a history through the run's own code and collect every step: WAL and journal are its fold (decision 5).

    Raises:
        HistoryUnread: this version of the run would not have written it, or it cannot be decoded.
    """
    recorder = _Recorder()
    replayer = Replayer(
        workflows=[AgentRun],
        data_converter=converter,
        interceptors=[recorder],
    )
    try:
        await replayer.replay_workflow(history)
        sent = await _request_digests(history, converter)
    except Exception as fault:
        # The SDK says it with two unrelated errors, our words with a third, a codec or a stranger's history with any.
        said = str(fault).partition("\n")[0][:SAID_CHARACTERS] or type(fault).__name__
        raise HistoryUnread(
            f"The history of run {history.workflow_id!r} cannot be replayed here, but only by the version and with the "
            f"payload codec that wrote it: {said}."
        ) from fault
    drafts = [_with_request(draft, sent) for step in recorder.steps for draft in step.wal]
    return RunHistory(
        state=recorder.steps[-1].state if recorder.steps else None,
        journal=tuple(event for step in recorder.steps for event in step.events),
        wal=tuple(seal_checkpoint(draft, seq) for seq, draft in enumerate(drafts, start=1)),
        notes=tuple(note for step in recorder.steps for note in step.notes),
    )


class _Recorder(Interceptor):
    """Hands the workflow a function that takes every step."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:  # noqa: A002 -- the SDK's name
        input.unsafe_extern_functions[RECORDER] = self.steps.append


def _with_request(draft: GenericCheckpointDraft, sent: dict[str, str]) -> GenericCheckpointDraft:
    """The attempt's record with the digest of the request that was sent; the context digest where none is known."""
    if not isinstance(draft.payload, ModelAttemptStarted):
        return draft
    known = sent.get(draft.payload.request_digest)
    if known is None:
        return draft
    return draft.model_copy(update={"payload": draft.payload.model_copy(update={"request_digest": known})})


async def _request_digests(history: WorkflowHistory, converter: DataConverter) -> dict[str, str]:
    """The request digest of each attempt, by its context's: from a result or a last heartbeat.

    A retry goes under the record of the attempt it repeats, and has the same context.
    """
    attempts: dict[int, str] = {}
    found: dict[str, str] = {}
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == names.CALL_MODEL:
                attempt = parse(ModelAttempt, await plain(scheduled.input.payloads[0], converter))
                attempts[event.event_id] = attempt.context
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            if completed.scheduled_event_id in attempts:
                result = parse(ModelResult, await plain(completed.result.payloads[0], converter))
                found[attempts[completed.scheduled_event_id]] = result.request_digest
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            lost = event.activity_task_timed_out_event_attributes
            beats = lost.failure.timeout_failure_info.last_heartbeat_details.payloads
            if lost.scheduled_event_id in attempts and beats:
                beat = parse(Heartbeat, await plain(beats[0], converter))
                found.update({attempts[lost.scheduled_event_id]: beat.request_digest} if beat.request_digest else {})
    return found


async def start_of(event: HistoryEvent, run_id: str, converter: DataConverter) -> Start:
    """The start argument in a run's first event.

    Raises:
        StartRefused, ProtocolError: it is none that a run could begin with.
        Undecodable: its codec fails.
    """
    (given,) = event.workflow_execution_started_event_attributes.input.payloads
    return read_start(parse_json(await plain(given, converter)), run_id)


async def plain(payload: Payload, converter: DataConverter) -> bytes:
    """A payload's JSON text, through the codec.

    Raises:
        Undecodable: the codec fails.
    """
    if converter.payload_codec is None:
        return payload.data
    try:
        (decoded,) = await converter.payload_codec.decode([payload])
    except Exception as fault:  # a codec is the user's
        raise Undecodable(f"The payload codec fails with {type(fault).__name__}: {fault}") from fault
    return decoded.data
