"""A worker as a process of its own, to be killed: `python -m tests.crash.worker_process SETUP`, SETUP as JSON.

It works until SIGTERM, which is the graceful stop, or until the test that started it is gone.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec

from orchestral_temporal.adapters.tools.functions import function_tool
from orchestral_temporal.api import DidNotHappen, Happened, Reconciled, ToolCall, tool
from orchestral_temporal.ports import ModelBackend
from orchestral_temporal.protocol.activities import Queues, Role, Timeouts
from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.digest import canonical, sha256
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.model import ModelRequest, ModelStreamEvent
from orchestral_temporal.protocol.words import parse_json
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.temporal.converter import DATA_CONVERTER
from orchestral_temporal.temporal.worker import WorkerSettings, build_workers
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.crash.signs import Signs, end_with_parent

LEDGER: Final = "ledger"
"""The notes that count effects, each line the key under which one was made."""

RESULT_CHARACTERS: Final = 10_000
"""Length of what the tool returns: more than the tail that an attempt carries itself."""


@dataclass(frozen=True)
class Setup:
    """What a worker serves, and how; time-outs as in `temporal-dev.yaml`, but for shorter waits.

    With `split` tools have a queue of their own, so that their worker can be killed alone. With `rounds` the model
    follows that script, and says whether a lost request may be sent again; else it is the one behind `base_url`.
    """

    address: str
    queue: str
    folder: str
    cached_workflows: int
    roles: Sequence[str] = tuple(Role)
    split: bool = False
    rounds: Sequence[Json] = ()
    base_url: str = ""
    redispatchable: bool = True
    heartbeat_ms: int = 2_000
    fenced_heartbeat_ms: int = 2_000
    uncertainty_grace_ms: int = 3_000
    sticky_ms: int = 500
    grace_ms: int = 500

    def to_json(self) -> str:
        """The command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read it back."""
        return cls(**json.loads(text))


class Watched:
    """A model that passes the place `model-<round>` before it answers, and keeps the requests it got."""

    def __init__(self, backend: ModelBackend, signs: Signs) -> None:
        self._backend = backend
        self._signs = signs
        self.descriptor = backend.descriptor
        self.redispatchable = backend.redispatchable

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """As the backend."""
        self._signs.note("requests", canonical(request).decode())
        await self._signs.passing(f"model-{request.request_id.rpartition('-')[2]}")
        async for event in self._backend.stream(request):
            yield event


class Gate(PayloadCodec):
    """A codec that changes nothing: what goes by passes a place.

    What the run is about to dispatch passes `dispatch-<round>`: the task that decided it is not completed yet, so who
    is killed here dies between two rounds. A call that a worker has taken passes `taken-<key>`, before its fence; its
    answer passes `answer`, and what it says without a fence `given-back`: it did not begin. What the run is about to
    learn passes `bound` (its authority) and `observed` (a turn of the model).
    """

    def __init__(self, signs: Signs) -> None:
        self._signs = signs

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Let payloads pass."""
        for payload in payloads:
            match _read(payload):
                case {"round": int(number), "base": _}:
                    await self._signs.passing(f"dispatch-{number}")
                case {"outcome": _, "output_digest": _, "item": _}:
                    await self._signs.passing("answer")
                case {"v": 1, "fence": None, "request_digest": None}:
                    await self._signs.passing("given-back")
                case _:
                    pass
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Let payloads pass."""
        for payload in payloads:
            match _read(payload):
                case {"observation": _, "request_digest": _}:
                    await self._signs.passing("observed")
                case {"queues": _, "timeouts": _}:
                    await self._signs.passing("bound")
                case {"invocation_id": _, "arguments": {"key": str(key)}, "part_digest": _}:
                    await self._signs.passing(f"taken-{key}")
                case _:
                    pass
        return list(payloads)


def _read(payload: Payload) -> Json:
    try:
        return parse_json(payload.data)
    except WordError:
        return None


class Segments:
    """An artifact store in the test's folder; a segment passes the place `append`."""

    def __init__(self, folder: Path, signs: Signs) -> None:
        self._folder = folder
        self._signs = signs

    async def put(self, data: bytes) -> str:
        """Keep bytes, once somebody lets them pass."""
        await self._signs.passing("append")
        digest = sha256(data)
        (self._folder / digest).write_bytes(data)
        return digest

    async def get(self, digest: str) -> bytes:
        """Read bytes back."""
        return (self._folder / digest).read_bytes()


def _model(setup: Setup) -> ModelBackend:
    if setup.rounds or not setup.base_url:
        return ScriptedModel(setup.rounds, redispatchable=setup.redispatchable)
    # The vendor's SDK takes half a second to load, which most workers of this room can do without.
    from orchestral_temporal.adapters.models.openai import OpenAIModel

    return OpenAIModel("fixture-model", api_key="unused", base_url=setup.base_url)


def effects(signs: Signs) -> Sequence[Callable[..., object]]:
    """Tools that leave a line in the ledger, one of each class; each passes `before-<key>` and `after-<key>`.

    One also passes `between`, when the fence stands and the last look before its function is still to come.
    """

    def between(key: str) -> str:
        signs.passing_here("between")
        return key

    async def leave_a_line(key: str, call: ToolCall) -> str:
        await signs.passing(f"before-{key}")
        signs.note(LEDGER, call.idempotency_key)
        await signs.passing(f"after-{key}")
        return f"line {key}"

    async def ask(key: str, call: ToolCall) -> Reconciled:
        signs.note("asked", call.idempotency_key)
        return Happened(f"line {key}") if call.idempotency_key in signs.notes(LEDGER) else DidNotHappen()

    @tool(idempotency="pure")
    async def pure(key: str, call: ToolCall) -> str:
        """Say that it is pure, for the sake of the test."""
        return await leave_a_line(key, call)

    @tool(idempotency="idempotent_with_key")
    async def keyed(key: str, call: ToolCall) -> str:
        """Leave a line under a key."""
        return await leave_a_line(key, call)

    @tool(idempotency="non_idempotent", reconcile=ask)
    async def asked(key: str, call: ToolCall) -> str:
        """Leave a line, and know whether it is there."""
        return await leave_a_line(key, call)

    @tool(idempotency="non_idempotent")
    async def once(key: Annotated[str, AfterValidator(between)], call: ToolCall) -> str:
        """Leave a line that must not be left twice."""
        return await leave_a_line(key, call)

    return pure, keyed, asked, once


async def work(setup: Setup) -> None:
    """Serve until SIGTERM."""
    folder = Path(setup.folder)
    signs = Signs(folder)

    @tool(idempotency="idempotent")
    async def look(key: str) -> str:
        """Look something up; changes nothing."""
        await signs.passing(f"tool-{key}")
        return (key * RESULT_CHARACTERS)[:RESULT_CHARACTERS]

    tools = (look, *effects(signs))
    plan = AgentPlan("default", Watched(_model(setup), signs), tuple(map(function_tool, tools)))
    client = await Client.connect(setup.address, data_converter=replace(DATA_CONVERTER, payload_codec=Gate(signs)))
    settings = WorkerSettings(
        queues=Queues(
            runs=setup.queue, models=setup.queue, tools=f"{setup.queue}.tools" if setup.split else setup.queue
        ),
        timeouts=Timeouts(
            heartbeat_ms=setup.heartbeat_ms,
            fenced_heartbeat_ms=setup.fenced_heartbeat_ms,
            uncertainty_grace_ms=setup.uncertainty_grace_ms,
            live_text_ms=250,
        ),
        sticky=timedelta(milliseconds=setup.sticky_ms),
        grace=timedelta(milliseconds=setup.grace_ms),
        max_cached_workflows=setup.cached_workflows,
    )
    roles = tuple(map(Role, setup.roles))
    agents = {"default": host(plan, client.namespace, roles)}
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as running:
        segments = Segments(folder, signs)
        for worker in build_workers(client, agents, settings=settings, artifacts=segments, roles=roles):
            await running.enter_async_context(worker)
        signs.note("up", f"{os.getpid()} {time.time()}")
        await stop.wait()
        signs.note("stopping", str(os.getpid()))


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(work(Setup.from_json(sys.argv[1])))
    # The SDK sometimes crashes while the interpreter ends, after all is done (fact 9.10).
    os._exit(0)
