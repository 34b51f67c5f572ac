"""Clients that claim a large request, send its beginning and stall: other clients keep their memory and their speed."""

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from struct import pack

import pytest

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.batches import numbered_batch
from tests.hostile.sockets import connect, connections, is_closed_by_peer, send_what_is_taken
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic, produce

CLAIMED_BYTES = 100 * 1000 * 1000
SENT_BYTES = 9 * 1024
BEGINNING = pack(">ihhih", CLAIMED_BYTES, ApiKey.PRODUCE, 9, 1, -1) + b"x" * SENT_BYTES
LARGE_BATCH = numbered_batch(0, 1, size=600_000)
ROUNDS = 60
SLOWER_MAX = 3.0
"""A ratio of medians on a shared machine; before memory followed what arrives, the requests did not end at all."""
STALL_SECONDS_MAX = 75.0
"""A window of 30 s, another that may have begun before the request stalled, and the sweeps in between."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that is not attacked."""
    with BrokerProcess(tmp_path_factory.mktemp("other")) as broker:
        yield broker


def seconds_each(topic: str, *brokers: BrokerProcess) -> list[float]:
    """The median time of a large produce request to each broker, of requests by turns: another program that slows the
    machine down slows down those to all brokers."""
    times: list[list[float]] = [[] for _ in brokers]
    with contextlib.ExitStack() as opened:
        connected = [opened.enter_context(RawConnection(broker.address)) for broker in brokers]
        ids = [create_topic(each, topic, 1, retention_bytes="100000000") for each in connected]
        for _ in range(ROUNDS):
            for connection, topic_id, spent in zip(connected, ids, times, strict=True):
                began = time.monotonic()
                produce(connection, topic_id, LARGE_BATCH)
                spent.append(time.monotonic() - began)
    return [statistics.median(each) for each in times]


def check_speed(
    topic: str, broker: BrokerProcess, other: BrokerProcess, attack: Callable[[], AbstractContextManager[None]]
) -> None:
    """Large requests are about as fast beside an attack as on a broker that is not attacked."""
    with attack():
        beside, alone = seconds_each(topic, broker, other)
    print(f"{alone * 1e3:.2f} ms alone, {beside * 1e3:.2f} ms beside the attack")
    assert beside / alone < SLOWER_MAX


@pytest.mark.parametrize("attackers", [2, 20])
def test_large_requests_of_others_keep_their_speed(broker: BrokerProcess, other: BrokerProcess, attackers: int) -> None:
    @contextlib.contextmanager
    def attack() -> Iterator[None]:
        is_over = threading.Event()
        with connections(broker.address, attackers) as opened:

            def drip() -> None:
                while not is_over.wait(0.1):
                    for each in opened:
                        each.sendall(b"x")

            for content in (BEGINNING, b"x", b"x"):
                for each in opened:
                    each.sendall(content)
                with RawConnection(broker.address) as asking:
                    # The broker has read what was sent before: it answers connections in the order of their events.
                    asking.ask_newest(ApiKey.METADATA, {"topics": []})
            dripping = threading.Thread(target=drip, daemon=True)
            dripping.start()
            try:
                yield
            finally:
                is_over.set()
                dripping.join()

    check_speed(f"fast-{attackers}", broker, other, attack)


def test_one_address_cannot_take_the_receive_memory_of_others(broker: BrokerProcess, other: BrokerProcess) -> None:
    """Twenty connections of another address really send 12 MB each, more than all receive memory holds, and stall."""
    seconds_each("warm-up", broker, other)
    broker.forget_peak()
    before = broker.resident_bytes()
    content = BEGINNING + bytes(12_000_000)
    host, _, port = broker.address.rpartition(":")

    @contextlib.contextmanager
    def attack() -> Iterator[None]:
        with contextlib.ExitStack() as opened:
            taken = 0
            for _ in range(20):
                attacker = opened.enter_context(
                    socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
                )
                taken += send_what_is_taken(attacker, content, seconds=0.2)
            print(f"{taken >> 20} MiB were taken")
            yield

    check_speed("others", broker, other, attack)
    # A quarter of 256 MiB, twice that while a buffer grows.
    assert broker.peak_bytes() - before < 160 << 20


def test_a_request_that_makes_no_progress_is_closed_and_logged(broker: BrokerProcess) -> None:
    with connect(broker.address) as silent, connect(broker.address) as dripping:
        is_over = threading.Event()

        def drip() -> None:
            try:
                while not is_over.wait(0.5):
                    dripping.sendall(b"x")
            except OSError:
                is_over.set()

        silent.sendall(BEGINNING)
        dripping.sendall(BEGINNING)
        addresses = ["{}:{}".format(*each.getsockname()) for each in (silent, dripping)]
        sender = threading.Thread(target=drip, daemon=True)
        sender.start()
        try:
            assert is_closed_by_peer(silent, seconds=STALL_SECONDS_MAX)
            assert is_over.wait(STALL_SECONDS_MAX), "a byte now and then counts as progress"
        finally:
            is_over.set()
            sender.join()
    wait_until(lambda: "127.0.0.1" in stalled_lines(broker), "the log names the address")
    assert f"of {CLAIMED_BYTES + 4} bytes received" in stalled_lines(broker)
    assert any(address in stalled_lines(broker) for address in addresses)


def stalled_lines(broker: BrokerProcess) -> str:
    """What the log says about requests that stalled."""
    return "\n".join(line for line in broker.log().splitlines() if "incomplete request" in line)
