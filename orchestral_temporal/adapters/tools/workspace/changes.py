"""Changing files so that each is always whole (`spec/builtin-tools.md` §5).

What a file is to hold is written to a new file beside it, made durable, and takes the name in one step: whoever looks,
also after a crash, finds the old file or the new one. All of a call's files are prepared, and looked at once more,
before the first of them changes; from then on what goes wrong leaves an uncertain effect.

The system has no step that replaces a file only if it still is what it was. So a program that writes to the same file
between our last look and the rename, some microseconds later, loses what it wrote, as with any editor.
"""

import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from orchestral_temporal.adapters.tools.workspace.paths import open_file
from orchestral_temporal.adapters.tools.workspace.targets import Target, look
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.adapters.tools.workspace.words import FileChange, MutationOutput
from orchestral_temporal.ports import EffectUncertain, ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.digest import sha256

FILE_BYTES = 8 << 20
"""Bytes of a file that is changed, before and after: what people edit is far smaller."""

_NEW, _STAGED = 0o666, 0o600
"""Permissions of a new file before the umask, and of one that will get those of the file it replaces."""


@dataclass(frozen=True)
class Before:
    """A file as it was read."""

    content: bytes
    status: os.stat_result


@dataclass(frozen=True)
class Change:
    """What is to become of a target: a new file if there is no `before`, no file if there is no `after`."""

    target: Target
    before: Before | None
    after: bytes | None

    @property
    def operation(self) -> Literal["add", "update", "delete"]:
        """What is done."""
        if self.before is None:
            return "add"
        return "delete" if self.after is None else "update"

    def word(self) -> FileChange:
        """The change as the output tells it."""
        before = None if self.before is None else self.before.content
        content = before if self.after is None else self.after
        return FileChange(
            operation=self.operation,
            path=self.target.shown,
            bytes=len(content or b""),
            before_digest=None if before is None else sha256(before),
            after_digest=None if self.after is None else sha256(self.after),
        )


def new_file(target: Target, content: bytes) -> Change:
    """A change that makes a file.

    Raises:
        ToolRejected: something stands there (`patch_conflict`), or the content is too large.
    """
    if look(target) is not None:
        raise _conflict(target, "exists already; replace or edit it")
    return Change(target, None, check_size(content, target.shown))


def existing(target: Target) -> Before:
    """The file at a target.

    Raises:
        ToolRejected: there is none, or it is no file, a symlink, or too large.
        ToolFailed: it cannot be read (`patch_read_failed`).
    """
    if look(target) is None:
        raise _conflict(target, "does not exist; look for the file")
    try:
        with open_file(target.name, target.folder) as stream:
            content = stream.read(FILE_BYTES + 1)
            return Before(check_size(content, target.shown), os.fstat(stream.fileno()))
    except OSError as error:
        raise _failed("patch_read_failed", target, "read", error) from error


def check_size(content: bytes, shown: str) -> bytes:
    """The content, if a file may hold as much.

    Raises:
        ToolRejected: it is too large (`patch_file_too_large`).
    """
    if len(content) > FILE_BYTES:
        raise ToolRejected(
            "patch_file_too_large",
            f"{shown!r} has more than {FILE_BYTES} bytes, before the change or after it; split it.",
        )
    return content


def carry_out(workspace: str, changes: Sequence[Change], call: ToolCall, watch: Watch) -> JsonObject:
    """Make the changes, one by one, and tell of them.

    Raises:
        ToolRejected: a file is not what it was (`patch_conflict`); nothing was changed.
        ToolFailed: a file could not be written, or the time is up; nothing was changed.
        EffectUncertain: something was changed, and then something failed.
        Abandoned, NotStarted: nobody wants the changes; nothing was changed.
    """
    with ExitStack() as staged:
        steps: list[Callable[[], None]] = []
        for change in changes:
            watch.check()
            steps.append(staged.enter_context(_prepared(change)))
        call.confirm().result()
        for change in changes:
            _check_unmoved(change)
        watch.check()
        for done, (change, step) in enumerate(zip(changes, steps, strict=True)):
            try:
                step()
            except Exception as error:
                if not done:
                    raise
                made = ", ".join(repr(each.target.shown) for each in changes[:done])
                raise EffectUncertain(f"{error} Changed before that: {made}.") from error
            _make_durable(change.target)
    return MutationOutput(
        workspace=workspace, changed_files=len(changes), changes=tuple(change.word() for change in changes)
    ).model_dump(mode="json")


@contextmanager
def _prepared(change: Change) -> Generator[Callable[[], None]]:
    """Write what the change needs; gives the step that makes it, and leaves nothing else behind."""
    target = change.target
    if change.after is None:
        yield lambda: _delete(target)
        return
    name = f".orchestral-patch-{os.getpid()}-{uuid4()}.tmp"
    try:
        _stage(name, change, change.after)
        yield lambda: _update(name, target) if change.before is not None else _add(name, target)
    finally:
        # What a file is renamed to is no longer here; what cannot be removed holds nothing that anybody needs.
        with suppress(OSError):
            os.unlink(name, dir_fd=target.folder)


def _stage(name: str, change: Change, content: bytes) -> None:
    """Write the content to a new file that is durable and has the permissions of the one it replaces."""
    target, before = change.target, change.before
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, _NEW if before is None else _STAGED, dir_fd=target.folder)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            if before is not None:
                _keep_permissions(descriptor, before.status, target)
            os.fsync(descriptor)
    except OSError as error:
        raise _failed("patch_stage_failed", target, "written", error) from error


def _keep_permissions(descriptor: int, status: os.stat_result, target: Target) -> None:
    """Give a file the owner and the permissions of another, but no right to run as its owner."""
    try:
        with suppress(OSError):  # few may give files away, and not every file system knows owners
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
    except OSError as error:
        raise _failed("patch_metadata_failed", target, "given its permissions", error) from error


def _check_unmoved(change: Change) -> None:
    now = None if look(change.target) is None else existing(change.target).content
    if now != (None if change.before is None else change.before.content):
        raise _conflict(change.target, "was changed meanwhile; read it again")


def _add(name: str, target: Target) -> None:
    try:
        os.link(name, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder, follow_symlinks=False)
    except FileExistsError as error:
        raise _conflict(target, "was made by somebody else meanwhile; read it") from error
    except OSError as error:
        raise _failed("patch_add_failed", target, "added", error) from error
    with suppress(OSError):
        os.unlink(name, dir_fd=target.folder)


def _update(name: str, target: Target) -> None:
    try:
        os.replace(name, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder)
    except OSError as error:
        raise _failed("patch_update_failed", target, "replaced", error) from error


def _delete(target: Target) -> None:
    try:
        os.unlink(target.name, dir_fd=target.folder)
    except OSError as error:
        raise _failed("patch_delete_failed", target, "deleted", error) from error


def _make_durable(target: Target) -> None:
    try:
        os.fsync(target.folder)
    except OSError as error:
        raise EffectUncertain(
            f"{target.shown!r} was changed, and its folder cannot be made durable: {error.strerror}."
        ) from error


def _conflict(target: Target, fault: str) -> ToolRejected:
    return ToolRejected("patch_conflict", f"{target.shown!r} {fault}; nothing was written.")


def _failed(code: str, target: Target, deed: str, error: OSError) -> ToolFailed:
    return ToolFailed(code, f"{target.shown!r} cannot be {deed}: {error.strerror}.")
