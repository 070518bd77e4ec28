"""A chat-completions endpoint on loopback: real HTTP, with answers made by the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request as the endpoint got it; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer: its body in pieces, sent one by one.

    `first_byte_after` waits that many seconds, `cut` drops the connection after the pieces instead of ending the body,
    `hold` keeps it open and silent for ever.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    first_byte_after: float = 0
    cut: bool = False
    hold: bool = False


@dataclass
class Endpoint:
    """A running endpoint: where it is, what it was asked, over how many connections."""

    base_url: str
    connections: int = 0
    asked: list[Asked] = field(default_factory=list)


@asynccontextmanager
async def serving(reply: Reply | Sequence[Reply] | Callable[[int], Reply]) -> AsyncIterator[Endpoint]:
    """Serve until left.

    One reply answers every request, of several the last one all further requests; a callable gets the number of the
    request, from 1, which is `endpoint.asked[number - 1]`.
    """

    def chosen(number: int) -> Reply:
        if callable(reply):
            return reply(number)
        return reply if isinstance(reply, Reply) else reply[min(number, len(reply)) - 1]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked = _read_head(head)
                size = int(asked.headers.get("content-length", "0"))
                body = json.loads(await reader.readexactly(size))
                endpoint.asked.append(Asked(asked.path, asked.headers, body))
                await _send(writer, chosen(len(endpoint.asked)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        finally:
            writer.close()

    handlers: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endpoint.connections += 1
        task = asyncio.create_task(answer(reader, writer))
        handlers.add(task)
        task.add_done_callback(handlers.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    endpoint = Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    try:
        yield endpoint
    finally:
        server.close()
        for handler in tuple(handlers):
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


def _read_head(head: bytes) -> Asked:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Asked(first.split(" ")[1], {name.lower(): value.strip() for name, _, value in pairs}, {})


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    await asyncio.sleep(reply.first_byte_after)
    headers = {**reply.headers, "transfer-encoding": "chunked"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode("latin-1"))
    for piece in reply.pieces:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
    if reply.hold:
        await asyncio.Event().wait()
    if reply.cut:
        raise ConnectionAbortedError
    writer.write(b"0\r\n\r\n")
    await writer.drain()
