"""The listener: limits on connections in all and per host, idle ones, and its counts."""

import asyncio
import logging
import ssl

import pytest

from ottla.security.principals import ANONYMOUS, Principal
from ottla.sim.clock import SimClock
from ottla.transport.listeners import ListenerLimits
from tests.unit.transport.certificates import Certificate
from tests.unit.transport.rig import Echo, ServedListener
from tests.waiting import until

pytestmark = pytest.mark.both_loops


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class TestLimits:
    @pytest.mark.parametrize(
        "limits",
        [
            ListenerLimits(connections_max=3),
            ListenerLimits(connections_per_ip_max=3),
            ListenerLimits(connections_per_ip_max=1, connections_of_ip_max={"127.0.0.1": 3, "127.0.0.2": 9}),
        ],
        ids=["all", "host", "override"],
    )
    async def test_one_too_many_is_refused_until_another_leaves(self, limits: ListenerLimits) -> None:
        async with ServedListener(lambda turn: Echo(), limits=limits) as rig:
            clients = [await rig.connect() for _ in range(3)]
            for client in clients:
                assert (1, b"") == await client.ask(1)
            refused = await rig.connect()
            assert b"" == await refused.rest()
            assert (3, 1, 3) == (rig.listener.accepted, rig.listener.refused, len(rig.listener.connections))
            await clients[0].close()
            assert (2, b"") == await clients[1].ask(2)
            await until(lambda: len(rig.listener.connections) <= 2)
            assert (1, b"") == await (await rig.connect()).ask(1)
            assert (4, 1, 3) == (rig.listener.accepted, rig.listener.refused, len(rig.listener.connections))

    async def test_limits_may_change(self) -> None:
        async with ServedListener(lambda turn: Echo()) as rig:
            client = await rig.connect()
            await client.ask(1)
            rig.listener.limits = ListenerLimits(connections_max=1)
            assert b"" == await (await rig.connect()).rest()
            rig.listener.limits = ListenerLimits(connections_max=2)
            assert (1, b"") == await (await rig.connect()).ask(1)
            rig.listener.limits = ListenerLimits(connections_of_ip_max={"127.0.0.1": 0})
            assert b"" == await (await rig.connect()).rest()

    async def test_one_that_cannot_be_made_is_not_counted(self, certificate: Certificate) -> None:
        class Tls:
            can = False

            @property
            def context(self) -> ssl.SSLContext:
                if not self.can:
                    raise OSError("no certificate")
                return certificate.broker_context()

            def principal_of(self, certificate: bytes | None) -> Principal:
                return ANONYMOUS

        asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
        tls = Tls()
        limits = ListenerLimits(connections_per_ip_max=1)
        trusting = certificate.client_context()
        async with ServedListener(lambda turn: Echo(), limits=limits, tls=tls, client_tls=trusting) as rig:
            with pytest.raises(OSError):  # noqa: PT011  # Which one depends on the moment.
                await rig.connect()
            tls.can = True
            assert (1, b"") == await (await rig.connect()).ask(1)
            assert (1, 0) == (rig.listener.accepted, rig.listener.refused)


class TestIdle:
    async def test_silent_connections_are_closed(self) -> None:
        clock = SimClock()
        async with ServedListener(lambda turn: Echo(), limits=ListenerLimits(idle_ms=1000), clock=clock) as rig:
            sweeper = asyncio.ensure_future(rig.listener.close_idle_forever())
            busy, silent = await rig.connect(), await rig.connect()
            for number in range(8):
                await busy.ask(number)
                if number == 0:
                    await silent.ask(0)
                clock.advance(0.25)
                await turns()
            assert b"" == await silent.rest()
            assert (9, b"") == await busy.ask(9)
            assert 1 == len(rig.listener.connections)
            sweeper.cancel()

    @pytest.mark.parametrize("idle_ms", [-1, -1000])
    async def test_without_a_limit_nobody_is_closed(self, idle_ms: int) -> None:
        clock = SimClock()
        async with ServedListener(lambda turn: Echo(), limits=ListenerLimits(idle_ms=idle_ms), clock=clock) as rig:
            sweeper = asyncio.ensure_future(rig.listener.close_idle_forever())
            client = await rig.connect()
            await client.ask(1)
            for _ in range(3):
                clock.advance(100_000.0)
                await turns()
            assert (2, b"") == await client.ask(2)
            sweeper.cancel()

    async def test_no_patience_does_not_spin(self) -> None:
        clock = SimClock()
        async with ServedListener(lambda turn: Echo(), limits=ListenerLimits(idle_ms=0), clock=clock) as rig:
            sweeper = asyncio.ensure_future(rig.listener.close_idle_forever())
            client = await rig.connect()
            await client.ask(1)
            await turns(100)
            assert (2, b"") == await client.ask(2)
            clock.advance(1.0)
            assert b"" == await client.rest()
            sweeper.cancel()


async def test_bytes_are_counted_over_all_connections() -> None:
    async with ServedListener(lambda turn: Echo()) as rig:
        first, second = await rig.connect(), await rig.connect()
        await first.ask(1, b"12345")
        await second.ask(1, b"123")
        await first.close()
        await until(lambda: len(rig.listener.connections) <= 1)
        assert (14 + 5, 8 + 5) == (rig.listener.bytes_in, rig.listener.bytes_out)
        assert (14 + 3, 8 + 3) == (rig.only_connection.bytes_in, rig.only_connection.bytes_out)


class TestRequestsThatCannotBeServed:
    async def test_are_logged_once_a_minute_for_each_address(self, caplog: pytest.LogCaptureFixture) -> None:
        async def break_off(rig: ServedListener) -> None:
            client = await rig.connect()
            client.writer.write(b"\xff\xff\xff\xff")
            assert b"" == await client.rest()

        with caplog.at_level(logging.WARNING):
            clock = SimClock()
            async with ServedListener(lambda turn: Echo(), clock=clock) as rig:
                for _ in range(3):
                    await break_off(rig)
                assert 1 == len(caplog.messages)
                clock.advance(61)
                await break_off(rig)
                await (await rig.connect()).close()
        first, second = caplog.messages
        assert first.startswith("closed connection from 127.0.0.1:")
        assert "-1 bytes" in first
        assert "(and 2 more connections from 127.0.0.1 in the last 61 s)" in second
