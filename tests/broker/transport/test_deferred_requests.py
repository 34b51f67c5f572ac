"""A request that is not served yet waits in its connection, those behind it too, and nothing is lost or doubled."""

import asyncio

import pytest

from ottla.protocol.scan import Request
from ottla.transport.connection import Connection, Slot
from tests.unit.transport.rig import ServedListener, request, response
from tests.waiting import until

pytestmark = pytest.mark.both_loops


class Reluctant:
    """Refuses each request the first time, and asks for it again at the next round of the event loop."""

    def __init__(self) -> None:
        self.offered: list[int] = []
        self.waiting: list[Connection] = []
        self.is_willing = True

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> bool:
        number = request.correlation_id
        self.offered.append(number)
        if self.offered.count(number) == 1:
            self.waiting.append(slot.connection)
            if self.is_willing:
                asyncio.get_running_loop().call_soon(slot.connection.resume)
            return False
        slot.complete((response(number, bytes(buffer[request.body_start : request.end])),))
        return True


async def test_every_request_is_answered_once_in_order() -> None:
    serve = Reluctant()
    async with ServedListener(lambda turn: serve) as rig:
        client = await rig.connect()
        await client.send(b"".join(request(number, b"body %d" % number) for number in range(300)))
        answers = [await client.receive() for _ in range(300)]
        assert [(number, b"body %d" % number) for number in range(300)] == answers
        assert [number for number in range(300) for _ in range(2)] == serve.offered


async def test_a_connection_that_ended_is_not_resumed() -> None:
    serve = Reluctant()
    serve.is_willing = False
    async with ServedListener(lambda turn: serve) as rig:
        client = await rig.connect()
        await client.send(request(1) + request(2))
        await until(lambda: bool(serve.waiting))
        (connection,) = serve.waiting
        connection.close("for this test")
        connection.resume()
        assert [1] == serve.offered
