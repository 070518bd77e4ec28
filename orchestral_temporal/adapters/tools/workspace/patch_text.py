"""The text of a patch, and what its hunks make of a file (`spec/builtin-tools.md` §8, divergence 22).

A hunk is looked for by its lines alone: where a file's lines end in CRLF, the patch may end its own in LF, and what it
adds ends as the line before it does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestral_temporal.adapters.tools.workspace.targets import normal_path, text_bytes
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.ports import ToolRejected

PATCH_BYTES = 1 << 20
"""Bytes of a patch."""

OPERATIONS = 64
"""Files that one patch changes."""

INVALID = "patch_invalid"

_BEGIN, _END, _DIRECTIVE, _HUNK = "*** Begin Patch", "*** End Patch", "*** ", "@@"
_ADD, _UPDATE, _DELETE = "*** Add File: ", "*** Update File: ", "*** Delete File: "
_CONTEXT, _REMOVED, _ADDED = " ", "-", "+"


@dataclass(frozen=True)
class AddFile:
    """A new file with its content."""

    path: tuple[str, ...]
    content: bytes


@dataclass(frozen=True)
class Hunk:
    """Lines, each after its mark: context, removed or added."""

    lines: tuple[str, ...]

    def side(self, mark: str) -> str:
        """The lines of one side, a line end after each: before the change (removed) or after it (added)."""
        return "".join(f"{line[1:]}\n" for line in self.lines if line[0] in {_CONTEXT, mark})


@dataclass(frozen=True)
class UpdateFile:
    """Hunks, each for the text that the one before it left."""

    path: tuple[str, ...]
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True)
class DeleteFile:
    """A file that is to go."""

    path: tuple[str, ...]


Operation = AddFile | UpdateFile | DeleteFile


def read_patch(text: str) -> list[Operation]:
    """The operations of a patch.

    Raises:
        ToolRejected: it is none (`patch_invalid`).
    """
    if len(text_bytes(text, "patch", INVALID)) > PATCH_BYTES:
        raise _invalid(f"is larger than {PATCH_BYTES} bytes; split it")
    if "\r" in text and "\r\n" not in text:
        raise _invalid("has carriage returns that end no line; leave them out")
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if len(lines) < len((_BEGIN, _END)) or (lines[0], lines[-1]) != (_BEGIN, _END):
        raise _invalid(f"must begin with the line {_BEGIN!r} and end with {_END!r}")
    starts = [index for index, line in enumerate(lines) if line.startswith(_DIRECTIVE)][1:]
    if starts[0] != 1:
        raise _invalid("has lines before its first operation; begin with one")
    if not 0 < len(starts) - 1 <= OPERATIONS:
        raise _invalid(f"must have from 1 to {OPERATIONS} operations")
    operations = [_operation(lines[start], lines[start + 1 : end]) for start, end in pairwise(starts)]
    if len({operation.path for operation in operations}) < len(operations):
        raise _invalid("names a file twice; join the two operations")
    return operations


def _operation(directive: str, body: Sequence[str]) -> Operation:
    if directive.startswith(_ADD):
        if not all(line.startswith(_ADDED) for line in body):
            raise _invalid(f"has a line after {directive!r} that does not begin with '+'")
        content = "".join(f"{line[1:]}\n" for line in body)
        return AddFile(normal_path(directive.removeprefix(_ADD), INVALID), content.encode())
    if directive.startswith(_UPDATE):
        return UpdateFile(normal_path(directive.removeprefix(_UPDATE), INVALID), _hunks(directive, body))
    if directive.startswith(_DELETE) and not body:
        return DeleteFile(normal_path(directive.removeprefix(_DELETE), INVALID))
    raise _invalid(f"has {directive!r}, which is no operation or has lines that it cannot have")


def _hunks(directive: str, body: Sequence[str]) -> tuple[Hunk, ...]:
    starts = [index for index, line in enumerate(body) if line.startswith(_HUNK)]
    if not starts or starts[0] != 0:
        raise _invalid(f"must go on with a line '@@' after {directive!r}")
    hunks = [
        # An empty line is an empty line of context whose blank was lost on the way.
        Hunk(tuple(line or _CONTEXT for line in body[start + 1 : end]))
        for start, end in zip(starts, [*starts[1:], len(body)], strict=True)
    ]
    for hunk in hunks:
        marks = {line[0] for line in hunk.lines}
        if not marks <= {_CONTEXT, _REMOVED, _ADDED}:
            raise _invalid(f"has a line after {directive!r} that begins with none of ' ', '-' and '+'")
        if marks <= {_CONTEXT}:
            raise _invalid(f"has a hunk after {directive!r} that changes nothing")
    return tuple(hunks)


@dataclass
class _Lines:
    """A file's lines: `text` has a line end before the first and after each, `crlf` says which end in CRLF."""

    text: str
    crlf: bytearray
    ended: bool

    @classmethod
    def of(cls, content: str) -> "_Lines":
        ended = content.endswith("\n")
        crlf = bytearray(line.endswith("\r") for line in content.split("\n")[:-1])
        if content and not ended:
            crlf += crlf[-1:] or b"\0"
        return cls("\n" + content.replace("\r\n", "\n") + ("\n" if content and not ended else ""), crlf, ended)

    def apply(self, hunk: Hunk, shown: str) -> None:
        """Put the lines of a hunk in the place of the only ones that it fits.

        Raises:
            ToolRejected: it fits nowhere, or more than once (`patch_conflict`).
        """
        # The line end before it makes the search begin at a line; a hunk without old lines fits an empty file only.
        old = "\n" + hunk.side(_REMOVED)
        at = self.text.find(old)
        if at < 0:
            raise _conflict(shown, "has no place that the hunk fits; read the file again")
        if self.text.find(old, at + 1) >= 0:
            raise _conflict(shown, "has more than one place that the hunk fits; take in more lines of context")
        index = self.text.count("\n", 0, at)
        self.text = self.text[: at + 1] + hunk.side(_ADDED) + self.text[at + len(old) :]
        end = index
        ends = bytearray()
        for line in hunk.lines:
            if line[0] == _ADDED:
                before = max(end - 1, 0)
                ends += self.crlf[before : before + 1] or b"\0"
                continue
            if line[0] == _CONTEXT:
                ends += self.crlf[end : end + 1]
            end += 1
        self.crlf[index:end] = ends

    def content(self) -> str:
        """The file as it is written: a last line that had no end has none again."""
        if not any(self.crlf):
            whole = self.text[1:]
        else:
            lines = self.text[1:].split("\n")[:-1]
            whole = "".join(line + ("\r\n" if crlf else "\n") for line, crlf in zip(lines, self.crlf, strict=True))
        return whole if self.ended else whole.removesuffix("\r\n" if any(self.crlf[-1:]) else "\n")


def patched(content: str, hunks: Sequence[Hunk], shown: str, watch: Watch) -> str:
    """The content after all hunks.

    Raises:
        ToolRejected: a hunk does not fit, or all together change nothing (`patch_conflict`).
        ToolFailed: the time is up.
        Abandoned: nobody waits for the result.
    """
    lines = _Lines.of(content)
    for hunk in hunks:
        watch.check()
        lines.apply(hunk, shown)
    after = lines.content()
    if after == content:
        raise _conflict(shown, "is what the patch makes of it already")
    return after


def _invalid(fault: str) -> ToolRejected:
    return ToolRejected(INVALID, f"patch {fault}.")


def _conflict(shown: str, fault: str) -> ToolRejected:
    return ToolRejected("patch_conflict", f"{shown!r} {fault}; nothing was written.")
