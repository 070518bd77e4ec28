"""What is asked: the words that matter, the files that are named, the kind of answer that would fit."""

import re
from dataclasses import dataclass
from itertools import pairwise

from orchestral_temporal.adapters.models.offline.thesaurus import related
from orchestral_temporal.adapters.models.offline.words import is_empty, plain, split, word_stems

TERMS = 12
"""Words of a task that are looked for: a longer task names its subject more than once."""

_LONGEST = 64
"""Characters of a word: longer ones are keys and digests, and do not fit a pattern."""

_NAME_WEIGHT = 1.6
"""How much more a name weighs than a word: with another name in its place the question would be another."""

_PATH_WEIGHT = 0.5
"""A word of a file's name: the file itself is read first, so the word hardly matters."""

_TOKEN = re.compile(r"[^\s,;()\[\]{}<>\"“”„«»?!]+")
_PATH = re.compile(r"(?=.*[^\W\d])(?:[\w.@-]+/)+[\w.@-]+|[\w@-]+(?:\.[\w@-]+)*\.[a-z][a-z0-9]{0,5}")
_QUOTES = "`'\u2019*_.:"
_NEW_SENTENCE = re.compile(r"(?:^|[.?!:\n])\W*$")

_PARTICLES = frozenset({"back", "down", "in", "off", "on", "out", "over", "up"})
"""Words that are written as one with the word before them as often as not: log in, login."""

_NUMBER = (
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|once|twice|half|every|each|"
    r"daily|weekly|monthly|quarterly|yearly|annually|never|unlimited)\b"
)
_TIME = r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:noon|midnight|before|after|until|within)\b"
_PERSON = r"@\w|\b(?:team|lead|manager|owner|officer|director|head|engineer|committee|desk)s?\b"
_WANTED = (
    (r"\bhow (?:long|many|much|often|far|old|big|large|frequently|quickly|fast|soon|late|early)\b", _NUMBER),
    (r"\b(?:when|what time|(?:which|what) (?:day|date|number|port|percentage)|deadline)\b", f"{_NUMBER}|{_TIME}"),
    (r"\b(?:who|whom|whose)\b", _PERSON),
)


@dataclass(frozen=True)
class Term:
    """A word that matters; `related` are the stems of words that may stand for it."""

    stem: str
    word: str
    related: tuple[str, ...]
    weight: float


@dataclass(frozen=True)
class Task:
    """A task, taken apart; `wanted` finds what an answer of the right kind contains."""

    terms: tuple[Term, ...]
    paths: tuple[str, ...]
    wanted: re.Pattern[str] | None

    @property
    def asks(self) -> bool:
        """Whether there is more to it than the names of files."""
        return any(term.weight > _PATH_WEIGHT for term in self.terms)


def understand(text: str) -> Task:
    """Take a task apart."""
    paths: dict[str, None] = {}
    words: list[tuple[str, float]] = []
    for token in _TOKEN.finditer(text):
        written = token[0].strip(_QUOTES)
        is_path = _PATH.fullmatch(written) is not None
        if is_path:
            paths[written.removeprefix("./")] = None
        begins = _NEW_SENTENCE.search(text[: token.start()]) is not None
        for word in split(written):
            named = _is_name(word, token[0], written, begins=begins)
            words.append((word, _PATH_WEIGHT if is_path else _NAME_WEIGHT if named else 1.0))
    return Task(_terms(words), tuple(paths), _wanted(plain(text)))


def _terms(words: list[tuple[str, float]]) -> tuple[Term, ...]:
    terms: dict[str, Term] = {}
    for (word, weight), (following, _) in pairwise([*words, ("", 0.0)]):
        if is_empty(word):
            continue
        joined = word_stems(word + following) if following in _PARTICLES else ()
        for stem in word_stems(word):
            if len(stem) <= _LONGEST and (stem not in terms or terms[stem].weight < weight):
                terms[stem] = Term(stem, word, (*joined, *related(stem)), weight)
    # Names first, then long words: what is left out should be what says least.
    chosen = sorted(terms.values(), key=lambda term: (-term.weight, -len(term.stem)))[:TERMS]
    return tuple(term for term in terms.values() if term in chosen)


def _is_name(word: str, token: str, written: str, *, begins: bool) -> bool:
    """Whether a word names one thing: capitals inside a sentence, digits, code."""
    capital = word[0].isupper() and not begins
    return capital or word[1:] != word[1:].lower() or "_" in written or token.startswith("`") or word.isdigit()


def _wanted(text: str) -> re.Pattern[str] | None:
    for asked, answered in _WANTED:
        if re.search(asked, text):
            return re.compile(answered, re.IGNORECASE)
    return None
