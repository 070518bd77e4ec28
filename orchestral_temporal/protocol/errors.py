"""Errors: the protocol's codes as words, and the exceptions that carry them (`spec/wire.md` §5)."""

from enum import StrEnum
from typing import NoReturn

from orchestral_temporal.protocol.base import Json, SpeltOutWord


class AgentProtocolErrorCode(StrEnum):
    """What is wrong with a protocol value, a command or an event."""

    INVALID_SPEC = "invalid_spec"
    INVALID_DIGEST = "invalid_digest"
    UNSUPPORTED_PROTOCOL = "unsupported_protocol"
    UNSUPPORTED = "unsupported"
    RUN_ID_CONFLICT = "run_id_conflict"
    RUN_NOT_FOUND = "run_not_found"
    COMMAND_NOT_FOUND = "command_not_found"
    REQUEST_NOT_FOUND = "request_not_found"
    REQUEST_TYPE_MISMATCH = "request_type_mismatch"
    INVALID_TRANSITION = "invalid_transition"
    SEQUENCE_CONFLICT = "sequence_conflict"
    SEQUENCE_GAP = "sequence_gap"
    DUPLICATE_CONFLICT = "duplicate_conflict"
    TERMINAL_RUN = "terminal_run"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    SERIALIZATION = "serialization"
    INTERNAL = "internal"


class AgentProtocolError(SpeltOutWord):
    """An error as a value; `retryable` is information only."""

    spelt_out = ("retryable",)

    code: AgentProtocolErrorCode
    message: str
    retryable: bool = False
    details: Json = None


class AgentRejectionCode(StrEnum):
    """Why a start created nothing."""

    INVALID_SPEC = "invalid_spec"
    UNSUPPORTED_PROTOCOL = "unsupported_protocol"
    UNSUPPORTED_CAPABILITY = "unsupported_capability"
    UNSUPPORTED_RESOURCE = "unsupported_resource"
    RUN_ID_CONFLICT = "run_id_conflict"
    SESSION_CONFLICT = "session_conflict"
    PROVIDER_UNAVAILABLE = "provider_unavailable"


class AgentRejection(SpeltOutWord):
    """A refused start as a value: certainly nothing was created."""

    spelt_out = ("retryable",)

    code: AgentRejectionCode
    message: str
    retryable: bool = False
    details: Json = None


class JournalErrorCode(StrEnum):
    """What is wrong with a record of the session journal or the WAL; never on the wire."""

    INVALID_EVENT = "InvalidEvent"
    INVALID_DATA = "InvalidData"


class WordError(Exception):
    """A word breaks a rule of its sheet.

    `code` is a member of the error enum of the word's own family, `message` one sentence that names the field.
    """

    def __init__(self, code: StrEnum, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ProtocolError(WordError):
    """A word, command or event of the agent protocol is refused; `error` is what the wire says of it."""

    def __init__(self, error: AgentProtocolError) -> None:
        super().__init__(error.code, error.message)
        self.error = error


def refuse(code: StrEnum, message: str, details: Json = None) -> NoReturn:
    """Refuse a word; `details` are for codes of the agent protocol only.

    Raises:
        ProtocolError: the code is one of the agent protocol.
        WordError: the code belongs to another family.
    """
    if isinstance(code, AgentProtocolErrorCode):
        raise ProtocolError(AgentProtocolError(code=code, message=message, details=details))
    raise WordError(code, message)


def require(held: bool, code: StrEnum, message: str) -> None:
    """Refuse a word unless a rule holds.

    Raises:
        ProtocolError: the rule does not hold and the code is one of the agent protocol.
        WordError: the rule does not hold and the code belongs to another family.
    """
    if not held:
        refuse(code, message)
