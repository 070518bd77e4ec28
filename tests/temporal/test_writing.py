"""A run writes and edits files of its workspace through the tools that models see."""

from pathlib import Path

from temporalio.api.enums.v1 import EventType

from orchestral_temporal.adapters.tools.workspace import workspace_tools
from orchestral_temporal.core.limits import ARGUMENT_BYTES
from orchestral_temporal.hosting.governed import governed
from orchestral_temporal.ports import Tool
from orchestral_temporal.protocol.model import ModelRequest, ToolResultPart
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import World, calls, events_of, plan, says

NAMES = ("file_read", "file_write", "file_edit", "apply_patch")
PATCH = "*** Begin Patch\n*** Update File: notes.txt\n@@\n-two\n+zwei\n*** Delete File: old.txt\n*** End Patch\n"


def tools() -> list[Tool]:
    """The tools over files; nobody is asked."""
    built = workspace_tools()
    return [governed(built[name], dict.fromkeys(NAMES, "never")) for name in NAMES]


def held(folder: Path) -> dict[str, bytes]:
    """What a folder holds."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def shown(request: ModelRequest) -> list[object]:
    """The results in the last message of a request."""
    return [part.result for part in request.messages[-1].content if isinstance(part, ToolResultPart)]


async def test_a_run_writes_edits_and_patches_files(world: World, tmp_path: Path) -> None:
    """What the model asked for stands in the workspace, once each, and it saw what was changed (E1, E4)."""
    (tmp_path / "old.txt").write_text("old\n")
    model = ScriptedModel(
        [
            calls(("file_write", {"path": "notes.txt", "content": "one\r\ntwo\r\n", "mode": "create"})),
            calls(("file_edit", {"path": "notes.txt", "old_text": "one", "new_text": "eins"})),
            calls(("apply_patch", {"patch": PATCH}), ("file_read", {"path": "notes.txt"})),
            says("written"),
        ]
    )
    async with world.serving(plan(model, *tools(), roots=(tmp_path,))):
        turn = await world.runs.run_text("write", run_id=world.id("r"))
        history = await world.history(world.id("r"))

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "written")
    added, edited = (
        {"operation": word, "path": "notes.txt", "bytes": size} for word, size in (("add", 10), ("update", 11))
    )
    assert shown(model.requests[1]) == [{"changed_files": 1, "changes": [added]}]
    assert shown(model.requests[2]) == [{"changed_files": 1, "changes": [edited]}]
    deleted = {"operation": "delete", "path": "old.txt", "bytes": 4}
    assert shown(model.requests[3]) == [
        {"changed_files": 2, "changes": [edited | {"bytes": 12}, deleted]},
        {"path": "notes.txt", "content": "eins\r\nzwei\r\n"},
    ]
    assert held(tmp_path) == {"notes.txt": b"eins\r\nzwei\r\n"}
    started = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    assert {event.activity_task_started_event_attributes.attempt for event in started} == {1}


async def test_more_than_a_call_may_carry_is_refused_by_name(world: World, tmp_path: Path) -> None:
    """1,500,000 and 2,500,000 bytes of content are results that name the limit, and the run goes on (F011)."""
    given = [{"path": "a.txt", "content": "a" * size, "mode": "create"} for size in (1_500_000, 2_500_000)]
    model = ScriptedModel([calls(("file_write", given[0])), calls(("file_write", given[1])), says("gave up")])
    async with world.serving(plan(model, *tools(), roots=(tmp_path,))):
        turn = await world.runs.run_text("write", run_id=world.id("r"))

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "gave up")
    for request in model.requests[1:]:
        assert f"more than {ARGUMENT_BYTES} bytes" in str(shown(request))
    assert held(tmp_path) == {}
