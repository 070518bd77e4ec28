"""Which passages answer a task: by its words, the rare ones most, wherever they stand (BM25 over fields)."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from orchestral_temporal.adapters.models.offline.passages import Passage
from orchestral_temporal.adapters.models.offline.task import Task, Term
from orchestral_temporal.adapters.models.offline.words import stems

# How much a word counts by where it stands, seen from a line of a passage.
_BY_DISTANCE = (0.0, 0.6, 0.35, 0.2)
_ABOVE, _OUTER, _PATH = 0.5, 0.35, 0.3
_SATURATION = 0.5
"""A second occurrence says little: with 0.5 one occurrence already has two thirds of the weight of many."""

_RELATED = 0.6
"""A related word is worth this part of the word itself."""

_FITTING = 1.25
"""A line that holds the kind of answer that is wanted (a number, a time, a person) gains this much."""

_USUAL_WORDS = 12
"""Words of a usual line; a longer one contains more words by chance."""


@dataclass(frozen=True)
class Ranked:
    """A passage, its best line, and how much of the task's weight it covers, from 0 to 1."""

    passage: Passage
    line: int
    score: float
    coverage: float


@dataclass(frozen=True)
class _Counted:
    passage: Passage
    lines: tuple[Counter[str], ...]
    above: tuple[frozenset[str], ...]
    path: frozenset[str]

    @property
    def words(self) -> frozenset[str]:
        return frozenset(stem for line in self.lines for stem in line)

    @property
    def all_words(self) -> frozenset[str]:
        return self.words.union(self.path, *self.above)


def rank(task: Task, found: Iterable[Passage]) -> list[Ranked]:
    """The passages that have any word of the task, the best first."""
    counted = [_count(passage) for passage in found]
    weights = _weights(task, counted)
    ranked = [one for passage in counted if (one := _rank_one(task, weights, passage)) is not None]
    return sorted(ranked, key=lambda one: (-one.score, one.passage.path, one.line))


def _count(passage: Passage) -> _Counted:
    return _Counted(
        passage,
        tuple(Counter(stems(line)) for line in passage.lines),
        tuple(frozenset(stems(text)) for text in passage.above),
        frozenset(stems(passage.path)),
    )


def _weights(task: Task, counted: list[_Counted]) -> dict[Term, float]:
    """The weight of each term: its rarity, and more for a name."""
    seen = Counter(stem for passage in counted for stem in passage.words)
    weights: dict[Term, float] = {}
    for term in task.terms:
        frequency = seen[term.stem] or max((seen[stem] for stem in term.related), default=0)
        rarity = math.log(1 + (len(counted) - frequency + 0.5) / (frequency + 0.5))
        weights[term] = term.weight * rarity
    return weights


def _rank_one(task: Task, weights: dict[Term, float], counted: _Counted) -> Ranked | None:
    best = max(((_line_score(task, weights, counted, at), -at) for at in range(len(counted.lines))), default=(0.0, 0))
    if best[0] <= 0:
        return None
    words, total = counted.all_words, sum(weights.values())
    covered = sum(weight * _presence(term, words) for term, weight in weights.items())
    at = -best[1]
    return Ranked(counted.passage, counted.passage.first + at, best[0], covered / total)


def _presence(term: Term, words: frozenset[str]) -> float:
    if term.stem in words:
        return 1.0
    return 0.8 if any(stem in words for stem in term.related) else 0.0


def _line_score(task: Task, weights: dict[Term, float], counted: _Counted, at: int) -> float:
    line = counted.lines[at]
    if not any(stem in line for term in task.terms for stem in (term.stem, *term.related)):
        return 0.0
    score = sum(weight * _worth(term, counted, at) for term, weight in weights.items())
    if task.wanted is not None and task.wanted.search(counted.passage.lines[at]):
        score *= _FITTING
    return score / (0.85 + 0.15 * line.total() / _USUAL_WORDS)


def _worth(term: Term, counted: _Counted, at: int) -> float:
    own = _saturated(_occurrences(term.stem, counted, at))
    others = max((_occurrences(stem, counted, at) for stem in term.related), default=0.0)
    return max(own, _RELATED * _saturated(others))


def _saturated(occurrences: float) -> float:
    return occurrences / (occurrences + _SATURATION)


def _occurrences(stem: str, counted: _Counted, at: int) -> float:
    """How often a word occurs as seen from line `at`, each occurrence counted by its distance."""
    occurrences = float(counted.lines[at][stem])
    distance = min(
        (abs(other - at) for other, line in enumerate(counted.lines) if other != at and stem in line), default=0
    )
    occurrences += _BY_DISTANCE[min(distance, len(_BY_DISTANCE) - 1)]
    if counted.above and stem in counted.above[-1]:
        occurrences += _ABOVE
    elif any(stem in words for words in counted.above):
        occurrences += _OUTER
    return occurrences + (_PATH if stem in counted.path else 0.0)
