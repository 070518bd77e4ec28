"""User code off the worker's event loop, which has to keep the heartbeats of all calls going (decision 15).

A synchronous function gets a daemon thread of its own: one that hangs holds up no other call and no end of the process.
All asynchronous functions share one event loop in a daemon thread, so that their clients may live from call to call.
"""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from orchestral_temporal.ports import ToolFailed

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread of its own; a cancel stops the waiting, never the work."""
    future: Future[T] = Future()
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(_fulfil, future, work), daemon=True, name="orchestral-tool").start()
    return await asyncio.wrap_future(future)


async def in_user_loop(work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run work on the event loop of user code; a cancel reaches it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_contained(work), _user_loop()))


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return  # nobody waits any more, so nothing need run
    try:
        with _orderly():
            future.set_result(work())
    except BaseException as fault:  # noqa: BLE001 -- carried to where the result is awaited
        future.set_exception(fault)


async def _contained(work: Callable[[], Coroutine[None, None, T]]) -> T:
    with _orderly():
        return await work()


@contextmanager
def _orderly() -> Generator[None]:
    """Make an ordinary failure of what would end a thread or an event loop, or is lost on the way to the caller."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt, StopIteration) as fault:
        raise ToolFailed("tool_error", f"{type(fault).__name__}: {fault}") from fault


@functools.cache
def _user_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="orchestral-user-tools").start()
    return loop
