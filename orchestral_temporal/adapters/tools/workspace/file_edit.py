"""`file_edit`: replace texts that occur once in a file (`spec/builtin-tools.md` §7)."""

from dataclasses import dataclass

from orchestral_temporal.adapters.tools.workspace.changes import FILE_BYTES, Change, carry_out, check_size, existing
from orchestral_temporal.adapters.tools.workspace.targets import normal_path, text_bytes, writable_workspace
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.adapters.tools.workspace.words import WORKSPACE, closed
from orchestral_temporal.ports import ToolCall, ToolRejected
from orchestral_temporal.protocol.base import Json, JsonObject

_INVALID = "file_edit_invalid"

_OLD_TEXT: JsonObject = {
    "type": "string",
    "description": "Text to be replaced, with all its blanks and line ends. It must occur exactly once in the file.",
}
_NEW_TEXT: JsonObject = {"type": "string", "description": "Text that takes its place."}

INPUT_SCHEMA = closed(
    {
        "path": {"type": "string", "description": "File to edit, relative to the workspace, without '.' and '..'."},
        "workspace": WORKSPACE,
        "old_text": _OLD_TEXT,
        "new_text": _NEW_TEXT,
        "edits": {
            "type": "array",
            "description": "Several edits at once, instead of old_text and new_text. All are made or none.",
            "items": closed({"old_text": _OLD_TEXT, "new_text": _NEW_TEXT}),
        },
    },
    required=["path"],
)

DESCRIPTION = (
    "Replace texts in a UTF-8 file, in one step: either `old_text` by `new_text`, or several `edits`. Each old text is "
    "looked for in the file as it is now and must occur exactly once; take in a neighbouring line where it does not."
)


@dataclass(frozen=True)
class _Edit:
    """One replacement; `name` says which of several it is."""

    old: bytes
    new: bytes
    name: str


def edit_file(arguments: JsonObject, call: ToolCall, watch: Watch) -> JsonObject:
    """Make the edits.

    Raises:
        ToolRejected, ToolFailed: the codes of §2, §5 and §7; nothing was changed.
        EffectUncertain, Abandoned, NotStarted: see `carry_out`.
    """
    edits = _edits(arguments)
    path = _path(arguments)
    for side in ([edit.old for edit in edits], [edit.new for edit in edits]):
        if sum(map(len, side)) > FILE_BYTES:
            raise ToolRejected("patch_file_too_large", f"The texts of the edits have more than {FILE_BYTES} bytes.")
    workspace = writable_workspace(arguments, call)
    with workspace.target(path) as target:
        before = existing(target)
        _check_text(before.content, target.shown)
        after = check_size(_edited(before.content, edits), target.shown)
        changes = [] if after == before.content else [Change(target, before, after)]
        return carry_out(workspace.selector, changes, call, watch)


def _path(arguments: JsonObject) -> tuple[str, ...]:
    path, workspace = arguments.get("path"), arguments.get("workspace", "as by default")
    if not isinstance(path, str) or "\0" in path:
        raise ToolRejected(_INVALID, "path must be text without NUL.")
    if not isinstance(workspace, str) or not workspace or workspace != workspace.strip():
        raise ToolRejected(_INVALID, "workspace must be a folder as earlier results name it; leave it out.")
    return normal_path(path, "file_edit_path_invalid")


def _edits(arguments: JsonObject) -> list[_Edit]:
    given = {"old_text", "new_text", "edits"} & arguments.keys()
    if given == {"old_text", "new_text"}:
        return [_edit(arguments, "")]
    several = arguments.get("edits")
    if given != {"edits"} or not isinstance(several, list) or not several:
        raise ToolRejected(_INVALID, "Give old_text and new_text, or edits with at least one of them, not both.")
    if len(several) == 1:
        return [_edit(several[0], "")]
    return [_edit(each, f"edits[{index}]: ") for index, each in enumerate(several)]


def _edit(given: Json, name: str) -> _Edit:
    old, new = (given.get("old_text"), given.get("new_text")) if isinstance(given, dict) else (None, None)
    if not isinstance(old, str) or not isinstance(new, str) or not old:
        raise ToolRejected(_INVALID, f"{name}old_text and new_text must be texts, and old_text must not be empty.")
    return _Edit(text_bytes(old, f"{name}old_text", _INVALID), text_bytes(new, f"{name}new_text", _INVALID), name)


def _check_text(content: bytes, shown: str) -> None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise ToolRejected("file_edit_not_utf8", f"{shown!r} is not UTF-8 text, so it cannot be edited.") from error
    if b"\0" in content:
        raise ToolRejected("file_edit_not_text", f"{shown!r} has a NUL in it, so it is no text to be edited.")


def _edited(content: bytes, edits: list[_Edit]) -> bytes:
    """The content with all edits made; each is looked for in the content as it was."""
    found = sorted(((_place(content, edit), edit) for edit in edits), key=lambda each: each[0])
    pieces: list[bytes] = []
    end = 0
    for start, edit in found:
        if start < end:
            raise ToolRejected("file_edit_overlap", f"{edit.name}old_text overlaps that of another edit; join the two.")
        pieces += [content[end:start], edit.new]
        end = start + len(edit.old)
    return b"".join([*pieces, content[end:]])


def _place(content: bytes, edit: _Edit) -> int:
    start = content.find(edit.old)
    if start < 0:
        raise ToolRejected("file_edit_no_match", f"{edit.name}old_text is not in the file{_hint(content, edit.old)}.")
    if content.find(edit.old, start + 1) >= 0:
        raise ToolRejected(
            "file_edit_ambiguous", f"{edit.name}old_text is more than once in the file; take in a line beside it."
        )
    return start


def _hint(content: bytes, old: bytes) -> str:
    """What else to try: line ends are what models cannot see."""
    other_ends = old.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    if other_ends in content:
        return ", whose lines end in CRLF; write them so"
    return "; read the file again and copy it exactly, with its blanks"
