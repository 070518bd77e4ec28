"""Calling the workspace tools as the guard does: arguments and outputs are held against the schemas."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from orchestral_temporal.adapters.tools.workspace import workspace_tools
from orchestral_temporal.ports import ToolFailed, ToolRejected

TOOLS = workspace_tools()


def nobody_waits() -> bool:
    """No reason to return early."""
    return False


def granted() -> Future[None]:
    """The last look before an effect finds nothing against it."""
    looked: Future[None] = Future()
    looked.set_result(None)
    return looked


@dataclass(frozen=True)
class FolderCall:
    """A call over some folders, all of them readable and writable unless said."""

    workspaces: tuple[str, ...]
    readable_roots: tuple[str, ...]
    max_output_bytes: int | None = None
    timeout: timedelta | None = None
    run_id: str = "run"
    idempotency_key: str = "run/m1/c1"
    wish: Callable[[], bool] = nobody_waits
    writable_roots: tuple[str, ...] = ()
    confirm: Callable[[], Future[None]] = granted

    def report_progress(self, message: str, fraction: float | None = None) -> None:
        """Nobody watches."""

    def should_yield(self) -> bool:
        """What the test says."""
        return self.wish()


def call_over(*folders: Path, **changes: Any) -> FolderCall:
    """A call whose workspaces are `folders`, the primary one first."""
    roots = tuple(str(folder.resolve()) for folder in folders)
    return replace(FolderCall(roots, roots, writable_roots=roots), **changes)


async def invoke(name: str, arguments: dict[str, Any], call: FolderCall) -> Any:
    """The output of a call; it fits the declared schema, and so did the arguments."""
    schema = TOOLS[name].descriptor
    Draft202012Validator(schema.model_schema.input_schema).validate(arguments)
    output = await TOOLS[name].invoke(arguments, call)
    Draft202012Validator(schema.output_schema).validate(output)
    return output


async def ending(name: str, arguments: dict[str, Any], call: FolderCall) -> Any:
    """The output, or how the call was refused: `r` or `f`, `f R` if retryable, and the code."""
    return await _ended(invoke(name, arguments, call))


async def unchecked(name: str, arguments: dict[str, Any], call: FolderCall) -> Any:
    """How a call ends whose arguments nobody has held against the schema."""
    return await _ended(TOOLS[name].invoke(arguments, call))


async def _ended(running: Awaitable[Any]) -> Any:
    try:
        return await running
    except ToolRejected as rejected:
        return _told("r", rejected)
    except ToolFailed as failed:
        return _told("f R" if failed.retryable else "f", failed)


def _told(kind: str, refusal: ToolRejected | ToolFailed) -> str:
    assert refusal.message.endswith(".")
    return f"{kind} {refusal.code}"


async def find(root: Path, pattern: str = "**", *, most: int | None = None, **arguments: Any) -> Any:
    """A file search."""
    return await ending("file_search", {"pattern": pattern, **arguments}, call_over(root, max_output_bytes=most))


async def grep(root: Path, pattern: str, *, most: int | None = None, **arguments: Any) -> Any:
    """A text search."""
    return await ending("text_search", {"pattern": pattern, **arguments}, call_over(root, max_output_bytes=most))


def places(output: Any) -> list[tuple[str, int]]:
    """Path and line of each match."""
    return [(match["path"], match["line_number"]) for match in output["matches"]]


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Make files below `root`, their folders too."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root
