"""What the tools put out (`spec/builtin-tools.md` §4, §5, §9); views accept exactly these shapes."""

from typing import Literal

from pydantic import Field

from orchestral_temporal.protocol.base import JsonObject, Word


class FileReadOutput(Word):
    """One page of a file; lines count from 1, sizes are bytes, digests lower-case hex SHA-256."""

    workspace: str
    path: str
    revision: str
    content: str
    content_digest: str
    start_line: int
    end_line: int
    next_offset: int
    eof: bool
    truncated: bool
    truncation_reasons: tuple[str, ...]
    truncated_line_numbers: tuple[int, ...]
    file_size_bytes: int
    scanned_bytes: int


class TextMatch(Word):
    """A line with a match; `column` counts characters from 1, the byte offsets count inside the line from 0."""

    path: str
    line_number: int
    column: int
    match_start_byte: int
    match_end_byte: int
    preview: str
    preview_truncated: bool
    context_before: tuple[str, ...]
    context_after: tuple[str, ...]


class SearchStats(Word):
    """How much one search looked at."""

    scanned_entries: int
    considered_files: int
    searched_files: int
    scanned_bytes: int
    skipped_binary_files: int
    skipped_unreadable_files: int


class _SearchOutput(Word):
    workspace: str
    root: str
    count: int
    completeness: Literal["complete", "partial"]
    partial_reasons: tuple[str, ...]
    refinement: str
    warnings: tuple[str, ...]
    stats: SearchStats


class FileSearchOutput(_SearchOutput):
    """Paths that match a glob, sorted."""

    matches: tuple[str, ...]


class TextSearchOutput(_SearchOutput):
    """Lines that match a pattern, in the order of the walk."""

    matches: tuple[TextMatch, ...]


class FileChange(Word):
    """One file that was changed: its `bytes` after the change, or before a delete; digests of the whole file."""

    operation: Literal["add", "update", "delete"]
    path: str
    bytes: int
    before_digest: str | None = Field(default=None, exclude_if=lambda digest: digest is None)
    after_digest: str | None = Field(default=None, exclude_if=lambda digest: digest is None)


class MutationOutput(Word):
    """What a call changed, in the order in which it did; nothing if the files were as wanted already."""

    workspace: str
    changed_files: int
    changes: tuple[FileChange, ...]


_TEXT: JsonObject = {"type": "string"}
_COUNT: JsonObject = {"type": "integer"}
_FLAG: JsonObject = {"type": "boolean"}


WORKSPACE: JsonObject = {
    "type": "string",
    "description": "Workspace folder, as earlier results name it. Default: the primary one.",
}
"""The property that all tools share."""


def closed(properties: JsonObject, required: list[str] | None = None) -> JsonObject:
    """The schema of an object with these properties and no other; all are required unless said."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": [*(properties if required is None else required)],
    }


def _list_of(items: JsonObject) -> JsonObject:
    return {"type": "array", "items": items}


# Written out rather than derived from the models above: the schemas are part of a descriptor's digest, which must not
# change with the library that derives.
FILE_READ_SCHEMA = closed(
    {
        **dict.fromkeys(("workspace", "path", "revision", "content", "content_digest"), _TEXT),
        **dict.fromkeys(("start_line", "end_line", "next_offset", "file_size_bytes", "scanned_bytes"), _COUNT),
        **dict.fromkeys(("eof", "truncated"), _FLAG),
        "truncation_reasons": _list_of(_TEXT),
        "truncated_line_numbers": _list_of(_COUNT),
    }
)

_TEXT_MATCH_SCHEMA = closed(
    {
        **dict.fromkeys(("path", "preview"), _TEXT),
        **dict.fromkeys(("line_number", "column", "match_start_byte", "match_end_byte"), _COUNT),
        "preview_truncated": _FLAG,
        **dict.fromkeys(("context_before", "context_after"), _list_of(_TEXT)),
    }
)


def _search_schema(match: JsonObject) -> JsonObject:
    return closed(
        {
            **dict.fromkeys(("workspace", "root", "refinement"), _TEXT),
            "matches": _list_of(match),
            "count": _COUNT,
            "completeness": {"enum": ["complete", "partial"]},
            **dict.fromkeys(("partial_reasons", "warnings"), _list_of(_TEXT)),
            "stats": closed(dict.fromkeys(SearchStats.model_fields, _COUNT)),
        }
    )


MUTATION_SCHEMA = closed(
    {
        "workspace": _TEXT,
        "changed_files": _COUNT,
        "changes": _list_of(
            closed(
                {
                    "operation": {"enum": ["add", "update", "delete"]},
                    **dict.fromkeys(("path", "before_digest", "after_digest"), _TEXT),
                    "bytes": _COUNT,
                },
                required=["operation", "path", "bytes"],
            )
        ),
    }
)

FILE_SEARCH_SCHEMA = _search_schema(_TEXT)
TEXT_SEARCH_SCHEMA = _search_schema(_TEXT_MATCH_SCHEMA)
