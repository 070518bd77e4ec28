"""The roads by which a person or a service reaches a run, each with nothing but what it has for that."""

import asyncio
import base64
import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.words import dump
from tests.temporal.shell import Shell
from tests.temporal.world import World

TALK: Final = Path(__file__).with_name("typescript") / "build" / "talk.js"
"""The program in TypeScript, as `npm ci` leaves it."""


@dataclass(frozen=True)
class Said:
    """A command before it has a form; `target` is of an edit of the queue, `request_id` of an answer."""

    verb: str
    command_id: str
    text: str
    target: str | None = None
    request_id: str | None = None

    @property
    def plain(self) -> JsonObject:
        """Its fields, those that it has."""
        fields = ("verb", "command_id", "text", "target", "request_id")
        return {name: value for name in fields if (value := getattr(self, name)) is not None}


class Way(Protocol):
    """One road."""

    async def start(self, run_id: str, task: str) -> None:
        """Start a run."""
        ...

    async def say(self, run_id: str, said: Said) -> Json:
        """Send a command; its acknowledgement, or null where this road has none."""
        ...

    async def ack(self, run_id: str, said: Said, /) -> Json:
        """Ask how it stands with a command that was sent before; null where this road has no way to ask."""
        ...

    async def result(self, run_id: str) -> Json:
        """Wait for the end and take the result object."""
        ...


class ByClient:
    """Our client, in Python."""

    def __init__(self, world: World) -> None:
        self._runs = world.runs

    async def start(self, run_id: str, task: str) -> None:
        """As `AgentClient.start`."""
        await self._runs.start(task, run_id=run_id)

    async def say(self, run_id: str, said: Said) -> Json:
        """The method of the command's own name."""
        run = self._runs.run(run_id)
        name, text = said.command_id, said.text
        match said:
            case Said("steer"):
                ack = await run.steer(text, command_id=name)
            case Said("enqueue"):
                ack = (await run.enqueue(text, command_id=name)).ack
            case Said("replace", target=str(target)):
                ack = (await run.replace(target, text, command_id=name)).ack
            case Said("withdraw", target=str(target)):
                ack = await run.withdraw(target, command_id=name)
            case Said("answer", request_id=str(request)):
                ack = await run.answer(request, text, command_id=name)
            case _:
                ack = await run.cancel(text, command_id=name)
        return dump(ack)

    async def ack(self, run_id: str, said: Said) -> Json:
        """As `RunHandle.ack`."""
        return dump(await self._runs.run(run_id).ack(said.command_id))

    async def result(self, run_id: str) -> Json:
        """As `RunHandle.wait`."""
        return (await self._runs.run(run_id).wait()).result


class ByCommandLine:
    """`orchestral`, a process for each command."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def start(self, run_id: str, task: str) -> None:
        """`orchestral start`."""
        await self._last_line("start", task, "--run-id", run_id, "--json")

    async def say(self, run_id: str, said: Said) -> Json:
        """`steer`, `queue`, `answer` or `cancel`, which names its command itself."""
        name = ("--id", said.command_id)
        match said:
            case Said("steer"):
                typed = ("steer", run_id, said.text, *name)
            case Said("enqueue"):
                typed = ("queue", run_id, said.text, *name)
            case Said("replace", target=str(target)):
                typed = ("queue", run_id, "--replace", target, said.text, *name)
            case Said("withdraw", target=str(target)):
                typed = ("queue", run_id, "--withdraw", target, *name)
            case Said("answer", request_id=str(request)):
                typed = ("answer", run_id, request, said.text, *name)
            case _:
                typed = ("cancel", run_id, "--reason", said.text)
        return await self._last_line(*typed)

    async def ack(self, _run_id: str, _said: Said) -> Json:
        """There is no such command; how it stands in the end is in the result."""
        return None

    async def result(self, run_id: str) -> Json:
        """The last line of `watch`."""
        line = await self._last_line("watch", run_id, "--json", code=None)
        assert line.pop("type") == "result"
        return line

    async def _last_line(self, *typed: str, code: int | None = 0) -> JsonObject:
        printed = await self._shell.run(*typed)
        assert code is None or printed.code == code, printed.err
        return printed.lines[-1]


class ByTemporalCli:
    """`temporal`, by signals or by the update `submit`; an envelope is what `jq -cS` and `sha256sum` make of it."""

    def __init__(self, world: World, road: str) -> None:
        self._world, self._road = world, road

    async def start(self, run_id: str, task: str) -> None:
        """`temporal workflow start`."""
        given = ("--type", "AgentRun", "--task-queue", self._world.queue, "--workflow-id", run_id)
        await self._answer("start", *given, "--input", json.dumps({"input": task}))

    async def say(self, run_id: str, said: Said) -> Json:
        """`temporal workflow signal`, in the short form where there is one, or `temporal workflow update execute`."""
        if self._road == "submit":
            value = envelope(run_id, said)
            answer = await self._answer(
                "update", "execute", "-w", run_id, "--name", "submit", "--input", json.dumps(value)
            )
            return answer["result"]
        short: JsonObject = {"command_id": said.command_id}
        match said:
            case Said("steer"):
                name, value = "steer", {**short, "text": said.text}
            case Said("cancel"):
                name, value = "cancel", {**short, "reason": said.text}
            case Said("answer"):
                name, value = "resolve_request", {**short, "request_id": said.request_id, "answer": said.text}
            case _:
                name, value = "command", envelope(run_id, said)
        await self._run("signal", "-w", run_id, "--name", name, "--input", json.dumps(value))
        return None

    async def ack(self, run_id: str, said: Said) -> Json:
        """The query `command_ack`."""
        asked = json.dumps({"command_id": said.command_id})
        answer = await self._answer("query", "-w", run_id, "--name", "command_ack", "--input", asked)
        (ack,) = cast("list[Json]", answer["queryResult"])
        return ack

    async def result(self, run_id: str) -> Json:
        """`temporal workflow result` waits, but shows empty lists as null; the history has the bytes."""
        await self._run("result", "-w", run_id)
        events = cast("list[JsonObject]", (await self._answer("show", "-w", run_id))["events"])
        ended = cast(
            "dict[str, dict[str, list[dict[str, str]]]]", events[-1]["workflowExecutionCompletedEventAttributes"]
        )
        (payload,) = ended["result"]["payloads"]
        result: Json = json.loads(base64.b64decode(payload["data"]))
        return result

    async def _answer(self, *typed: str) -> JsonObject:
        answer: JsonObject = json.loads(await self._run(*typed, "-o", "json"))
        return answer

    async def _run(self, *typed: str) -> str:
        printed = await self._world.cli("workflow", *typed)
        assert printed.code == 0, printed.err
        return printed.out


class ByTypeScript:
    """A service in TypeScript, by signals or by the update `submit`."""

    def __init__(self, world: World, road: str) -> None:
        self._world, self._road = world, road

    async def start(self, run_id: str, task: str) -> None:
        """The short form."""
        await self._run("start", run_id, self._world.queue, task)

    async def say(self, run_id: str, said: Said) -> Json:
        """The program makes the payload, digest included."""
        return await self._run(self._road, run_id, json.dumps(said.plain))

    async def ack(self, run_id: str, said: Said) -> Json:
        """The query `command_ack`."""
        return await self._run("ack", run_id, said.command_id)

    async def result(self, run_id: str) -> Json:
        """The result of the workflow."""
        return await self._run("result", run_id)

    async def _run(self, verb: str, run_id: str, *given: str) -> Json:
        assert TALK.is_file(), "Build the program first: npm ci --prefix tests/optin/typescript"
        command = ["node", str(TALK), self._world.address, verb, run_id, *given]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answer: Json = json.loads(done.stdout)
        return answer


def envelope(run_id: str, said: Said) -> JsonObject:
    """A command in full, made without a line of ours."""
    content: Json = [{"media_type": "text/plain", "schema_id": None, "body": {"kind": "inline", "value": said.text}}]
    payload: JsonObject = {"type": "steer", "content": content}
    if said.verb == "answer":
        payload = {"type": "resolve_request", "response": {"type": "input", "content": content}}
    elif said.verb == "cancel":
        payload = {"type": "cancel", "reason": said.text}
    command: JsonObject = {
        "command_id": said.command_id,
        "run_id": run_id,
        "request_id": said.request_id,
        "payload": payload,
    }
    if said.verb in ("enqueue", "replace", "withdraw"):
        operation: JsonObject = {"operation": said.verb}
        if said.target is not None:
            operation["target"] = said.target
        command["extensions"] = {"orchestral/input-queue.v1": operation}
    text = json.dumps(command, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {**command, "command_digest": hashlib.sha256(text.encode()).hexdigest()}
