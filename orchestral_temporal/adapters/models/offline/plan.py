"""Which calls to make next: look for the words, look closer where there are too many, read the best files."""

import math
from collections import Counter

from orchestral_temporal.adapters.models.offline.evidence import Call, Findings, Hit
from orchestral_temporal.adapters.models.offline.task import Task, Term
from orchestral_temporal.adapters.models.offline.words import prefix, stems
from orchestral_temporal.protocol.base import JsonObject

PATTERN_BYTES = 2000
"""Bytes of a pattern: the searches take 2,048."""

_HITS, _PAIR_HITS, _NAMES = 200, 100, 60
_PAIRED = 6
_CLOSER = 3
_FIRST_READS, _MORE_READS = 6, 4
_PAGE, _LEAD_IN = 240, 40
_READ_WHOLE = 380
"""Lines from the top that one plain read shows, less some."""


def searches(task: Task) -> list[Call]:
    """The first look: lines with two of the words, lines with any, files named by one, files that the task names."""
    calls = [Call("file_read", {"path": path}) for path in task.paths]
    if not task.terms:
        return calls
    pairs = _pair_pattern(task.terms[:_PAIRED])
    if pairs:
        calls.append(_text_search(pairs, _PAIR_HITS))
    calls.append(_text_search(_any_pattern(task.terms), _HITS))
    names = ",".join(f"*{stem}*" for stem in _file_stems(task))
    if names:
        pattern = f"{{{names},**/{{{names}}}/**}}"
        calls.append(Call("file_search", {"pattern": pattern, "case_sensitive": False, "limit": _NAMES}))
    return calls


def closer_searches(task: Task, findings: Findings) -> list[Call]:
    """If a search was crowded: the words one by one, those that were met least first, for they say most."""
    if not findings.crowded:
        return []
    met = Counter(term for hit in findings.hits for term in task.terms if term.stem in stems(hit.text))
    rare = sorted(task.terms, key=lambda term: (met[term], -term.weight, -len(term.stem)))
    return [_text_search(prefix(term.stem), _PAIR_HITS) for term in rare[:_CLOSER]]


def reads(task: Task, findings: Findings, most: int) -> list[Call]:
    """The pages most likely to hold the answer, the best first."""
    by_file: dict[str, list[Hit]] = {name: [] for name in findings.names}
    for hit in findings.hits:
        by_file.setdefault(hit.path, []).append(hit)
    shortened = {hit.path for hit in findings.hits if not hit.whole}
    weights = _weights(task, by_file)
    ranked = sorted((-_promise(task, weights, path, hits), path) for path, hits in by_file.items())
    return [_read(path, by_file[path]) for promise, path in ranked if promise < 0 and path not in shortened][:most]


def _text_search(pattern: str, limit: int) -> Call:
    return Call("text_search", {"pattern": pattern, "case_sensitive": False, "limit": limit})


def _any_pattern(terms: tuple[Term, ...]) -> str:
    """Any of the words; their relatives too, as far as there is room."""
    stems_ = dict.fromkeys(term.stem for term in terms)
    stems_.update(dict.fromkeys(stem for term in terms for stem in term.related))
    return _alternatives(list(stems_), PATTERN_BYTES)


def _alternatives(found: list[str], room: int) -> str:
    parts: list[str] = []
    for stem in found:
        part = prefix(stem)
        room -= len(part.encode()) + len("|")
        if room < 0:
            break
        parts.append(part)
    return "|".join(parts)


def _pair_pattern(terms: tuple[Term, ...]) -> str:
    """Two different words in one line, in either order; relatives only if there is room for all."""
    for groups in ([(term.stem, *term.related) for term in terms], [(term.stem,) for term in terms]):
        words = ["|".join(map(prefix, group)) for group in groups]
        pairs = [
            f"(?:{word}).*(?:{'|'.join(words[:at] + words[at + 1 :])})"
            for at, word in enumerate(words)
            if len(words) > 1
        ]
        pattern = "|".join(pairs)
        if len(pattern.encode()) <= PATTERN_BYTES:
            return pattern
    return ""


def _file_stems(task: Task) -> list[str]:
    """Stems that can stand in a glob and are long enough not to be in every name."""
    return [term.stem for term in task.terms if len(term.stem) > 2 and term.stem.isalnum()]


def _weights(task: Task, by_file: dict[str, list[Hit]]) -> dict[Term, float]:
    met: Counter[Term] = Counter()
    for hits in by_file.values():
        words = {stem for hit in hits for stem in stems(hit.text)}
        met.update(term for term in task.terms if _has(term, words))
    return {term: term.weight * math.log(1 + (len(by_file) + 0.5) / (met[term] + 0.5)) for term in task.terms}


def _has(term: Term, words: set[str]) -> bool:
    return term.stem in words or any(stem in words for stem in term.related)


def _promise(task: Task, weights: dict[Term, float], path: str, hits: list[Hit]) -> float:
    """How likely a file is to hold the answer: how many words it has, how close together, how many in its name."""
    lines = [set(stems(hit.text)) for hit in hits]
    name = set(stems(path))
    spread = sum(
        weight * min(1.0, 0.5 + 0.1 * sum(_has(term, line) for line in lines))
        for term, weight in weights.items()
        if any(_has(term, line) for line in lines)
    )
    dense = max((_line_weight(task, weights, line) for line in lines), default=0.0)
    return spread + dense + 0.7 * _line_weight(task, weights, name)


def _line_weight(task: Task, weights: dict[Term, float], words: set[str]) -> float:
    return sum(weights[term] * (1.0 if term.stem in words else 0.6) for term in task.terms if _has(term, words))


def _read(path: str, hits: list[Hit]) -> Call:
    arguments: JsonObject = {"path": path}
    lines = sorted(hit.number for hit in hits)
    if lines and lines[-1] > _READ_WHOLE:
        # Far down in a long file: the page that holds the most hits.
        begin = max(lines, key=lambda line: (sum(line <= other < line + _PAGE - _LEAD_IN for other in lines), -line))
        arguments |= {"offset": max(1, begin - _LEAD_IN), "limit": _PAGE}
    return Call("file_read", arguments)
