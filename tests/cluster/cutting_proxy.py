"""A way to a server that can be cut: at a chosen byte, or until it is healed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum


class Direction(Enum):
    """Which bytes are counted."""

    REQUEST = "request"
    ANSWER = "answer"


class CuttingProxy:
    """Made by `cutting_proxy`."""

    def __init__(self, target: int) -> None:
        self.server = ""
        """`host:port` to connect to."""
        self.cuts = 0
        """How many connections were cut at a byte."""
        self._target = target
        self._armed: dict[Direction, int] = {}
        self._is_cut = False
        self._writers: list[asyncio.StreamWriter] = []

    def cut_after(self, direction: Direction, size: int) -> None:
        """So many bytes more pass in this direction, then all connections are cut; new ones pass again."""
        self._armed = {direction: size}

    def disarm(self) -> None:
        """Takes `cut_after` back, if that many bytes did not come."""
        self._armed = {}

    def cut(self) -> None:
        """Nothing passes until `heal`."""
        self._is_cut = True
        self._close_all()

    def heal(self) -> None:
        """Undoes `cut`."""
        self._is_cut = False

    def _close_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        with suppress(OSError):
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers += [writer, server_writer]
            await asyncio.gather(
                self._pass(Direction.REQUEST, reader, server_writer),
                self._pass(Direction.ANSWER, server_reader, writer),
            )

    async def _pass(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                left = self._armed.get(direction)
                if left is not None and len(data) >= left:
                    self._armed = {}
                    writer.write(data[:left])
                    await writer.drain()
                    # What was passed on arrives before the end does.
                    for each in self._writers:
                        each.close()
                    self._writers.clear()
                    self.cuts += 1
                    return
                if left is not None:
                    self._armed[direction] = left - len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def cutting_proxy(target: int) -> AsyncIterator[CuttingProxy]:
    """A proxy to a port of this machine."""
    proxy = CuttingProxy(target)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.server = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
        proxy.cut()
