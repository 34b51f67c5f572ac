"""One connection over loopback: frames however they are cut, responses in order, failures, and an orderly end."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from ottla.protocol.scan import Request
from ottla.transport.connection import Slot
from ottla.transport.listeners import ListenerLimits
from ottla.transport.receive_buffers import SMALL_BYTES
from tests.unit.transport.rig import (
    HOST,
    Echo,
    EchoAtTurnEnd,
    FileRange,
    Parked,
    Pieces,
    ServedListener,
    file_of,
    request,
    response,
)
from tests.waiting import until

pytestmark = pytest.mark.both_loops


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class TestFrames:
    async def test_a_frame_may_be_cut_at_any_byte(self) -> None:
        frame = request(7, b"whole")
        async with ServedListener(lambda turn: Echo()) as rig:
            client = await rig.connect()
            for cut in range(1, len(frame)):
                await client.send(frame[:cut])
                # The other connection's exchange makes sure that the first part is read alone.
                await rig.settle()
                await client.send(frame[cut:])
                assert (7, b"whole") == await client.receive()

    async def test_several_frames_in_one_packet_and_one_cut_off(self) -> None:
        async with ServedListener(lambda turn: Echo()) as rig:
            client = await rig.connect()
            frames = b"".join(request(number, b"x" * number) for number in range(100))
            await client.send(frames + request(100, b"the last")[:20])
            assert [(number, b"x" * number) for number in range(100)] == [await client.receive() for _ in range(100)]
            await client.send(request(100, b"the last")[20:])
            assert (100, b"the last") == await client.receive()

    @pytest.mark.parametrize("size", [SMALL_BYTES - 14, SMALL_BYTES, 300_000, 3_000_000])
    async def test_frames_larger_than_a_small_buffer(self, size: int) -> None:
        async with ServedListener(EchoAtTurnEnd) as rig:
            client = await rig.connect(receive_bytes=1 << 22)
            body = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
            await client.send(request(1, b"small") + request(2, body) + request(3, b"behind"))
            assert (1, b"small") == await client.receive()
            assert (2, body) == await client.receive()
            assert (3, b"behind") == await client.receive()
            assert 0 == rig.listener._buffers.lent_bytes

    @pytest.mark.parametrize("length", [-1, 0, 3, 1001, 2**31 - 1])
    async def test_good_frames_before_a_broken_one_are_answered(self, length: int) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked, limits=ListenerLimits(request_bytes_max=1000)) as rig:
            client = await rig.connect()
            good = request(1, b"a") + request(2, b"b")
            await client.send(good + (length % 2**32).to_bytes(4, "big") + b"more" * 5 + request(3))
            await parked.wait_served(2)
            connection = rig.only_connection
            parked.complete(2, b"second")
            parked.complete(1, b"first")
            assert response(1, b"first") + response(2, b"second") == await client.rest()
            assert [1, 2] == parked.order
            assert connection.is_closed()
            assert "the client closed it" not in str(connection.closed_because)

    async def test_one_that_hangs_up_behind_a_broken_frame_is_noticed_while_others_wait(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1) + (-5 % 2**32).to_bytes(4, "big") + b"more" * 50_000)
            await parked.wait_served(1)
            connection = rig.only_connection
            await rig.settle()
            assert not connection.is_closed()
            await client.close()
            await until(connection.is_closed)
            assert "the client closed it" == connection.closed_because

    async def test_a_large_length_costs_no_memory_until_bytes_come(self) -> None:
        async with ServedListener(lambda turn: Echo()) as rig:
            client = await rig.connect()
            await rig.settle()
            before = resident_bytes()
            await client.send((100 * 1024 * 1024).to_bytes(4, "big"))
            await rig.settle()
            await client.send(b"x" * 5000)
            await rig.settle()
            assert 0 == rig.listener.receive_memory.lent_bytes
            assert resident_bytes() - before < 8 * 1024 * 1024


class TestOrder:
    async def test_responses_leave_in_the_order_of_the_requests(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(b"".join(request(number) for number in range(10)))
            await parked.wait_served(10)
            connection = rig.only_connection
            for number in reversed(range(1, 10)):
                parked.complete(number, b"%d" % number)
            await rig.settle()
            assert 0 == connection.bytes_out
            parked.complete(0, b"0")
            assert [(number, b"%d" % number) for number in range(10)] == [await client.receive() for _ in range(10)]
            assert sum(len(response(number, b"0")) for number in range(10)) == connection.bytes_out
            assert 10 * len(request(0)) == connection.bytes_in

    async def test_a_request_that_wants_no_response_keeps_nobody_waiting(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1) + request(2) + request(3))
            await parked.wait_served(3)
            parked.complete(3, b"c")
            parked.slots[2].complete(())
            parked.complete(1, b"a")
            assert [(1, b"a"), (3, b"c")] == [await client.receive(), await client.receive()]

    async def test_what_is_completed_in_one_turn_goes_out_in_one_send(self) -> None:
        sends: list[int] = []
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(b"".join(request(number) for number in range(50)))
            await parked.wait_served(50)
            outbox = rig.only_connection._outbox
            for number in range(50):
                parked.complete(number)
                sends.append(outbox.bytes_waiting)
            rig.turn.finish()
            assert [0] * 50 == sends
            assert 50 * len(response(0)) == rig.only_connection.bytes_out
            assert list(range(50)) == [(await client.receive())[0] for _ in range(50)]


class TestFailure:
    async def test_what_was_asked_before_a_failure_is_answered_and_what_came_after_is_not(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(b"".join(request(number) for number in range(4)))
            await parked.wait_served(4)
            connection = rig.only_connection
            late = parked.slots[3]
            parked.slots[2].fail("it cannot be answered")
            parked.complete(1, b"one")
            await rig.settle()
            assert not connection.is_closed()
            parked.complete(0, b"zero")
            assert response(0, b"zero") + response(1, b"one") == await client.rest()
            assert "it cannot be answered" == connection.closed_because
            late.complete((response(3),))  # Nobody is there any more; it must not matter.

    async def test_a_completion_behind_a_failure_is_harmless_while_the_rest_is_sent(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect(receive_bytes=1000)
            await client.send(request(0) + request(1) + request(2))
            await parked.wait_served(3)
            connection = rig.only_connection
            body = b"x" * 20_000_000
            parked.complete(0, body)
            parked.slots[1].fail("no")
            await rig.settle()
            assert not connection.is_closed()
            parked.complete(2, b"nobody hears this")
            assert response(0, body) == await client.rest()
            assert "no" == connection.closed_because

    async def test_requests_behind_a_failure_are_abandoned(self) -> None:
        """A fetch that waits must not go on waiting: its response is not wanted, however long it may wait."""
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1) + request(2) + request(3))
            await parked.wait_served(3)
            abandoned: list[int] = []
            for number in (1, 2, 3):
                parked.slots[number].on_abandoned = partial(abandoned.append, number)
            parked.complete(3)
            parked.slots[1].fail("broken")
            assert b"" == await client.rest()
            assert [2] == abandoned

    @pytest.mark.parametrize("size", [60_000, 600_000])
    async def test_a_file_that_ends_early_closes_the_connection(self, tmp_path: Path, size: int) -> None:
        file = file_of(tmp_path, b"x" * 100_000)
        async with ServedListener(lambda turn: Pieces([[FileRange(file, 50_000, size)]])) as rig:
            client = await rig.connect()
            await client.send(request(0))
            received = await client.rest()
            assert len(received) <= 8 + 50_000
            assert [] == list(rig.listener.connections)

    async def test_a_client_that_sends_no_more_gets_its_responses(self) -> None:
        """As from Kafka, which does not read the end of the stream before it has answered what came before."""
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1) + request(2, b"x" * 100_000) + request(3, b"cut off")[:-2])
            await parked.wait_served(2)
            connection = rig.only_connection
            abandoned: list[int] = []
            for number in (1, 2):
                parked.slots[number].on_abandoned = partial(abandoned.append, number)
            client.end_sending()
            await until(lambda: len(abandoned) == 2)
            await rig.settle()
            assert not connection.is_closed()
            assert 0 == rig.listener._buffers.lent_bytes
            parked.complete(2, b"second")
            parked.complete(1, b"first")
            assert response(1, b"first") + response(2, b"second") == await client.rest()
            assert "the client closed it" == connection.closed_because
            assert [1, 2] == abandoned

    async def test_a_client_that_leaves_with_nothing_in_flight_is_gone_at_once(self) -> None:
        async with ServedListener(lambda turn: Echo()) as rig:
            client = await rig.connect()
            await client.ask(1)
            connection = rig.only_connection
            await client.send(request(2, b"cut off")[:-2])
            await client.close()
            await until(connection.is_closed)
            assert "the client closed it" == connection.closed_because
            assert 0 == rig.listener._buffers.lent_bytes

    async def test_a_client_that_leaves_is_gone_when_its_requests_are_done(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1) + request(2))
            await parked.wait_served(2)
            connection = rig.only_connection
            await client.close()
            await rig.settle()
            parked.complete(1)
            await rig.settle()
            parked.complete(2)
            await until(connection.is_closed)
            assert 0 == rig.listener._buffers.lent_bytes

    async def test_one_that_fails_in_a_turn_does_not_keep_the_others_waiting(self) -> None:
        complaints: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))

        class Broken:
            def end_turn(self) -> None:
                raise RuntimeError("on purpose")

        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1))
            await parked.wait_served(1)
            await rig.settle()
            rig.turn.join(Broken())
            parked.complete(1, b"yes")
            assert (1, b"yes") == await client.receive()
            assert ["unexpected failure: on purpose"] == complaints

    async def test_a_buffer_with_batches_that_wait_is_lent_to_nobody(self) -> None:
        """The connection ends between the request and the turn's end, when its batches are written."""
        kept: list[bytes] = []
        rigs: list[ServedListener] = []

        def serve(request: Request, buffer: bytearray, slot: Slot, /) -> None:
            rigs[0].turn.add_append(lambda: kept.append(bytes(buffer[request.body_start : request.end])))
            slot.connection.close("in the middle")
            other = rigs[0].listener.receive_memory.lend(SMALL_BYTES, HOST)
            assert other is not None
            other[:] = bytes(len(other))

        async with ServedListener(lambda turn: serve) as rig:
            rigs.append(rig)
            client = await rig.connect()
            await client.send(request(1, b"still needed"))
            assert b"" == await client.rest()
            assert [b"still needed"] == kept


class TestDraining:
    async def test_what_is_in_the_works_is_answered(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client, silent = await rig.connect(), await rig.connect()
            await client.send(request(1) + request(2))
            await parked.wait_served(2)
            closing = asyncio.ensure_future(rig.listener.close(20.0))
            assert b"" == await silent.rest()
            parked.complete(2, b"two")
            parked.complete(1, b"one")
            assert response(1, b"one") + response(2, b"two") == await client.rest()
            await closing
            assert [1, 2] == parked.order
            with pytest.raises(ConnectionRefusedError):
                await rig.connect()

    async def test_nothing_new_is_served(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1))
            await parked.wait_served(1)
            rig.only_connection.drain()
            await client.send(request(2))
            await rig.settle()
            parked.complete(1)
            await client.rest()
            assert [1] == parked.order

    async def test_who_does_not_finish_in_time_is_cut_off(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(request(1))
            await parked.wait_served(1)
            connection = rig.only_connection
            await rig.listener.close(0.01)
            assert "the broker is shutting down" == connection.closed_because
            assert b"" == await client.rest()
            parked.complete(1)

    async def test_large_responses_are_sent_whole_before_the_end(self, tmp_path: Path) -> None:
        content = bytes(range(256)) * 80_000
        file = file_of(tmp_path, content)
        async with ServedListener(lambda turn: Pieces([[FileRange(file, 0, len(content))]])) as rig:
            client = await rig.connect(receive_bytes=1000)
            await client.send(request(0))
            await rig.settle()
            closing = asyncio.ensure_future(rig.listener.close(20.0))
            assert content == (await client.rest())[8:]
            await closing

    async def test_it_may_begin_while_a_request_is_being_served(self) -> None:
        served: list[int] = []

        def serve(request: Request, buffer: bytearray, slot: Slot, /) -> None:
            served.append(request.correlation_id)
            if request.correlation_id == 2:
                slot.connection.drain()
            slot.complete((response(request.correlation_id),))

        async with ServedListener(lambda turn: serve) as rig:
            client = await rig.connect()
            await client.send(b"".join(request(number) for number in range(10)))
            assert b"".join(response(number) for number in range(3)) == await client.rest()
            assert [0, 1, 2] == served

    async def test_closing_twice_is_harmless(self) -> None:
        ended: list[str | None] = []

        def serve(request: Request, buffer: bytearray, slot: Slot, /) -> None:
            slot.connection.close("now")
            slot.connection.close("again")
            slot.connection.drain()
            slot.complete((b"never",))
            ended.append(slot.connection.closed_because)

        async with ServedListener(lambda turn: serve) as rig:
            client = await rig.connect()
            await client.send(request(1) + request(2))
            assert b"" == await client.rest()
            assert ["now"] == ended
