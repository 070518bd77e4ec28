"""A way to a server that a test may cut, in either direction."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress


class Relay:
    """Passes bytes between clients and a server; connections that were cut stay so, new ones are whole."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._server = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = True
        self._deaf = False

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """The address of the way."""
        async with await asyncio.start_server(self._accept, "127.0.0.1", 0) as server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self.cut()

    def cut(self) -> None:
        """Nothing passes any more, and nobody gets through."""
        self._open = False
        self._hang_up()

    def silence(self) -> None:
        """What clients say arrives, and they hear no answer."""
        self._deaf = True

    def mend(self) -> None:
        """Both directions are open to those who connect again."""
        self._hang_up()
        self._open, self._deaf = True, False

    def _hang_up(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.close()
            return
        from_server, to_server = await asyncio.open_connection(*self._server)
        self._writers.update((writer, to_server))
        await asyncio.gather(_pump(reader, to_server, lambda: True), _pump(from_server, writer, lambda: not self._deaf))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[], bool]) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            if passes():
                writer.write(data)
                await writer.drain()
    writer.close()
