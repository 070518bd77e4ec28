"""A worker as a process of its own, to be killed: `python kill_worker.py MODULE ADDRESS QUEUE FOLDER`.

MODULE is one of `kill_*` here; its `worker(address, queue)` makes the worker. The process works in FOLDER, leaves a
file there when it is ready, serves once it is told so by a line on its standard input, and ends with the process that
holds the other end of that.
"""

import asyncio
import importlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable

import ledger
from temporalio.worker import Worker

Maker = Callable[[str, str], Awaitable[Worker]]


async def _serve(make: Maker, address: str, queue: str) -> None:
    worker = await make(address, queue)
    ledger.ready()
    await asyncio.to_thread(_told)
    threading.Thread(target=_watch, daemon=True).start()
    async with worker:
        await asyncio.Event().wait()


def _told() -> None:
    if not sys.stdin.readline():
        os._exit(1)


def _watch() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    module, address, queue, folder = sys.argv[1:]
    maker: Maker = importlib.import_module(module).worker
    os.chdir(folder)
    asyncio.run(_serve(maker, address, queue))
