"""Running workers: for as long as a block lasts, for one run, or until the process is told to stop."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from temporalio.client import Client
from temporalio.service import RPCError

from orchestral_temporal.hosting.artifacts import artifact_store
from orchestral_temporal.hosting.compose import ALL_ROLES, compose
from orchestral_temporal.hosting.connection import Answer, ConnectionFailed, Target, connect, probe, resolve_target
from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.loading import PACKAGED, find_config, load_settings
from orchestral_temporal.hosting.logs import configure_logs
from orchestral_temporal.hosting.pollers import queue_of, unserved
from orchestral_temporal.hosting.process import GOOD, conclude, first_of, stop_signals
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.protocol.activities import Role
from orchestral_temporal.temporal.client import AgentClient, ContinuityUnknown, RunHandle
from orchestral_temporal.temporal.worker import AttributeCheck, build_workers

ROLES: Final[Mapping[str, Sequence[Role]]] = {
    "all": ALL_ROLES,
    "runs": (Role.RUN,),
    "models": (Role.MODEL,),
    "tools": (Role.TOOLS,),
}
"""What a worker process may be told to serve, and what that means."""

TAKEN_SECONDS: Final = 3.0
"""How long a run may lie on its queue before we see to it ourselves; a worker takes one within a tenth of a second."""

PROBE_PAUSE: Final = 1.0
"""Seconds between two looks whether the server is still there."""

MISSED_PROBES: Final = 3
"""Looks in vain after which a server counts as gone: one that is restarted is back within two seconds."""

UNTOUCHED_EVENTS: Final = 2
"""Events of a run that no worker has taken: started, and a task scheduled."""

_PAUSE: Final = 0.05

Say = Callable[[str], None]
"""Takes a sentence for a person."""


class WorkersFailed(ConnectionFailed):
    """A worker cannot go on, and neither can what needs it."""


@asynccontextmanager
async def serving(
    client: Client, settings: Settings, *, roles: Sequence[Role] = ALL_ROLES, workspaces: Sequence[Path] = ()
) -> AsyncGenerator[None]:
    """Workers of these roles, until the block ends; what they have in hand then has `grace` to finish or is given back.

    Raises:
        SettingsError: the settings cannot be served, as `compose` says, or the roles share a queue with others.
        WorkersFailed: a worker broke; the block is cancelled.
    """
    _require_own_queues(settings, roles)
    composition = compose(settings, client.namespace, roles=roles, workspaces=workspaces)
    raised: BaseException | None = None
    try:
        workers = build_workers(
            client, composition.agents, settings=composition.settings, artifacts=composition.artifacts, roles=roles
        )
        async with held(workers):
            try:
                yield
            except BaseException as error:
                raised = error
                raise
    except Exception as error:
        if error is raised:
            raise
        said = str(error).partition("\n")[0] or type(error).__name__
        raise WorkersFailed(f"The worker cannot go on: {said}", "See its log, and `orchestral doctor`.") from error
    finally:
        await composition.close()


@asynccontextmanager
async def held(workers: Sequence[AbstractAsyncContextManager[object]]) -> AsyncGenerator[None]:
    """Workers, in a task of their own: the SDK cancels the task that entered a worker when it breaks.

    It does so while the worker stops as well, where a cancel would look like one from outside.

    Raises:
        Exception: what broke a worker before the block had ended; the block is cancelled.
    """
    block, begun, over = asyncio.current_task(), asyncio.Event(), asyncio.Event()
    assert block is not None

    async def hold() -> None:
        async with AsyncExitStack() as stack:
            for worker in workers:
                await stack.enter_async_context(worker)
            begun.set()
            await over.wait()

    def ended(_: asyncio.Task[None]) -> None:
        if not over.is_set():
            block.cancel()

    holder = asyncio.create_task(hold())
    holder.add_done_callback(ended)
    try:
        await begun.wait()
        yield
    except asyncio.CancelledError:
        fault = None if not holder.done() or holder.cancelled() else holder.exception()
        if fault is None:
            raise
        block.uncancel()
        raise fault from None
    finally:
        over.set()
        await asyncio.wait({holder})


def _require_own_queues(settings: Settings, roles: Sequence[Role]) -> None:
    """A worker takes all tasks of its queue, those of roles that it does not serve as well, and fails them."""
    mine = {queue_of(settings.queues, role) for role in roles}
    shared = sorted(mine & {queue_of(settings.queues, role) for role in Role if role not in roles})
    if shared:
        said = f"must name a queue for each role that is served alone; {shared[0]} is shared"
        raise settings.problem(("queues",), said)


async def server_gone(target: Target) -> Sequence[Role]:
    """Wait until nothing answers any more at an address of this machine; the answer is that no role is concerned."""
    missed = 0
    while missed < MISSED_PROBES:
        await asyncio.sleep(PROBE_PAUSE)
        missed = missed + 1 if await probe(target) is Answer.NOTHING else 0
    return ()


@dataclass
class World:
    """A server and somebody who serves its queues."""

    runs: AgentClient
    workspace: str | None
    _settings: Settings
    _extra: Sequence[Path]
    _stack: AsyncExitStack
    _serves: bool = False

    async def lost(self) -> Sequence[Role]:
        """Wait until something is gone: the roles that nobody serves any more, none if it is the server itself."""
        target = resolve_target(self._settings.temporal)
        if not target.is_local:
            return await self._workers_gone()
        return await first_of(server_gone(target), self._workers_gone())

    async def gone(self) -> bool:
        """Whether nothing answers at the address of a server on this machine."""
        target = resolve_target(self._settings.temporal)
        return target.is_local and await probe(target) is Answer.NOTHING

    async def _workers_gone(self) -> Sequence[Role]:
        while True:
            await asyncio.sleep(PROBE_PAUSE)
            with suppress(RPCError):
                roles = () if self._serves else await unserved(self.runs.temporal, self._settings.queues)
                if roles:
                    return roles

    async def found(self, run_id: str) -> RunHandle:
        """A run that was started before.

        Raises:
            ContinuityUnknown: the server that is there now does not know it; starting it again could double it.
        """
        try:
            await self.runs.temporal.get_workflow_handle(run_id).describe()
        except RPCError as error:
            raise ContinuityUnknown(f"The run {run_id!r} went with its server: {error.message}.") from None
        return self.runs.run(run_id)

    async def takes(self, run_id: str) -> bool:
        """Whether somebody takes up a run within `TAKEN_SECONDS`: a worker that was just killed still counts as one."""
        if self._serves:
            return True
        handle = self.runs.temporal.get_workflow_handle(run_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(TAKEN_SECONDS):
                while True:
                    if (await handle.describe()).history_length > UNTOUCHED_EVENTS:
                        return True
                    await asyncio.sleep(_PAUSE)
        return False

    async def serve(self, roles: Sequence[Role] = ALL_ROLES) -> None:
        """Start workers in this process that end with the world.

        Who serves a queue must serve all its roles; where another process comes up beside us, some may look unserved.
        """
        queues = {queue_of(self._settings.queues, role) for role in roles}
        roles = [role for role in Role if queue_of(self._settings.queues, role) in queues]
        self._serves = True
        workers = serving(self.runs.temporal, self._settings, roles=roles, workspaces=self._extra)
        await self._stack.enter_async_context(workers)


@dataclass
class Place:
    """Where runs are carried out: a world that is opened when it is wanted, and another one when it is lost."""

    _open: Callable[[], AbstractAsyncContextManager[World]]
    _stack: AsyncExitStack
    _world: World | None = None

    async def world(self) -> World:
        """The world; only the task that entered the place may ask for it, since a worker that breaks cancels that task.

        Raises:
            SettingsError, ConnectionFailed: no server, no workers, or no way to them.
        """
        if self._world is not None and await self._world.gone():
            await self.leave()
        if self._world is None:
            self._world = await self._stack.enter_async_context(self._open())
        return self._world

    async def leave(self) -> None:
        """Close the world, which is lost."""
        self._world = None
        await self._stack.aclose()


@asynccontextmanager
async def place_for_runs(settings: Settings, workspace: Path | None, say: Say) -> AsyncGenerator[Place]:
    """A place whose world is closed with the block.

    Args:
        settings: The file.
        workspace: A folder that workers of ours may work in besides those of the policy.
        say: Hears what was started.
    """
    async with AsyncExitStack() as stack:
        yield Place(partial(_world, settings, workspace, say), stack)


@asynccontextmanager
async def _world(settings: Settings, workspace: Path | None, say: Say) -> AsyncGenerator[World]:
    """The server and the workers that are there, and what is missing for the time of the block."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(dev_server(settings.temporal))
        client = await connect(settings.temporal)
        await warn_of_attributes(client, say)
        runs = AgentClient(client, task_queue=settings.queues.runs, artifacts=artifact_store(settings))
        extra = () if workspace is None else (workspace,)
        world = World(runs, workspace_of(settings, workspace), settings, extra, stack)
        if server.started:
            ui = f" (UI: {server.ui_url})" if server.ui_url else ""
            say(f"Nothing answers at {server.address}: a server{ui} and workers are started for the time of this run.")
            missing = ALL_ROLES
        else:
            missing = await unserved(client, settings.queues)
            if missing:
                queues = ", ".join(dict.fromkeys(queue_of(settings.queues, role) for role in missing))
                say(f"No worker serves {queues} at {server.address}: workers are started for the time of this run.")
        for notice in server.notices:
            say(notice)
        if missing:
            await world.serve(missing)
        yield world


def workspace_of(settings: Settings, given: Path | None) -> str | None:
    """The folder that a run asks for: the one given; without a file of one's own, the one where the person stands.

    In all other cases it is the policy's. A worker of another folder then refuses instead of answering from there.
    """
    if given is not None:
        return str(given)
    packaged = settings.path == PACKAGED
    return str(Path.cwd()) if packaged and resolve_target(settings.temporal).is_local else None


async def warn_of_attributes(client: Client, say: Say) -> None:
    """Say so where runs cannot be found by their search attributes: they go on without (F094)."""
    if not await AttributeCheck().registered(client):
        say(
            f"Namespace {client.namespace} lacks our search attributes: runs work, but cannot be listed by status or "
            f"session; `orchestral setup --namespace {client.namespace}` registers them."
        )


async def work(settings: Settings, role: str, say: Say) -> int:
    """Serve a role until SIGINT or SIGTERM.

    Raises:
        SettingsError, ConnectionFailed: as `serving` and `connect`, or there is no such role.
    """
    if role not in ROLES:
        raise SettingsError([f"There is no role {role!r}; a worker serves one of {', '.join(ROLES)}."])
    with stop_signals() as stop:
        client = await connect(settings.temporal)
        await warn_of_attributes(client, say)
        async with serving(client, settings, roles=ROLES[role]):
            queues = ", ".join(dict.fromkeys(queue_of(settings.queues, each) for each in ROLES[role]))
            say(f"Serving {role} on {queues} at {resolve_target(settings.temporal).address}; Ctrl-C stops.")
            await stop.wait()
            say("Stopping; Ctrl-C again leaves at once.")
    return GOOD


def serve_forever(role: str, config: str | None = None) -> NoReturn:
    """What an entry point in `workers/` does: read the settings, serve, end with an exit code."""

    async def main() -> int:
        configure_logs()
        settings = load_settings(find_config(config))
        return await work(settings, role, lambda sentence: print(sentence, file=sys.stderr))  # noqa: T201 -- its log

    conclude(main())
