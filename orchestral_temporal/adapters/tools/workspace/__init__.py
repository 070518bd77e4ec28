"""The tools over a run's workspaces: three that read and search, three that write."""

from datetime import timedelta

from orchestral_temporal.adapters.tools.workspace import (
    apply_patch,
    file_edit,
    file_read,
    file_search,
    file_write,
    text_search,
)
from orchestral_temporal.adapters.tools.workspace.tool import Work, WorkspaceTool, descriptor
from orchestral_temporal.adapters.tools.workspace.views import (
    file_read_view,
    file_search_view,
    mutation_view,
    text_search_view,
)
from orchestral_temporal.adapters.tools.workspace.words import (
    FILE_READ_SCHEMA,
    FILE_SEARCH_SCHEMA,
    MUTATION_SCHEMA,
    TEXT_SEARCH_SCHEMA,
)
from orchestral_temporal.ports import Tool
from orchestral_temporal.protocol.base import JsonObject

_SEARCH_LIMIT = timedelta(seconds=15)
"""After this a search returns what it has (`spec/builtin-tools.md` §9)."""

_READ_LIMIT = timedelta(seconds=10)
"""Ten times what the largest page takes; a file system that needs longer is not answering."""

_WRITE_LIMIT = timedelta(seconds=10)
"""Within it the largest files of a patch are made durable; what was not changed by then stays as it is."""


def workspace_tools() -> dict[str, Tool]:
    """The tools by the names that models see; they are the same for every run, the folders come with each call."""
    return {
        "file_read": WorkspaceTool(
            descriptor=descriptor(
                "file_read", 3, file_read.DESCRIPTION, (file_read.INPUT_SCHEMA, FILE_READ_SCHEMA), _READ_LIMIT
            ),
            view_contract="orchestral.builtin-file-read-model-output/v1",
            limit=_READ_LIMIT,
            work=file_read.read_page,
            shown=file_read_view,
            crash_code="file_read_failed",
        ),
        "file_search": WorkspaceTool(
            descriptor=descriptor(
                "file_search", 1, file_search.DESCRIPTION, (file_search.INPUT_SCHEMA, FILE_SEARCH_SCHEMA), _SEARCH_LIMIT
            ),
            view_contract="orchestral.builtin-file-search-model-output/v1",
            limit=_SEARCH_LIMIT,
            work=file_search.search_files,
            shown=file_search_view,
            crash_code="file_search_worker_failed",
        ),
        "text_search": WorkspaceTool(
            descriptor=descriptor(
                "text_search", 1, text_search.DESCRIPTION, (text_search.INPUT_SCHEMA, TEXT_SEARCH_SCHEMA), _SEARCH_LIMIT
            ),
            view_contract="orchestral.builtin-text-search-model-output/v1",
            limit=_SEARCH_LIMIT,
            work=text_search.search_text,
            shown=text_search_view,
            crash_code="text_search_worker_failed",
        ),
        "file_write": _writing("file_write", file_write.DESCRIPTION, file_write.INPUT_SCHEMA, file_write.write_file),
        "file_edit": _writing("file_edit", file_edit.DESCRIPTION, file_edit.INPUT_SCHEMA, file_edit.edit_file),
        "apply_patch": _writing(
            "apply_patch", apply_patch.DESCRIPTION, apply_patch.INPUT_SCHEMA, apply_patch.apply_patch
        ),
    }


def _writing(name: str, description: str, input_schema: JsonObject, work: Work) -> Tool:
    return WorkspaceTool(
        descriptor=descriptor(name, 1, description, (input_schema, MUTATION_SCHEMA), _WRITE_LIMIT, writes=True),
        view_contract="orchestral.builtin-mutation-model-output/v1",
        limit=_WRITE_LIMIT,
        work=work,
        shown=mutation_view,
        crash_code="patch_workspace_failed",
    )
