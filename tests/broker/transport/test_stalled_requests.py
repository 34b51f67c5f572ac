"""Requests that do not arrive: what memory they hold, when they are closed, and which slow clients are left alone."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ottla.sim.clock import SimClock
from ottla.transport.connection import Connection
from ottla.transport.listeners import ListenerLimits
from ottla.transport.receive_buffers import SMALL_BYTES
from tests.unit.transport.rig import Client, Echo, EchoAtTurnEnd, Parked, ServedListener, request
from tests.waiting import until

pytestmark = pytest.mark.both_loops

MIB = 1024 * 1024
WINDOW = ListenerLimits().stall_seconds
STEP_SECONDS = WINDOW / 3


@asynccontextmanager
async def swept(clock: SimClock, limits: ListenerLimits | None = None) -> AsyncIterator[ServedListener]:
    """A listener whose sweeps run as the clock is moved."""
    async with ServedListener(EchoAtTurnEnd, clock=clock, limits=limits) as rig:
        sweeper = asyncio.ensure_future(rig.listener.close_stalled_forever())
        try:
            yield rig
        finally:
            sweeper.cancel()


async def pass_time(rig: ServedListener, clock: SimClock, seconds: float) -> None:
    """In steps of a sweep, each with a real exchange."""
    for _ in range(round(seconds / STEP_SECONDS)):
        clock.advance(STEP_SECONDS)
        await rig.settle()


def has_received(connection: Connection, count: int) -> bool:
    return connection.bytes_in == count


async def is_open(rig: ServedListener, client: Client) -> bool:
    host, port = client.writer.get_extra_info("sockname")[:2]
    return any(each.context.address == f"{host}:{port}" for each in rig.listener.connections)


class TestMemory:
    async def test_it_follows_what_arrives(self) -> None:
        async with ServedListener(lambda turn: Echo()) as rig:
            client = await rig.connect()
            whole = request(1, b"x" * (40 * MIB))
            sent = 0
            for size in (5000, SMALL_BYTES, MIB, 3 * MIB, 10 * MIB):
                await client.send(whole[sent : sent + size])
                sent += size
                await until(partial(has_received, rig.only_connection, sent))
                await rig.settle()
                assert rig.listener.receive_memory.lent_bytes <= max(2 * sent, 2 * SMALL_BYTES)

    async def test_the_last_request_that_was_as_large_gives_room_at_once(self) -> None:
        async with ServedListener(EchoAtTurnEnd) as rig:
            client = await rig.connect(receive_bytes=4 * MIB)
            body = b"x" * (MIB + 100)
            assert (1, body) == await client.ask(1, body)
            await client.send(request(2, body)[: 2 * SMALL_BYTES])
            await rig.settle()
            await client.send(request(2, body)[2 * SMALL_BYTES : 3 * SMALL_BYTES])
            await rig.settle()
            assert 2 * MIB == rig.listener.receive_memory.lent_bytes


class TestStalls:
    @pytest.mark.parametrize("arrived", [3, 2000, 9000, 200_000, 2 * MIB])
    async def test_one_that_stops_is_closed(self, arrived: int, caplog: pytest.LogCaptureFixture) -> None:
        clock = SimClock()
        async with swept(clock) as rig:
            client = await rig.connect()
            await client.send(request(1, b"x" * (50 * MIB))[:arrived])
            await rig.settle()
            await pass_time(rig, clock, WINDOW - STEP_SECONDS)
            assert await is_open(rig, client)
            with caplog.at_level(logging.WARNING):
                await pass_time(rig, clock, 2 * WINDOW)
            assert not await is_open(rig, client)
            assert (1, 0) == (rig.listener.stalled, rig.listener.receive_memory.lent_bytes)
        (line,) = (each.getMessage() for each in caplog.records)
        assert line.startswith("closed connection from 127.0.0.1:")
        assert f"{arrived} of" in line

    async def test_dripping_is_not_progress(self) -> None:
        clock = SimClock()
        async with swept(clock) as rig:
            client = await rig.connect()
            await client.send(request(1, b"x" * (50 * MIB))[:9000])
            steps = 0
            while await is_open(rig, client):
                await client.send(b"xx")
                await pass_time(rig, clock, STEP_SECONDS)
                steps += 1
            assert 3 <= steps <= 7

    async def test_a_megabyte_over_a_very_slow_link_arrives(self) -> None:
        """At 1,000 bytes a second, a modem's speed."""
        clock = SimClock()
        async with swept(clock) as rig:
            client = await rig.connect(receive_bytes=4 * MIB)
            body = b"m" * 1_000_000
            whole = request(1, body)
            step = int(1000 * STEP_SECONDS)
            for at in range(0, len(whole), step):
                await client.send(whole[at : at + step])
                await pass_time(rig, clock, STEP_SECONDS)
            assert (1, body) == await client.receive()

    async def test_a_client_that_becomes_slow_keeps_only_what_it_needs(self) -> None:
        """It was fast, and has a large buffer; that is no reason to ask more of it, nor to let it keep the buffer."""
        clock = SimClock()
        async with swept(clock) as rig:
            client = await rig.connect(receive_bytes=4 * MIB)
            body = b"f" * (MIB + 100)
            assert (1, body) == await client.ask(1, body)
            small = b"s" * 200_000
            frame = request(2, small)
            step = int(500 * STEP_SECONDS)
            await client.send(frame[:10_000])
            for at in range(10_000, len(frame), step):
                await pass_time(rig, clock, STEP_SECONDS)
                await client.send(frame[at : at + step])
                if at == 10_000 + 6 * step:
                    assert rig.listener.receive_memory.lent_bytes == 0
            assert (2, small) == await client.receive()

    async def test_small_requests_now_and_then_are_no_stall(self) -> None:
        clock = SimClock()
        async with swept(clock) as rig:
            client = await rig.connect()
            for number in range(20):
                # Half of one, then its rest and half of the next: there is always an incomplete one.
                frame = request(number, b"x" * 10)
                await client.send(frame[:5] if number == 0 else b"")
                await client.send(frame[5:] + request(number + 1, b"x" * 10)[:5])
                assert (number, b"x" * 10) == await client.receive()
                await pass_time(rig, clock, STEP_SECONDS)
            assert 0 == rig.listener.stalled

    async def test_one_that_waits_for_the_broker_is_left_alone(self) -> None:
        clock, parked = SimClock(), Parked()
        async with ServedListener(lambda turn: parked, clock=clock) as rig:
            sweeper = asyncio.ensure_future(rig.listener.close_stalled_forever())
            client = await rig.connect()
            await client.send(request(1))
            await parked.wait_served(1)
            await pass_time(rig, clock, 4 * WINDOW)
            parked.complete(1, b"late")
            assert (1, b"late") == await client.receive()
            sweeper.cancel()

    async def test_many_of_one_address_are_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = SimClock()
        async with swept(clock) as rig:
            for _ in range(20):
                await (await rig.connect()).send(request(1, b"x" * MIB)[:9000])
            await rig.settle()
            with caplog.at_level(logging.WARNING):
                await pass_time(rig, clock, 2 * WINDOW)
            assert 20 == rig.listener.stalled
        (line,) = (each.getMessage() for each in caplog.records)
        assert "and 19 more connections from 127.0.0.1" in line

    async def test_waiting_for_memory_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = SimClock()
        async with swept(clock, ListenerLimits(queued_bytes_max=4 * MIB)) as rig:
            first, second = await rig.connect(), await rig.connect()
            await first.send(request(1, b"x" * (2 * MIB))[: MIB - 1])
            await rig.settle()
            await second.send(request(1, b"x" * MIB)[:500_000])
            await rig.settle()
            with caplog.at_level(logging.WARNING):
                await pass_time(rig, clock, STEP_SECONDS)
            assert 1 == rig.listener.receive_memory.waiting
        (line,) = (each.getMessage() for each in caplog.records)
        assert line.startswith("1 connections wait for receive memory")
        assert "127.0.0.1: 1048576 bytes" in line
