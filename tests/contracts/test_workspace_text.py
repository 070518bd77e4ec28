"""`text_search`: matches, patterns, odd files, large ones (`spec/builtin-tools.md` §9)."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.adapters.tools.workspace import text_search
from tests.contracts.workspace_call import find, grep, places, write


async def test_a_match_tells_where_it_is(tmp_path: Path) -> None:
    """Columns count characters from 1, offsets count bytes of the line from 0; the first match of a line counts."""
    write(tmp_path, {"a.txt": "one\r\ntwo äß three three\r\nfour\r\n\r\nfive"})
    output = await grep(tmp_path, "three", context=2)
    assert output["matches"] == [
        {
            "path": "a.txt",
            "line_number": 2,
            "column": 8,
            "match_start_byte": 9,
            "match_end_byte": 14,
            "preview": "two äß three three",
            "preview_truncated": False,
            "context_before": ["one"],
            "context_after": ["four", ""],
        }
    ]
    assert output["stats"]["scanned_bytes"] == (tmp_path / "a.txt").stat().st_size
    wide = (await grep(tmp_path, "four", context=99))["matches"][0]
    assert (wide["context_before"], wide["context_after"]) == (["one", "two äß three three"], ["", "five"])


PATTERNS = [
    "a",
    "a+b",
    "^a",
    "b$",
    "^$",
    "^",
    "$",
    r"\Aa",
    r"b\z",
    "[^a]",
    r"[^a]+\s",
    "(?i)A",
    "a|b",
    r"\bb",
    "é",
    "a.*b",
    r"\s",
]


@settings(max_examples=300, deadline=None)
@given(lines=st.lists(st.text("ab é", max_size=6), max_size=8), pattern=st.sampled_from(PATTERNS), ended=st.booleans())
async def test_lines_are_searched_one_by_one(lines: list[str], pattern: str, ended: bool) -> None:
    """Whatever the text, the result is that of searching each line by itself, ends and anchors included."""
    text = "\n".join(lines) + ("\n" if ended else "")
    meaning = re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII if "é" not in pattern else 0)
    expected = [
        (number, found.start(), found.end(), line)
        for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], start=1)
        if (found := meaning.search(line))
    ]
    with tempfile.TemporaryDirectory() as folder:
        output = await grep(write(Path(folder), {"f.txt": text}), pattern, limit=200)
    assert [
        (
            match["line_number"],
            match["column"] - 1,
            len(match["preview"].encode()[: match["match_end_byte"]].decode()),
            match["preview"],
        )
        for match in output["matches"]
    ] == expected


@pytest.mark.parametrize(
    "pattern", ["(", "(?=a)", "(?<!a)b", r"(a)\1", "a{2000}", "*", r"\C", r"(?-m:^a)", r"(\pL{1,300}x){1,9}", "[z-a]"]
)
async def test_patterns_beyond_linear_time_or_a_line_are_refused(pattern: str, tmp_path: Path) -> None:
    """No look-around, no back-reference, no byte that is no character, nothing that reaches beyond a line (§17, 9)."""
    assert await grep(tmp_path, pattern) == "r text_search_pattern_invalid"


async def test_literal_text_is_not_a_pattern(tmp_path: Path) -> None:
    """With `literal` every character stands for itself, and blanks around are still trimmed (§17, 6)."""
    write(tmp_path, {"a.txt": "a.b(c)\naxb(c)\n"})
    assert places(await grep(tmp_path, " a.b(c) ", literal=True)) == [("a.txt", 1)]
    assert places(await grep(tmp_path, "A.B(C)", literal=True, case_sensitive=False)) == [("a.txt", 1)]


async def test_what_is_no_text_is_counted_and_harmless(tmp_path: Path) -> None:
    """NUL or bytes that are no UTF-8 make a file binary, also when they come after a match (F106)."""
    write(
        tmp_path,
        {"a.txt": "hit\n", "latin1.txt": b"hit\ncaf\xe9\n", "nul.bin": b"hit\n\0\n", "z.txt": "hit\n"},
    )
    output = await grep(tmp_path, "hit")
    assert (places(output), output["completeness"]) == ([("a.txt", 1), ("z.txt", 1)], "complete")
    assert (output["stats"]["skipped_binary_files"], output["stats"]["searched_files"]) == (2, 2)
    assert output["stats"]["considered_files"] == 4


async def test_a_folder_of_odd_files_within_a_small_budget(tmp_path: Path) -> None:
    """A 3 MB line, a file that is no UTF-8 and ten normal ones in 16 KB: every normal hit is there (F106)."""
    files: dict[str, str | bytes] = {f"n{n}.txt": f"line\nthe needle {n}\n" for n in range(10)}
    files |= {"a-huge.txt": "你" * 500_000 + "needle" + "好" * 500_000, "bad.txt": b"needle \xff\n"}
    output = await grep(write(tmp_path, files), "needle", most=16 << 10)
    assert places(output) == [("a-huge.txt", 1), *((f"n{n}.txt", 2) for n in range(10))]
    huge = output["matches"][0]
    assert (huge["column"], huge["match_start_byte"], huge["preview_truncated"]) == (500_001, 1_500_000, True)
    assert len(huge["preview"]) == 2000
    assert huge["preview"][0] == huge["preview"][-1] == "…"
    assert "你needle好" in huge["preview"]
    assert (output["completeness"], output["stats"]["skipped_binary_files"]) == ("complete", 1)


@pytest.mark.parametrize(("before", "after", "marks"), [(0, 3000, "r"), (3000, 0, "l"), (1500, 1500, "lr")])
async def test_long_lines_are_windowed_around_the_match(before: int, after: int, marks: str, tmp_path: Path) -> None:
    """The mark stands where something was left out; a match longer than the window begins it."""
    write(tmp_path, {"a.txt": "x" * before + "needle" + "y" * after, "b.txt": "z" * 50 + "q" * 5000})
    preview = (await grep(tmp_path, "needle"))["matches"][0]["preview"]
    assert "needle" in preview
    assert (preview.startswith("…"), preview.endswith("…")) == ("l" in marks, "r" in marks)
    assert len(preview) == 2000 - (2 - len(marks))
    long = (await grep(tmp_path, "q+", context=1))["matches"][0]["preview"]
    assert long == "…" + "q" * 1998 + "…"


async def test_long_context_lines_are_shortened_and_never_fatal(tmp_path: Path) -> None:
    """A context line may be long, and beyond what was found to be text."""
    long = "é" * 3000
    last = text_search.WINDOW_BYTES * b"w" + b"\n" + b"hit\n" + b"\xff\n" + b"v" * text_search.WINDOW_BYTES
    write(tmp_path, {"a.txt": f"{long}\nhit\n{long}\n", "b.txt": last})
    match = (await grep(tmp_path, "hit", path="a.txt", context=1))["matches"][0]
    assert match["context_before"] == match["context_after"] == ["é" * 1998 + "…"]
    assert (await grep(tmp_path, "hit", path="b.txt", context=1, limit=0))["count"] == 0


async def test_lines_too_long_to_search_are_reported(tmp_path: Path) -> None:
    """A line above 4 MiB ends the search of its file; matches before it and other files count."""
    write(tmp_path, {"a.txt": "hit\n" + "x" * (text_search.LINE_BYTES + 1) + "\nhit\n", "b.txt": "hit\n"})
    output = await grep(tmp_path, "hit")
    assert (places(output), output["partial_reasons"]) == ([("a.txt", 1), ("b.txt", 1)], ["search_error"])
    assert "a.txt" in output["warnings"][0]
    write(tmp_path, {"a.txt": "x" * text_search.LINE_BYTES + "\nhit\n"})
    assert (await grep(tmp_path, "hit"))["completeness"] == "complete"


async def test_large_files_are_searched_in_windows_without_a_seam(tmp_path: Path) -> None:
    """Line numbers, context and matches are right on both sides of every window's edge."""
    lines = [f"{number} {'hit' if number % 9973 == 0 else 'miss'} {'x' * (number % 50)}" for number in range(1, 60_001)]
    output = await grep(write(tmp_path, {"a.txt": "\n".join(lines)}), r"\bhit\b", context=1)
    assert places(output) == [("a.txt", number) for number in range(9973, 60_001, 9973)]
    for match in output["matches"]:
        at = match["line_number"] - 1
        assert (match["preview"], match["context_before"], match["context_after"]) == (
            lines[at],
            lines[at - 1 : at],
            lines[at + 1 : at + 2],
        )


async def test_files_and_bytes_of_a_search_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies within the bounds is searched, to the end of a line (§9); the bounds are made small here."""
    write(tmp_path, {"a.txt": "hit\n", "b.txt": "hit\nhit\nhit\n", "c.txt": "hit\n"})
    monkeypatch.setattr(text_search, "SCANNED_BYTES", 10)
    output = await grep(tmp_path, "hit")
    assert (places(output), output["partial_reasons"]) == ([("a.txt", 1), ("b.txt", 1)], ["byte_limit"])
    assert output["stats"]["scanned_bytes"] == 10
    monkeypatch.undo()
    monkeypatch.setattr(text_search, "FILES", 2)
    output = await grep(tmp_path, "hit", limit=9)
    assert (output["count"], output["partial_reasons"]) == (4, ["file_limit"])
    assert output["stats"]["considered_files"] == 2


async def test_warnings_are_few_and_short(tmp_path: Path) -> None:
    """Eight warnings of 512 characters are the most a result carries (§9)."""
    for number in range(12):
        folder = tmp_path / ("f" * 200) / ("g" * 200) / ("h" * 100) / f"{number:02}"
        folder.mkdir(parents=True)
        (folder / ".ignore").symlink_to("nowhere")
    output = await find(tmp_path)
    assert [len(warning) for warning in output["warnings"]] == [512] * 8
