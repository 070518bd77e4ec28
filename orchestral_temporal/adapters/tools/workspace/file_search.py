"""`file_search`: paths that match a glob (`spec/builtin-tools.md` §9)."""

from contextlib import closing

from orchestral_temporal.adapters.tools.workspace.arguments import flag, whole
from orchestral_temporal.adapters.tools.workspace.paths import is_folder, locate
from orchestral_temporal.adapters.tools.workspace.patterns import Glob, PatternInvalid
from orchestral_temporal.adapters.tools.workspace.results import search_budget, search_pattern, search_result
from orchestral_temporal.adapters.tools.workspace.walk import Scan, walk
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.adapters.tools.workspace.words import WORKSPACE, closed
from orchestral_temporal.ports import ToolCall, ToolRejected
from orchestral_temporal.protocol.base import JsonObject

_DEFAULT, _CAP = 100, 500

INPUT_SCHEMA = closed(
    {
        "pattern": {
            "type": "string",
            "description": "Glob, matched against the path relative to the workspace and against the file name. "
            "* and ? stay inside one path component, ** as a whole component crosses any number; "
            "[abc], [a-z], [!a] and {one,two} work too. Example: src/**/*.py",
        },
        "path": {
            "type": "string",
            "description": "Folder to search below, relative to the workspace. Default: the whole workspace.",
        },
        "workspace": WORKSPACE,
        "case_sensitive": {"type": "boolean", "description": "Whether capitals matter. Default: true."},
        "include_directories": {"type": "boolean", "description": "Whether folders are found too. Default: false."},
        "limit": {"type": "integer", "description": f"Paths to return. Default {_DEFAULT}, at most {_CAP}."},
    },
    required=["pattern"],
)

DESCRIPTION = (
    "Find files by name. Returns paths relative to the workspace, sorted. Hidden files are included; what ignore files "
    "name, version control and build folders are left out; symlinks are not followed. `completeness` says whether "
    "everything was looked at."
)


def search_files(arguments: JsonObject, call: ToolCall, watch: Watch) -> JsonObject:
    """Find the paths.

    Raises:
        ToolRejected, ToolFailed: the codes of §2 and §9.
        Abandoned: nobody waits for the result.
    """
    place = locate(arguments, call, default=".", missing="workspace_path_missing")
    if not is_folder(place):
        raise ToolRejected(
            "file_search_root_not_directory", f"path is a file: {place.shown!r}; name the folder to search below."
        )
    pattern = search_pattern(arguments, "file_search")
    try:
        glob = Glob(pattern, case_sensitive=flag(arguments, "case_sensitive", default=True))
    except PatternInvalid as error:
        raise ToolRejected("file_search_pattern_invalid", f"pattern is no glob: {error}; correct it.") from error
    with_folders = flag(arguments, "include_directories", default=False)
    limit = whole(arguments, "limit", _DEFAULT, cap=_CAP)
    budget = search_budget(call)
    scan, found = Scan(watch), set[str]()
    with closing(walk(place, scan)) as entries:
        for entry in entries:
            if entry.is_folder > with_folders or not glob.matches(entry.path):
                continue
            found.add(entry.path)
            if len(found) > limit:
                scan.stop("result_limit")
                break
    return search_result(place, scan, [*sorted(found)[:limit]], budget)
