"""From a path that a model wrote to a name in an open folder where it may write (`spec/builtin-tools.md` §2, §5).

Unlike a path to read, a path to write leads through no symlink at all, neither below its workspace nor above it: each
folder is opened relative to the one before, from the root of the file system on, and none is followed. Whoever swaps a
folder for a link, at whatever moment, gets a refusal and never a file elsewhere (divergence 25).
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestral_temporal.adapters.tools.workspace.arguments import text
from orchestral_temporal.adapters.tools.workspace.paths import canonical, pass_folder
from orchestral_temporal.ports import ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import JsonObject


@dataclass(frozen=True)
class Target:
    """A file that may be there or not: `name` in the open folder `folder`, `shown` as the model spelt the path."""

    shown: str
    name: str
    folder: int


@dataclass(frozen=True)
class WritableWorkspace:
    """A workspace of a call that may write; `selector` is the folder as the run names it."""

    selector: str
    readable: tuple[str, ...]
    writable: tuple[str, ...]

    @contextmanager
    def target(self, path: tuple[str, ...]) -> Generator[Target]:
        """The target at a path, its folder open.

        Raises:
            ToolRejected: the path leaves the folders where the call may write, or one of its folders is none.
            ToolFailed: a folder cannot be opened (`patch_workspace_failed`).
        """
        shown = "/".join(path)
        parent = Path(self.selector, *path[:-1])
        for roots, deed in ((self.readable, "read"), (self.writable, "write")):
            if ".." in parent.parts or not any(map(parent.is_relative_to, roots)):
                raise _escape(shown, f"lies outside the folders where this run may {deed}")
        folder = self._opened(path[:-1], shown)
        try:
            yield Target(shown, path[-1], folder)
        finally:
            os.close(folder)

    def _opened(self, folders: tuple[str, ...], shown: str) -> int:
        above = Path(self.selector).parts[1:]
        try:
            holder = pass_folder("/")
        except OSError as error:
            raise _unusable(shown, error) from error
        try:
            for depth, name in enumerate((*above, *folders)):
                try:
                    inner = pass_folder(name, holder)
                except OSError as error:
                    raise (self._gone() if depth < len(above) else _no_folder(name, holder, shown)) from error
                os.close(holder)
                holder = inner
            # A descriptor that was opened only to be passed cannot be made durable.
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=holder)
        except OSError as error:
            raise _unusable(shown, error) from error
        finally:
            os.close(holder)

    def _gone(self) -> ToolFailed:
        return ToolFailed(
            "patch_workspace_failed", f"The workspace folder {self.selector!r} is gone, or a link has taken its place."
        )


def writable_workspace(arguments: JsonObject, call: ToolCall) -> WritableWorkspace:
    """The workspace that the arguments name, the primary one if they name none.

    Raises:
        ToolRejected: the policy lets the call write nowhere (`patch_workspace_denied`), or the run has no such
            workspace (`workspace_unknown`).
    """
    selector = text(arguments, "workspace")
    readable, writable = _roots(call.readable_roots), _roots(call.writable_roots)
    for folder in call.workspaces:
        if selector in {"", folder}:
            return WritableWorkspace(folder, readable, writable)
    raise ToolRejected("workspace_unknown", f"workspace is not one of this run's folders: {selector!r}; leave it out.")


def normal_path(path: str, code: str) -> tuple[str, ...]:
    """The components of a path in its normal spelling, the only one that names a file to write.

    Raises:
        ToolRejected: it is spelt otherwise; with the code `code`.
    """
    parts = tuple(path.split("/"))
    if path != path.strip() or not {"", ".", ".."}.isdisjoint(parts) or _encoded(path) is None or "\\" in path:
        raise ToolRejected(
            code, f"path is not in its normal form: {path!r}; give it relative to the workspace, such as 'src/a.py'."
        )
    return parts


def given_text(arguments: JsonObject, key: str, code: str) -> str:
    """The text under `key` as it is.

    Raises:
        ToolRejected: there is none; with the code `code`.
    """
    value = arguments.get(key)
    if not isinstance(value, str):
        raise ToolRejected(code, f"{key} is missing; give it as text.")
    return value


def text_bytes(value: str, key: str, code: str) -> bytes:
    """The UTF-8 of a text for a file.

    Raises:
        ToolRejected: no text file can hold it: it has a NUL, or half a character; with the code `code`.
    """
    raw = _encoded(value)
    if raw is None:
        raise ToolRejected(code, f"{key} has a NUL or half a character in it, which no text file holds; leave it out.")
    return raw


def look(target: Target) -> os.stat_result | None:
    """What stands at the target, if anything; nothing is opened.

    Raises:
        ToolRejected: a symlink (`patch_path_escape`), or no regular file (`patch_target_invalid`).
        ToolFailed: nobody can say (`patch_workspace_failed`).
    """
    try:
        status = os.stat(target.name, dir_fd=target.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(target.shown, error) from error
    if stat.S_ISLNK(status.st_mode):
        raise _escape(target.shown, "is a symlink")
    if not stat.S_ISREG(status.st_mode):
        raise ToolRejected("patch_target_invalid", f"path is no regular file: {target.shown!r}; name a file.")
    return status


def _roots(folders: tuple[str, ...]) -> tuple[str, ...]:
    try:
        roots = tuple(canonical(folder) for folder in folders)
    except (OSError, ValueError):
        roots = ()
    if not roots:
        raise ToolRejected(
            "patch_workspace_denied",
            "This run may write in no folder; its policy has to name folders for it, and all of them have to exist.",
        )
    return roots


def _encoded(value: str) -> bytes | None:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        return None
    return None if b"\0" in raw else raw


def _no_folder(name: str, holder: int, shown: str) -> ToolRejected | ToolFailed:
    """Why `name` in the folder `holder` cannot be entered."""
    try:
        mode = os.stat(name, dir_fd=holder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return ToolRejected("patch_parent_missing", f"path leads into a folder that does not exist: {shown!r}.")
    except OSError as error:
        return _unusable(shown, error)
    if stat.S_ISLNK(mode):
        return _escape(shown, "leads through a symlink")
    if stat.S_ISDIR(mode):
        return ToolFailed("patch_workspace_failed", f"A folder on the way to {shown!r} cannot be entered.")
    return ToolRejected("patch_parent_invalid", f"path leads through a file as if it were a folder: {shown!r}.")


def _escape(shown: str, fault: str) -> ToolRejected:
    return ToolRejected("patch_path_escape", f"path {fault}: {shown!r}; name a real file inside the workspace.")


def _unusable(shown: str, error: OSError) -> ToolFailed:
    return ToolFailed("patch_workspace_failed", f"The folder of {shown!r} cannot be used: {error.strerror}.")
