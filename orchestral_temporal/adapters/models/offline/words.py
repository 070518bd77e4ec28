"""Words of a text: split, folded, reduced to stems, the empty ones left out.

English is stemmed lightly, other languages are compared word by word, and writing without spaces by pairs of
characters. Everything here is about language in general; nothing knows what it is applied to.
"""

import re
import unicodedata
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")

_SUFFIXES = (
    ("ies", "y", 5),
    ("sses", "ss", 6),
    ("xes", "x", 5),
    ("ches", "ch", 6),
    ("shes", "sh", 6),
    ("s", "", 4),
)
_ENDINGS = (
    ("ations", "", 10),
    ("ation", "", 9),
    ("ment", "", 8),
    ("ness", "", 7),
    ("ing", "", 6),
    ("ed", "", 5),
    ("ion", "", 7),
    ("ly", "", 6),
    ("al", "", 7),
)
_SHORT = 3
_VOWELS = frozenset("aeiouy")

_EMPTY = frozenset(
    """
    about across after again all along also always am among an and another answer any anybody anyone anything are
    around as at be because been before being between both but by came can cannot come comes coming content contents
    could describe did display do does doing don done down during each either else ever every everybody everyone
    everything exactly explain few file files find follow for from further get gets getting give given go goes going
    got had happen happens has have having he hello help her here hers hey hi him his how however if in into is it
    its itself just know let like list ll long look made main make makes making many may maybe me mean means might
    mine more most much must my myself need needs no nor not now of off often on once one only or other our ours out
    over own please print put question read really regarding say says see shall she should show so some somebody
    someone something still such summarise summarize summary supposed take takes tell than thank thanks that the
    their theirs them themselves then there these they thing things this those though through to today together too
    under until up us use used using ve very want wants was we well were what whatever when where whether which
    while who whom whose why will with within without would yes yet you your yours

    aber als am an auch auf aus bei bin bis das dass dem den der des die du ein eine einem einen einer eines er es
    für haben hat hier ich ihr im in ist ja kann man mein mit muss nach nicht noch nur oder ohne sein sich sie sind
    so soll um und uns unser unter viel viele vielen vom von vor wann war warum was wer wie wieviel wir wird wo zu
    zum zur über

    au aux avec ce ces cette dans de des du elle en est et il je la le les leur lui mais ne nous on ou où par pas
    pour qu quand que quel quelle quels qui sa se ses son sont sur un une vous

    como con cuando cuál cuánto de del dónde el ella en es esta este la las lo los más no para pero por que quién
    qué se sin sobre su sus un una

    che chi come con da dei della di dove gli il io la le lo ma nel non per più quale quando quanto se si sono su un
    una
    """.split()  # noqa: SIM905 -- hundreds of quoted words would not be readable
)
"""Words that say nothing about what is asked: English, German, French, Spanish, Italian."""


def plain(text: str) -> str:
    """The text in one form of each character and in small letters."""
    return unicodedata.normalize("NFKC", text).lower()


def split(text: str) -> list[str]:
    """The words as they are written, compounds like `maxRetries` and `max_retries` taken apart."""
    return _WORD.findall(_CAMEL.sub(" ", text))


def is_empty(word: str) -> bool:
    """Whether a word says nothing about what is asked; a single letter does not."""
    folded = plain(word)
    return folded in _EMPTY or (len(folded) == 1 and folded.isalpha() and not _UNSPACED.match(folded))


def stems(text: str) -> list[str]:
    """The stems of all words of a text, in order."""
    return [stem for word in split(text) for stem in word_stems(word)]


@lru_cache(maxsize=100_000)
def word_stems(word: str) -> tuple[str, ...]:
    """One stem, or for writing without spaces one for each pair of characters."""
    folded = plain(word)
    if _UNSPACED.search(folded) and len(folded) > 1:
        return tuple(folded[at : at + 2] for at in range(len(folded) - 1))
    return (_stem(folded),)


def _stem(word: str) -> str:
    if not (word.isascii() and word.isalpha()) or len(word) <= _SHORT:
        return word
    if not word.endswith(("ss", "us", "is")):
        word = _without(word, _SUFFIXES)
    word = _undoubled(_without(word, _ENDINGS))
    if len(word) > _SHORT and word.endswith("e"):
        word = word[:-1]
    return f"{word[:-1]}i" if len(word) > _SHORT and word.endswith("y") else word


def _without(word: str, suffixes: tuple[tuple[str, str, int], ...]) -> str:
    for suffix, instead, least in suffixes:
        if word.endswith(suffix) and len(word) >= least:
            rest = word.removesuffix(suffix)
            return rest + instead if _VOWELS & set(rest) else word
    return word


def _undoubled(word: str) -> str:
    doubled = len(word) > _SHORT and word[-1] == word[-2] and word[-1] not in "aeiouylsz"
    return word[:-1] if doubled else word


def spelling(stem: str) -> str:
    """The stem as it is spelt in words, in an expression that is a regular one and a glob."""
    # A final y becomes i in `_stem`, so both are looked for; the other endings only follow.
    return f"{stem[:-1]}[iy]" if len(stem) > _SHORT and stem.endswith("i") else stem


def beginning(stem: str) -> str:
    """A regular expression for the words that have this stem, and some more."""
    # Short stems begin a word, or they would be found everywhere; RE2 knows such a boundary before ASCII only.
    return spelling(stem) if len(stem) > _SHORT + 1 or not stem[0].isascii() else rf"(?:\b|_){spelling(stem)}"
