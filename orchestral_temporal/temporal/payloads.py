"""Payloads from outside, judged by hand: nothing that arrives may stick a run (decision 13, F134)."""

from collections.abc import Sequence
from typing import Final

from temporalio.common import RawValue

from orchestral_temporal.core.limits import COMMAND_BYTES, COMMAND_ID_BYTES, FENCE_OUTCOME_BYTES, REASON_BYTES
from orchestral_temporal.protocol.activities import Fence
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.commands import AgentCommandEnvelope, Cancel, ResolveRequest, Steer, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, refuse
from orchestral_temporal.protocol.ids import is_blank
from orchestral_temporal.protocol.requests import InputResolution
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import kind_of, parse_json, parse_value
from orchestral_temporal.temporal import names

INVALID: Final = AgentProtocolErrorCode.INVALID_SPEC


def read_json(args: Sequence[RawValue], limit: int = COMMAND_BYTES) -> Json:
    """The one JSON value of a signal, update or query.

    Raises:
        ProtocolError: invalid_spec; not exactly one payload, not JSON, or too large.
    """
    if len(args) != 1:
        refuse(INVALID, f"It carries {len(args)} payloads; send exactly one JSON object.")
    payload = args[0].payload
    encoding = payload.metadata.get("encoding", b"").decode("utf-8", "replace")
    if encoding != "json/plain":
        refuse(INVALID, f"Its encoding is {encoding[:40]!r}; send json/plain.")
    if len(payload.data) > limit:
        refuse(INVALID, f"It has {len(payload.data)} bytes; at most {limit} are taken, so put long texts into a file.")
    return parse_json(payload.data)


def read_object(args: Sequence[RawValue], limit: int = COMMAND_BYTES) -> JsonObject:
    """As `read_json`, an object; no payload at all counts as `{}`."""
    if not args:
        return {}
    value = read_json(args, limit)
    if not isinstance(value, dict):
        refuse(INVALID, f"It is {kind_of(value)}; send one JSON object.")
    return value


def read_command(name: str, args: Sequence[RawValue], run_id: str, place: int) -> AgentCommandEnvelope:
    """A command of this run from a signal or the update `submit`; `place` names a short form without `command_id`.

    Raises:
        ProtocolError: it is no command of this run; the message says why.
    """
    value = read_json(args)
    if name == names.SIGNAL_CANCEL:
        command = short_cancel(value, run_id, place)
    elif name == names.SIGNAL_STEER:
        command = short_steer(value, run_id, place)
    elif name == names.SIGNAL_RESOLVE_REQUEST:
        command = short_answer(value, run_id, place)
    elif name in (names.SIGNAL_COMMAND, names.UPDATE_SUBMIT):
        command = parse_value(AgentCommandEnvelope, value)
        validate(command)
    else:
        refuse(
            INVALID,
            f"{name[:80]!r} is no command; a run takes 'steer', 'cancel', 'resolve_request' and 'command'.",
        )
    if len(command.command_id.encode("utf-8")) > COMMAND_ID_BYTES:
        refuse(INVALID, f"The field 'command_id' is longer than {COMMAND_ID_BYTES} bytes; choose a shorter one.")
    if isinstance(command.payload, Cancel) and len(command.payload.reason.encode("utf-8")) > REASON_BYTES:
        refuse(INVALID, f"The field 'reason' is longer than {REASON_BYTES} bytes; say it in fewer words.")
    if command.run_id != run_id:
        refuse(AgentProtocolErrorCode.RUN_ID_CONFLICT, "It names another run; send it to that one.")
    return command


def read_outcome(args: Sequence[RawValue]) -> Fence:
    """What a tool worker reports by the signal `outcome` (decision 16).

    Raises:
        ProtocolError: it is no fence; the message says why.
    """
    return parse_value(Fence, read_json(args, 2 * FENCE_OUTCOME_BYTES))  # an outcome, its measure and its names


def short_cancel(value: Json, run_id: str, place: int) -> AgentCommandEnvelope:
    """The short form of a cancel as a sealed command.

    Raises:
        ProtocolError: invalid_spec; the message names the field.
    """
    command_id, reason = _short(value, "cancel", "reason", place)
    return seal_command(command_id, run_id, Cancel(reason="cancelled" if reason is None else reason))


def short_steer(value: Json, run_id: str, place: int) -> AgentCommandEnvelope:
    """The short form of a steer as a sealed command.

    Raises:
        ProtocolError: invalid_spec; the message names the field.
    """
    command_id, text = _short(value, "steer", "text", place)
    if text is None:
        refuse(INVALID, "The field 'text' is missing; say what the run should know.")
    return seal_command(command_id, run_id, Steer(content=(text_content(text),)))


def short_answer(value: Json, run_id: str, place: int) -> AgentCommandEnvelope:
    """The short form of an answer to a question as a sealed command.

    Raises:
        ProtocolError: invalid_spec; the message names the field.
    """
    request_id = value.get("request_id") if isinstance(value, dict) else None
    rest = {key: each for key, each in value.items() if key != "request_id"} if isinstance(value, dict) else value
    command_id, text = _short(rest, "resolve_request", "answer", place, "'request_id', ")
    if not isinstance(request_id, str) or is_blank(request_id):
        refuse(INVALID, "The field 'request_id' must name the question; the run's view shows what is pending.")
    if text is None:
        refuse(INVALID, "The field 'answer' is missing; say what the model should hear.")
    answer = ResolveRequest(response=InputResolution(content=(text_content(text),)))
    return seal_command(command_id, run_id, answer, request_id=request_id)


def _short(value: Json, kind: str, field: str, place: int, more: str = "") -> tuple[str, str | None]:
    """The command id and the one text field of a short form; a missing id is made of its place among the commands."""
    if not isinstance(value, dict):
        refuse(INVALID, f"It is {kind_of(value)}; send an object with 'command_id', {more}and '{field}'.")
    unknown = [key for key in value if key not in ("command_id", field)]
    if unknown:
        refuse(INVALID, f"Unknown field {unknown[0][:80]!r}; a {kind} has 'command_id', {more}and '{field}'.")
    command_id = value.get("command_id", f"{kind}-{place}")
    if not isinstance(command_id, str) or is_blank(command_id):
        refuse(INVALID, "The field 'command_id' must be text that is not blank, or left out.")
    if field not in value:
        return command_id, None
    text = value[field]
    if not isinstance(text, str) or is_blank(text):
        kind_found = "blank" if isinstance(text, str) else kind_of(text)
        refuse(INVALID, f"The field '{field}' is {kind_found}; give text that says something.")
    return command_id, text
