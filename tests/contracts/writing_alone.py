"""Writing tools in a process of its own, which is killed, or may write only so much.

`writing_alone killed FOLDER CALLS` prints what the folder holds after a kill at each system call, for each call;
`writing_alone full FOLDER CALLS` prints how each call ends if no more than 4 KiB may be written into a file.
"""

import json
import os
import resource
import shutil
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from orchestral_temporal.adapters.tools.workspace.tool import WorkspaceTool
from orchestral_temporal.adapters.tools.workspace.watch import Watch
from orchestral_temporal.ports import ToolFailed
from tests.contracts.workspace_call import TOOLS, FolderCall, call_over, write
from tests.contracts.written import files_of, system_calls


def work(call: FolderCall, name: str, arguments: Any) -> None:
    """Do what the tool does, in this thread."""
    tool = TOOLS[name]
    assert isinstance(tool, WorkspaceTool)
    tool.work(arguments, call, Watch(call, timedelta(seconds=60)))


def killed(folder: Path, name: str, arguments: Any) -> list[dict[str, str]]:
    """What the folder holds after a kill before the first system call of the work, the second, to the last."""
    before: dict[str, str | bytes] = {**files_of(folder)}
    found: list[dict[str, str]] = []
    call, status = call_over(folder), -1
    while status:
        child = os.fork()
        if not child:
            with system_calls(len(found) + 1, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                work(call, name, arguments)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found.append(files_of(folder))
        shutil.rmtree(folder)
        write(folder, before)
    return found


def full(folder: Path, name: str, arguments: Any) -> str:
    """The code of a call that the system lets write no more than 4 KiB into a file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        work(call_over(folder), name, arguments)
    except ToolFailed as failed:
        return failed.code
    return "written"


if __name__ == "__main__":
    what, where, calls = sys.argv[1:]
    tried = {"killed": killed, "full": full}[what]
    sys.stdout.write(json.dumps([tried(Path(where), *each) for each in json.loads(calls)]))
