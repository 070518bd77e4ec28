"""Ignore files: `.ignore` over `.gitignore` over `.git/info/exclude`, a deeper one over a higher one (§9)."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from orchestral_temporal.adapters.tools.workspace.paths import open_file, open_folder

IGNORE_FILE_BYTES = 256 << 10
"""Bytes of an ignore file that is honoured; a hundred times what people write."""

_SOURCES = ((".ignore",), (".gitignore",), (".git", "info", "exclude"))


@dataclass(frozen=True)
class _Layer:
    rank: int
    prefix: str
    spec: GitIgnoreSpec


@dataclass(frozen=True)
class Ignores:
    """The rules that hold in one folder; the first layer with an opinion decides."""

    layers: tuple[_Layer, ...] = ()

    def ignored(self, path: str, *, folder: bool) -> bool:
        """Whether the entry at `path`, relative to the workspace, is to be left out."""
        for layer in self.layers:
            verdict = layer.spec.check_file(path[len(layer.prefix) :] + ("/" if folder else "")).include
            if verdict is not None:
                return verdict
        return False

    def within(self, folder: int, prefix: str, warn: Callable[[str], None]) -> "Ignores":
        """These rules and those that lie in the open `folder`, whose path is `prefix` (empty or ending in `/`)."""
        found = [
            _Layer(rank, prefix, spec)
            for rank, source in enumerate(_SOURCES)
            if (spec := _read(folder, prefix, source, warn)) is not None
        ]
        # The sort is stable, so inside a rank the new, deeper layer stays in front.
        return Ignores(tuple(sorted((*found, *self.layers), key=lambda layer: layer.rank))) if found else self


def _read(folder: int, prefix: str, source: tuple[str, ...], warn: Callable[[str], None]) -> GitIgnoreSpec | None:
    with ExitStack() as opened:
        try:
            for name in source[:-1]:
                folder = opened.enter_context(open_folder(name, folder))
            data = opened.enter_context(open_file(source[-1], folder)).read(IGNORE_FILE_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None  # In a linked worktree `.git` is a file.
        except OSError as error:
            warn(f"{prefix}{'/'.join(source)} was not honoured: {error.strerror}.")
            return None
    if len(data) > IGNORE_FILE_BYTES:
        warn(f"{prefix}{'/'.join(source)} was not honoured: it is larger than {IGNORE_FILE_BYTES} bytes.")
        return None
    return _parse(data.decode("utf-8-sig", errors="replace").splitlines())


# What the library raises for a line that git passes over; the warning counts where warnings are errors.
_NO_PATTERN = (ValueError, re.error, FutureWarning)


def _parse(lines: list[str]) -> GitIgnoreSpec:
    # The linear matcher: an ignore file comes with the workspace, from strangers.
    try:
        return GitIgnoreSpec.from_lines(lines, backend="re2")
    except _NO_PATTERN:
        return GitIgnoreSpec.from_lines([line for line in lines if _meaningful(line)], backend="re2")


def _meaningful(line: str) -> bool:
    """Whether git's rules give the line a meaning; a line without one is passed over, as git does."""
    try:
        GitIgnoreSpec.from_lines([line], backend="re2")
    except _NO_PATTERN:
        return False
    return True
