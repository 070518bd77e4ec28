"""`apply_patch`: hunks that fit exactly one place, several files at once (`spec/builtin-tools.md` §8)."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.adapters.tools.workspace.patch_text import Hunk, patched
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.ports import EffectUncertain, ToolFailed
from orchestral_temporal.protocol.tools import UnknownEffect
from orchestral_temporal.runtime.tool_call import CallContext, ToolGuard
from tests.contracts.probe import Probe, invocation, raising
from tests.contracts.workspace_call import call_over, ending, granted, invoke, unchecked, write
from tests.contracts.written import digest, files_of, patch, what_is_left

CASES = Path(__file__).parents[1] / "cases"
TINY = "*** Add File: new.txt\n+x\n"


async def apply(root: Path, text: str, **changes: Any) -> Any:
    """The output of a call, or how it was refused."""
    return await ending("apply_patch", {"patch": text}, call_over(root, **changes))


def update(*lines: str, path: str = "f.txt") -> str:
    """An operation that updates a file."""
    return "".join(f"{line}\n" for line in (f"*** Update File: {path}", *lines))


async def patched_file(root: Path, content: str | bytes, *lines: str) -> Any:
    """The bytes of a file after a patch, or how it was refused, which leaves it as it was."""
    write(root, {"f.txt": content})
    output = await apply(root, patch(update(*lines)))
    return what_is_left(root, content, output)


# -- hunks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        ("a\nb\nc\n", ["@@", " a", "-b", "+x", " c"], b"a\nx\nc\n"),
        ("a\nb\nc\n", ["@@ anything", "-b"], b"a\nc\n"),
        ("a\nb\nc\n", ["@@", " c", "+d"], b"a\nb\nc\nd\n"),
        ("a\nb\nc\n", ["@@", "+0", " a"], b"0\na\nb\nc\n"),
        ("a\nb\nc", ["@@", " c", "+d"], b"a\nb\nc\nd"),
        ("a\nb\nc", ["@@", "-b", "-c"], b"a"),
        ("a\n", ["@@", "-a"], b""),
        ("a", ["@@", "-a"], b""),
        ("a", ["@@", "-a", "+b"], b"b"),
        ("", ["@@", "+a", "+b"], b"a\nb"),
        ("\n", ["@@", "", "+a"], b"\na\n"),
        ("a\n\nb\n", ["@@", " a", "", "-b"], b"a\n\n"),
        ("a\nb\n", ["@@", "-a", "+x", "@@", "-b", "+y"], b"x\ny\n"),
        ("a\nb\n", ["@@", "-b", "+a2", "@@", " a", "-a2"], b"a\n"),
        ("ab\nb\n", ["@@", "-b", "+x"], b"ab\nx\n"),
        ("é\n你\n", ["@@", "-你", "+e"], "é\ne\n".encode()),
        ("a\nb\n", ["@@", "-z"], "r patch_conflict"),
        ("a\n", ["@@", "+b"], "r patch_conflict"),
        ("a\na\n", ["@@", "-a"], "r patch_conflict"),
        ("a\na\na\n", ["@@", "-a", " a"], "r patch_conflict"),
        ("a\n", ["@@", "-a", "+a"], "r patch_conflict"),
        ("a\nb\n", ["@@", "-a", "+b", "@@", "-b", "-a"], "r patch_conflict"),
        ("\ta\n", ["@@", "- a"], "r patch_conflict"),
        (b"caf\xe9\na\n", ["@@", "-a"], "r patch_not_utf8"),
        ("x" * (8 << 20) + "\na\n", ["@@", "-a"], "r patch_file_too_large"),
        ("x" * ((8 << 20) - 3) + "\na\n", ["@@", " a", "+b"], "r patch_file_too_large"),
    ],
)
async def test_hunks(content: str | bytes, lines: list[str], expected: bytes | str, tmp_path: Path) -> None:
    """Context and removed lines fit one place to the byte, one hunk after the other, or nothing is written (E1)."""
    assert await patched_file(tmp_path, content, *lines) == expected


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        ("a\r\nb\r\nc", ["@@", " a", "-b", "+x", "+y", " c"], b"a\r\nx\r\ny\r\nc"),
        ("a\r\nb", ["@@", " b", "+c"], b"a\r\nb\r\nc"),
        ("a\r\nb\r\n", ["@@", "+0", " a"], b"0\r\na\r\nb\r\n"),
        ("a\r\nb", ["@@", "-b"], b"a"),
        ("a\r\nb\nc\r\n", ["@@", "-a", "+x"], b"x\r\nb\nc\r\n"),
        ("a\r\nb\nc\r\n", ["@@", "-b", "+x"], b"a\r\nx\nc\r\n"),
        ("a\r\nb\nc\r\n", ["@@", " a", "+x", " b"], b"a\r\nx\r\nb\nc\r\n"),
        ("a\rb\nc\n", ["@@", "-c"], b"a\rb\n"),
    ],
)
async def test_line_ends_of_the_file_are_kept(content: str, lines: list[str], expected: bytes, tmp_path: Path) -> None:
    """A patch in LF, or in CRLF, applies to both; new lines end as the line before them (divergence 22, F103)."""
    assert await patched_file(tmp_path, content, *lines) == expected
    write(tmp_path, {"f.txt": content})
    await invoke("apply_patch", {"patch": patch(update(*lines)).replace("\n", "\r\n")}, call_over(tmp_path))
    assert (tmp_path / "f.txt").read_bytes() == expected


async def test_the_patch_of_the_case_changes_one_line(tmp_path: Path) -> None:
    """Only the intended line changes, all ends stay CRLF, the last line keeps having none (F103)."""
    content = "alpha = 1\r\nbeta = 2\r\ngamma = 3\r\ndelta = 4"
    found = await patched_file(tmp_path, content, "@@", " alpha = 1", "-beta = 2", "+beta = 20", " gamma = 3")
    assert found == b"alpha = 1\r\nbeta = 20\r\ngamma = 3\r\ndelta = 4"


async def test_the_patches_of_the_case(tmp_path: Path) -> None:
    """Applied where the place is unique; otherwise refused with nothing written (F107)."""
    case = json.loads((CASES / "F107.json").read_text())
    content: str = case["file"]
    changed = {
        "unique context": "x = 2".join(content.rsplit("x = 1", 1)),
        "second hunk fits only because of the first": content.replace("x = 1", "x = 5", 1).replace("x = 1", "x = 6"),
    }
    for each in case["patches"]:
        write(tmp_path, {"m.py": content})
        output = await apply(tmp_path, each["patch"])
        code = "r patch_invalid" if each["name"] == "no end line" else "r patch_conflict"
        assert (output if isinstance(output, str) else "applied") == ("applied" if each["name"] in changed else code)
        assert files_of(tmp_path) == {"m.py": changed.get(each["name"], content)}


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from(["\n", "\r\n"])),
        min_size=1,
        max_size=12,
        unique_by=lambda each: each[0],
    ),
    ended=st.booleans(),
    data=st.data(),
)
def test_a_hunk_touches_its_own_lines_only(lines: list[tuple[int, str]], ended: bool, data: st.DataObject) -> None:
    """Whatever a file's line ends are, every byte outside of the removed lines stays, and the end of the last line."""
    at = data.draw(st.integers(0, len(lines) - 1))
    whole = [f"{number}{end}" for number, end in lines]
    if not ended:
        whole[-1] = str(lines[-1][0])
    after = patched(
        "".join(whole), [Hunk((f"-{lines[at][0]}", "+new"))], "f.txt", Watch(call_over(), timedelta(seconds=20))
    )
    rest = "".join(whole[:at]), "".join(whole[at + 1 :])
    middle = after.removeprefix(rest[0]).removesuffix(rest[1])
    assert rest[0] + middle + rest[1] == after
    assert middle in ({"new\n", "new\r\n"} if ended or at < len(lines) - 1 else {"new"})


# -- the text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*** Begin Patch",
        "*** Begin Patch\n*** End Patch\n",
        f"*** Begin Patch\n{TINY}",
        f"{TINY}*** End Patch\n",
        f" {patch(TINY)}",
        f"{patch(TINY)}\n",
        patch("loose\n", TINY),
        patch(TINY, "*** Move File: a\n"),
        patch(TINY, "***\n"),
        patch(TINY, "*** End Patch\n"),
        patch("*** Add File: new.txt\nx\n"),
        patch("*** Add File: new.txt\n\n"),
        patch("*** Delete File: f.txt\n-x\n"),
        patch("*** Update File: f.txt\n"),
        patch("*** Update File: f.txt\n-x\n@@\n-x\n"),
        patch("*** Update File: f.txt\n@@\n x\n"),
        patch("*** Update File: f.txt\n@@\n"),
        patch("*** Update File: f.txt\n@@\n-x\n@@\n"),
        patch("*** Update File: f.txt\n@@\n-x\n*x\n"),
        patch("*** Update File: f.txt\n@@\n-x\n\\ No newline at end of file\n"),
        patch(TINY, TINY),
        patch(TINY, "*** Delete File: new.txt\n"),
        patch(*(f"*** Add File: {number}.txt\n" for number in range(65))),
        patch("*** Add File: new.txt\n+nul \0\n"),
        patch("*** Add File: new.txt\n+half \ud800\n"),
        patch("*** Add File: new.txt\n+bare \r\n").replace("\r\n", "\r"),
        patch("*** Add File: new.txt\n+", "é" * (1 << 19), "\n"),
    ],
)  # fmt: skip
async def test_a_text_that_is_no_patch_is_refused(text: str, tmp_path: Path) -> None:
    """Every fault of the grammar, in one sentence, with nothing written (E2)."""
    write(tmp_path, {"f.txt": "x\n"})
    assert await apply(tmp_path, text) == "r patch_invalid"
    assert files_of(tmp_path) == {"f.txt": "x\n"}


async def test_no_patch_at_all_is_refused_by_the_tool_too(tmp_path: Path) -> None:
    """Without a guard before it, too."""
    assert await unchecked("apply_patch", {}, call_over(tmp_path)) == "r patch_missing"


# -- several files ---------------------------------------------------------------------------------------------------

BOTH = {"before_digest": digest("x\n"), "after_digest": digest("y\n")}
THREE = patch(TINY, "*** Delete File: gone.txt\n", update("@@", "-x", "+y"))


async def test_files_are_added_changed_and_deleted_in_order(tmp_path: Path) -> None:
    """The output tells of each with the digests that it has; added lines all end, and none make an empty file (E1)."""
    write(tmp_path, {"f.txt": "x\n", "gone.txt": b"\xe9\0", "sub/a": ""})
    text = THREE.replace("*** End Patch\n", "*** Add File: sub/empty\n*** End Patch")
    assert (await apply(tmp_path, text))["changes"] == [
        {"operation": "add", "path": "new.txt", "bytes": 2, "after_digest": digest("x\n")},
        {"operation": "delete", "path": "gone.txt", "bytes": 2, "before_digest": digest(b"\xe9\0")},
        {"operation": "update", "path": "f.txt", "bytes": 2} | BOTH,
        {"operation": "add", "path": "sub/empty", "bytes": 0, "after_digest": digest("")},
    ]  # fmt: skip
    assert files_of(tmp_path) == {"f.txt": "y\n", "new.txt": "x\n", "sub/a": "", "sub/empty": ""}


@pytest.mark.parametrize(
    "files", [{"gone.txt": "", "f.txt": "z\n"}, {"f.txt": "x\n"}, {"gone.txt": "", "f.txt": "x\n", "new.txt": ""}]
)
async def test_what_does_not_fit_leaves_all_files_alone(files: dict[str, str | bytes], tmp_path: Path) -> None:
    """One file that cannot be changed, and none is."""
    assert await apply(write(tmp_path, files), THREE) == "r patch_conflict"
    assert files_of(tmp_path) == files


@pytest.mark.parametrize("name", ["f.txt", "gone.txt", "new.txt"])
async def test_what_is_changed_meanwhile_leaves_all_files_alone(name: str, tmp_path: Path) -> None:
    """All files are looked at once more before the first is changed."""
    files = {"f.txt": "x\n", "gone.txt": ""}
    confirm = acting(partial((write(tmp_path, dict(files)) / name).write_text, "theirs"))
    assert await apply(tmp_path, THREE, confirm=confirm) == "r patch_conflict"
    assert files_of(tmp_path) == files | {name: "theirs"}


def acting(act: Callable[[], object]) -> Callable[[], Future[None]]:
    """A last look at which the world changes."""

    def look() -> Future[None]:
        act()
        return granted()

    return look


async def test_a_failure_after_the_first_change_is_an_uncertain_effect(tmp_path: Path) -> None:
    """A folder that vanishes under the second file: the first was made, and the outcome does not hide it (E4)."""
    write(tmp_path, {"sub/a": ""})
    text = {"patch": patch(TINY, "*** Add File: sub/b\n")}
    confirm = acting(partial(shutil.rmtree, tmp_path / "sub"))
    with pytest.raises(EffectUncertain, match=r"'sub/b' cannot be added.*before that: 'new\.txt'"):
        await invoke("apply_patch", text, call_over(tmp_path, confirm=confirm))
    assert files_of(tmp_path) == {"new.txt": "x\n"}


async def test_a_failure_at_the_first_change_is_certain(tmp_path: Path) -> None:
    """A folder that vanishes under the only file: nothing was changed."""
    write(tmp_path, {"sub/a": ""})
    confirm = acting(partial(shutil.rmtree, tmp_path / "sub"))
    assert await apply(tmp_path, patch("*** Add File: sub/b\n"), confirm=confirm) == "f patch_add_failed"
    assert files_of(tmp_path) == {}


async def test_an_uncertain_effect_is_an_unknown_one_for_the_guard() -> None:
    """Whatever the tool declares, what it cannot vouch for is unknown; a message without words has some (E4)."""
    for message, shown in (("Half of it.", "Half of it."), (" ", "The tool gave no reason.")):
        report = await ToolGuard([Probe(raising(EffectUncertain(message)))]).invoke(invocation(), CallContext())
        assert report.outcome == UnknownEffect(message=shown)


def test_hunks_without_end_end_with_the_time() -> None:
    """A patch that would take half a minute to match stops when its time is up, before anything is written."""
    content = "".join(f"{number}\n" for number in range(600_000))
    hunks = [Hunk((f"-{number}", "+x")) for number in range(580_000, 600_000)]
    with pytest.raises(ToolFailed) as caught:
        patched(content, hunks, "f.txt", Watch(call_over(), timedelta(seconds=0.2)))
    assert caught.value.code == "timeout"
