"""`file_write`: make a file, or replace one that has been read (`spec/builtin-tools.md` §6)."""

import re

from orchestral_temporal.adapters.tools.workspace.changes import (
    Change,
    carry_out,
    check_size,
    existing,
    new_file,
)
from orchestral_temporal.adapters.tools.workspace.targets import (
    Target,
    given_text,
    normal_path,
    text_bytes,
    writable_workspace,
)
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.adapters.tools.workspace.words import WORKSPACE, closed
from orchestral_temporal.ports import ToolCall, ToolRejected
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.digest import sha256

_CONTENT_INVALID = "file_write_content_invalid"
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")

INPUT_SCHEMA = closed(
    {
        "path": {
            "type": "string",
            "description": "File to write, relative to the workspace, without '.' and '..'. Its folder must exist.",
        },
        "content": {"type": "string", "description": "The whole file, written exactly so."},
        "mode": {
            "type": "string",
            "enum": ["create", "replace"],
            "description": "create: no file may be there yet. replace: the file must be there, and read completely.",
        },
        "workspace": WORKSPACE,
        "expected_digest": {
            "type": "string",
            "description": "Leave it out: the host itself checks that the file still is what you have read.",
        },
    },
    required=["path", "content", "mode"],
)

DESCRIPTION = (
    "Write a whole UTF-8 text file, in one step. `create` makes a new file. `replace` needs a complete `file_read` of "
    "the file before, and is refused if the file was changed since. To change a part of a file, edit it instead."
)


def write_file(arguments: JsonObject, call: ToolCall, watch: Watch) -> JsonObject:
    """Write the file.

    Raises:
        ToolRejected, ToolFailed: the codes of §2, §5 and §6; nothing was changed.
        EffectUncertain, Abandoned, NotStarted: see `carry_out`.
    """
    path = normal_path(given_text(arguments, "path", "file_write_path_missing"), "file_write_path_invalid")
    content = text_bytes(given_text(arguments, "content", _CONTENT_INVALID), "content", _CONTENT_INVALID)
    check_size(content, "/".join(path))
    expected = _expected_digest(arguments)
    workspace = writable_workspace(arguments, call)
    with workspace.target(path) as target:
        change = new_file(target, content) if expected is None else _replaced(target, content, expected)
        changes = [] if change.before is not None and change.before.content == content else [change]
        return carry_out(workspace.selector, changes, call, watch)


def _expected_digest(arguments: JsonObject) -> str | None:
    """The digest that the file must have; none if it must not be there.

    A replace without one has not been completed by the host from what the run has read.
    """
    expected = arguments.get("expected_digest")
    match arguments.get("mode"):
        case "create":
            if expected is not None:
                raise ToolRejected(
                    "file_write_precondition_invalid", "expected_digest has no meaning for mode create; leave it out."
                )
            return None
        case "replace":
            if not isinstance(expected, str) or not _DIGEST.fullmatch(expected):
                raise ToolRejected(
                    "file_write_precondition_missing",
                    "The file was not read completely in this run; read it, or change a part of it by an edit.",
                )
            return expected
        case _:
            raise ToolRejected("file_write_mode_invalid", "mode must be create or replace.")


def _replaced(target: Target, content: bytes, expected: str) -> Change:
    before = existing(target)
    if sha256(before.content) != expected:
        raise ToolRejected(
            "file_write_conflict", f"{target.shown!r} is not what was read; read it again before replacing it."
        )
    return Change(target, before, content)
