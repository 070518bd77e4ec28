"""`file_write`: new files, and files that still are what was read (`spec/builtin-tools.md` §6)."""

from pathlib import Path
from typing import Any

import pytest

from tests.contracts.workspace_call import call_over, ending, unchecked, write
from tests.contracts.written import digest, files_of, nothing_left

LARGEST = 8 << 20


async def put(root: Path, content: str, mode: str = "create", path: str = "f.txt", **arguments: Any) -> Any:
    """The output of a call, or how it was refused."""
    given = {"path": path, "content": content, "mode": mode, **arguments}
    return await ending("file_write", given, call_over(root))


async def test_a_new_file_holds_exactly_the_text(tmp_path: Path) -> None:
    """Line ends, a missing last one and characters beyond ASCII are written as given, as the output says (E1)."""
    text = '\tlet λ = "\\n";\r\n你\n// no final newline'
    assert await put(tmp_path, text) == {
        "workspace": str(tmp_path),
        "changed_files": 1,
        "changes": [{"operation": "add", "path": "f.txt", "bytes": len(text.encode()), "after_digest": digest(text)}],
    }
    assert (tmp_path / "f.txt").read_bytes() == text.encode()
    assert (await put(tmp_path, "", path="empty"))["changes"][0]["bytes"] == 0
    assert files_of(tmp_path)["empty"] == ""
    assert nothing_left(tmp_path)


async def test_a_replace_tells_both_digests(tmp_path: Path) -> None:
    """The source's own transcript of an update."""
    write(tmp_path, {"source.rs": '\tlet λ = "\\n";\r\n// no final newline'})
    before = "6f4f4c93264f39a6c413c862d72b0f70201497b5ff77b894cbceb901ad5c501e"
    assert await put(tmp_path, "changed\r\n", "replace", "source.rs", expected_digest=before) == {
        "workspace": str(tmp_path),
        "changed_files": 1,
        "changes": [
            {
                "after_digest": "c490595b3eacb7256f98f2ee40f45e3c3ce8c82b37804bc45a771ee38aa56898",
                "before_digest": before,
                "bytes": 9,
                "operation": "update",
                "path": "source.rs",
            }
        ],
    }
    assert (tmp_path / "source.rs").read_bytes() == b"changed\r\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"mode": "create"}, "r patch_conflict"),
        ({"mode": "create", "expected_digest": digest("old\n")}, "r file_write_precondition_invalid"),
        ({"mode": "replace"}, "r file_write_precondition_missing"),
        ({"mode": "replace", "expected_digest": ""}, "r file_write_precondition_missing"),
        ({"mode": "replace", "expected_digest": digest("old\n")[1:]}, "r file_write_precondition_missing"),
        ({"mode": "replace", "expected_digest": digest("older\n")}, "r file_write_conflict"),
        ({"mode": "replace", "expected_digest": digest("old\n").upper()}, "r file_write_conflict"),
        ({"mode": "replace", "path": "none", "expected_digest": digest("old\n")}, "r patch_conflict"),
        ({"mode": "create", "path": "none", "content": "nul \0"}, "r file_write_content_invalid"),
        ({"mode": "create", "path": "none", "content": "half \ud800"}, "r file_write_content_invalid"),
        ({"mode": "create", "path": "none", "content": "é" * (LARGEST // 2) + "x"}, "r patch_file_too_large"),
        ({"mode": "replace", "path": "huge", "expected_digest": digest("")}, "r patch_file_too_large"),
    ],
)
async def test_refusals_write_nothing(arguments: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """Each fault has the sheet's code, and the files are as before: a file that was not read is not replaced (E8)."""
    write(tmp_path, {"f.txt": "old\n"})
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(LARGEST + 1)
    assert await put(tmp_path, **{"content": "new\n", **arguments}) == expected
    assert (tmp_path / "f.txt").read_text() == "old\n"
    assert set(files_of(tmp_path)) == {"f.txt", "huge"}


async def test_a_text_that_is_there_already_changes_nothing(tmp_path: Path) -> None:
    """It is a success without changes, and the file is the same one as before."""
    write(tmp_path, {"f.txt": "old\n"})
    before = (tmp_path / "f.txt").stat()
    output = await put(tmp_path, "old\n", "replace", expected_digest=digest("old\n"))
    assert output == {"workspace": str(tmp_path), "changed_files": 0, "changes": []}
    after = (tmp_path / "f.txt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_the_largest_file_is_written_and_replaced(tmp_path: Path) -> None:
    """8 MiB fit, in and out; any bytes may be replaced, since nobody has to read them as text (F104)."""
    write(tmp_path, {"f.bin": b"\xe9\0" * (LARGEST // 2)})
    given = {"expected_digest": digest(b"\xe9\0" * (LARGEST // 2)), "path": "f.bin"}
    output = await put(tmp_path, "x" * LARGEST, "replace", **given)
    assert output["changes"][0]["after_digest"] == digest("x" * LARGEST)
    assert (tmp_path / "f.bin").stat().st_size == LARGEST


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "r file_write_path_missing"),
        ({"path": 1}, "r file_write_path_missing"),
        ({"path": "f.txt"}, "r file_write_content_invalid"),
        ({"path": "f.txt", "content": "x"}, "r file_write_mode_invalid"),
        ({"path": "f.txt", "content": "x", "mode": "append"}, "r file_write_mode_invalid"),
    ],
)
async def test_what_the_schema_refuses_the_tool_refuses_too(
    arguments: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """Without a guard before it, too, each fault has its code."""
    assert await unchecked("file_write", arguments, call_over(tmp_path)) == expected
