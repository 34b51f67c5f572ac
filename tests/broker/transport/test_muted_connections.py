"""Connections whose client is throttled: responses leave at once, and no request is served until the time is over."""

import asyncio

import pytest

from ottla.protocol.scan import Request
from ottla.transport.connection import Slot
from ottla.transport.listeners import ListenerLimits
from tests.unit.transport.rig import Parked, ServedListener, request, response
from tests.waiting import settle, until

pytestmark = pytest.mark.both_loops

LONG_MS = 3_600_000


class Throttling:
    """Answers at once; a body of digits is the throttle time of its request."""

    def __init__(self) -> None:
        self.served: list[int] = []

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        self.served.append(request.correlation_id)
        slot.throttle_ms = int(bytes(buffer[request.body_start : request.end]) or b"0")
        slot.complete((response(request.correlation_id),))


async def test_a_request_that_comes_while_muted_is_served_afterwards() -> None:
    serve = Throttling()
    async with ServedListener(lambda turn: serve) as rig:
        client = await rig.connect()
        began = loop_ms()
        assert (1, b"") == await client.ask(1, b"200")
        half = request(3)
        await client.send(request(2) + half[:7])
        await rig.settle()
        assert 2 not in serve.served
        assert (2, b"") == await client.receive()
        assert loop_ms() - began >= 200
        await client.send(half[7:])
        assert (3, b"") == await client.receive()


async def test_the_longest_throttle_time_counts() -> None:
    serve = Throttling()
    async with ServedListener(lambda turn: serve) as rig:
        client = await rig.connect()
        began = loop_ms()
        await client.send(request(1, b"300") + request(2, b"1"))
        assert (1, 2) == ((await client.receive())[0], (await client.receive())[0])
        assert (3, b"") == await client.ask(3)
        assert loop_ms() - began >= 300


async def test_the_end_of_the_broker_does_not_wait_for_the_throttle_time() -> None:
    async with ServedListener(lambda turn: Throttling()) as rig:
        client = await rig.connect()
        await client.ask(1, b"%d" % LONG_MS)
        await client.send(request(2))
        async with asyncio.timeout(60):
            await rig.listener.close(5.0)
        assert b"" == await client.rest()


async def test_a_response_of_a_draining_connection_does_not_mute_it() -> None:
    parked = Parked()
    async with ServedListener(lambda turn: parked) as rig:
        client = await rig.connect()
        await client.send(request(1) + request(2))
        await parked.wait_served(2)
        closing = asyncio.ensure_future(rig.listener.close(5.0))
        await settle()
        parked.slots[1].throttle_ms = LONG_MS
        parked.complete(1)
        await settle()
        parked.complete(2)
        async with asyncio.timeout(60):
            assert response(1) + response(2) == await client.rest()
            await closing


async def test_responses_in_flight_are_sent_while_muted() -> None:
    parked = Parked()
    async with ServedListener(lambda turn: parked) as rig:
        client = await rig.connect()
        await client.send(request(1) + request(2))
        await parked.wait_served(2)
        parked.slots[1].throttle_ms = LONG_MS
        parked.complete(1)
        assert (1, b"") == await client.receive()
        parked.complete(2)
        async with asyncio.timeout(60):
            assert (2, b"") == await client.receive()


async def test_a_client_that_hung_up_while_muted_is_closed_when_it_is_idle() -> None:
    async with ServedListener(lambda turn: Throttling(), limits=ListenerLimits(idle_ms=100)) as rig:
        client = await rig.connect()
        await client.ask(1, b"%d" % LONG_MS)
        connection = rig.only_connection
        await client.close()
        sweeper = asyncio.ensure_future(rig.listener.close_idle_forever())
        async with asyncio.timeout(60):
            await until(connection.is_closed)
        sweeper.cancel()


def loop_ms() -> int:
    """The loop's time in whole milliseconds, as its timers count: float seconds may be a rounding short."""
    return round(asyncio.get_running_loop().time() * 1000)
