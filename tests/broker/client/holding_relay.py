"""Stands between clients and a broker: holds responses back, so that they come late, and breaks connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from ottla.protocol.apis import ApiKey

_ADDRESSES: Final = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR})
"""The APIs whose responses name the broker's port: clients are told the relay's."""


class HoldingRelay:
    """`asked` has the APIs of all requests so far, `frames` the requests, `responded` the APIs of what was passed back.
    The responses of `held` wait until `release`; `edited` returns what becomes of a response; `cut` ends all
    connections."""

    def __init__(self, broker_port: int) -> None:
        self.port = 0
        self._broker_port = broker_port
        self.asked: list[ApiKey] = []
        self.frames: list[bytes] = []
        self.responded: list[ApiKey] = []
        self.edited: Callable[[ApiKey, bytes], bytes] = lambda api_key, frame: frame
        self.held: ApiKey | None = None
        self.is_holding = False
        """Whether a response is held back now."""
        self._released = asyncio.Event()
        self._clients: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Ends all connections; new ones are served."""
        for client in self._clients:
            client.close()

    def release(self) -> None:
        """Passes on what is held back, and holds nothing more."""
        self.held = None
        self._released.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection's life."""
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
        api_keys: dict[bytes, ApiKey] = {}
        self._clients.add(writer)

        async def pass_requests() -> None:
            while True:
                frame = await _read_frame(reader)
                api_keys[frame[8:12]] = ApiKey(int.from_bytes(frame[4:6]))
                self.asked.append(api_keys[frame[8:12]])
                self.frames.append(frame)
                to_broker.write(frame)

        async def pass_responses() -> None:
            while True:
                frame = await _read_frame(from_broker)
                api_key = api_keys.pop(frame[4:8])
                if api_key in _ADDRESSES:
                    frame = frame.replace(self._broker_port.to_bytes(4), self.port.to_bytes(4))
                if api_key is self.held:
                    self.is_holding = True
                    await self._released.wait()
                    self.is_holding = False
                self.responded.append(api_key)
                writer.write(self.edited(api_key, frame))

        with suppress(ExceptionGroup, OSError):
            async with asyncio.TaskGroup() as directions:
                directions.create_task(pass_requests())
                directions.create_task(pass_responses())
        self._clients.discard(writer)
        writer.close()
        to_broker.close()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size))


@asynccontextmanager
async def holding_relay(broker_port: int) -> AsyncIterator[HoldingRelay]:
    """Listens on a free port for as long as the block runs."""
    relay = HoldingRelay(broker_port)
    listening = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = listening.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listening.close()
