"""The manifest of promises and the tests agree, in both directions.

The rule: a test *names* what stands as an id inside parentheses in its docstring. In the rooms with a real server,
`temporal` and `crash`, a test that names a promise of the manifest is listed there under it, as what shows it or as
what supports it, and what is listed names it. Elsewhere a name only says what a test is about. Every name exists.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.laws import CASES, LAWS, SUPPORTING

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = ROOT / "tests" / "house" / "mutants"
SERVER_ROOMS = ("tests/temporal/", "tests/crash/")

ROWS = {"A": 6, "B": 7, "C": 7, "D": 10, "E": 8, "F": 6, "G": 8, "H": 5, "I": 7}
"""How many promises each letter of `spec/behaviours.md` has: 64 together."""

_GROUP = re.compile(r"\(([^()]*)\)")
_ID = re.compile(r"\b(?:[A-I]\d{1,2}|F\d{3})\b")


def functions_of_tests() -> Iterator[tuple[str, str, list[str]]]:
    """Every test function: its pytest id, its docstring, the ids it names."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                named = [each for group in _GROUP.findall(text) for each in _ID.findall(group)]
                yield f"{name}::{node.name}", text, named


def test_every_test_says_in_one_sentence_what_it_shows() -> None:
    """No test is without a docstring."""
    assert [name for name, text, _ in functions_of_tests() if not text.strip()] == []


def listed(law: str) -> tuple[str, ...]:
    """The tests that stand in the manifest under a promise."""
    return (*LAWS[law], *SUPPORTING.get(law, ()))


def test_every_listed_test_exists_and_names_its_promise() -> None:
    """What the manifest lists is there, and its docstring names the id."""
    named = {name: ids for name, _, ids in functions_of_tests()}
    wrong = [f"{law}: {each}" for law in LAWS for each in listed(law) if law not in named.get(each, [])]
    assert wrong == []
    assert all(LAWS.values())
    assert set(SUPPORTING) <= set(LAWS)


def test_every_test_that_names_a_promise_is_listed() -> None:
    """A test with a real server that names a promise of the manifest stands in the manifest."""
    missing = [
        f"{law}: {name}"
        for name, _, ids in functions_of_tests()
        if name.startswith(SERVER_ROOMS)
        for law in ids
        if law in LAWS and name not in listed(law)
    ]
    assert missing == []


def test_every_name_exists() -> None:
    """No test names a promise or a case that there is not, and no promise of the manifest is made up."""
    promises = {f"{letter}{number}" for letter, last in ROWS.items() for number in range(1, last + 1)}
    assert len(promises) == 64
    assert set(LAWS) <= promises
    unknown = [
        f"{each}: {name}"
        for name, _, ids in functions_of_tests()
        for each in ids
        if each not in promises and len(each) < 4
    ]
    assert unknown == []


def test_every_settled_case_has_a_test() -> None:
    """Each given case of the manifest is named by at least one test."""
    named = {each for _, _, ids in functions_of_tests() for each in ids}
    assert set(CASES) - named == set()


def test_every_promise_has_its_mutant() -> None:
    """Each promise of the manifest has one patch that takes it away and still applies; there is no other patch."""
    patches = sorted(MUTANTS.glob("*"))
    assert {path.stem for path in patches} == set(LAWS)
    for path in patches:
        checked = subprocess.run(
            ["git", "apply", "--check", path], cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert checked.returncode == 0, f"{path.name}: {checked.stderr}"
