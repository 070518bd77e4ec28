"""What a run answers to queries: one JSON object each, below 1 MB (`answers.md` 9, decision 28)."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from temporalio.exceptions import ApplicationError

from orchestral_temporal.core.batch import yield_wanted
from orchestral_temporal.core.ending import usage_report
from orchestral_temporal.core.reducer import ack, status, view
from orchestral_temporal.core.state import RunState
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode
from orchestral_temporal.protocol.words import dump
from orchestral_temporal.temporal import names

Record = TypeVar("Record")

PAGE_RECORDS: Final = 500
"""Records in one answer at the most."""

PAGE_BYTES: Final = 900_000
"""Canonical bytes in one answer: below the 2 MiB that a query result may have."""


def answer(name: str, asked: JsonObject, state: RunState, wal: list[JsonObject]) -> JsonObject:
    """Answer `inspect`, `events`, `wal` or `command_ack`, and `yield_wanted` for workers of tools.

    Raises:
        ApplicationError: invalid_spec, there is no such query or a number is out of range.
        ProtocolError: command_not_found, the run never received the command.
    """
    match name:
        case names.QUERY_INSPECT:
            return _inspect(state)
        case names.QUERY_EVENTS:
            return _page(state.run.records, dump, asked)
        case names.QUERY_WAL:
            return _page(wal, _itself, asked)
        case names.QUERY_COMMAND_ACK:
            return dump(ack(state.run, str(asked.get("command_id"))))
        case names.QUERY_YIELD_WANTED:
            return {"yield_wanted": yield_wanted(state, str(asked.get("invocation_id")))}
        case _:
            raise _invalid(f"{name[:80]!r} is no query of a run; use inspect, events, wal or command_ack.")


def _inspect(state: RunState) -> JsonObject:
    used = usage_report(state)
    return {
        "view": dump(view(state.run)),
        "status": str(status(state.run)),
        "round": state.round,
        "tool_calls": state.tool_calls,
        "usage": dump(used) if used is not None else None,
        "refused": [dump(each) for each in state.refusals],
    }


def _itself(record: JsonObject) -> JsonObject:
    return record


def _page(records: Sequence[Record], shown: Callable[[Record], JsonObject], asked: JsonObject) -> JsonObject:
    """Records after a sequence number: `{records, last, more}`."""
    after, limit = asked.get("after", 0), asked.get("limit", PAGE_RECORDS)
    if not isinstance(after, int) or not isinstance(limit, int) or after < 0 or not 1 <= limit <= PAGE_RECORDS:
        raise _invalid(f"'after' must be a number from 0 and 'limit' one from 1 to {PAGE_RECORDS}.")
    page: list[Json] = []
    size = 0
    for record in records[after : after + limit]:
        value = shown(record)
        size += len(canonical(value))
        if page and size > PAGE_BYTES:
            break
        page.append(value)
    last = min(after + len(page), len(records)) if after < len(records) else len(records)
    return {"records": page, "last": last, "more": last < len(records)}


def _invalid(message: str) -> ApplicationError:
    return ApplicationError(message, type=AgentProtocolErrorCode.INVALID_SPEC)
