"""The client: start a run, look at it, wait for it, cancel it (`design/surface.md`, Python)."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.core.effect_notes import CallEffect
from orchestral_temporal.core.reducer import ack
from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.activities import EffectSettled
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Cancel, CommandAck, ResolveRequest, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse
from orchestral_temporal.protocol.events import AgentJournalRecord
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.run import AgentRunSpec
from orchestral_temporal.protocol.state import AgentRunStatus, AgentRunView
from orchestral_temporal.protocol.words import dump, parse_value
from orchestral_temporal.temporal import commanding, names
from orchestral_temporal.temporal.commanding import QueuedInput
from orchestral_temporal.temporal.connecting import connected
from orchestral_temporal.temporal.converter import converted
from orchestral_temporal.temporal.effects import read_effects, settle_effect
from orchestral_temporal.temporal.history import read_history
from orchestral_temporal.temporal.listing import Listed, find_runs
from orchestral_temporal.temporal.reading import read_journal, read_result
from orchestral_temporal.temporal.starting import read_begun, start_once
from orchestral_temporal.temporal.turn import ContinuityUnknown, Turn, whole_turn
from orchestral_temporal.temporal.watch import OUTAGES, Frame, follow, grown

RPC_TIMEOUT: Final = timedelta(seconds=10)
"""How long one call to the server may take before the caller hears of it."""


class _Unanswered(ContinuityUnknown):
    """Nobody answers for the run now: its worker or the server is away, or it is not accepted yet."""


class AgentClient:
    """Starts runs and finds them, through any Temporal client: one with other payload forms gets a twin with ours.

    `artifacts` is the store of the workers: an answer too large for a history is read from there. `extensions` stand in
    the spec of every run that is started here, such as `origin_extensions` of where the conversation began (A4).
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str = names.DEFAULT_QUEUE,
        artifacts: ArtifactStore | None = None,
        extensions: Mapping[str, Json] | None = None,
    ) -> None:
        self.temporal = converted(client)
        self._task_queue = task_queue
        self._artifacts = artifacts
        self._extensions = dict(extensions or {})

    @classmethod
    async def connect(
        cls,
        *,
        task_queue: str = names.DEFAULT_QUEUE,
        artifacts: ArtifactStore | None = None,
        extensions: Mapping[str, Json] | None = None,
    ) -> "AgentClient":
        """Connect as `TEMPORAL_*` variables and `temporal.toml` say, else on this machine (`connecting`)."""
        return cls(await connected(), task_queue=task_queue, artifacts=artifacts, extensions=extensions)

    async def start(
        self,
        task: str | Sequence[JsonObject],
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        agent: str = "default",
        workspace: str | None = None,
        additional_workspaces: Sequence[str] = (),
        tenant: str | None = None,
        limits: RunLimits | None = None,
        extensions: Mapping[str, Json] | None = None,
    ) -> "RunHandle":
        """Start a run, or find the one that has this id and the same spec (I6).

        Raises:
            StartRefused: a field is wrong, the task is empty or too large, or the id was used for another spec.
            RPCError: the server refuses or does not answer.
        """
        run_id = run_id if run_id is not None else f"run-{uuid.uuid4()}"
        value: JsonObject = {
            "input": task if isinstance(task, str) else list(task),
            "agent": agent,
            "session_id": session_id if session_id is not None else run_id,
        }
        if workspace is not None:
            value["workspace"] = workspace
        if additional_workspaces:
            value["additional_workspaces"] = list(additional_workspaces)
        if tenant is not None:
            value["tenant"] = tenant
        if limits is not None:
            value["limits"] = dump(limits)
        if extensions:
            value["extensions"] = dict(extensions)
        return await self.start_raw(value, run_id)

    async def start_raw(self, value: JsonObject, run_id: str) -> "RunHandle":
        """As `start`, from a start argument in any of its forms."""
        await start_once(self.temporal, value, run_id, self._task_queue, self._extensions)
        return self.run(run_id)

    def run(self, run_id: str) -> "RunHandle":
        """A run by its id."""
        return RunHandle(self.temporal, run_id, self._artifacts)

    def find(
        self,
        *,
        status: AgentRunStatus | None = None,
        waiting: str | None = None,
        session_id: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Listed]:
        """The runs that match, by their search attributes; `waiting` is `input` or `approval`.

        Raises:
            RPCError: the server does not answer, or (INVALID_ARGUMENT) does not know our search attributes.
        """
        return find_runs(self.temporal, status=status, waiting=waiting, session_id=session_id, limit=limit)

    async def run_text(self, task: str, *, session_id: str | None = None, run_id: str | None = None) -> Turn:
        """Start a run and wait for its end."""
        handle = await self.start(task, session_id=session_id, run_id=run_id)
        return await handle.wait()


class RunHandle:
    """One run, wherever it runs."""

    def __init__(self, client: Client, run_id: str, artifacts: ArtifactStore | None = None) -> None:
        self._client = client
        self._artifacts = artifacts
        self.run_id = run_id

    @property
    def _handle(self) -> WorkflowHandle[object, JsonObject]:
        return self._client.get_workflow_handle(self.run_id, result_type=dict)

    async def wait(self) -> Turn:
        """Wait for the end, through outages of the server.

        Raises:
            ContinuityUnknown: the run was terminated or timed out, or nobody knows it any more.
        """
        return await whole_turn(await read_result(self._handle), self._artifacts)

    async def closed(self) -> Turn | None:
        """The end of a run that has ended, read without replaying it (decision 24); none while it goes on."""
        result = await self._ended()
        return None if result is None else await whole_turn(result, self._artifacts)

    async def _ended(self) -> JsonObject | None:
        described = await self._handle.describe(rpc_timeout=RPC_TIMEOUT)
        return None if described.status is WorkflowExecutionStatus.RUNNING else await read_result(self._handle)

    async def spec(self) -> AgentRunSpec:
        """What the run was asked for as it was sealed, extensions included: no worker is needed for it (A4).

        Raises:
            ContinuityUnknown: it began with something that is no start of a run.
            RPCError: the run does not exist, or the server does not answer.
        """
        begun = await read_begun(self._client, self.run_id)
        if begun is None:
            raise ContinuityUnknown(f"What the run {self.run_id!r} began with is no start of a run.")
        return begun.envelope.spec

    async def inspect(self) -> AgentRunView:
        """The wire view of the run.

        Raises:
            ContinuityUnknown: the run has no view: it was refused, terminated, or no worker answers.
        """
        seen = await self.look()
        return parse_value(AgentRunView, seen["view"])

    async def look(self) -> JsonObject:
        """The view and what stands around it: status, round, usage, refused payloads."""
        ended = await self._ended()
        if ended is None:
            return await self._query(names.QUERY_INSPECT, {})
        if ended["view"] is None:
            failure = Turn(ended).failure or {}
            raise ContinuityUnknown(
                f"The run {self.run_id!r} has no view: {failure.get('message', 'it does not fit')}."
            )
        kept = ("view", "status", "usage", "text", "failure", "reason")
        return {key: ended[key] for key in kept}

    async def events(self, after: int = 0, *, more: bool = False) -> AsyncIterator[AgentJournalRecord]:
        """The committed journal after a sequence number, each record once and in order (F014).

        Without `more` it ends with what is committed now; with it, at the run's end, through outages.

        Raises:
            ContinuityUnknown: nobody answers (without `more`), or the run's end cannot be read.
            RPCError: the run does not exist, or (without `more`) the server does not answer.
        """
        seen = after
        while True:
            ended, records = None, ()
            try:
                ended = await self._ended()
                records = await self._records(ended, seen)
            except _Unanswered:
                if not more:
                    raise
            except RPCError as fault:
                if not more or fault.status not in OUTAGES:
                    raise
            for record in records:
                yield record
                seen = record.event.run_seq
            if ended is not None or not more:
                return
            await grown(self._client, self.run_id)

    async def _records(self, ended: JsonObject | None, after: int) -> Sequence[AgentJournalRecord]:
        return await read_journal(self.run_id, ended, after, self._query)

    async def watch(self) -> AsyncIterator[Frame]:
        """Live text, calls and events until the run has ended; missing a look loses nothing (decision 27)."""
        seen = 0
        async for frame in follow(self._client, self.run_id):
            yield frame
            if frame.kind == "committed":
                with suppress(_Unanswered):  # later frames, or the end, bring what is missed now
                    for record in await self._records(None, seen):
                        seen = record.event.run_seq
                        yield Frame("event", event=record)
        ended = await read_result(self._handle)
        if isinstance(ended["journal"], list):
            for record in await self._records(ended, seen):
                yield Frame("event", event=record)

    async def cancel(
        self,
        reason: str = "cancelled by the client",
        *,
        command_id: str | None = None,
        patience: timedelta | None = None,
    ) -> CommandAck:
        """Cancel the run and return the acknowledgement; asking again with the same id is the same command.

        A worker has `patience` (`RPC_TIMEOUT`) to acknowledge it; then it is left with the server for the next one.

        Raises:
            ProtocolError: the run has ended (terminal_run), or it refuses the command.
            ContinuityUnknown: no worker took the command in time; ask `ack` later.
        """
        command = seal_command(command_id or commanding.new_id("cancel"), self.run_id, Cancel(reason=reason))
        return await self._submit(command, patience or RPC_TIMEOUT)

    async def steer(self, text: str, *, command_id: str | None = None) -> CommandAck:
        """Tell the run something now: it voids the open model attempt, and running tools are left alone (C3).

        Raises:
            ProtocolError: the run has ended (terminal_run), or it refuses the command.
            ContinuityUnknown: no worker took the command in time; ask `ack` later.
        """
        return await self._submit(commanding.steer(self.run_id, text, command_id))

    async def enqueue(self, text: str, *, command_id: str | None = None) -> QueuedInput:
        """Tell the run something when its model has answered; it can be replaced or withdrawn until then (C7).

        Raises:
            ProtocolError: the run has ended (terminal_run), or it refuses the command.
            ContinuityUnknown: no worker took the command in time; ask `ack` later.
        """
        ack = await self._submit(commanding.steer(self.run_id, text, command_id, {"operation": "enqueue"}))
        return QueuedInput(self.run_id, ack, self._submit)

    async def replace(self, queued: str, text: str, *, command_id: str | None = None) -> QueuedInput:
        """As `QueuedInput.replace`, by the id of the command that queued it."""
        return await commanding.replace(self.run_id, queued, text, command_id, self._submit)

    async def withdraw(self, queued: str, *, command_id: str | None = None) -> CommandAck:
        """As `QueuedInput.withdraw`, by the id of the command that queued it."""
        return await commanding.withdraw(self.run_id, queued, command_id, self._submit)

    async def answer(self, request_id: str, text: str, *, command_id: str | None = None) -> CommandAck:
        """Answer a question of the run (D1).

        Raises:
            ProtocolError: the run has ended, or no such question is pending (request_not_found).
            ContinuityUnknown: no worker took the command in time; ask `ack` later.
        """
        response = ResolveRequest(response=InputResolution(content=(text_content(text),)))
        name = command_id or commanding.new_id("answer")
        return await self._submit(seal_command(name, self.run_id, response, request_id=request_id))

    async def _submit(self, command: AgentCommandEnvelope, patience: timedelta = RPC_TIMEOUT) -> CommandAck:
        return await commanding.submit(self._handle, command, patience, self._ended_with)

    async def _ended_with(self, command: AgentCommandEnvelope) -> CommandAck:
        """What a run that has ended made of this very command (F020).

        Raises:
            ProtocolError: as `commanding.require_received`; run_not_found.
            ContinuityUnknown: it was terminated, or its journal cannot be read.
        """
        try:
            ended = await self._ended()
        except RPCError as fault:
            if fault.status is RPCStatusCode.NOT_FOUND:
                refuse(AgentProtocolErrorCode.RUN_NOT_FOUND, f"There is no run {self.run_id!r}.")
            raise
        # A run that has no acknowledgement received nothing, and may have no journal: its start was refused.
        heard = ended is None or bool(ended["acks"])
        commanding.require_received(command, [each.event.payload async for each in self.events()] if heard else ())
        return await self.ack(command.command_id)

    async def ack(self, command_id: str) -> CommandAck:
        """A command's acknowledgement, while the run goes on and after it has ended (C2).

        Raises:
            ProtocolError: command_not_found, the run has ended and never received the command.
            ContinuityUnknown: nobody answers for the run, or its history cannot be replayed.
            RPCError: the run does not exist, or the server does not answer.
        """
        ended = await self._ended()
        if ended is None:
            return parse_value(CommandAck, await self._query(names.QUERY_COMMAND_ACK, {"command_id": command_id}))
        acks = ended["acks"]
        known = [parse_value(CommandAck, value) for value in acks] if isinstance(acks, list) else []
        found = next((each for each in known if each.command_id == command_id), None)
        if found is not None:
            return found
        if known and ended["journal"] is None:  # a long run: its result may have the newest acknowledgements only
            state = (await read_history(self._client, self.run_id)).state
            assert state is not None, "a run that has acknowledged a command has begun"
            return ack(state.run, command_id)
        return refuse(AgentProtocolErrorCode.COMMAND_NOT_FOUND, f"The run never received the command {command_id!r}.")

    async def effects(self) -> Sequence[CallEffect]:
        """What became of every tool call so far, in the order of their preparation; reads and replays the history.

        Raises:
            ProtocolError: it is no run.
            ContinuityUnknown: the history cannot be replayed, since another version wrote it or a codec fails.
            RPCError: the run does not exist, or the server does not answer.
        """
        return await read_effects(self._client, self.run_id)

    async def settle(
        self,
        call: str,
        *,
        happened: str | None = None,
        did_not: bool = False,
        by: str | None = None,
        session_id: str | None = None,
    ) -> EffectSettled:
        """Put on record what became of an unknown effect, by the call's id or its end `m1/c1`; twice is as once.

        Give what `happened`, or that it `did_not`. `by` is who says it: the user of this process if it is not given.
        Where retention has taken the run, `session_id` says which session it belonged to: one of the run's own name if
        it is not given.

        Raises:
            ProtocolError: the call is no unknown effect, it was settled otherwise, a text is blank or too long, or
                there is neither such a run nor such a session.
            ContinuityUnknown: the session does not answer.
            RPCError: the server does not answer.
        """
        return await settle_effect(
            self._client, self.run_id, call, happened=happened, did_not=did_not, by=by, session_id=session_id
        )

    async def _query(self, name: str, asked: JsonObject) -> JsonObject:
        try:
            return await self._handle.query(name, asked, result_type=dict, rpc_timeout=RPC_TIMEOUT)
        except Exception as fault:  # the server's, the worker's, or any that a payload codec raises
            raise _Unanswered(f"The run {self.run_id!r} does not answer: {fault}.") from fault
