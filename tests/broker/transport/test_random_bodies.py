"""A connection against the simplest model there is: every body comes back whole and in order, however it is cut.

The bodies are looked at only when the turn ends, as appends do, so that a buffer which is used again too early shows.
"""

import asyncio
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.scan import Request
from ottla.transport.connection import IN_FLIGHT_MAX, Slot
from ottla.transport.listener_tls import ListenerTls
from ottla.transport.listeners import ListenerLimits
from ottla.transport.receive_buffers import SMALL_BYTES
from ottla.transport.turn import Turn
from tests.effort import effort
from tests.unit.transport.certificates import make_certificate
from tests.unit.transport.rig import Client, ServedListener, request, response

SIZES = st.one_of(
    st.integers(0, 50),
    st.integers(0, 5000),
    st.integers(SMALL_BYTES - 40, SMALL_BYTES + 40),
    st.integers(SMALL_BYTES, 5 * SMALL_BYTES),
    st.just(1_500_000),
)
CHUNKS = st.one_of(st.integers(1, 30), st.integers(1, 5000), st.integers(30_000, 300_000), st.just(5_000_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one client sends: bodies of these sizes, in pieces of these sizes, repeated as needed."""

    sizes: list[int]
    chunks: list[int]
    seed: int

    def bodies(self) -> list[bytes]:
        random = Random(self.seed)
        return [random.randbytes(size) for size in self.sizes]


plans = st.builds(
    Plan,
    sizes=st.lists(SIZES, min_size=1, max_size=40),
    chunks=st.lists(CHUNKS, min_size=1, max_size=10),
    seed=st.integers(0, 2**32),
)


class Mixed:
    """Answers with the body as it is when the turn ends: at once, then, or some turns later and out of order."""

    def __init__(self, turn: Turn, seed: int) -> None:
        self._turn = turn
        self._random = Random(seed)
        self._later: list[tuple[Slot, bytes]] = []
        self.in_flight = self.in_flight_max = 0

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        way = self._random.randrange(3)

        def copied() -> bytes:
            return response(request.correlation_id, bytes(buffer[request.body_start : request.end]))

        if way == 0:
            self._complete(slot, copied())
        elif way == 1:
            self._turn.add_append(lambda: self._complete(slot, copied()))
        else:
            self._turn.add_append(lambda: self._park(slot, copied()))

    def _park(self, slot: Slot, content: bytes) -> None:
        if not self._later:
            asyncio.get_running_loop().call_soon(self._complete_parked)
        self._later.append((slot, content))

    def _complete_parked(self) -> None:
        later, self._later = self._later, []
        self._random.shuffle(later)
        for slot, content in later:
            self._complete(slot, content)

    def _complete(self, slot: Slot, content: bytes) -> None:
        self.in_flight -= 1
        slot.complete((content,))


async def send(client: Client, plan: Plan) -> None:
    stream = b"".join(request(number, body) for number, body in enumerate(plan.bodies()))
    position, at = 0, 0
    while position < len(stream):
        # Tiny pieces for a whole megabyte would take long and show nothing new.
        chunk = max(plan.chunks[at % len(plan.chunks)], len(stream) // 300)
        await client.send(stream[position : position + chunk])
        await asyncio.sleep(0)
        position, at = position + chunk, at + 1


async def receive(client: Client, plan: Plan) -> None:
    for number, body in enumerate(plan.bodies()):
        assert (number, body) == await client.receive()


@cache
def tls() -> tuple[ListenerTls, ssl.SSLContext]:
    """The broker's and the client's side."""
    with TemporaryDirectory() as folder:
        certificate = make_certificate(Path(folder))
        return certificate.listener_tls(), certificate.client_context()


async def exchange(everybody: list[Plan], seed: int, *, with_tls: bool = False) -> None:
    serves: list[Mixed] = []

    def make(turn: Turn) -> Mixed:
        serves.append(Mixed(turn, seed))
        return serves[0]

    limits = ListenerLimits(queued_bytes_max=3_000_000)
    broker_tls, client_tls = tls() if with_tls else (None, None)
    async with ServedListener(make, limits=limits, tls=broker_tls, client_tls=client_tls) as rig:
        works = []
        for plan in everybody:
            client = await rig.connect()
            works += [send(client, plan), receive(client, plan)]
        await asyncio.wait_for(asyncio.gather(*works), 60)
        assert 0 == rig.listener._buffers.lent_bytes
        assert 0 == serves[0].in_flight
        assert serves[0].in_flight_max <= IN_FLIGHT_MAX * len(everybody)


@pytest.mark.slow
@given(st.lists(plans, min_size=1, max_size=4), st.integers(0, 2**32), st.booleans(), st.booleans())
@effort(examples=80, steps=1)
def test_every_body_comes_back_whole_and_in_order(
    everybody: list[Plan], seed: int, on_uvloop: bool, with_tls: bool
) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if on_uvloop else None) as runner:
        runner.run(exchange(everybody, seed, with_tls=with_tls))
