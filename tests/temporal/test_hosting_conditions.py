"""The world around a worker: strict warnings, odd environments, users' own types, a namespace nobody prepared."""

import asyncio
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.service import RPCError

from orchestral_temporal.adapters.tools.functions import load_function
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.model import ToolResultPart
from orchestral_temporal.protocol.state import AgentRunStatus
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal import user_tools
from tests.temporal.world import World, calls, open_world, plan, says, until

ROOT = Path(__file__).parent.parent.parent

ODD = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_SERVICE_NAME": "a service",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
}


@pytest.mark.parametrize("extra", [{}, ODD], ids=["plain", "odd"])
async def test_worker_runs_without_a_warning(world: World, extra: dict[str, str]) -> None:
    """Under `python -W error`, with and without OTEL_* and proxy variables, a worker starts and delivers (F109)."""
    run_id, cache = world.id("r"), "100" if world.cached else "0"
    # Its run is on the default queue, which no other test serves.
    command = [sys.executable, "-W", "error", "-m", "tests.temporal.plain_process", world.address, run_id, cache]
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), **extra},
    )
    world.started.add((run_id, None))

    assert (done.stdout, done.stderr) == ("delivered without a warning\n", "")
    assert done.returncode == 0


async def test_users_types_arrive_as_declared(world: World) -> None:
    """A tool in a module of its own gets subclasses, generics, unions, datetimes and enums as declared (F110)."""
    tool = load_function("python:tests.temporal.user_tools:serve")
    arguments: JsonObject = {
        "tray": {
            "items": [
                {"kind": "tea", "leaf": "green", "at": "2026-01-01T12:00:00Z"},
                {"kind": "water", "at": "2026-01-01T13:00:00+01:00"},
            ]
        },
        "by": "2026-01-01T12:00:30Z",
    }
    model = ScriptedModel([calls(("serve", arguments)), says("served")])
    user_tools.seen.clear()
    async with world.serving(plan(model, tool)):
        turn = await world.runs.run_text("serve", run_id=world.id("r"))

    assert turn.text == "served"
    assert user_tools.seen == ["Tea Leaf.GREEN 30.0", "Water False 30.0"]
    (part,) = model.requests[1].messages[-1].content
    assert isinstance(part, ToolResultPart)
    assert part.result == {"items": [{"kind": "tea", "leaf": "black", "at": "2026-01-02T00:00:00+00:00"}]}


async def test_namespace_without_our_attributes_serves_runs(world: World) -> None:
    """Where the search attributes are not registered a run starts, by client and raw, and is delivered (F094)."""
    namespace = f"bare-{uuid.uuid4().hex[:8]}"
    retention = Duration(seconds=86_400)
    await world.client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=retention)
    )
    async with open_world(world.address, namespace, cached=world.cached) as bare:
        await until(lambda: _known(bare), "the server knows the namespace")
        async with bare.serving(plan(ScriptedModel([says("found all the same")]))):
            turn = await bare.runs.run_text("go", run_id="r1")
            printed = await bare.cli(
                *("workflow", "execute", "--namespace", namespace, "--type", "AgentRun", "--workflow-id", "r2"),
                *("--task-queue", bare.queue, "--input", '{"input": "go"}'),
            )

    assert (turn.status, turn.text) == (AgentRunStatus.DELIVERED, "found all the same")
    assert printed.code == 0
    assert "found all the same" in printed.out


async def _known(bare: World) -> bool:
    try:
        async for _ in bare.client.list_workflows():
            pass
    except RPCError:
        return False
    return True
