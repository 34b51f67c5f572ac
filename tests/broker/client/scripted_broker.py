"""A listener that answers as a test tells it to: for what no real broker does on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from kio.static.constants import EntityType

from ottla.protocol.apis import ADVERTISED, ApiKey
from ottla.protocol.messages import read_request, write_response
from ottla.transport.addresses import Address
from tests.wire.exchange import fill, message_class

Answer = bytes | None
"""Bytes to send, or None to say nothing, perhaps until later."""
NEVER: Final = b"never"
"""To say nothing any more on this connection: brokers answer in order."""


class ScriptedBroker:
    """Answers each request by calling `script(api_key, version, correlation_id, body)`; b"" closes the connection."""

    def __init__(self, script: Callable[[int, int, int, bytes], Answer]) -> None:
        self.requests: list[tuple[int, int, int]] = []
        self.connections = 0
        self._script = script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection's life."""
        self.connections += 1
        is_silent = False
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                correlation_id = int.from_bytes(frame[4:8], "big")
                self.requests.append((api_key, version, correlation_id))
                answer = self._script(api_key, version, correlation_id, frame[8:])
                if answer == b"":
                    return
                is_silent = is_silent or answer is NEVER
                if answer is not None and not is_silent:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def scripted(script: Callable[[int, int, int, bytes], Answer]) -> AsyncIterator[tuple[ScriptedBroker, Address]]:
    """Listens on a free port for as long as the block runs."""
    broker = ScriptedBroker(script)
    listening = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    try:
        yield broker, Address("127.0.0.1", listening.sockets[0].getsockname()[1])
    finally:
        listening.close()


def versions_answer(version: int, correlation_id: int, *, without: tuple[ApiKey, ...] = ()) -> bytes:
    """An ApiVersions answer with what Ottla advertises."""
    listed = [
        {"api_key": key.value, "min_version": versions.lowest, "max_version": versions.highest}
        for key, versions in ADVERTISED.items()
        if key not in without
    ]
    answer = response(ApiKey.API_VERSIONS, 4, api_keys=listed)
    return write_response(ApiKey.API_VERSIONS, version, correlation_id, answer)


def response(api_key: ApiKey, version: int, /, **values: Any) -> Any:
    """kio's response of this version; the parts that it consists of are mappings. What is left out has its default."""
    return fill(message_class(api_key, version, EntityType.response), values)


def request_message(api_key: ApiKey, version: int, body: bytes) -> Any:
    """The message in what follows the correlation id of a flexible request."""
    size = int.from_bytes(body[:2], "big", signed=True)
    return read_request(api_key, version, memoryview(body)[2 + max(size, 0) + 1 :])
