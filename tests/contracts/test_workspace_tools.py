"""What the workspace tools have in common: declarations, path safety, threads (`spec/builtin-tools.md` §1, §2)."""

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestral_temporal.adapters.tools.workspace.paths import Place, holding_folder, open_file, open_folder
from orchestral_temporal.ports import ToolFailed
from orchestral_temporal.protocol.tools import EffectScope, ToolConcurrency, ToolIdempotency
from orchestral_temporal.protocol.validation import validate
from tests.contracts.workspace_call import TOOLS, call_over, ending, invoke, write

OUTSIDE = "not for this run"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "file_read": {"path": "a.txt"},
    "file_search": {"pattern": "*"},
    "text_search": {"pattern": "a"},
}
NAMES = sorted(ARGUMENTS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace beside a folder that no call may see."""
    write(tmp_path, {"outside/secret.txt": OUTSIDE, "work/a.txt": "alpha\n", "work/sub/b.txt": "beta\n"})
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("name", "tool_id"),
    [
        ("file_read", "orchestral/file_read/v3"),
        ("file_search", "orchestral/file_search/v1"),
        ("text_search", "orchestral/text_search/v1"),
    ],
)
def test_declarations_are_those_of_the_sheet(name: str, tool_id: str) -> None:
    """Ids, effects, idempotency and concurrency are the sheet's, and the descriptor is a valid word (E1)."""
    descriptor = TOOLS[name].descriptor
    validate(descriptor)
    assert (descriptor.tool_id, descriptor.model_schema.name) == (tool_id, name)
    assert descriptor.effect_scopes == (EffectScope.FILESYSTEM_READ,)
    assert descriptor.restriction.bounds.allowed_effects == (EffectScope.FILESYSTEM_READ,)
    assert descriptor.idempotency is ToolIdempotency.PURE
    assert descriptor.concurrency is ToolConcurrency.PARALLEL_SAFE


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_closed_described_and_refuse_nothing_that_the_sheet_takes(name: str) -> None:
    """Each property is described, and bounds that the sheet treats otherwise than by refusing are not in the schema."""
    schema: Any = TOOLS[name].descriptor.model_schema.input_schema
    Draft202012Validator.check_schema(schema)
    Draft202012Validator.check_schema(TOOLS[name].descriptor.output_schema)
    assert schema["additionalProperties"] is False
    for entry in schema["properties"].values():
        assert set(entry) == {"type", "description"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/etc/passwd", "r workspace_path_absolute"),
        ("../outside/secret.txt", "r workspace_path_escape"),
        ("sub/../../outside/secret.txt", "r workspace_path_escape"),
        ("sub/../a.txt", "r workspace_path_escape"),
        ("missing.txt", "f workspace_path_unavailable"),
        ("missing/a.txt", "f workspace_path_unavailable"),
        ("a.txt/b", "f workspace_path_unavailable"),
        ("nul\0", "f workspace_path_unavailable"),
        ("half \ud800", "f workspace_path_unavailable"),
        ("x" * 300, "f workspace_path_unavailable"),
        ("x/" * 3000, "f workspace_path_unavailable"),
    ],
)
async def test_spellings_that_lead_nowhere_are_refused(name: str, path: str, expected: str, folder: Path) -> None:
    """A path is relative, stays inside, and exists; each fault has its code (E1)."""
    assert await ending(name, ARGUMENTS[name] | {"path": path}, call_over(folder)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("file_read", "r file_path_missing"),
        ("file_search", "r workspace_path_missing"),
        ("text_search", "r workspace_path_missing"),
    ],
)
async def test_a_blank_path_is_no_path(name: str, expected: str, folder: Path) -> None:
    """A blank path is refused, where an absent one of a search means the whole workspace."""
    assert await ending(name, ARGUMENTS[name] | {"path": "  "}, call_over(folder)) == expected


@pytest.mark.parametrize("path", [" sub/b.txt ", "./sub//b.txt", "sub/./b.txt"])
async def test_harmless_spellings_are_read_and_shown_plainly(path: str, folder: Path) -> None:
    """Blanks around, `.` and doubled separators are accepted; the shown path has none of them."""
    output = await invoke("file_read", {"path": path}, call_over(folder))
    assert (output["path"], output["content"]) == ("sub/b.txt", "beta\n")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("link", ["file", "folder/secret.txt", "chain/secret.txt", "dangling", "loop"])
async def test_symlinks_out_of_the_workspace_read_nothing(name: str, link: str, folder: Path) -> None:
    """A link is judged by where it really leads, and what exists outside cannot be asked (E1, divergence 25)."""
    outside = folder.parent / "outside"
    (folder / "file").symlink_to(outside / "secret.txt")
    (folder / "folder").symlink_to(outside)
    (folder / "chain").symlink_to("folder")
    (folder / "dangling").symlink_to(outside / "missing.txt")
    (folder / "loop").symlink_to("loop")
    expected = "f workspace_path_unavailable" if link == "loop" else "r workspace_path_escape"
    assert await ending(name, ARGUMENTS[name] | {"path": link}, call_over(folder)) == expected


async def test_a_symlink_inside_the_workspace_is_followed_and_named_by_its_target(folder: Path) -> None:
    """The shown path is the real one, so that a later write names the file itself."""
    (folder / "link.txt").symlink_to("sub/b.txt")
    (folder / "away").symlink_to("sub")
    for path in ("link.txt", "away/b.txt"):
        assert (await invoke("file_read", {"path": path}, call_over(folder)))["path"] == "sub/b.txt"
    assert (await invoke("file_search", {"pattern": "*.txt", "path": "away"}, call_over(folder)))["root"] == "sub"


async def test_a_folder_swapped_for_a_symlink_while_reading_never_leads_outside(folder: Path) -> None:
    """Whoever swaps a folder for a link between the check and the opening gains nothing (divergence 25)."""
    write(folder, {"swing/secret.txt": "inside"})
    done = threading.Event()

    def swing() -> None:
        while not done.is_set():
            (folder / "swing").rename(folder / "kept")
            (folder / "swing").symlink_to(folder.parent / "outside")
            (folder / "swing").unlink()
            (folder / "kept").rename(folder / "swing")

    thread = threading.Thread(target=swing)
    thread.start()
    seen: set[str] = set()
    deadline = time.monotonic() + 20
    try:
        while not {"inside", "r workspace_path_escape"} <= seen and time.monotonic() < deadline:
            output = await ending("file_read", {"path": "swing/secret.txt"}, call_over(folder))
            seen.add(output if isinstance(output, str) else output["content"])
    finally:
        done.set()
        thread.join()
    assert "inside" in seen
    assert OUTSIDE not in seen


def test_opening_follows_no_symlink_even_where_the_check_saw_none(folder: Path) -> None:
    """A component that became a link after the check is an error, whether folder or file (divergence 25)."""
    (folder / "link").symlink_to("sub")
    (folder / "b.txt").symlink_to("sub/b.txt")
    with pytest.raises(ToolFailed, match="cannot be opened"), holding_folder(Place(str(folder), ("link", "b.txt"))):
        pass
    with holding_folder(Place(str(folder), ("b.txt",))) as holder:
        with pytest.raises(OSError, match="link"):
            open_file("b.txt", holder)
        with pytest.raises(OSError, match=r"link|directory"), open_folder("link", holder):
            pass


async def test_a_readable_root_narrows_the_workspace(folder: Path) -> None:
    """What lies outside every readable folder is refused, though it is in the workspace."""
    call = call_over(folder, readable_roots=(str(folder / "sub"),))
    assert (await invoke("file_read", {"path": "sub/b.txt"}, call))["content"] == "beta\n"
    assert await ending("file_read", {"path": "a.txt"}, call) == "r workspace_path_escape"
    assert await ending("file_search", {"pattern": "*"}, call) == "r workspace_path_escape"
    assert (await invoke("file_search", {"pattern": "*", "path": "sub"}, call))["matches"] == ["sub/b.txt"]


async def test_a_root_is_no_prefix_of_its_neighbour(tmp_path: Path) -> None:
    """A readable `/w` does not cover `/work`."""
    write(tmp_path, {"w/a.txt": "a", "work/a.txt": "a"})
    call = call_over(tmp_path / "work", readable_roots=(str(tmp_path / "w"),))
    assert await ending("file_read", {"path": "a.txt"}, call) == "r workspace_path_escape"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("roots", "expected"),
    [
        ((), "r filesystem_root_denied"),
        (("/no/such/folder",), "r filesystem_root_invalid"),
        (("relative",), "r filesystem_root_invalid"),
    ],
)
async def test_readable_roots_are_judged_first(name: str, roots: tuple[str, ...], expected: str, folder: Path) -> None:
    """Without a valid readable folder nothing is read, not even a path looked at."""
    call = call_over(folder, readable_roots=roots)
    assert await ending(name, ARGUMENTS[name] | {"path": "/etc"}, call) == expected


async def test_a_workspace_is_chosen_by_its_exact_text(folder: Path) -> None:
    """Absent and blank mean the primary workspace, others go by their canonical path, anything else is unknown."""
    other = write(folder.parent / "other", {"a.txt": "other\n"})
    call = call_over(folder, other)
    for selector, content in (("", "alpha\n"), ("  ", "alpha\n"), (str(folder), "alpha\n"), (f" {other} ", "other\n")):
        output = await invoke("file_read", {"path": "a.txt", "workspace": selector}, call)
        assert (output["content"], output["workspace"]) == (content, str(other if content == "other\n" else folder))
    for selector in (f"{other}/", str(folder.parent), "other"):
        assert await ending("file_read", {"path": "a.txt", "workspace": selector}, call) == "r workspace_unknown"


async def test_a_workspace_that_is_gone_fails_and_leaves_the_others_usable(folder: Path) -> None:
    """A folder that was deleted since the run began is unavailable by name; no workspace at all is unknown."""
    gone = folder.parent / "gone"
    roots = (str(folder),)
    call = call_over(folder, workspaces=(str(gone), str(folder)), readable_roots=roots)
    assert await ending("file_read", {"path": "a.txt"}, call) == "f workspace_path_unavailable"
    assert (await invoke("file_read", {"path": "a.txt", "workspace": str(folder)}, call))["content"] == "alpha\n"
    for selector in (str(gone), ""):
        arguments = {"path": "a.txt", "workspace": selector}
        assert await ending("file_read", arguments, call) == "f workspace_path_unavailable"
    none = call_over(folder, workspaces=(), readable_roots=roots)
    assert await ending("file_read", {"path": "a.txt"}, none) == "r workspace_unknown"
    file = call_over(folder, workspaces=(str(folder / "a.txt"),), readable_roots=roots)
    assert await ending("file_search", {"pattern": "*", "path": "x"}, file) == "f workspace_path_unavailable"


async def test_pipes_and_devices_are_never_opened(folder: Path) -> None:
    """A pipe would hold a reader for ever: reading it is refused at once, searches pass it by."""
    os.mkfifo(folder / "pipe")
    assert await ending("file_read", {"path": "pipe"}, call_over(folder)) == "f file_read_not_file"
    assert (await invoke("text_search", {"pattern": "a", "path": "."}, call_over(folder)))["count"] == 2
    piped = await invoke("text_search", {"pattern": "a", "path": "pipe"}, call_over(folder))
    assert (piped["partial_reasons"], piped["stats"]["skipped_unreadable_files"]) == (["read_error"], 1)
    assert (await invoke("file_search", {"pattern": "pipe"}, call_over(folder)))["matches"] == []


async def test_file_names_that_are_no_unicode_are_shown_with_a_mark(folder: Path) -> None:
    """Bytes that are no UTF-8 become U+FFFD in the output; the file itself is still searched."""
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("alpha")
    output = await invoke("text_search", {"pattern": "alpha"}, call_over(folder))
    assert [match["path"] for match in output["matches"]] == ["a.txt", "caf\ufffd.txt"]


@pytest.mark.parametrize("name", ["file_search", "text_search"])
async def test_a_search_out_of_time_or_asked_to_return_gives_what_it_has(name: str, folder: Path) -> None:
    """The limit of the call and a wish to return end a search as partial, never as a failure (§9)."""
    for changes in ({"timeout": timedelta(0)}, {"wish": lambda: True}):
        output = await invoke(name, ARGUMENTS[name], call_over(folder, **changes))
        assert (output["completeness"], output["partial_reasons"]) == ("partial", ["timeout"])
        assert output["refinement"]


def exhausted(looks: Iterator[int]) -> bool:
    """Whether there was no look left to take."""
    return next(looks, None) is None


@pytest.mark.parametrize("name", ["file_search", "text_search"])
async def test_a_search_may_be_asked_to_return_at_any_moment(name: str, folder: Path) -> None:
    """However far it is, what it has is valid and no more than the whole."""
    write(folder, {f"d{n}/{n}.txt": "alpha\n" for n in range(3)})
    whole = await invoke(name, ARGUMENTS[name], call_over(folder))
    counts: list[int] = []
    for moment in range(200):
        looks = iter(range(moment))
        output = await invoke(name, ARGUMENTS[name], call_over(folder, wish=partial(exhausted, looks)))
        assert output["matches"] == [match for match in whole["matches"] if match in output["matches"]]
        counts.append(output["count"])
        if output["completeness"] == "complete":
            break
    assert set(counts) == set(range(whole["count"] + 1))


@pytest.mark.parametrize("name", ["file_search", "text_search"])
async def test_what_vanishes_during_a_search_makes_it_partial(name: str, folder: Path) -> None:
    """A folder or file that was listed and is gone is reported, the rest is searched."""
    write(folder, {"c/c.txt": "alpha\n", "d/d.txt": "alpha\n", "z.txt": "alpha\n"})

    def tidy() -> bool:
        # The first look is at the first name of the listing, when all of them have been found.
        shutil.rmtree(folder / "c", ignore_errors=True)
        (folder / "z.txt").unlink(missing_ok=True)
        return False

    output = await invoke(name, ARGUMENTS[name], call_over(folder, wish=tidy))
    searched = {"a.txt", "d/d.txt"}
    found = {match if isinstance(match, str) else match["path"] for match in output["matches"]}
    assert searched <= found
    assert "scan_error" in output["partial_reasons"]
    assert output["warnings"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("file_search", "file_search_worker_failed"), ("text_search", "text_search_worker_failed")],
)
async def test_a_search_that_breaks_off_may_be_tried_again(name: str, code: str, folder: Path) -> None:
    """What nobody foresaw is a failure that says so, and retryable, since nothing was changed (§9)."""

    def burst() -> bool:
        raise RuntimeError("pipe burst")

    assert await ending(name, ARGUMENTS[name], call_over(folder, wish=burst)) == f"f R {code}"


async def test_an_abandoned_search_ends_within_a_second(tmp_path: Path) -> None:
    """A cancelled call answers at once, and its thread stops in the middle of a file of megabytes (F004)."""
    line = "alpha beta gamma delta epsilon zeta eta theta " * 8 + "\n"
    write(tmp_path, {f"{number}.txt": line * 30_000 for number in range(3)})
    looked = threading.Event()

    def wish() -> bool:
        looked.set()
        return False

    # A pattern that is slow on purpose: all files together would take it many seconds.
    arguments = {"pattern": "(.{0,100}a){1,8}qq"}
    running = asyncio.create_task(invoke("text_search", arguments, call_over(tmp_path, wish=wish)))
    await asyncio.to_thread(looked.wait)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    answered = time.monotonic() - began
    await asyncio.get_running_loop().shutdown_default_executor()
    assert answered < 0.5
    assert time.monotonic() - began < 1.0
