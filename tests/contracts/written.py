"""Calls of the writing tools that do the same thing, and what a folder then holds."""

import hashlib
import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

NAMES = ["apply_patch", "file_edit", "file_write"]

SYSTEM_CALLS = frozenset(
    {
        "open",
        "lstat",
        "stat",
        "fstat",
        "write",
        "flush",
        "read",
        "fchown",
        "fchmod",
        "fsync",
        "link",
        "replace",
        "unlink",
    }
)
"""Functions of the system that can fail; a `close` cannot, in a way that anybody could act on."""


def digest(content: str | bytes) -> str:
    """The digest of a file."""
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()


def what_is_left(root: Path, content: str | bytes, output: Any) -> Any:
    """The bytes of `f.txt` after a call, or how that was refused, which must have left the file as it was."""
    now = (root / "f.txt").read_bytes()
    if isinstance(output, str):
        assert now == (content if isinstance(content, bytes) else content.encode())
        assert nothing_left(root)
        return output
    return now


def patch(*operations: str) -> str:
    """A patch of these operations."""
    return f"*** Begin Patch\n{''.join(operations)}*** End Patch\n"


def arguments(
    name: str, path: str, mode: str = "replace", *, old: str = "alpha\n", new: str = "beta\n"
) -> dict[str, Any]:
    """What makes a file of lines hold `new`: in place of `old`, or as a new file where the tool can make one."""
    match name, mode:
        case "file_write", "create":
            return {"path": path, "content": new, "mode": "create"}
        case "file_write", _:
            return {"path": path, "content": new, "mode": "replace", "expected_digest": digest(old)}
        case "file_edit", _:
            return {"path": path, "old_text": old, "new_text": new}
        case _, "create":
            return {"patch": patch(f"*** Add File: {path}\n{_marked('+', new)}")}
        case _:
            return {"patch": patch(f"*** Update File: {path}\n@@\n{_marked('-', old)}{_marked('+', new)}")}


def _marked(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}\n" for line in text.removesuffix("\n").split("\n"))


def files_of(folder: Path) -> dict[str, str]:
    """The real files below a folder by their paths, links left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().decode(errors="backslashreplace")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def nothing_left(folder: Path) -> bool:
    """Whether no file of ours stayed behind."""
    return not [*folder.rglob(".orchestral-patch-*")]


@contextmanager
def system_calls(number: int, act: Callable[[], object]) -> Generator[list[str]]:
    """Act just before the system call of that number which this thread makes; gives the names of all made so far."""
    made: list[str] = []

    def look(_frame: FrameType, event: str, called: Any) -> None:
        ours = getattr(called, "__module__", "") == os.name or isinstance(getattr(called, "__self__", None), io.IOBase)
        if event == "c_call" and ours and called.__name__ in SYSTEM_CALLS:
            made.append(called.__name__)
            if len(made) == number:
                act()

    sys.setprofile(look)
    try:
        yield made
    finally:
        sys.setprofile(None)
