"""Shows that each promise's tests fail when the promise is broken: `python tests/house/run_mutants.py [ID …]`.

For each id of `tests/laws.py` the tree is copied, `mutants/<id>.patch` applied to the copy, and the id's own tests run
there: they must turn red. Unmutated they must be green. It takes some minutes, so it is not part of CI.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.laws import LAWS  # noqa: E402 -- the script is run from anywhere

MUTANTS = ROOT / "tests" / "house" / "mutants"
COPIED = ("orchestral_temporal", "tests", "pyproject.toml", "temporal-dev.yaml")

PASSED, FAILED = 0, 1
"""Exit codes of pytest: anything else, such as a module that cannot be imported, shows nothing."""

LONGEST_SECONDS = 180
"""A run that a mutant makes hang is no red test."""


@contextmanager
def copy() -> Iterator[Path]:
    """A copy of what the tests need."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        for each in COPIED:
            source, target = ROOT / each, Path(name) / each
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        yield Path(name)


def outcome(tree: Path, tests: tuple[str, ...]) -> int | None:
    """How pytest ends there; none if it did not end in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(command, cwd=tree, check=False, capture_output=True, timeout=LONGEST_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return None


def main(wanted: list[str]) -> int:
    """Run the mutants of some ids, or of all; 0 if every one turned its tests red."""
    surprises = 0
    for law in wanted or sorted(LAWS):
        with copy() as tree:
            before = outcome(tree, LAWS[law])
            subprocess.run(["git", "apply", str(MUTANTS / f"{law}.patch")], cwd=tree, check=True)
            after = outcome(tree, LAWS[law])
        well = (before, after) == (PASSED, FAILED)
        surprises += not well
        words = {PASSED: "green", FAILED: "red", None: "no end"}
        said = [words.get(each, f"exit {each}") for each in (before, after)]
        print(f"{law}: {said[0]} without the mutant, {said[1]} with it{'' if well else '  <-- SURPRISE'}", flush=True)  # noqa: T201 -- a command's output
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
