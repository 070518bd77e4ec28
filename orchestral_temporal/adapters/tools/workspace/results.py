"""What the two searches have in common around the walk: budgets, trimming, the words of a result (§9)."""

import json

from orchestral_temporal.adapters.tools.workspace.arguments import text
from orchestral_temporal.adapters.tools.workspace.paths import Place
from orchestral_temporal.adapters.tools.workspace.patterns import PATTERN_BYTES
from orchestral_temporal.adapters.tools.workspace.walk import Scan
from orchestral_temporal.adapters.tools.workspace.words import SearchStats
from orchestral_temporal.ports import ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.base import Json, JsonObject

OUTPUT_BYTES = 524_288
"""Bytes of an output where no policy says less."""

_RESERVE, _LEAST = 4096, 4608
"""Bytes kept for everything but the matches, and the smallest output a search can work with."""

_REFINEMENTS = {
    "result_limit": "More matches exist: narrow the pattern or the path, or raise the limit.",
    "scan_limit": "The folder has too many entries: search a folder inside it.",
    "file_limit": "Too many files were to be searched: narrow the path or give an include glob.",
    "byte_limit": "The files are too large together: narrow the path or give an include glob.",
    "timeout": "The search was stopped before its end: narrow the path.",
    "scan_error": "Some folders could not be listed; see the warnings.",
    "read_error": "Some files could not be read; see the warnings.",
    "search_error": "Some lines are too long to be searched; see the warnings.",
    "output_limit": "Not all matches fit: narrow the pattern or the path, or ask for less context.",
}


def search_budget(call: ToolCall) -> int:
    """Bytes that matches, reasons and warnings may take.

    Raises:
        ToolFailed: the output limit is too small for any search (`search_output_limit_too_small`).
    """
    limit = call.max_output_bytes or OUTPUT_BYTES
    if limit < _LEAST:
        raise ToolFailed(
            "search_output_limit_too_small", f"A search needs an output limit of {_LEAST} bytes; this call has {limit}."
        )
    return limit - _RESERVE


def search_pattern(arguments: JsonObject, tool: str) -> str:
    """The trimmed pattern.

    Raises:
        ToolRejected: it is blank or too long; the code begins with the tool's name.
    """
    pattern = text(arguments, "pattern")
    if not pattern:
        raise ToolRejected(f"{tool}_pattern_missing", "pattern is blank; say what to look for.")
    if len(pattern.encode(errors="replace")) > PATTERN_BYTES:
        raise ToolRejected(f"{tool}_pattern_too_large", f"pattern is longer than {PATTERN_BYTES} bytes; shorten it.")
    return pattern


def search_result(place: Place, scan: Scan, matches: list[Json], budget: int) -> JsonObject:
    """The output, its last matches left out where it would pass `budget`."""
    kept = _fitting(matches, scan, budget)
    if len(kept) < len(matches):
        scan.reasons.add("output_limit")
    reasons = sorted(scan.reasons)
    return {
        "workspace": place.root,
        "root": place.shown,
        "matches": kept,
        "count": len(kept),
        "completeness": "partial" if reasons else "complete",
        "partial_reasons": [*reasons],
        "refinement": " ".join(_REFINEMENTS[reason] for reason in reasons),
        "warnings": [*scan.warnings],
        "stats": {name: getattr(scan, name) for name in SearchStats.model_fields},
    }


def _fitting(matches: list[Json], scan: Scan, budget: int) -> list[Json]:
    frame: JsonObject = {"matches": [], "partial_reasons": [*sorted(scan.reasons)], "warnings": [*scan.warnings]}
    sizes = [_size(match) + len(",") for match in matches]
    size = _size(frame) + sum(sizes)
    if size <= budget:
        return matches
    count, size = len(matches), size + len('"output_limit",')
    while count and size > budget:
        count -= 1
        size -= sizes[count]
    return matches[:count]


def _size(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
