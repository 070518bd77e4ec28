"""A file that a tool changes is always whole: through failures, a full disk and kills (`spec/builtin-tools.md` §5)."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestral_temporal.ports import EffectUncertain, ToolFailed, ToolRejected
from tests.contracts.workspace_call import FolderCall, call_over, invoke, write
from tests.contracts.writing_alone import work
from tests.contracts.written import NAMES, arguments, files_of, nothing_left, patch, system_calls

ROOT = Path(__file__).parents[2]
OLD: dict[str, str | bytes] = {"a.txt": "alpha\n", "gone.txt": "old\n", "sub/b.txt": "old\n"}
THREE = patch(
    "*** Update File: a.txt\n@@\n-alpha\n+beta\n", "*** Delete File: gone.txt\n", "*** Add File: new.txt\n+beta\n"
)
CHANGES = [
    *((name, arguments(name, "a.txt")) for name in NAMES),
    ("file_write", arguments("file_write", "sub/new.txt", "create")),
    ("apply_patch", {"patch": THREE}),
]


def ended(call: FolderCall, name: str, given: Any) -> str:
    """How the work of a tool ends, in this thread."""
    try:
        work(call, name, given)
    except (ToolRejected, ToolFailed) as refusal:
        return refusal.code
    except EffectUncertain:
        return "uncertain"
    return "written"


def disk_full() -> None:
    """What the system says when there is no room."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def without_temporary(found: dict[str, str]) -> dict[str, str]:
    """What a folder holds besides our own files of the moment."""
    return {path: text for path, text in found.items() if ".orchestral-patch-" not in path}


@pytest.mark.parametrize(("name", "given"), CHANGES)
def test_whatever_the_system_refuses_the_outcome_is_true(name: str, given: Any, tmp_path: Path) -> None:
    """One failure at each system call in turn: *failed* means nothing was changed, *written* that all was (E2, E4)."""
    done = write(tmp_path / "done", OLD)
    assert ended(call_over(done), name, given) == "written"
    new, outcomes = files_of(done), list[str]()
    more = True
    while more:
        folder = write(tmp_path / str(len(outcomes)), OLD)
        call = call_over(folder)
        with system_calls(len(outcomes) + 1, disk_full) as made:
            outcome = ended(call, name, given)
        outcomes.append(outcome)
        more = len(made) == len(outcomes)
        found = files_of(folder)
        assert nothing_left(folder) or made[-1] == "unlink"
        found = without_temporary(found)
        if outcome == "uncertain":
            assert all(text in {OLD.get(path), new.get(path)} for path, text in found.items())
        else:
            assert found == (new if outcome == "written" else OLD)
    assert outcomes[-1] == "written"
    assert {"patch_workspace_denied", "patch_workspace_failed", "patch_stage_failed", "uncertain"} < set(outcomes)


def test_a_file_that_is_made_in_the_last_instant_is_not_overwritten(tmp_path: Path) -> None:
    """After all looks, just before ours takes the name: the system itself refuses, and theirs stays."""
    call, given = call_over(tmp_path), arguments("file_write", "new.txt", "create")
    with system_calls(0, disk_full) as made:
        assert ended(call, "file_write", given) == "written"
    new = tmp_path / "new.txt"
    new.unlink()
    with system_calls(made.index("link") + 1, lambda: new.write_text("theirs\n")):
        assert ended(call, "file_write", given) == "patch_conflict"
    assert files_of(tmp_path) == {"new.txt": "theirs\n"}


@pytest.mark.parametrize(
    ("mode", "steps"),
    [("replace", ["fsync", "replace", "fsync", "unlink"]), ("create", ["fsync", "link", "unlink", "fsync", "unlink"])],
)
def test_a_power_cut_finds_no_name_without_its_content(mode: str, steps: list[str], tmp_path: Path) -> None:
    """The content is made durable before it takes the name, and the name before the call ends."""
    call = call_over(write(tmp_path, OLD))
    with system_calls(0, disk_full) as made:
        path = "a.txt" if mode == "replace" else "new.txt"
        assert ended(call, "file_write", arguments("file_write", path, mode)) == "written"
    assert [name for name in made if name in steps] == steps


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """SIGKILL at each system call in turn: every file is the old or the new one, never half of it (E4)."""
    write(tmp_path, OLD)
    for found in alone("killed", tmp_path, CHANGES[2:]):
        states = [without_temporary(each) for each in found]
        assert found[-1] == states[-1] != OLD == states[0]
        for path in {*OLD, *states[-1]}:
            seen = [each.get(path) for each in states]
            turn = seen.index(seen[-1])
            assert seen == [OLD.get(path)] * turn + [seen[-1]] * (len(seen) - turn)


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """A system that takes no more than 4 KiB a file: a failure that says so, the old file, and nothing else (E2)."""
    write(tmp_path, OLD)
    calls = [(name, arguments(name, "a.txt", new="beta\n" * 5000)) for name in NAMES]
    calls += [("file_write", arguments("file_write", "new.txt", "create", new="beta\n" * 5000))]
    assert alone("full", tmp_path, calls) == ["patch_stage_failed"] * 4
    assert files_of(tmp_path) == OLD


@pytest.mark.parametrize("name", NAMES)
async def test_permissions_and_owner_are_kept_and_rights_of_programs_are_not(name: str, tmp_path: Path) -> None:
    """A private file stays private and an executable one executable; a new file gets what the umask leaves."""
    write(tmp_path, OLD)
    (tmp_path / "a.txt").chmod(0o4751)
    owner = 12_345 if os.geteuid() == 0 else os.geteuid()
    os.chown(tmp_path / "a.txt", owner, -1)
    (tmp_path / "a.txt").chmod(0o4751)
    await invoke(name, arguments(name, "a.txt"), call_over(tmp_path))
    status = (tmp_path / "a.txt").stat()
    assert (status.st_mode & 0o7777, status.st_uid) == (0o751, owner)
    await invoke("file_write", arguments("file_write", "new.txt", "create"), call_over(tmp_path))
    (tmp_path / "beside").touch()
    assert (tmp_path / "new.txt").stat().st_mode == (tmp_path / "beside").stat().st_mode


def alone(what: str, folder: Path, calls: list[tuple[str, Any]]) -> Any:
    """What the calls come to in a process of its own."""
    command = [sys.executable, "-m", "tests.contracts.writing_alone", what, str(folder), json.dumps(calls)]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
