"""`apply_patch`: add, change and delete files by one text (`spec/builtin-tools.md` §8)."""

from contextlib import ExitStack
from typing import assert_never

from orchestral_temporal.adapters.tools.workspace.changes import Change, carry_out, check_size, existing, new_file
from orchestral_temporal.adapters.tools.workspace.patch_text import (
    OPERATIONS,
    AddFile,
    DeleteFile,
    Operation,
    UpdateFile,
    patched,
    read_patch,
)
from orchestral_temporal.adapters.tools.workspace.targets import Target, given_text, writable_workspace
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.adapters.tools.workspace.words import WORKSPACE, closed
from orchestral_temporal.ports import ToolCall, ToolRejected
from orchestral_temporal.protocol.base import JsonObject

INPUT_SCHEMA = closed(
    {
        "patch": {
            "type": "string",
            "description": "The patch, from the line '*** Begin Patch' to the line '*** End Patch'. Between them, for "
            "each file: '*** Add File: PATH' and its lines, each after '+'; '*** Delete File: PATH'; or "
            "'*** Update File: PATH' and hunks, each a line '@@' and then lines after ' ' (kept), '-' (removed) or "
            "'+' (added). Paths are relative to the workspace, without '.' and '..'.",
        },
        "workspace": WORKSPACE,
    },
    required=["patch"],
)

DESCRIPTION = (
    f"Add, change and delete up to {OPERATIONS} UTF-8 files by one patch. The kept and removed lines of a hunk must "
    "occur at exactly one place, as they are; line numbers mean nothing, so give lines around it that make it unique. "
    "If anything does not fit, nothing is written."
)


def apply_patch(arguments: JsonObject, call: ToolCall, watch: Watch) -> JsonObject:
    """Apply the patch.

    Raises:
        ToolRejected, ToolFailed: the codes of §2, §5 and §8; nothing was changed.
        EffectUncertain, Abandoned, NotStarted: see `carry_out`.
    """
    operations = read_patch(given_text(arguments, "patch", "patch_missing"))
    workspace = writable_workspace(arguments, call)
    with ExitStack() as opened:
        changes: list[Change] = []
        for operation in operations:
            watch.check()
            target = opened.enter_context(workspace.target(operation.path))
            changes.append(_change(target, operation, watch))
        return carry_out(workspace.selector, changes, call, watch)


def _change(target: Target, operation: Operation, watch: Watch) -> Change:
    match operation:
        case AddFile():
            return new_file(target, operation.content)
        case DeleteFile():
            return Change(target, existing(target), None)
        case UpdateFile():
            return _updated(target, operation, watch)
        case _:
            assert_never(operation)


def _updated(target: Target, operation: UpdateFile, watch: Watch) -> Change:
    before = existing(target)
    try:
        content = before.content.decode()
    except UnicodeDecodeError as error:
        raise ToolRejected(
            "patch_not_utf8", f"{target.shown!r} is not UTF-8 text, so no patch can be applied to it."
        ) from error
    after = patched(content, operation.hunks, target.shown, watch).encode()
    return Change(target, before, check_size(after, target.shown))
