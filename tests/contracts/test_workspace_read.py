"""`file_read`: pages of text files, and what a model sees of them (`spec/builtin-tools.md` §3, §4)."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.workspace_call import TOOLS, call_over, ending, invoke, write

LEAST = 2048 + 256
LINE_MARK, PAGE_MARK = "… [line truncated]\n", "… [output truncated]\n"
TEXT = st.text(st.sampled_from("ab é你\r"), max_size=80)


async def read(root: Path, path: str = "f.txt", *, most: int | None = None, **arguments: Any) -> Any:
    """The output of a call, or how it was refused."""
    return await ending("file_read", {"path": path, **arguments}, call_over(root, max_output_bytes=most))


def part(output: Any, *keys: str) -> tuple[Any, ...]:
    """Some fields of an output."""
    return tuple(output[key] for key in keys)


async def test_the_two_pages_of_the_source_come_out_alike(tmp_path: Path) -> None:
    """The source's own transcript: two lines of three, then the last one (E1)."""
    write(tmp_path, {"hello.txt": "alpha\n你好\nomega\n"})
    first, second = [await read(tmp_path, "hello.txt", offset=offset, limit=2) for offset in (1, 3)]
    status = (tmp_path / "hello.txt").stat()
    identity = f"orchestral.file-revision/v1\n{tmp_path}/hello.txt\n{status.st_size}\n{status.st_mtime_ns}"
    assert first == {
        "content": "alpha\n你好\n",
        "content_digest": "19b02ca597694479dece0da5730c56defad429fa9addf3603bcdc74ba3fe561c",
        "end_line": 2,
        "eof": False,
        "file_size_bytes": 19,
        "next_offset": 3,
        "path": "hello.txt",
        "revision": hashlib.sha256(identity.encode()).hexdigest(),
        "scanned_bytes": 13,
        "start_line": 1,
        "truncated": True,
        "truncated_line_numbers": [],
        "truncation_reasons": ["line_limit"],
        "workspace": str(tmp_path),
    }
    keys = ("content", "start_line", "end_line", "next_offset", "eof", "scanned_bytes", "truncated")
    assert part(second, *keys) == ("omega\n", 3, 3, 4, True, 19, False)
    assert second["content_digest"] == "3eeb0cea8bf176427633a47a62ee8c813844d574d48554a0d715e12dcbbaeda6"


async def test_line_ends_are_returned_as_they_are(tmp_path: Path) -> None:
    """CRLF, a lone CR and a missing last line end survive; the source's digest of that content does too."""
    content = '\tlet λ = "\\n";\r\n```\r\n// no final newline'
    write(tmp_path, {"f.txt": content, "cr.txt": "a\rb\nc\r"})
    output = await read(tmp_path)
    assert output["content"] == content
    assert output["content_digest"] == "53f9e9c7f904c376663e04533b95b40e4711397afd10410e732b7c15dfb43f0b"
    assert part(await read(tmp_path, "cr.txt"), "content", "end_line") == ("a\rb\nc\r", 2)


@pytest.mark.parametrize(
    ("arguments", "content", "reasons", "end"),
    [
        ({}, "a\nb\n", [], (True, 3)),
        ({"limit": 2}, "a\nb\n", [], (True, 3)),
        ({"limit": 1}, "a\n", ["line_limit"], (False, 2)),
        ({"limit": 0}, "", ["line_limit"], (False, 1)),
        ({"limit": 0, "offset": 2}, "", ["line_limit"], (False, 2)),
        ({"limit": -4}, "a\nb\n", [], (True, 3)),
        ({"offset": -1}, "a\nb\n", [], (True, 3)),
        ({"offset": 2.0, "limit": 1.0}, "b\n", [], (True, 3)),
    ],
)
async def test_offset_and_limit(
    arguments: dict[str, Any], content: str, reasons: list[str], end: tuple[bool, int], tmp_path: Path
) -> None:
    """The end is looked at, limit 0 is an empty page, negative numbers count as absent."""
    output = await read(write(tmp_path, {"f.txt": "a\nb\n"}), **arguments)
    assert part(output, "content", "truncation_reasons") == (content, reasons)
    assert part(output, "eof", "next_offset", "end_line") == (*end, end[1] - 1)


async def test_an_empty_file_is_a_complete_page(tmp_path: Path) -> None:
    """It begins at line 1, ends at 0, and is not truncated."""
    output = await read(write(tmp_path, {"f.txt": ""}))
    assert part(output, "start_line", "end_line", "next_offset", "eof", "truncated") == (1, 0, 1, True, False)


async def test_the_limit_is_capped(tmp_path: Path) -> None:
    """400 lines are the default, 2,000 the most."""
    write(tmp_path, {"f.txt": "x\n" * 3000})
    assert (await read(tmp_path))["end_line"] == 400
    assert (await read(tmp_path, limit=10**9))["end_line"] == 2000


@pytest.mark.parametrize(
    ("path", "arguments", "expected"),
    [
        ("f.txt", {"offset": 0}, "r file_read_offset_invalid"),
        ("f.txt", {"offset": 3}, "r file_read_offset_out_of_range"),
        ("f.txt", {"offset": 10**12, "limit": 0}, "r file_read_offset_out_of_range"),
        ("f.txt", {"most": LEAST - 1}, "f file_read_limit_too_small"),
        ("f.txt", {"most": LEAST - 1, "offset": 0}, "f file_read_limit_too_small"),
        ("empty", {"offset": 2}, "r file_read_offset_out_of_range"),
        ("folder", {}, "f file_read_not_file"),
        (".", {}, "f file_read_not_file"),
        ("latin1", {}, "f file_not_utf8"),
        ("latin1", {"limit": 1}, "f file_not_utf8"),
        ("latin1-late", {}, "f file_not_utf8"),
        ("latin1-long", {}, "f file_not_utf8"),
        ("cut-character", {}, "f file_not_utf8"),
    ],
)
async def test_refusals(path: str, arguments: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """Each fault has the sheet's code (§4)."""
    files: dict[str, str | bytes] = {
        "f.txt": "a\nb\n",
        "empty": "",
        "folder/x": "x",
        "latin1": b"caf\xe9\nplain\n",
        "latin1-late": b"plain\ncaf\xe9\n",
        "latin1-long": b"x" * 70_000 + b"\xe9\n",
        "cut-character": "é".encode()[:1],
    }
    assert await read(write(tmp_path, files), path, **arguments) == expected


async def test_invalid_bytes_beyond_the_page_do_no_harm(tmp_path: Path) -> None:
    """Only lines that were scanned are judged: before the page, in it, not after."""
    write(tmp_path, {"f.txt": b"plain\nplain\ncaf\xe9\nplain\n"})
    assert (await read(tmp_path, limit=2))["content"] == "plain\nplain\n"
    assert await read(tmp_path, offset=4) == "f file_not_utf8"


async def test_a_long_line_is_shortened_at_a_character(tmp_path: Path) -> None:
    """65,536 bytes are kept, cut between characters, marked and listed; the next line follows (F106)."""
    write(tmp_path, {"f.txt": "short\n" + "你" * 1_000_000 + "\nlast", "edge.txt": "x" * 65_536 + "\nnext\n"})
    output = await read(tmp_path)
    assert output["content"] == "short\n" + "你" * 21_845 + LINE_MARK + "last"
    assert part(output, "truncation_reasons", "truncated_line_numbers", "eof") == (["line_too_long"], [2], True)
    assert output["scanned_bytes"] == output["file_size_bytes"]
    assert (await read(tmp_path, "edge.txt"))["truncated"] is False


async def test_a_long_last_line_without_an_end_is_shortened_too(tmp_path: Path) -> None:
    """The mark brings a line end of its own."""
    output = await read(write(tmp_path, {"f.txt": "x" * 70_000}))
    assert output["content"] == "x" * 65_536 + LINE_MARK
    assert part(output, "end_line", "next_offset", "eof") == (1, 2, True)


async def test_the_budget_ends_a_page_before_the_line_that_does_not_fit(tmp_path: Path) -> None:
    """`next_offset` is that line; as the first of the next page it is cut, marked and listed."""
    write(tmp_path, {"f.txt": "a" * 100 + "\n" + "é" * 300 + "\nz\n"})
    first = await read(tmp_path, most=LEAST)
    keys = ("content", "truncation_reasons", "next_offset", "eof", "truncated_line_numbers")
    assert part(first, *keys) == ("a" * 100 + "\n", ["byte_limit"], 2, False, [])
    second = await read(tmp_path, most=LEAST, offset=2)
    assert second["content"] == "é" * ((256 - len(PAGE_MARK.encode())) // 2) + PAGE_MARK
    assert part(second, *keys[1:]) == (["byte_limit"], 3, False, [2])
    assert (await read(tmp_path, most=LEAST, offset=3))["content"] == "z\n"


async def test_only_so_much_of_a_file_is_scanned(tmp_path: Path) -> None:
    """A page beyond 32 MiB is not looked for, before it or in it (§4)."""
    with (tmp_path / "f.txt").open("wb") as file:
        file.write(b"first\n")
        file.truncate(34 << 20)
    assert (await read(tmp_path, limit=1))["content"] == "first\n"
    assert await read(tmp_path) == "f file_read_scan_limit"
    assert await read(tmp_path, offset=3) == "f file_read_scan_limit"


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(TEXT, max_size=12), limit=st.integers(1, 5), ended=st.booleans())
async def test_pages_joined_are_the_file(lines: list[str], limit: int, ended: bool) -> None:
    """Whatever the text, going on at `next_offset` until `eof` gives every byte once (F106)."""
    text = "\n".join(lines) + ("\n" if ended else "")
    with tempfile.TemporaryDirectory() as folder:
        root = write(Path(folder), {"f.txt": text})
        pages = [await read(root, limit=limit, most=LEAST)]
        while not pages[-1]["eof"]:
            pages.append(await read(root, limit=limit, most=LEAST, offset=pages[-1]["next_offset"]))
    assert "".join(page["content"] for page in pages) == text


# What a model sees (§3).


def view(output: Any, **arguments: Any) -> Any:
    """The model's view of an output."""
    return TOOLS["file_read"].view({"path": "f.txt", **arguments}, output)


async def test_a_whole_file_is_shown_as_path_and_content(tmp_path: Path) -> None:
    """The workspace is named only to a model that named one; the view has its contract."""
    output = await read(write(tmp_path, {"f.txt": "a\n"}))
    assert view(output) == {"path": "f.txt", "content": "a\n"}
    assert view(output, workspace="") == {"path": "f.txt", "content": "a\n", "workspace": str(tmp_path)}
    assert TOOLS["file_read"].view_contract == "orchestral.builtin-file-read-model-output/v1"


async def test_a_page_is_shown_with_its_place(tmp_path: Path) -> None:
    """Lists are shown when they hold something."""
    write(tmp_path, {"f.txt": "a\nb\n", "long.txt": "x" * 70_000 + "\n"})
    assert view(await read(tmp_path, offset=2)) == {
        "path": "f.txt",
        "content": "b\n",
        "start_line": 2,
        "end_line": 2,
        "next_offset": 3,
        "eof": True,
        "truncated": False,
    }
    cut = view(await read(tmp_path, "long.txt"))
    assert part(cut, "truncation_reasons", "truncated_line_numbers") == (["line_too_long"], [1])


@pytest.mark.parametrize(
    "change",
    [
        {"content": "b\n"},
        {"start_line": 0},
        {"truncated": True},
        {"truncated_line_numbers": [1]},
        {"file_size_bytes": 3},
        {"eof": "yes"},
        {"end_line": None},
        {"extra": 1},
    ],
)
async def test_an_output_that_contradicts_itself_is_shown_unchanged(change: dict[str, Any], tmp_path: Path) -> None:
    """A view never hides what it does not understand."""
    output = await read(write(tmp_path, {"f.txt": "a\n"})) | change
    assert view(output) == output
    assert view("no object") == "no object"


async def test_an_output_without_a_field_is_shown_unchanged(tmp_path: Path) -> None:
    """All fields belong to the shape."""
    output = await invoke("file_read", {"path": "f.txt"}, call_over(write(tmp_path, {"f.txt": "a\n"})))
    del output["revision"]
    assert view(output) == output
