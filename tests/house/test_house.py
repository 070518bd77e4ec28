"""The house checks itself: sizes, names, public surface, and words that must not be committed."""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "orchestral_temporal"
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = ROOT / "tests" / "house" / "names.txt"


def lines_of_functions() -> list[int]:
    """The length of every function of the package, docstring included."""
    found: list[int] = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                found.append(node.end_lineno - node.lineno + 1)
    return sorted(found)


def test_functions_stay_short() -> None:
    """Nine in ten functions have at most 30 lines, ninety-nine in a hundred at most 60."""
    lengths = lines_of_functions()
    assert lengths[len(lengths) * 90 // 100] <= 30
    assert lengths[len(lengths) * 99 // 100] <= 60


def test_modules_stay_short() -> None:
    """A module has at most 400 lines."""
    long = {
        str(path.relative_to(ROOT)): count for path in MODULES if (count := len(path.read_text().splitlines())) > 400
    }
    assert long == {}


def test_the_public_surface_is_small_and_listed() -> None:
    """At most 25 public names, all in the package's one list."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    listed = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    names = [ast.unparse(node) for node in listed if "__all__" in ast.unparse(node)]
    assert len(names) == 1
    exported = ast.literal_eval(names[0].split("=", 1)[1].strip())
    assert 0 < len(exported) <= 25


def test_names_that_temporal_remembers_are_append_only() -> None:
    """A string that was ever written to a history keeps its name and its value."""
    source = ast.parse((PACKAGE / "temporal" / "names.py").read_text("utf-8"))
    now = {
        node.target.id: ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }
    kept = dict(line.split(" ", 1) for line in NAMES.read_text("utf-8").splitlines())
    assert {name: now.get(name) for name in kept} == kept
    assert set(now) == set(kept), "add new names to tests/house/names.txt"


def test_nothing_refused_stands_in_the_package() -> None:
    """No `utils`, no `recovery_`, nothing left open, no way around the types of the inner rooms."""
    refused = re.compile(r"TODO|FIXME|XXX|NotImplementedError|\brecovery_(?!proof)\w*\(")
    hits = [
        f"{path.name}: {line}" for path in MODULES for line in path.read_text().splitlines() if refused.search(line)
    ]
    assert hits == []
    assert not [path for path in MODULES if path.stem in {"utils", "helpers", "misc"}]


def test_no_test_skips_mocks_or_sleeps() -> None:
    """A test that does not run, that runs against a mock, or that waits for a fixed time proves nothing."""
    words = (
        "pytest.sk" + "ip",
        "mark.sk" + "ip",
        "xfa" + "il(",
        "importor" + "skip",
        "unittest.mo" + "ck",
        "Magic" + "Mock",
    )
    sleeps = re.compile(r"\bsleep\([1-9]")
    hits = [
        f"{path.name}: {line.strip()}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if any(word in line for word in words) or (sleeps.search(line) and path != Path(__file__))
    ]
    assert hits == []


def test_every_lint_exception_has_its_reason() -> None:
    """A `noqa` or `pyright: ignore` is followed by words that say why."""
    bare = re.compile(r"#\s*(noqa|pyright: ignore|type: ignore)(?!.*--)")
    hits = [
        f"{path.name}: {line.strip()}"
        for path in MODULES
        for line in path.read_text().splitlines()
        if bare.search(line)
    ]
    assert hits == []


def test_no_path_of_a_machine_is_committed() -> None:
    """No absolute path of a build machine stands in a tracked file."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    private = re.compile(r"(?<![\w.])/(work|farm)/")
    hits = []
    for name in tracked:
        path = ROOT / name
        if not path.is_file() or path.suffix in {".gz", ".lock"} or path == Path(__file__):
            continue
        text = path.read_text("utf-8", "replace")
        hits.extend(f"{name}: {line[:80]}" for line in text.splitlines() if private.search(line))
    assert hits == []
