"""Which calls to make next: look for the words, look closer where there are too many, read the best files."""

import math
from collections import Counter
from pathlib import PurePosixPath

from orchestral_temporal.adapters.models.offline.evidence import Call, Findings, Hit
from orchestral_temporal.adapters.models.offline.task import Task, Term
from orchestral_temporal.adapters.models.offline.words import beginning, spelling, stems
from orchestral_temporal.protocol.base import JsonObject

PATTERN_BYTES = 2000
"""Bytes of a pattern: the searches take 2,048."""

_HITS, _CLOSER_HITS, _NAMES = 150, 60, 60
_PAIRED = 6
"""Words that are paired: the pattern grows with their square."""

_CLOSER = 3
_PAGE, _LEAD_IN = 240, 40
"""Lines of a page, and how many of them before the line that it is read for."""

_SHORTEST_NAME, _PATHS = 3, 6
_RELATED, _IN_NAME, _IN_DATA = 0.6, 0.7, 0.5
"""What a related word, a word in a file's name, and a file of data are worth beside a word in the text of another."""

_DOCUMENTS = "*.{md,markdown,rst,txt,adoc,org}"
_DATA = frozenset({".csv", ".json", ".jsonl", ".lock", ".log", ".map", ".svg", ".tsv", ".xml"})
"""Files that hold more lines than thoughts: read only if nothing better is there."""


def searches(task: Task) -> list[Call]:
    """The first look: lines with two of the words, lines with any, files named by one, files that the task names."""
    calls = [Call("file_read", {"path": path}) for path in task.paths[:_PATHS]]
    if not task.terms:
        return calls
    pairs = _pair_pattern(task.terms[:_PAIRED])
    if pairs:
        calls.append(_text_search(pairs, _CLOSER_HITS))
    calls.append(_text_search(_any_pattern(task.terms), _HITS))
    # What is long enough not to be in every name.
    names = ",".join(f"*{spelling(term.stem)}*" for term in task.terms if len(term.stem) >= _SHORTEST_NAME)
    if names:
        pattern = f"{{{names},**/{{{names}}}/**}}"
        calls.append(Call("file_search", {"pattern": pattern, "case_sensitive": False, "limit": _NAMES}))
    return calls


def closer_searches(task: Task, findings: Findings) -> list[Call]:
    """If a search was crowded or not complete: documents only, and the words that were met least, for they say most."""
    if not (findings.crowded or findings.partial):
        return []
    met = Counter(term for hit in findings.hits for term in task.terms if term.stem in stems(hit.text))
    rare = sorted(task.terms, key=lambda term: (met[term], -term.weight, -len(term.stem)))[:_CLOSER]
    documents = _text_search(_pair_pattern(task.terms[:_PAIRED]) or _any_pattern(task.terms), _CLOSER_HITS)
    documents.arguments["include"] = _DOCUMENTS
    return [documents, *(_text_search(beginning(term.stem), _CLOSER_HITS) for term in rare)]


def reads(task: Task, findings: Findings, most: int) -> list[Call]:
    """The pages most likely to hold the answer, the best first."""
    by_file: dict[str, list[Hit]] = {name: [] for name in findings.names}
    for hit in findings.hits:
        by_file.setdefault(hit.path, []).append(hit)
    shortened = {hit.path for hit in findings.hits if not hit.whole}
    read = {page.path: page.first + len(page.lines) for page in findings.pages}
    weights = _weights(task, by_file)
    promises = {
        path: _promise(weights, path, hits)
        for path, hits in by_file.items()
        if path not in shortened and (path not in read or any(hit.number >= read[path] for hit in hits))
    }
    ranked = sorted(promises, key=lambda path: (-promises[path], path))
    return [_read(path, by_file[path]) for path in ranked[:most]]


def _text_search(pattern: str, limit: int) -> Call:
    return Call("text_search", {"pattern": pattern, "case_sensitive": False, "limit": limit})


def _any_pattern(terms: tuple[Term, ...]) -> str:
    """Any of the words; their relatives too, as far as there is room."""
    wanted = [term.stem for term in terms] + [stem for term in terms for stem in term.related]
    pattern = ""
    for stem in dict.fromkeys(wanted):
        longer = f"{pattern}|{beginning(stem)}" if pattern else beginning(stem)
        if len(longer.encode()) > PATTERN_BYTES:
            break
        pattern = longer
    return pattern


def _pair_pattern(terms: tuple[Term, ...]) -> str:
    """Two different words in one line, in either order; relatives only if there is room for all."""
    for groups in ([(term.stem, *term.related) for term in terms], [(term.stem,) for term in terms]):
        words = ["|".join(map(beginning, group)) for group in groups]
        pairs = [
            f"(?:{word}).*(?:{'|'.join(words[:at] + words[at + 1 :])})"
            for at, word in enumerate(words)
            if len(words) > 1
        ]
        pattern = "|".join(pairs)
        if len(pattern.encode()) <= PATTERN_BYTES:
            return pattern
    return ""


def _weights(task: Task, by_file: dict[str, list[Hit]]) -> dict[Term, float]:
    met: Counter[Term] = Counter()
    for hits in by_file.values():
        words = {stem for hit in hits for stem in stems(hit.text)}
        met.update(term for term in task.terms if _has(term, words))
    return {term: term.weight * math.log(1 + (len(by_file) + 0.5) / (met[term] + 0.5)) for term in task.terms}


def _has(term: Term, words: set[str]) -> bool:
    return term.stem in words or any(stem in words for stem in term.related)


def _promise(weights: dict[Term, float], path: str, hits: list[Hit]) -> float:
    """How likely a file is to hold the answer: which words it has, how close together, and which are in its name."""
    lines = [set(stems(hit.text)) for hit in hits]
    spread = sum(
        weight * min(1.0, 0.5 + 0.1 * met)
        for term, weight in weights.items()
        if (met := sum(_has(term, line) for line in lines))
    )
    dense = max((_line_weight(weights, line) for line in lines), default=0.0)
    promise = spread + dense + _IN_NAME * _line_weight(weights, set(stems(path)))
    return promise * (_IN_DATA if PurePosixPath(path).suffix in _DATA else 1.0)


def _line_weight(weights: dict[Term, float], words: set[str]) -> float:
    return sum(
        weight * (1.0 if term.stem in words else _RELATED) for term, weight in weights.items() if _has(term, words)
    )


def _read(path: str, hits: list[Hit]) -> Call:
    lines = sorted(hit.number for hit in hits) or [1]
    arguments: JsonObject = {"path": path, "limit": _PAGE}
    if lines[-1] > _PAGE:
        # Somewhere in a long file: the page that holds the most hits.
        begin = max(lines, key=lambda line: (sum(line <= other < line + _PAGE - _LEAD_IN for other in lines), -line))
        arguments["offset"] = max(1, begin - _LEAD_IN)
    return Call("file_read", arguments)
