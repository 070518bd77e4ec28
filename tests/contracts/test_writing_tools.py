"""What the writing tools have in common: declarations, path safety, the last look (`spec/builtin-tools.md` §2, §5)."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestral_temporal.hosting.governed import governed
from orchestral_temporal.ports import NotStarted
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    Cancelled,
    Completed,
    EffectScope,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    ToolInvocation,
    ToolOutcome,
)
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.runtime.tool_call import CallContext, ToolGuard
from tests.contracts.workspace_call import TOOLS, FolderCall, call_over, ending, granted, invoke, write
from tests.contracts.written import NAMES, arguments, files_of, nothing_left, patch

OUTSIDE = "not for this run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace beside a folder that no call may touch."""
    write(tmp_path, {"outside/a.txt": OUTSIDE, "work/a.txt": "alpha\n", "work/sub/a.txt": "alpha\n"})
    return tmp_path / "work"


def once(act: Callable[[], object]) -> Callable[[], Future[None]]:
    """A last look at which the world changes: after all checks, before the effect."""

    def look() -> Future[None]:
        act()
        return granted()

    return look


@pytest.mark.parametrize("name", NAMES)
def test_declarations_are_those_of_the_sheet(name: str) -> None:
    """Id, effects, idempotency and concurrency are the sheet's, a person is asked, the schemas are closed (E1)."""
    descriptor = TOOLS[name].descriptor
    validate(descriptor)
    effects = (EffectScope.FILESYSTEM_READ, EffectScope.FILESYSTEM_WRITE)
    assert (descriptor.tool_id, descriptor.model_schema.name) == (f"orchestral/{name}/v1", name)
    assert (descriptor.effect_scopes, descriptor.restriction.bounds.allowed_effects) == (effects, effects)
    assert descriptor.idempotency is ToolIdempotency.NON_IDEMPOTENT
    assert descriptor.concurrency is ToolConcurrency.PER_RUN_SERIAL
    assert descriptor.restriction.bounds.approval is ApprovalPolicy.REQUIRED
    schema: Any = descriptor.model_schema.input_schema
    for each in (schema, descriptor.output_schema):
        Draft202012Validator.check_schema(each)
        assert each["additionalProperties"] is False
    assert all("description" in entry for entry in schema["properties"].values())


# -- paths -----------------------------------------------------------------------------------------------------------

INVALID = {
    "file_write": "file_write_path_invalid",
    "file_edit": "file_edit_path_invalid",
    "apply_patch": "patch_invalid",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "path",
    ["", " ", "/etc/hosts", "..", "../a.txt", "sub/../a.txt", "./a.txt", "sub/./a.txt", "sub//a.txt", "sub/", ".",
     " a.txt", "a.txt ", "sub\\a.txt", "half\ud800"],
)  # fmt: skip
async def test_only_the_normal_spelling_names_a_file(name: str, path: str, folder: Path) -> None:
    """A path to write is taken as it is spelt, and refused if it has another spelling (E1)."""
    before = files_of(folder)
    assert await ending(name, arguments(name, path), call_over(folder)) == f"r {INVALID[name]}"
    assert files_of(folder) == before


@pytest.mark.parametrize(("name", "code"), [("file_write", INVALID["file_write"]), ("file_edit", "file_edit_invalid")])
async def test_a_path_with_a_nul_names_nothing(name: str, code: str, folder: Path) -> None:
    """No file system takes a NUL."""
    assert await ending(name, arguments(name, "a\0"), call_over(folder)) == f"r {code}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("no/a.txt", "r patch_parent_missing"),
        ("a.txt/b", "r patch_parent_invalid"),
        ("sub", "r patch_target_invalid"),
        ("x" * 300, "f patch_workspace_failed"),
        ("x" * 300 + "/a.txt", "f patch_workspace_failed"),
        ("link.txt", "r patch_path_escape"),
        ("dangling.txt", "r patch_path_escape"),
        ("inside.txt", "r patch_path_escape"),
        ("away/a.txt", "r patch_path_escape"),
        ("loop/a.txt", "r patch_path_escape"),
    ],
)
async def test_paths_that_lead_to_no_file_of_the_workspace(name: str, path: str, expected: str, folder: Path) -> None:
    """Missing folders, what is no file and every symlink, inside or outside, are refused (E1, divergence 25)."""
    outside = folder.parent / "outside"
    (folder / "link.txt").symlink_to(outside / "a.txt")
    (folder / "dangling.txt").symlink_to(outside / "new.txt")
    (folder / "inside.txt").symlink_to("a.txt")
    (folder / "away").symlink_to(outside)
    (folder / "loop").symlink_to("loop")
    before = files_of(folder.parent)
    for mode in ("replace", "create"):
        assert await ending(name, arguments(name, path, mode), call_over(folder)) == expected
    assert files_of(folder.parent) == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", ["readable_roots", "writable_roots"])
async def test_nothing_is_written_outside_the_roots_of_the_policy(name: str, which: str, folder: Path) -> None:
    """The folder of a file lies below a readable and a writable root, or nothing is written; a prefix is none."""
    neighbour = write(folder.parent / "work2", {"a.txt": "alpha\n"})
    for roots, path, expected in (
        ((), "a.txt", "r patch_workspace_denied"),
        ((str(folder), "/no/such/folder"), "a.txt", "r patch_workspace_denied"),
        (("relative",), "a.txt", "r patch_workspace_denied"),
        ((str(folder / "sub"),), "a.txt", "r patch_path_escape"),
        ((str(neighbour),), "a.txt", "r patch_path_escape"),
    ):
        call = call_over(folder, **{which: roots})
        assert await ending(name, arguments(name, path), call) == expected
    assert files_of(folder)["a.txt"] == "alpha\n"
    call = call_over(folder, **{which: (str(folder / "sub"),)})
    assert (await invoke(name, arguments(name, "sub/a.txt"), call))["changed_files"] == 1


@pytest.mark.parametrize("name", NAMES)
async def test_a_workspace_with_a_parent_segment_is_no_way_out(name: str, folder: Path) -> None:
    """`/w/../outside` begins like a root and leads elsewhere: refused (divergence 25)."""
    call = call_over(folder, workspaces=(f"{folder}/../outside",))
    assert await ending(name, arguments(name, "a.txt"), call) == "r patch_path_escape"
    assert files_of(folder.parent / "outside") == {"a.txt": OUTSIDE}


@pytest.mark.parametrize("name", NAMES)
async def test_a_workspace_is_chosen_by_its_exact_text(name: str, folder: Path) -> None:
    """Absent means the primary one; a file with the same name in another is left alone."""
    other = write(folder.parent / "other", {"a.txt": "alpha\n"})
    call = call_over(folder, other)
    output = await invoke(name, arguments(name, "a.txt") | {"workspace": str(other)}, call)
    assert (output["workspace"], files_of(other)["a.txt"]) == (str(other), "beta\n")
    assert files_of(folder)["a.txt"] == "alpha\n"
    assert (await invoke(name, arguments(name, "a.txt"), call))["workspace"] == str(folder)
    for selector in (f"{other}/", str(folder.parent)):
        given = arguments(name, "a.txt") | {"workspace": selector}
        assert await ending(name, given, call) == "r workspace_unknown"


def vanish(folder: Path) -> None:
    """Take the folder away."""
    folder.rename(folder.parent / "kept")


def become_a_link(folder: Path) -> None:
    """Put a link in the folder's place."""
    vanish(folder)
    folder.symlink_to(folder.parent / "outside")


def become_a_file(folder: Path) -> None:
    """Put a file in the folder's place."""
    vanish(folder)
    folder.write_text("no folder")


@pytest.mark.parametrize("change", [vanish, become_a_link, become_a_file])
@pytest.mark.parametrize("name", NAMES)
async def test_a_workspace_that_is_gone_or_became_a_link_is_not_written(
    name: str, change: Callable[[Path], None], folder: Path
) -> None:
    """A vanished workspace fails; one that was swapped for a link is no longer the folder that was granted (E1)."""
    root = str(folder.parent)
    call = call_over(folder, readable_roots=(root,), writable_roots=(root,))
    change(folder)
    assert await ending(name, arguments(name, "a.txt"), call) == "f patch_workspace_failed"
    assert files_of(folder.parent / "outside") == {"a.txt": OUTSIDE}


async def test_a_policy_whose_folder_is_gone_lets_nothing_be_written(folder: Path) -> None:
    """The workspace usually is the policy's own folder, and then the policy is what names nothing."""
    call = call_over(folder)
    vanish(folder)
    for name in NAMES:
        assert await ending(name, arguments(name, "a.txt"), call) == "r patch_workspace_denied"


# -- between the check and the effect --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["replace", "create"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_folder_swapped_after_the_check_redirects_nothing(name: str, mode: str, folder: Path) -> None:
    """The write goes to the folder that was checked, wherever its name leads by then (divergence 25)."""
    given = arguments(name, "sub/new.txt" if mode == "create" else "sub/a.txt", mode)

    def swap() -> None:
        (folder / "sub").rename(folder / "kept")
        (folder / "sub").symlink_to(folder.parent / "outside")

    await ending(name, given, call_over(folder, confirm=once(swap)))
    assert files_of(folder.parent / "outside") == {"a.txt": OUTSIDE}
    assert nothing_left(folder)


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_swapped_for_a_link_after_the_check_is_not_followed(name: str, folder: Path) -> None:
    """Refused, and what the link leads to stays as it is (divergence 25)."""

    def swap() -> None:
        (folder / "a.txt").unlink()
        (folder / "a.txt").symlink_to(folder.parent / "outside/a.txt")

    call = call_over(folder, confirm=once(swap))
    assert await ending(name, arguments(name, "a.txt"), call) == "r patch_path_escape"
    assert files_of(folder.parent / "outside") == {"a.txt": OUTSIDE}
    assert nothing_left(folder)


@pytest.mark.parametrize("name", NAMES)
async def test_a_folder_that_swings_never_leads_outside(name: str, folder: Path) -> None:
    """Whoever swaps a folder for a link at any moment gains nothing, and files inside stay whole (divergence 25)."""
    done = threading.Event()

    def swing() -> None:
        while not done.is_set():
            (folder / "sub").rename(folder / "kept")
            (folder / "sub").symlink_to(folder.parent / "outside")
            (folder / "sub").unlink()
            (folder / "kept").rename(folder / "sub")

    thread = threading.Thread(target=swing)
    thread.start()
    seen: set[str] = set()
    deadline = time.monotonic() + 20
    texts = ("alpha\n", "beta\n")
    try:
        while not {"written", "r patch_path_escape"} <= seen and time.monotonic() < deadline:
            for old, new in (texts, texts[::-1]):
                output = await ending(name, arguments(name, "sub/a.txt", old=old, new=new), call_over(folder))
                seen.add(output if isinstance(output, str) else "written")
    finally:
        done.set()
        thread.join()
    assert {"written", "r patch_path_escape"} <= seen
    assert files_of(folder.parent / "outside") == {"a.txt": OUTSIDE}
    assert files_of(folder)["sub/a.txt"] in texts


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_changed_by_somebody_else_meanwhile_is_not_overwritten(name: str, folder: Path) -> None:
    """What came between reading and writing wins, and nothing else is left behind."""
    call = call_over(folder, confirm=once(lambda: (folder / "a.txt").write_text("theirs\n")))
    assert await ending(name, arguments(name, "a.txt"), call) == "r patch_conflict"
    call = call_over(folder, confirm=once(lambda: (folder / "new.txt").write_text("theirs\n")))
    for made in ("file_write", "apply_patch"):
        (folder / "new.txt").unlink(missing_ok=True)
        assert await ending(made, arguments(made, "new.txt", "create"), call) == "r patch_conflict"
    call = call_over(folder, confirm=once((folder / "sub/a.txt").unlink))
    assert await ending(name, arguments(name, "sub/a.txt"), call) == "r patch_conflict"
    assert files_of(folder) == {"a.txt": "theirs\n", "new.txt": "theirs\n"}


async def test_of_many_that_make_one_file_one_does(folder: Path) -> None:
    """Making a file is one step of the system: the others are refused, and the file is that of the one."""
    given = [{"path": "new.txt", "content": f"{number}\n" * 1000, "mode": "create"} for number in range(12)]
    outputs = await asyncio.gather(*(ending("file_write", each, call_over(folder)) for each in given))
    (winner,) = [number for number, output in enumerate(outputs) if not isinstance(output, str)]
    assert {output for output in outputs if isinstance(output, str)} == {"r patch_conflict"}
    assert (folder / "new.txt").read_text() == given[winner]["content"]
    assert nothing_left(folder)


@pytest.mark.parametrize("name", NAMES)
async def test_an_attempt_that_nobody_wants_writes_nothing(name: str, folder: Path) -> None:
    """A refused last look, as after a pause of the whole process, goes to the guard as it is (E4, decision 15)."""

    def refused() -> Future[None]:
        looked: Future[None] = Future()
        looked.set_exception(NotStarted(Cancelled()))
        return looked

    before = files_of(folder)
    with pytest.raises(NotStarted):
        await invoke(name, arguments(name, "a.txt"), call_over(folder, confirm=refused))
    assert files_of(folder) == before


@pytest.mark.parametrize("name", NAMES)
async def test_a_cancelled_call_writes_nothing_any_more(name: str, folder: Path) -> None:
    """A cancel before the first change is the end of it, though the thread is still at work (F004)."""
    looking, answer = threading.Event(), Future[None]()

    def slow() -> Future[None]:
        looking.set()
        return answer

    before = files_of(folder)
    running = asyncio.create_task(invoke(name, arguments(name, "a.txt"), call_over(folder, confirm=slow)))
    await asyncio.to_thread(looking.wait)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    answer.set_result(None)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert files_of(folder) == before


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_without_time_changes_nothing_and_says_so(name: str, folder: Path) -> None:
    """A time-out before the first change is certain; a wish that the call return early changes nothing."""
    before = files_of(folder)
    call = call_over(folder, timeout=timedelta())
    assert await ending(name, arguments(name, "a.txt"), call) == "f timeout"
    assert files_of(folder) == before
    call = call_over(folder, wish=lambda: True)
    assert (await invoke(name, arguments(name, "a.txt"), call))["changed_files"] == 1


async def test_work_that_breaks_off_is_not_offered_again(folder: Path) -> None:
    """What nobody foresaw is a failure, and not retryable as that of a tool that only reads."""

    def burst() -> Future[None]:
        raise RuntimeError("pipe burst")

    call = call_over(folder, confirm=burst)
    assert await ending("file_write", arguments("file_write", "a.txt"), call) == "f patch_workspace_failed"
    assert files_of(folder)["a.txt"] == "alpha\n"


# -- behind the guard ------------------------------------------------------------------------------------------------


async def guarded(name: str, folder: Path, tools: dict[str, Any]) -> ToolOutcome:
    """The outcome of a call through the guard."""
    tool = tools[name]
    given = arguments(name, "a.txt")
    call = ToolInvocation(run_id="r", call_id="r/m1/c1", tool_id=tool.descriptor.tool_id, arguments=given)
    roots = (str(folder),)
    context = CallContext(workspaces=roots, readable_roots=roots, writable_roots=roots)
    return (await ToolGuard([tool]).invoke(call, context)).outcome


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_is_written_without_a_person_where_the_policy_says_nothing(name: str, folder: Path) -> None:
    """By default a person is asked, and since nobody can be asked yet the call is refused in one sentence (D4)."""
    outcome = await guarded(name, folder, TOOLS)
    assert isinstance(outcome, Rejected)
    assert (outcome.code, "nobody can be asked" in outcome.message) == ("policy_denied", True)
    assert files_of(folder)["a.txt"] == "alpha\n"
    assert isinstance(await guarded(name, folder, {name: governed(TOOLS[name], {name: "never"})}), Completed)
    assert files_of(folder)["a.txt"] == "beta\n"


async def test_a_guard_without_writable_folders_lets_nothing_be_written(folder: Path) -> None:
    """What a run may read it may not therefore write."""
    call = FolderCall((str(folder),), (str(folder),))
    for name in NAMES:
        assert await ending(name, arguments(name, "a.txt"), call) == "r patch_workspace_denied"


# -- what a model sees (§3) ------------------------------------------------------------------------------------------


async def test_a_model_sees_what_was_changed_without_digests(folder: Path) -> None:
    """Operation, path and bytes; the workspace only if the model named one."""
    text = patch(
        "*** Add File: new.txt\n+x\n", "*** Delete File: a.txt\n", "*** Update File: sub/a.txt\n@@\n-alpha\n+b\n"
    )
    given = {"patch": text}
    output = await invoke("apply_patch", given, call_over(folder))
    seen = {
        "changed_files": 3,
        "changes": [
            {"operation": "add", "path": "new.txt", "bytes": 2},
            {"operation": "delete", "path": "a.txt", "bytes": 6},
            {"operation": "update", "path": "sub/a.txt", "bytes": 2},
        ],
    }
    tool = TOOLS["apply_patch"]
    assert tool.view(given, output) == seen
    assert tool.view(given | {"workspace": str(folder)}, output) == seen | {"workspace": str(folder)}
    assert tool.view_contract == "orchestral.builtin-mutation-model-output/v1"


@pytest.mark.parametrize(
    "change",
    [
        {"changed_files": 2},
        {"extra": 1},
        {"changes": [{"operation": "move", "path": "a", "bytes": 1}]},
        {"changes": [{"operation": "add", "path": "a", "bytes": 1}]},
        {"changes": [{"operation": "update", "path": "a", "bytes": 1, "after_digest": "d"}]},
        {"changes": [{"operation": "delete", "path": "a", "bytes": 1, "before_digest": "d", "after_digest": "d"}]},
    ],
)
async def test_an_output_that_contradicts_itself_is_shown_unchanged(change: dict[str, Any], folder: Path) -> None:
    """A view never hides what it does not understand."""
    output = await invoke("file_edit", arguments("file_edit", "a.txt"), call_over(folder)) | change
    assert TOOLS["file_edit"].view({}, output) == output
