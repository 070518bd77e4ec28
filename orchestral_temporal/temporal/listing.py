"""Finding runs by their search attributes (decision 25)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.temporal import names, visibility

RUNNING: Final = WorkflowExecutionStatus.RUNNING

_ENDED: Final = (
    AgentRunStatus.DELIVERED,
    AgentRunStatus.INCOMPLETE,
    AgentRunStatus.CANCELLED,
    AgentRunStatus.FAILED,
)

_CUT_OFF: Final[Mapping[WorkflowExecutionStatus | None, AgentRunStatus]] = {
    WorkflowExecutionStatus.FAILED: AgentRunStatus.FAILED,
    WorkflowExecutionStatus.TERMINATED: AgentRunStatus.UNKNOWN,
    WorkflowExecutionStatus.TIMED_OUT: AgentRunStatus.UNKNOWN,
}
"""How an execution that closed without a word of ours stands: a refused start failed, of the others nobody knows."""


@dataclass(frozen=True)
class Listed:
    """A run as a list shows it; none is what its search attributes do not say."""

    run_id: str
    status: AgentRunStatus | None
    session_id: str | None
    agent: str | None
    model: str | None
    waiting: Sequence[str]
    started: datetime
    closed: datetime | None


async def find_runs(
    client: Client, *, status: AgentRunStatus | None, waiting: str | None, session_id: str | None, limit: int | None
) -> AsyncIterator[Listed]:
    """The runs that match, the newest first as far as the server keeps that order.

    Raises:
        RPCError: the server does not answer, or (INVALID_ARGUMENT) does not know our search attributes.
    """
    asked = [f"WorkflowType = {_quoted(names.AGENT_RUN)}"]
    if status is not None:
        asked.append(_with_status(status))
    if waiting is not None:
        asked.append(f"{names.ATTRIBUTE_WAITING} = {_quoted(waiting)}")
    if session_id is not None:
        asked.append(f"{names.ATTRIBUTE_SESSION} = {_quoted(visibility.keyword(session_id))}")
    async for found in client.list_workflows(" AND ".join(asked), limit=limit):
        yield _listed(found)


def _with_status(status: AgentRunStatus) -> str:
    said = f"{names.ATTRIBUTE_STATUS} = {_quoted(status)}"
    if status in _ENDED and status is not AgentRunStatus.FAILED:
        return said
    # What was refused or cut off still says what it was when it was last heard of.
    closings = [how for how, means in _CUT_OFF.items() if means is status and how is not None]
    closed = " OR ".join(f"ExecutionStatus = {_quoted(_camel(how))}" for how in closings)
    return f"({said} OR {closed})" if closed else f"({said} AND ExecutionStatus = 'Running')"


def _camel(how: WorkflowExecutionStatus) -> str:
    return how.name.title().replace("_", "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _listed(found: WorkflowExecution) -> Listed:
    known = found.typed_search_attributes
    said = known.get(visibility.STATUS)
    status = AgentRunStatus(said) if said in set(AgentRunStatus) else None
    waits = status is AgentRunStatus.WAITING and found.status is RUNNING
    if status not in _ENDED and not waits:
        status = AgentRunStatus.RUNNING if found.status is RUNNING else _CUT_OFF.get(found.status)
    return Listed(
        run_id=found.id,
        status=status,
        session_id=known.get(visibility.SESSION),
        agent=known.get(visibility.AGENT),
        model=known.get(visibility.MODEL),
        waiting=known.get(visibility.WAITING) or (),
        started=found.start_time,
        closed=found.close_time,
    )


@dataclass(frozen=True)
class Stuck:
    """A run or a session that does not go on, and why."""

    workflow_id: str
    why: str


async def stuck_runs(client: Client, limit: int) -> AsyncIterator[Stuck]:
    """Runs and sessions whose code fails, and runs that are over but cannot hand their records to their session.

    Raises:
        RPCError: the server does not answer.
    """
    types = f"WorkflowType IN ({_quoted(names.AGENT_RUN)}, {_quoted(names.AGENT_SESSION)})"
    failing = f"{types} AND ExecutionStatus = 'Running' AND TemporalReportedProblems IS NOT NULL"
    async for found in client.list_workflows(failing, limit=limit):
        yield Stuck(found.id, "its workflow task fails again and again")
    over = " OR ".join(f"{names.ATTRIBUTE_STATUS} = {_quoted(each)}" for each in _ENDED)
    open_still = f"WorkflowType = {_quoted(names.AGENT_RUN)} AND ExecutionStatus = 'Running' AND ({over})"
    try:
        async for found in client.list_workflows(open_still, limit=limit):
            described = await client.get_workflow_handle(found.id, run_id=found.run_id).describe()
            for pending in described.raw_description.pending_activities:
                if pending.activity_type.name == names.APPEND_SESSION and pending.attempt > 1:
                    yield Stuck(found.id, f"its session does not take its records ({pending.last_failure.message})")
    except RPCError as error:
        # Without our search attributes there is nothing to ask for.
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
