"""What a connection may do to the broker without a single whole request, or with too many of them."""

import threading
from datetime import timedelta
from random import Random
from struct import pack

import pytest

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.effort import repeat
from tests.hostile.requests import Target, valid_frame
from tests.hostile.sockets import connect, connections, drip, is_closed_by_peer, send_what_is_taken
from tests.wire.exchange import RawConnection, request_frame

HALF_OPEN = 1000
STORM_SECONDS = 5.0
ROW_BYTES = 1 << 20
PING = request_frame(ApiKey.API_VERSIONS, 0, {}, correlation_id=1)
REQUEST_BYTES_MAX = 100 << 20
TURNS_MIN = 10
"""So often the bystander writes and reads amid requests of another connection; if it waited for all, twice."""


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 1, 7, REQUEST_BYTES_MAX + 1, 2**31 - 1])
def test_an_impossible_length_ends_the_connection(broker: BrokerProcess, length: int) -> None:
    with connect(broker.address) as connection:
        connection.sendall(pack(">i", length))
        assert is_closed_by_peer(connection)


def test_what_was_asked_before_the_garbage_is_answered(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as connection:
        connection.send(PING + PING + b"\x7f\xff\xff\xff garbage")
        expected = connection.receive()
        assert expected == connection.receive()
        assert b"" == connection.wait_closed()


def test_lengths_alone_take_no_memory(broker: BrokerProcess) -> None:
    """Each of these promises a request of the largest size, and sends a few bytes of it."""
    broker.forget_peak()
    before = broker.resident_bytes()
    with Bystander(broker.address) as bystander, connections(broker.address, 200) as opened:
        for connection in opened:
            connection.sendall(pack(">ihhi", REQUEST_BYTES_MAX, ApiKey.PRODUCE, 9, 1) + b"x" * 10_000)
        with RawConnection(broker.address) as other:
            other.send(PING)
            other.receive()
        bystander.wait_disturbed()
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    bystander.check()


def test_a_thousand_half_open_connections(broker: BrokerProcess, target: Target) -> None:
    """Half a request each, then silence."""
    broker.forget_peak()
    before, descriptors = broker.resident_bytes(), broker.descriptors()
    random = Random(1)
    with Bystander(broker.address) as bystander:
        with connections(broker.address, HALF_OPEN) as opened:
            for connection in opened:
                frame = valid_frame(random.choice((ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.FETCH)), 9, target, random)
                connection.sendall(frame[: random.randrange(1, len(frame))])
            with RawConnection(broker.address) as other:
                other.send(PING)
                other.receive()
            assert broker.descriptors() >= HALF_OPEN
            bystander.wait_disturbed()
        broker.wait_descriptors(descriptors + 20)
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    bystander.check()


def test_slow_writers_are_understood(broker: BrokerProcess) -> None:
    """Requests that come byte by byte are requests all the same, and nobody else waits for them."""
    answers: list[bytes] = []

    def speak_slowly() -> None:
        with RawConnection(broker.address) as connection:
            drip(connection._socket, PING, pause=0.05)
            answers.append(connection.receive())

    with Bystander(broker.address) as bystander:
        speakers = [threading.Thread(target=speak_slowly) for _ in range(20)]
        for speaker in speakers:
            speaker.start()
        for speaker in speakers:
            speaker.join()
    assert 20 == len(answers)
    assert 1 == len(set(answers))
    bystander.check()


def test_a_storm_of_connections_that_leave_at_once(broker: BrokerProcess) -> None:
    descriptors = broker.descriptors()

    def come_and_go(random: Random) -> None:
        with connections(broker.address, 20) as opened:
            for connection in opened:
                if random.random() < 0.5:
                    connection.sendall(PING[: random.randrange(len(PING) + 1)])

    with Bystander(broker.address) as bystander:
        rounds = repeat(come_and_go, STORM_SECONDS, workers=2)
    print(f"{20 * rounds} connections came and went")
    broker.wait_descriptors(descriptors + 20)
    bystander.check()


def test_too_many_requests_in_flight_are_not_read(broker: BrokerProcess, target: Target) -> None:
    """Long polls by the hundred thousand on one connection: those in the works are bounded, the rest stays outside."""
    broker.forget_peak()
    before = broker.resident_bytes()
    parts = [{"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1000}]
    wanted = {"topics": [{"topic_id": target.topic_id, "partitions": parts}], "session_epoch": -1}
    waits = {**wanted, "max_wait": timedelta(minutes=10), "min_bytes": 1, "max_bytes": 1000}
    frame = request_frame(ApiKey.FETCH, 13, waits)
    with Bystander(broker.address) as bystander, connect(broker.address) as connection:
        taken = send_what_is_taken(connection, frame * 200_000, seconds=2.0)
        print(f"{taken // len(frame)} of 200000 requests were taken")
        assert taken < len(frame) * 200_000
        bystander.wait_disturbed()
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    bystander.check()


@pytest.mark.parametrize("api_key", [ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS])
def test_requests_in_a_row_leave_room_for_others(broker: BrokerProcess, target: Target, api_key: ApiKey) -> None:
    """Each of them is small and legal, but they come without a pause, and each names many things."""
    parts = [{"partition_index": index % 3, "timestamp": -1} for index in range(100)]
    values = {
        "replica_id": -1,
        "topics": [{"name": f"{target.topic}{index}", "partitions": parts} for index in range(10)],
        "resources": [{"resource_type": 2, "resource_name": f"{index}", "configs": []} for index in range(200)],
        "allow_auto_topic_creation": False,
    }
    frame = request_frame(api_key, 4 if api_key is not ApiKey.LIST_OFFSETS else 7, values)
    count = ROW_BYTES // len(frame)
    with Bystander(broker.address) as bystander, RawConnection(broker.address) as connection:
        sender = threading.Thread(target=connection.send, args=(frame * count,))
        sender.start()
        for _ in range(count):
            connection.receive()
        sender.join()
    print(f"{count} requests of {len(frame)} bytes")
    bystander.check()
    assert len(bystander.disturbed) >= TURNS_MIN
