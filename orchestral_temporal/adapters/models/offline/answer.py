"""The words of an answer: passages quoted with their places, or a plain no."""

from orchestral_temporal.adapters.models.offline.evidence import Findings, Page
from orchestral_temporal.adapters.models.offline.passages import Passage, passages
from orchestral_temporal.adapters.models.offline.ranking import Ranked, rank
from orchestral_temporal.adapters.models.offline.task import Task
from orchestral_temporal.adapters.models.offline.words import stems

ENOUGH = 0.42
"""Share of a task's weight that a passage must cover to count as an answer."""

SHOWN = 5
"""Passages in an answer: the right one is nearly always among the first three."""

_OPENING = 3
_QUOTED_LINES, _QUOTED_CHARACTERS = 6, 400
_TWIN_LINES = 2
_CLOSING = "I am the offline model: I match words and quote, I do not reason. Check what stands around a passage."

NO_TOOLS = (
    "I am the offline model and answer by searching files. This agent offers me no tool to search them with; add "
    "`search` and `file_read` to its tools, or give it another model."
)
NO_QUESTION = (
    "I am the offline model: I answer questions about the files of the workspace by quoting them. Ask one, or name a "
    "file."
)


def candidates(findings: Findings) -> list[Passage]:
    """All that was brought, as passages: the pages, and the single lines of files that were not read."""
    read = {page.path for page in findings.pages}
    lines = [Page(hit.path, hit.number, (hit.text,)) for hit in findings.hits if hit.path not in read]
    return [passage for page in (*findings.pages, *lines) for passage in passages(page)]


def best(task: Task, findings: Findings) -> list[Ranked]:
    """The passages to show, none twice."""
    chosen: list[Ranked] = []
    for one in rank(task, candidates(findings)):
        if not any(_twins(one, other) for other in chosen):
            chosen.append(one)
        if len(chosen) == SHOWN:
            break
    return chosen


def _twins(one: Ranked, other: Ranked) -> bool:
    return one.passage.path == other.passage.path and abs(one.line - other.line) <= _TWIN_LINES


def covered(ranked: list[Ranked]) -> float:
    """How much of the task the passages at the top cover, from 0 to 1."""
    return max((one.coverage for one in ranked[:3]), default=0.0)


def answer(task: Task, findings: Findings) -> str:
    """The answer as Markdown; each passage is cited as `path:line`."""
    opening = _openings(task, findings)
    if opening and not task.asks:
        return _listed("The file begins:", opening, findings)
    ranked = best(task, findings)
    if covered(ranked) < ENOUGH:
        return _not_found(task, ranked, findings)
    return _listed("The files say:", [(_place(one), _heading(one), _quote(one)) for one in ranked], findings)


def _openings(task: Task, findings: Findings) -> list[tuple[str, str, str]]:
    named = [page for page in findings.pages if any(page.path.endswith(path) for path in task.paths)]
    return [
        (f"{one.path}:{one.first}", " > ".join(one.above), _quoted(one.lines))
        for page in named
        for one in list(passages(page))[:_OPENING]
    ]


def _listed(introduction: str, parts: list[tuple[str, str, str]], findings: Findings) -> str:
    listed = [
        f"{number}. `{place}`{f' — {heading}' if heading else ''}\n\n{quote}"
        for number, (place, heading, quote) in enumerate(parts, start=1)
    ]
    return "\n\n".join([introduction, *listed, *_remarks(findings), _CLOSING])


def _not_found(task: Task, ranked: list[Ranked], findings: Findings) -> str:
    words = {word for passage in candidates(findings) for line in passage.lines for word in stems(line)}
    missing = [term.word for term in task.terms if not words.intersection((term.stem, *term.related))]
    parts = ["Not found: no passage in these files answers that."]
    if missing:
        parts.append(f"Nothing was found for: {', '.join(missing)}.")
    if ranked:
        parts.append(f"The nearest passage is `{_place(ranked[0])}`.")
    return "\n\n".join([*parts, *_remarks(findings)])


def _remarks(findings: Findings) -> list[str]:
    # A path that was taken for one and then found elsewhere is not worth a word.
    problems = [one for one in findings.problems if not (findings.pages and one.startswith("file_read"))]
    remarks = [f"A tool refused: {problem}" for problem in dict.fromkeys(problems)]
    if findings.partial:
        remarks.append("Some searches were not complete, so there may be more.")
    return remarks


def _place(one: Ranked) -> str:
    return f"{one.passage.path}:{one.line}"


def _heading(one: Ranked) -> str:
    return " > ".join(part.strip(" #|:") for part in one.passage.above)


def _quote(one: Ranked) -> str:
    at = one.line - one.passage.first
    begin = max(0, min(at - _QUOTED_LINES // 2, len(one.passage.lines) - _QUOTED_LINES))
    return _quoted(one.passage.lines[begin : begin + _QUOTED_LINES])


def _quoted(lines: list[str]) -> str:
    return "\n".join(f"> {_shortened(line)}" for line in lines[:_QUOTED_LINES])


def _shortened(line: str) -> str:
    return line if len(line) <= _QUOTED_CHARACTERS else f"{line[:_QUOTED_CHARACTERS]}…"
