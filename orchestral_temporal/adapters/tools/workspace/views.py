"""What a model sees of an output: less than all of it, and nothing else (`spec/builtin-tools.md` §3).

An output that is not exactly what its tool puts out, or that contradicts itself, is shown unchanged.
"""

import hashlib
import json

from orchestral_temporal.adapters.tools.workspace.words import (
    FileChange,
    FileReadOutput,
    FileSearchOutput,
    MutationOutput,
    TextSearchOutput,
)
from orchestral_temporal.protocol.base import Json, JsonObject

_PAGE_KEYS = ("start_line", "end_line", "next_offset", "eof", "truncated")


def file_read_view(arguments: JsonObject, output: Json) -> Json:
    """Path and content; the place of the page unless it is the whole file."""
    try:
        read = FileReadOutput.model_validate_json(json.dumps(output))
    except ValueError:
        return output
    if not _page_consistent(read):
        return output
    whole = _whole(read)
    page: JsonObject = {} if whole else {key: getattr(read, key) for key in _PAGE_KEYS}
    lists: JsonObject = {
        "truncation_reasons": [*read.truncation_reasons],
        "truncated_line_numbers": [*read.truncated_line_numbers],
    }
    return {
        "path": read.path,
        "content": read.content,
        **_asked_workspace(arguments, read.workspace),
        **page,
        **({} if whole else _non_empty(lists)),
    }


def _page_consistent(read: FileReadOutput) -> bool:
    content = read.content.encode()
    return (
        hashlib.sha256(content).hexdigest() == read.content_digest
        and read.start_line != 0
        and read.truncated == bool(read.truncation_reasons)
        and (read.truncated or not read.truncated_line_numbers)
        and (not _whole(read) or read.file_size_bytes == len(content))
    )


def _whole(read: FileReadOutput) -> bool:
    return read.start_line == 1 and read.eof and not read.truncated


def mutation_view(arguments: JsonObject, output: Json) -> Json:
    """The changes, without the digests, which are for the host's own checks."""
    try:
        mutation = MutationOutput.model_validate_json(json.dumps(output))
    except ValueError:
        return output
    if mutation.changed_files != len(mutation.changes) or not all(map(_digests_fit, mutation.changes)):
        return output
    return {
        "changed_files": mutation.changed_files,
        "changes": [
            {"operation": change.operation, "path": change.path, "bytes": change.bytes} for change in mutation.changes
        ],
        **_asked_workspace(arguments, mutation.workspace),
    }


def _digests_fit(change: FileChange) -> bool:
    present = (change.before_digest is not None, change.after_digest is not None)
    return present == (change.operation != "add", change.operation != "delete")


def file_search_view(arguments: JsonObject, output: Json) -> Json:
    """The matches, and only what there is to say about what is missing."""
    return _search_view(FileSearchOutput, arguments, output)


def text_search_view(arguments: JsonObject, output: Json) -> Json:
    """The matches, and only what there is to say about what is missing."""
    return _search_view(TextSearchOutput, arguments, output)


def _search_view(shape: type[FileSearchOutput | TextSearchOutput], arguments: JsonObject, output: Json) -> Json:
    try:
        search = shape.model_validate_json(json.dumps(output))
    except ValueError:
        return output
    complete = search.completeness == "complete"
    if search.count != len(search.matches) or complete == bool(search.partial_reasons):
        return output
    seen = search.model_dump(mode="json")
    skipped: JsonObject = {key: value for key, value in seen["stats"].items() if key.startswith("skipped_") and value}
    return {
        "root": search.root,
        "matches": seen["matches"],
        "completeness": search.completeness,
        **_asked_workspace(arguments, search.workspace),
        **_non_empty({key: seen[key] for key in ("partial_reasons", "warnings")}),
        **({"refinement": search.refinement} if search.refinement.strip() else {}),
        **_non_empty({"stats": skipped}),
    }


def _asked_workspace(arguments: JsonObject, workspace: str) -> JsonObject:
    return {"workspace": workspace} if "workspace" in arguments else {}


def _non_empty(values: JsonObject) -> JsonObject:
    return {key: value for key, value in values.items() if value}
