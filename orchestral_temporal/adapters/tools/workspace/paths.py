"""From a path that a model wrote to an open file below an allowed folder (`spec/builtin-tools.md` §2, divergence 25).

The path is resolved through its symlinks first and judged by where it really leads. It is then opened along those real
components, each relative to the one before and none followed, so whoever swaps one for a link afterwards gets an error
and never a file elsewhere.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestral_temporal.adapters.tools.workspace.arguments import text
from orchestral_temporal.ports import ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import JsonObject

_PASS: int = getattr(os, "O_PATH", os.O_RDONLY)
"""Opening a folder only to go through it; Linux can do that without the right to list it."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class NotRegular(OSError):  # noqa: N818 -- says what the entry is; the caller decides whether that is an error
    """The entry is no regular file."""


@dataclass(frozen=True)
class Place:
    """A real path at or below a workspace root; `parts` are its components below `root`, none a symlink."""

    root: str
    parts: tuple[str, ...]

    @property
    def real(self) -> str:
        """The absolute path."""
        return str(Path(self.root, *self.parts))

    @property
    def shown(self) -> str:
        """The path as people and models see it: relative, `.` for the root."""
        return "/".join(map(shown, self.parts)) or "."


def shown(name: str) -> str:
    """A file name as valid Unicode: bytes that are no UTF-8 become U+FFFD."""
    return os.fsencode(name).decode(errors="replace")


def locate(arguments: JsonObject, call: ToolCall, *, default: str, missing: str) -> Place:
    """Resolve the arguments `path` and `workspace`; a blank path is refused with the code `missing`.

    Raises:
        ToolRejected: the roots, the path or the workspace are not allowed.
        ToolFailed: the workspace folder is gone (`workspace_path_unavailable`).
    """
    readable = _readable_roots(call)
    parts = _components(text(arguments, "path", default), missing)
    root = _workspace(text(arguments, "workspace"), call)
    try:
        real = Path(os.path.realpath(Path(root, *parts)))
    except (OSError, ValueError) as error:
        raise _unavailable("/".join(parts)) from error
    # Judged before it is known to exist: the answer must not tell what exists outside.
    if not (real.is_relative_to(root) and any(map(real.is_relative_to, readable))):
        raise ToolRejected(
            "workspace_path_escape",
            f"path leads outside the folders this run may read: {'/'.join(parts)!r}; use a path inside the workspace.",
        )
    return Place(root, real.relative_to(root).parts)


def _readable_roots(call: ToolCall) -> list[str]:
    if not call.readable_roots:
        raise ToolRejected("filesystem_root_denied", "This run may read no folder; its policy has to allow one.")
    try:
        return [canonical(root) for root in call.readable_roots]
    except (OSError, ValueError) as error:
        raise ToolRejected(
            "filesystem_root_invalid", "A readable folder of the run's policy does not exist; create it or remove it."
        ) from error


def canonical(folder: str) -> str:
    """The real path of an absolute folder.

    Raises:
        ValueError: it is not absolute, or holds a NUL.
        OSError: it does not exist.
    """
    if not Path(folder).is_absolute():
        raise ValueError(folder)
    return os.path.realpath(folder, strict=True)


def _components(path: str, missing: str) -> list[str]:
    if not path:
        raise ToolRejected(missing, "path is blank; give a path relative to the workspace.")
    if path.startswith("/"):
        raise ToolRejected("workspace_path_absolute", f"path is absolute: {path!r}; give it relative to the workspace.")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise ToolRejected("workspace_path_escape", f"path contains '..': {path!r}; name the folder itself.")
    return parts


def _workspace(selector: str, call: ToolCall) -> str:
    """The canonical folder that `selector` names; a blank one names the primary workspace."""
    for folder in call.workspaces:
        try:
            root = canonical(folder)
        except (OSError, ValueError) as error:
            if selector in {"", folder}:
                raise ToolFailed(
                    "workspace_path_unavailable", f"The workspace folder {folder!r} does not exist any more."
                ) from error
            continue
        if selector in {"", root}:
            return root
    raise ToolRejected("workspace_unknown", f"workspace is not one of this run's folders: {selector!r}; leave it out.")


def _unavailable(path: str) -> ToolFailed:
    return ToolFailed("workspace_path_unavailable", f"path cannot be opened: {path!r}; check that it exists.")


@contextmanager
def holding_folder(place: Place) -> Generator[int]:
    """A descriptor of the folder that holds the place; of the root itself if the place is the root.

    Raises:
        ToolFailed: a folder on the way is gone or was swapped (`workspace_path_unavailable`).
    """
    with ExitStack() as opened:
        try:
            folder = pass_folder(place.root)
            opened.callback(os.close, folder)
            for name in place.parts[:-1]:
                folder = pass_folder(name, folder)
                opened.callback(os.close, folder)
        except OSError as error:
            raise _unavailable(place.shown) from error
        yield folder


def pass_folder(name: str, holder: int | None = None) -> int:
    """A descriptor of the folder `name` in `holder`, fit only for opening what is in it; a symlink is an `OSError`."""
    return os.open(name, _PASS | _FOLDER, dir_fd=holder)


def is_folder(place: Place) -> bool:
    """Whether the place is a folder.

    Raises:
        ToolFailed: it is not there (`workspace_path_unavailable`).
    """
    with holding_folder(place) as folder:
        try:
            status = os.stat(place.parts[-1] if place.parts else ".", dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            raise _unavailable(place.shown) from error
    if stat.S_ISLNK(status.st_mode):
        raise _unavailable(place.shown)
    return stat.S_ISDIR(status.st_mode)


@contextmanager
def open_folder(name: str, holder: int | None = None) -> Generator[int]:
    """A descriptor of the folder `name` in `holder`, fit for listing; a symlink is an `OSError`."""
    folder = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=holder)
    try:
        yield folder
    finally:
        os.close(folder)


def open_file(name: str, holder: int) -> BinaryIO:
    """The regular file `name` in the folder `holder`, for reading; never waits, never follows a symlink.

    Raises:
        NotRegular: it is a folder, a pipe, a device or a socket.
        OSError: it is a symlink, or cannot be opened.
    """
    # Looked at first, because merely opening a device can do something.
    _refuse_irregular(os.stat(name, dir_fd=holder, follow_symlinks=False), name)
    descriptor = os.open(name, _FILE, dir_fd=holder)
    try:
        _refuse_irregular(os.fstat(descriptor), name)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_irregular(status: os.stat_result, name: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(errno.EINVAL, "it is no regular file", name)
