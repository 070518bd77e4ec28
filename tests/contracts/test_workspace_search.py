"""What the two searches share: globs, the walk, limits and budgets, views (`spec/builtin-tools.md` §3, §9)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.adapters.tools.workspace import walk
from orchestral_temporal.adapters.tools.workspace.patterns import Glob
from tests.contracts.workspace_call import TOOLS, call_over, find, grep, invoke, places, write

LEAST = 4608


# Globs.


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("*.md", ["a.md", "x/a.md", ".md"], ["a.mdx", "a.md/b"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "srcx/a.py"]),
        ("**/test_*", ["test_a", "x/y/test_a"], ["x/test_a/b/c"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "lib/src/a"]),
        ("**", ["a", "x/y"], []),
        ("a**b", ["ab", "axxb", "d/axxb"], ["a/b"]),
        ("?.txt", ["a.txt", "é.txt", "x/a.txt"], ["ab.txt", ".txt"]),
        ("[ab]c", ["ac", "bc"], ["cc", "abc"]),
        ("[a-cx]z", ["bz", "xz"], ["dz"]),
        ("[!a]b", ["cb", "x/cb"], ["ab", "/b"]),
        ("[^a]b", ["cb"], ["ab"]),
        ("[]x]", ["]", "x"], ["[]x]"]),
        ("[a-]b", ["-b", "ab"], ["bb"]),
        ("{a,b}.py", ["a.py", "b.py"], ["c.py", "{a,b}.py"]),
        ("{src/**,*.{md,txt}}", ["src/a/b", "x/a.md", "a.txt"], ["lib/a.py"]),
        ("a,b", ["a,b"], ["a"]),
        (r"a\*b", [r"a\xb"], ["a*b"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a(b)+$", ["a(b)+$"], ["ab"]),
    ],
)
def test_globs(glob: str, matching: list[str], other: list[str]) -> None:
    """`*` and `?` stay inside a component, `**` crosses them, a path matches whole or by its name (§9)."""
    found = Glob(glob)
    assert [path for path in matching if not found.matches(path)] == []
    assert [path for path in other if found.matches(path)] == []


def reference(glob: list[str], path: str) -> bool:
    """The meaning of a glob of parts, by trying every way to take the path apart."""
    if not glob:
        return not path
    part, rest = glob[0], glob[1:]
    one, name = path[:1], path.partition("/")[0]
    meanings = {
        "**/": lambda: any(reference(rest, path[at:]) for at in range(len(path) + 1) if at == 0 or path[at - 1] == "/"),
        "*": lambda: any(reference(rest, path[at:]) for at in range(len(name) + 1)),
        "?": lambda: one not in {"", "/"} and reference(rest, path[1:]),
        "[!a]": lambda: one not in {"", "/", "a"} and reference(rest, path[1:]),
        "{a,b*}": lambda: reference(["a", *rest], path) or reference(["b", "*", *rest], path),
    }
    literal = lambda: path.startswith(part) and reference(rest, path.removeprefix(part))  # noqa: E731 -- one of the meanings
    return meanings.get(part, literal)()


PARTS = st.lists(st.sampled_from(["a", "b", ".", "*", "?", "[!a]", "{a,b*}"]), min_size=1, max_size=4)
COMPONENT = PARTS.filter(lambda parts: "**" not in "".join(parts))
PATHS = st.lists(st.text("ab.", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join)


@settings(max_examples=400)
@given(components=st.lists(COMPONENT, min_size=1, max_size=3), deep=st.booleans(), path=PATHS)
def test_globs_mean_what_a_simple_matcher_says(components: list[list[str]], deep: bool, path: str) -> None:
    """Any glob of these parts matches exactly the paths, or their names, that the reference takes."""
    parts = ["**/"] if deep else []
    for at, component in enumerate(components):
        parts += ["/", *component] if at else component
    expected = reference(parts, path) or reference(parts, path.rpartition("/")[2])
    assert Glob("".join(parts)).matches(path) is expected


@pytest.mark.parametrize("glob", ["[a", "[]", "[!]", "{a", "a}", "{a,{b}", "[z-a]"])
async def test_broken_globs_are_refused(glob: str, tmp_path: Path) -> None:
    """A glob without a meaning is refused by both searches, each with its code."""
    assert await find(tmp_path, glob) == "r file_search_pattern_invalid"
    assert await grep(tmp_path, "a", include=glob) == "r text_search_include_invalid"


# The walk.


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project."""
    return write(
        tmp_path,
        {
            "README.md": "# Tree\n",
            ".hidden": "tree\n",
            "src/main.py": "tree = 1\n",
            "src/lib/deep.py": "tree = 2\n",
            "docs/a.md": "the Tree\n",
            "node_modules/x/index.js": "tree\n",
            "target/debug/out.txt": "tree\n",
            "src/__pycache__/main.pyc": "tree\n",
            ".git/config": "tree\n",
            ".orchestral/temporal.db": "tree\n",
        },
    )


async def test_files_are_found_sorted_and_counted(tree: Path) -> None:
    """Hidden files are found, noise folders are not entered, folders only on request."""
    output = await find(tree)
    assert output["matches"] == [".hidden", "README.md", "docs/a.md", "src/lib/deep.py", "src/main.py"]
    assert (output["count"], output["completeness"], output["refinement"]) == (5, "complete", "")
    assert (output["root"], output["workspace"]) == (".", str(tree))
    folders = await find(tree, "*", include_directories=True, path="src")
    assert folders["matches"] == ["src/lib", "src/lib/deep.py", "src/main.py"]
    assert folders["stats"]["scanned_entries"] == 4


async def test_case_matters_unless_it_is_said(tree: Path) -> None:
    """`case_sensitive` governs the pattern of both searches; `include` always minds the case."""
    assert (await find(tree, "readme*"))["matches"] == []
    assert (await find(tree, "readme*", case_sensitive=False))["matches"] == ["README.md"]
    assert places(await grep(tree, "tree", include="*.md")) == []
    assert places(await grep(tree, "tree", include="*.md", case_sensitive=False)) == [
        ("README.md", 1),
        ("docs/a.md", 1),
    ]
    assert places(await grep(tree, "tree", include="*.MD", case_sensitive=False)) == []


async def test_a_noise_folder_is_searched_only_if_the_path_is_that_folder(tree: Path) -> None:
    """A path below one finds nothing, is complete, and says why (§17, gap 7)."""
    assert (await find(tree, path="node_modules"))["matches"] == ["node_modules/x/index.js"]
    below = await find(tree, path="node_modules/x")
    assert (below["matches"], below["completeness"], len(below["warnings"])) == ([], "complete", 1)


async def test_symlinks_are_neither_followed_nor_listed(tree: Path) -> None:
    """A link to a folder would make loops and doubles, a link to a file doubles."""
    (tree / "loop").symlink_to(tree)
    (tree / "copy.md").symlink_to(tree / "README.md")
    assert (await find(tree, "*", include_directories=True))["count"] == 8
    assert places(await grep(tree, "tree", case_sensitive=False, include="*.md")) == [
        ("README.md", 1),
        ("docs/a.md", 1),
    ]


async def test_ignore_files_are_honoured(tmp_path: Path) -> None:
    """`.ignore` beats `.gitignore` beats `.git/info/exclude`, a deeper one a higher one; no repository is needed."""
    names = [
        "a.log",
        "keep.log",
        "b.tmp",
        "out/x.txt",
        "sub/a.log",
        "sub/out/y.txt",
        "sub/deep/z.txt",
        "c.bak",
        "d.bak",
    ]
    write(tmp_path, dict.fromkeys(names, "x\n"))
    write(
        tmp_path,
        {
            ".gitignore": "*.log\n!keep.log\n/out/\n*.tmp\n!\n[b-a]\n[[x]\n\n# comment\n",
            ".ignore": "!b.tmp\n*.bak\n",
            "sub/.gitignore": "!a.log\ndeep\n",
            ".git/info/exclude": "keep.log\n!c.bak\n",
        },
    )
    assert (await find(tmp_path, "*.*"))["matches"] == [
        ".gitignore",
        ".ignore",
        "b.tmp",
        "keep.log",
        "sub/.gitignore",
        "sub/a.log",
        "sub/out/y.txt",
    ]
    assert (await find(tmp_path, path="sub/deep"))["matches"] == []


@pytest.mark.parametrize("name", [".gitignore", ".ignore"])
async def test_an_ignore_file_that_cannot_be_used_is_reported(name: str, tmp_path: Path) -> None:
    """A link, a folder or a file far too large ignores nothing and is warned about."""
    write(tmp_path, {"a.txt": "x", "big/a.txt": "x", f"big/{name}": "a.txt\n" * 50_000, f"folder/{name}/a.txt": "x"})
    (tmp_path / name).symlink_to("big/a.txt")
    output = await find(tmp_path, "a.txt")
    assert output["matches"] == ["a.txt", "big/a.txt", f"folder/{name}/a.txt"]
    assert len(output["warnings"]) == 3


async def test_a_git_file_instead_of_a_folder_is_no_trouble(tmp_path: Path) -> None:
    """A linked worktree has a file of that name."""
    output = await find(write(tmp_path, {".git": "gitdir: elsewhere\n", "a.txt": "x"}))
    assert (output["matches"], output["warnings"]) == ([".git", "a.txt"], [])


async def test_a_folder_that_is_too_deep_is_reported(tmp_path: Path) -> None:
    """Each level holds a descriptor, so the walk stops at its depth and says so."""
    bottom = "/".join(["d"] * (walk.DEPTH + 5))
    write(tmp_path, {f"{bottom}/a.txt": "x", "z.txt": "x"})
    output = await find(tmp_path, "*.txt")
    assert (output["matches"], output["partial_reasons"]) == (["z.txt"], ["scan_limit"])


async def test_the_entries_of_a_search_are_bounded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was listed before the bound is still searched (§9); the bound is made small here."""
    monkeypatch.setattr(walk, "ENTRIES", 3)
    output = await find(write(tree / "flat", {f"{n}.txt": "x" for n in range(9)}))
    assert (output["count"], output["partial_reasons"], output["stats"]["scanned_entries"]) == (3, ["scan_limit"], 3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": " "}, "pattern_missing"),
        ({"pattern": "x" * 2049}, "pattern_too_large"),
        ({"pattern": "é" * 1025}, "pattern_too_large"),
        ({"pattern": "half \ud800"}, "pattern_invalid"),
    ],
)
async def test_patterns_that_are_no_patterns(arguments: dict[str, Any], expected: str, tree: Path) -> None:
    """Both searches refuse a blank, an overlong and an unencodable pattern."""
    assert await find(tree, **arguments) == f"r file_search_{expected}"
    assert await grep(tree, **arguments) == f"r text_search_{expected}"


async def test_a_file_search_below_a_file_is_refused(tree: Path) -> None:
    """Only a folder has something below it; a text search takes both."""
    assert await find(tree, path="README.md") == "r file_search_root_not_directory"
    assert places(await grep(tree, "Tree", path="README.md")) == [("README.md", 1)]


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (5, 5), (0, 0), (-1, 5), (10**6, 5)])
async def test_the_result_limit(limit: int, count: int, tree: Path) -> None:
    """A limit that is not reached leaves the result complete, one that is says what to do."""
    for output in (await find(tree, limit=limit), await grep(tree, "[tT]ree", limit=limit)):
        assert output["count"] == count
        assert output["partial_reasons"] == ([] if count == 5 else ["result_limit"])
        assert bool(output["refinement"]) == (count < 5)


async def test_limits_have_caps(tmp_path: Path) -> None:
    """500 paths and 200 lines are the most that one call returns."""
    write(tmp_path, {f"{n:03}.txt": "x\n" for n in range(501)})
    assert (await find(tmp_path, limit=10**6))["count"] == 500
    assert (await grep(tmp_path, "x", limit=10**6))["count"] == 200


async def test_the_output_budget(tmp_path: Path) -> None:
    """Too small a budget is refused, a tight one drops matches from the end and counts escapes (F106)."""
    write(tmp_path, {f"{n:03}.txt": '"quoted"\t\u2028 ä\n' for n in range(60)})
    for search in (find(tmp_path, most=LEAST - 1), grep(tmp_path, "q", most=LEAST - 1)):
        assert await search == "f search_output_limit_too_small"
    for output in (await find(tmp_path, most=LEAST), await grep(tmp_path, "q", most=LEAST)):
        kept = {key: output[key] for key in ("matches", "partial_reasons", "warnings")}
        assert len(json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()) <= LEAST - 4096
        assert "output_limit" in output["partial_reasons"]
        assert 0 < output["count"] == len(output["matches"]) < 60
    assert (await grep(tmp_path, "q", most=LEAST + 30_000, limit=60))["completeness"] == "complete"


# What a model sees (§3).


async def test_a_complete_search_is_shown_as_its_matches(tree: Path) -> None:
    """Nothing is said about what is not missing; the views have their contracts."""
    output = await find(tree, "*.md")
    assert TOOLS["file_search"].view({"pattern": "*.md"}, output) == {
        "root": ".",
        "matches": ["README.md", "docs/a.md"],
        "completeness": "complete",
    }
    assert TOOLS["file_search"].view({"workspace": " "}, output)["workspace"] == str(tree)  # type: ignore[index]
    for kind in ("file", "text"):
        assert TOOLS[f"{kind}_search"].view_contract == f"orchestral.builtin-{kind}-search-model-output/v1"


async def test_a_partial_search_is_shown_with_its_reasons(tmp_path: Path) -> None:
    """Reasons, warnings, the remedy and what was skipped are shown, zeros are not."""
    write(tmp_path, {"a.txt": "hit\nhit\n", "b.bin": b"\0"})
    (tmp_path / ".ignore").symlink_to("a.txt")
    arguments = {"pattern": "hit", "limit": 1}
    output = await invoke("text_search", arguments, call_over(tmp_path))
    view: Any = TOOLS["text_search"].view(arguments, output)
    assert set(view) == {"root", "matches", "completeness", "partial_reasons", "warnings", "refinement"}
    assert (view["matches"], view["partial_reasons"]) == (output["matches"], ["result_limit"])
    whole: Any = TOOLS["text_search"].view({}, await grep(tmp_path, "hit"))
    assert whole["stats"] == {"skipped_binary_files": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"count": 7},
        {"completeness": "partial"},
        {"completeness": "perhaps"},
        {"partial_reasons": ["timeout"]},
        {"matches": [{"path": "a"}]},
        {"extra": 1},
    ],
)
async def test_a_search_output_that_contradicts_itself_is_shown_unchanged(change: dict[str, Any], tree: Path) -> None:
    """A view never hides what it does not understand."""
    for name, output in (("file_search", await find(tree)), ("text_search", await grep(tree, "Tree"))):
        changed = output | change
        assert TOOLS[name].view({}, changed) == changed
