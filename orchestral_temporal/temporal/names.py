"""Every string that Temporal remembers. Append-only: a name that was ever written to a history stays."""

from typing import Final

AGENT_RUN: Final = "AgentRun"
AGENT_SESSION: Final = "AgentSession"

SIGNAL_STEER: Final = "steer"
SIGNAL_CANCEL: Final = "cancel"
SIGNAL_RESOLVE_REQUEST: Final = "resolve_request"
SIGNAL_COMMAND: Final = "command"
SIGNAL_OUTCOME: Final = "outcome"

UPDATE_SUBMIT: Final = "submit"

QUERY_INSPECT: Final = "inspect"
QUERY_EVENTS: Final = "events"
QUERY_WAL: Final = "wal"
QUERY_COMMAND_ACK: Final = "command_ack"
QUERY_YIELD_WANTED: Final = "yield_wanted"

SESSION_OPEN: Final = "open"
SESSION_APPEND: Final = "append"
SESSION_CLOSE_RUN: Final = "close_run"
SESSION_READ: Final = "read"
SESSION_SETTLE: Final = "settle"

BIND: Final = "bind"
OPEN_SESSION: Final = "open_session"
APPEND_SESSION: Final = "append_session"
CALL_MODEL: Final = "call_model"
INVOKE_TOOL: Final = "invoke_tool"

ATTRIBUTE_STATUS: Final = "OrchestralStatus"
ATTRIBUTE_AGENT: Final = "OrchestralAgent"
ATTRIBUTE_SESSION: Final = "OrchestralSession"
ATTRIBUTE_MODEL: Final = "OrchestralModel"
ATTRIBUTE_WAITING: Final = "OrchestralWaiting"
ATTRIBUTE_TENANT: Final = "OrchestralTenant"

ERROR_ABANDONED: Final = "Abandoned"
ERROR_RUN_ID_CONFLICT: Final = "run_id_conflict"
ERROR_MODEL_FAILED: Final = "ModelFailed"
ERROR_BROKEN: Final = "Broken"
ERROR_CONTEXT_UNREACHABLE: Final = "ContextUnreachable"

DEFAULT_QUEUE: Final = "orchestral"


def session_workflow_id(session_id: str) -> str:
    """The workflow id of a session's entity."""
    return f"session/{session_id}"
