"""`file_edit`: texts that occur once are replaced, all or none (`spec/builtin-tools.md` §7)."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.ports import ToolRejected
from tests.contracts.workspace_call import call_over, ending, invoke, unchecked, write
from tests.contracts.written import digest, what_is_left

CASES = Path(__file__).parents[1] / "cases"
LARGEST = 8 << 20


async def edit(root: Path, *edits: tuple[str, str], path: str = "f.txt") -> Any:
    """The output of a call with one edit or several, or how it was refused."""
    pairs = [{"old_text": old, "new_text": new} for old, new in edits]
    given = pairs[0] if len(pairs) == 1 else {"edits": pairs}
    return await ending("file_edit", {"path": path, **given}, call_over(root))


async def edited(root: Path, content: str | bytes, *edits: tuple[str, str]) -> Any:
    """The bytes of a file after edits, or how they were refused, which leaves it as it was."""
    write(root, {"f.txt": content})
    output = await edit(root, *edits)
    return what_is_left(root, content, output)


@pytest.mark.parametrize(
    ("content", "edits", "expected"),
    [
        ("a b c", [("b", "x")], b"a x c"),
        ("a b c", [("b", "")], b"a  c"),
        ("a b c", [("c", "z"), ("a", "y")], b"y b z"),
        ("ab", [("a", "b"), ("b", "a")], b"ba"),
        ("ab", [("b", ""), ("a", "")], b""),
        ("é你", [("你", "e")], "ée".encode()),
        ("one\r\ntwo\r\n", [("one\r\ntwo", "two\r\none")], b"two\r\none\r\n"),
        ("no end", [("no end", "an end\n")], b"an end\n"),
        ("a b c", [("z", "x")], "r file_edit_no_match"),
        ("", [("z", "x")], "r file_edit_no_match"),
        ("a  b", [("a b", "x")], "r file_edit_no_match"),
        ("one\r\ntwo", [("one\ntwo", "x")], "r file_edit_no_match"),
        ("a a", [("a", "x")], "r file_edit_ambiguous"),
        ("aaa", [("aa", "x")], "r file_edit_ambiguous"),
        ("abc", [("ab", "x"), ("bc", "y")], "r file_edit_overlap"),
        ("abc", [("b", "x"), ("b", "x")], "r file_edit_overlap"),
        ("abc", [("a", "b"), ("z", "y")], "r file_edit_no_match"),
        (b"plain\ncaf\xe9\n", [("plain", "x")], "r file_edit_not_utf8"),
        (b"plain\n\0", [("plain", "x")], "r file_edit_not_text"),
    ],
)
async def test_edits(content: str | bytes, edits: list[tuple[str, str]], expected: bytes | str, tmp_path: Path) -> None:
    """Each text is looked for in the file as it was, to the byte; nothing is written unless all can be (E1)."""
    assert await edited(tmp_path, content, *edits) == expected


async def test_the_edits_of_the_case(tmp_path: Path) -> None:
    """Unique context, an ambiguous place, an empty text, one that is not there (F107)."""
    case = json.loads((CASES / "F107.json").read_text())
    content: str = case["file"]
    in_b = "x = 2".join(content.rsplit("x = 1", 1)).encode()
    found = [await edited(tmp_path, content, (each["old_text"], each["new_text"])) for each in case["edits"]]
    assert [each["expect"] for each in case["edits"]] == ["applied in b only", "refused as ambiguous", *["refused"] * 2]
    assert found == [in_b, "r file_edit_ambiguous", "r file_edit_invalid", "r file_edit_no_match"]


async def test_an_edit_leaves_the_other_bytes_alone(tmp_path: Path) -> None:
    """One line of a CRLF file is changed and all ends stay; a Latin-1 file is refused, never mangled (F103, F104)."""
    content = "alpha = 1\r\nbeta = 2\r\ngamma = 3\r\ndelta = 4"
    expected = b"alpha = 1\r\nbeta = 20\r\ngamma = 3\r\ndelta = 4"
    assert await edited(tmp_path, content, ("beta = 2", "beta = 20")) == expected
    latin = b"# Stra\xdfe\nrows: 12\nd\xe9j\xe0 vu\n"
    assert await edited(tmp_path, latin, ("rows: 12", "rows: 13")) == "r file_edit_not_utf8"


async def test_the_output_tells_of_the_whole_file(tmp_path: Path) -> None:
    """Digests before and after; an edit that changes nothing is a success without changes."""
    write(tmp_path, {"f.txt": "a b"})
    assert await edit(tmp_path, ("b", "c")) == {
        "workspace": str(tmp_path),
        "changed_files": 1,
        "changes": [
            {
                "operation": "update",
                "path": "f.txt",
                "bytes": 3,
                "before_digest": digest("a b"),
                "after_digest": digest("a c"),
            }
        ],
    }
    assert await edit(tmp_path, ("c", "c")) == {"workspace": str(tmp_path), "changed_files": 0, "changes": []}
    assert await edit(tmp_path, ("c", "c"), path="none") == "r patch_conflict"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"old_text": "a"}, "file_edit_invalid"),
        ({}, "file_edit_invalid"),
        ({"edits": []}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "b", "edits": [{"old_text": "a", "new_text": "b"}]}, "file_edit_invalid"),
        ({"new_text": "b", "edits": [{"old_text": "a", "new_text": "b"}]}, "file_edit_invalid"),
        ({"old_text": "", "new_text": "b"}, "file_edit_invalid"),
        ({"old_text": "a\0", "new_text": "b"}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "b\0"}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "\ud800"}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": 1}, "file_edit_invalid"),
        ({"edits": ["a"]}, "file_edit_invalid"),
        ({"edits": {"old_text": "a", "new_text": "b"}}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "b", "workspace": ""}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "b", "workspace": " x"}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "b", "workspace": 1}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "b", "path": 1}, "file_edit_invalid"),
        ({"old_text": "a", "new_text": "x" * (LARGEST + 1)}, "patch_file_too_large"),
        ({"old_text": "x" * (LARGEST + 1), "new_text": "b"}, "patch_file_too_large"),
    ],
)
async def test_other_shapes_are_refused(change: dict[str, Any], code: str, tmp_path: Path) -> None:
    """One form or the other, texts that a file can hold, and no more of them than fit."""
    write(tmp_path, {"f.txt": "a"})
    assert await unchecked("file_edit", {"path": "f.txt", **change}, call_over(tmp_path)) == f"r {code}"
    assert (tmp_path / "f.txt").read_text() == "a"


async def test_only_the_final_size_counts(tmp_path: Path) -> None:
    """A file may grow to 8 MiB and no further; on the way it may be larger."""
    half = "x" * (LARGEST // 2 - 1)
    content = f"{half}a{half}b"
    assert await edited(tmp_path, content, ("a", "yy"), ("b", "")) == f"{half}yy{half}".encode()
    assert await edited(tmp_path, content, ("a", "yy")) == "r patch_file_too_large"
    assert await edited(tmp_path, "x" * (LARGEST + 1), ("a", "b")) == "r patch_file_too_large"


async def test_a_refusal_says_which_edit_and_what_to_try(tmp_path: Path) -> None:
    """Of several edits the message names the one; line ends, which nobody sees, are spoken of."""
    write(tmp_path, {"f.txt": "one\r\ntwo\r\n"})
    pairs = [{"old_text": "one", "new_text": "1"}, {"old_text": "one\ntwo", "new_text": "2"}]
    with pytest.raises(ToolRejected, match=r"^edits\[1\]: .* lines end in CRLF"):
        await invoke("file_edit", {"path": "f.txt", "edits": pairs}, call_over(tmp_path))


def real(folder: str) -> Path:
    """The folder without links on the way, as a run knows its workspaces."""
    return Path(folder).resolve()


@settings(max_examples=100, deadline=None)
@given(
    content=st.text("ab\n", max_size=30),
    pairs=st.lists(
        st.tuples(st.text("ab\n", min_size=1, max_size=4), st.text("xy", max_size=3)), min_size=2, max_size=3
    ),
)
async def test_the_order_of_edits_does_not_matter(content: str, pairs: list[tuple[str, str]]) -> None:
    """Whatever is replaced, the result is the same in any order, or all orders are refused."""
    with tempfile.TemporaryDirectory() as folder:
        results = [await edited(real(folder), content, *order) for order in (pairs, pairs[::-1])]
    assert results[0] == results[1] or all(isinstance(result, str) for result in results)
