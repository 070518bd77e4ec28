"""Walking a workspace: depth first, names sorted, no symlink followed, ignore files honoured (§9)."""

import os
import stat
from collections.abc import Generator
from dataclasses import dataclass, field

from orchestral_temporal.adapters.tools.workspace.ignores import Ignores
from orchestral_temporal.adapters.tools.workspace.paths import Place, open_folder, shown
from orchestral_temporal.adapters.tools.workspace.watch import Watch

ENTRIES = 100_000
"""Directory entries one search looks at: a few seconds of work."""

DEPTH = 256
"""Folders inside folders: each level holds a descriptor, of which a process has about a thousand."""

WARNINGS, WARNING_CHARACTERS = 8, 512
"""How many warnings a result carries, and characters of each."""

NOISE = frozenset({".git", ".orchestral", "target", "node_modules", "__pycache__"})
"""Folders that hold copies and products, never what people search; only a `path` that is one opens it."""


@dataclass
class Scan:
    """What one search has looked at, and why it is not complete."""

    watch: Watch
    scanned_entries: int = 0
    considered_files: int = 0
    searched_files: int = 0
    scanned_bytes: int = 0
    skipped_binary_files: int = 0
    skipped_unreadable_files: int = 0
    reasons: set[str] = field(default_factory=set[str])
    warnings: list[str] = field(default_factory=list[str])
    stopped: bool = False

    def stop(self, reason: str) -> None:
        """End the search here, incomplete."""
        self.reasons.add(reason)
        self.stopped = True

    def going(self) -> bool:
        """Whether the search goes on.

        Raises:
            Abandoned: nobody waits for the result.
        """
        if not self.stopped and self.watch.expired():
            self.stop("timeout")
        return not self.stopped

    def fail(self, reason: str, path: str, error: OSError) -> None:
        """Note that `path` could not be looked at; the search goes on."""
        self.reasons.add(reason)
        self.warn(f"{path} could not be read: {error.strerror}.")

    def warn(self, message: str) -> None:
        """Keep a warning while there is room."""
        if len(self.warnings) < WARNINGS:
            self.warnings.append(message[:WARNING_CHARACTERS])


@dataclass(frozen=True)
class Entry:
    """A file or folder; `name` in the open folder `holder`, which is open until the next entry is asked for."""

    path: str
    name: str
    is_folder: bool
    holder: int


def walk(place: Place, scan: Scan) -> Generator[Entry]:
    """Yield the entries below `place`, or `place` itself if it is a file.

    The walk begins at the workspace root, so what an ignore file above `place` leaves out stays out.
    """
    try:
        with open_folder(place.root) as root:
            yield from _descend(place, 0, root, Ignores(), scan)
    except OSError as error:
        scan.fail("scan_error", place.shown, error)


def _descend(place: Place, depth: int, holder: int, rules: Ignores, scan: Scan) -> Generator[Entry]:
    """Go through the components of the place's path, then list what is below."""
    prefix = "".join(f"{shown(part)}/" for part in place.parts[:depth])
    rules = rules.within(holder, prefix, scan.warn)
    if depth == len(place.parts):
        yield from _below(holder, prefix, rules, scan, depth)
        return
    name, last = place.parts[depth], depth == len(place.parts) - 1
    entry = Entry(prefix + shown(name), name, is_folder=not last or _is_folder(name, holder), holder=holder)
    if rules.ignored(entry.path, folder=entry.is_folder) or (name in NOISE and not last):
        scan.warn(f"{entry.path} is an ignored entry, so nothing in it was searched.")
    elif entry.is_folder:
        with open_folder(name, holder) as folder:
            yield from _descend(place, depth + 1, folder, rules, scan)
    else:
        scan.scanned_entries += 1
        yield entry


def _is_folder(name: str, holder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=holder, follow_symlinks=False).st_mode)


def _below(holder: int, prefix: str, rules: Ignores, scan: Scan, depth: int) -> Generator[Entry]:
    for name, is_folder in _listing(holder, scan):
        if not scan.going():
            return
        entry = Entry(prefix + shown(name), name, is_folder, holder)
        if (is_folder and name in NOISE) or rules.ignored(entry.path, folder=is_folder):
            continue
        yield entry
        if is_folder:
            yield from _inside(entry, rules, scan, depth + 1)


def _inside(entry: Entry, rules: Ignores, scan: Scan, depth: int) -> Generator[Entry]:
    if depth > DEPTH:
        scan.reasons.add("scan_limit")
        return
    try:
        with open_folder(entry.name, entry.holder) as folder:
            prefix = f"{entry.path}/"
            yield from _below(folder, prefix, rules.within(folder, prefix, scan.warn), scan, depth)
    except OSError as error:
        scan.fail("scan_error", entry.path, error)


def _listing(holder: int, scan: Scan) -> list[tuple[str, bool]]:
    """Regular files and folders, sorted by name; links, pipes and devices are looked at and left out."""
    names: list[tuple[str, bool]] = []
    with os.scandir(holder) as entries:
        for entry in entries:
            if scan.scanned_entries >= ENTRIES:
                # Not a stop: what is listed already is still worth searching.
                scan.reasons.add("scan_limit")
                break
            if not scan.going():
                break
            scan.scanned_entries += 1
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder or entry.is_file(follow_symlinks=False):
                names.append((entry.name, is_folder))
    return sorted(names)
