"""Clients that have not logged in, on listeners with SASL: before a login and amid it they get nothing, nor memory.

What a broker holds for them is bounded by a size of its own (sasl.server.max.receive.size for a frame, and a total for
all of them), far below what clients with a login may use. A client that has logged in does not notice them.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from random import Random
from struct import pack

import pytest

from ottla.protocol.apis import SERVED, ApiKey
from tests.hostile.bystander import Bystander
from tests.hostile.effort import FUZZ_SECONDS, repeat
from tests.hostile.mutations import mutated
from tests.hostile.requests import Target, every_version, valid_frame
from tests.hostile.secured import (
    ADMIN,
    FRAME_BYTES_MAX,
    MALLORY,
    PROTOCOLS,
    SecuredProcess,
    authenticate_frame,
    handshake_frame,
    plain_message,
    raw_frame,
)
from tests.hostile.sockets import SPARE_DESCRIPTORS, allow_descriptors, is_closed_by_peer, send_what_is_taken
from tests.hostile.talk import exchange
from tests.waiting import wait_until
from tests.wire.exchange import request_frame
from tests.wire.world import create_topic

BEFORE_LOGIN_BYTES_MAX = 64 << 20
"""By what clients without a login may make the broker grow: 16 MiB for a thousand frames of up to 16 KiB; as much for
all larger ones; and what TLS, sockets and the allocator take for so many connections."""
LARGE_FRAMES_BYTES_MAX = 16 << 20
LOGIN_SECONDS = 30.0
SHARE = 6
"""Of the time of the fuzzer: there are six such tests."""
CONNECTIONS = {"SASL_PLAINTEXT": 600, "SASL_SSL": 150}
"""A handshake is slow for this process, too."""
SECRET_ID = 0x5EC4E7
METADATA = request_frame(ApiKey.METADATA, 9, {"topics": None}, correlation_id=SECRET_ID)
VERSIONS = tuple(every_version())
CRAFTED = (b"admin\0mallory\0mallory-pw", b"\0admin\0mallory-pw", b"\0mallory\0mallory-pw\0admin")
"""Mallory's own password, and the name of another user."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    with SecuredProcess(tmp_path_factory.mktemp("logins")) as broker:
        with broker.connection(ADMIN, "SASL_PLAINTEXT") as connection:
            create_topic(connection, "hidden-from-strangers", 1)
        idle = broker.descriptors()
        yield broker
        assert broker.is_running(), broker.program.log_end
        assert [] == broker.alarms()
        broker.wait_descriptors(idle + 40)
        broker.stop()


@pytest.fixture(scope="module")
def stalled(secured: SecuredProcess) -> Iterator[tuple[float, list[socket.socket]]]:
    """When they connected, and clients that stopped at each step of a login; they are looked at in the end."""
    beginnings = [b"", b"\0", handshake_frame()[:9], handshake_frame(), handshake_frame(version=0)]
    beginnings.append(handshake_frame("SCRAM-SHA-256") + authenticate_frame(b"n,,n=mallory,r=nonce"))
    beginnings.append(pack(">i", FRAME_BYTES_MAX) + bytes(100_000))
    with ExitStack() as opened:
        began = time.monotonic()
        stalled = [opened.enter_context(secured.open(protocol)) for protocol in PROTOCOLS for _ in beginnings]
        for each, beginning in zip(stalled, beginnings * len(PROTOCOLS), strict=True):
            each.sendall(beginning)
        yield began, stalled


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest, stalled: tuple[float, list[socket.socket]]) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def bystander(secured: SecuredProcess) -> Bystander:
    """A client with a login."""
    return Bystander("SASL_PLAINTEXT", connect=partial(secured.connection, ADMIN))


def grown(broker: SecuredProcess, before: int) -> int:
    size = broker.peak_bytes() - before
    print(f"grown by {size / (1 << 20):.1f} MiB")
    return size


def test_mutated_requests_before_a_login(secured: SecuredProcess, protocol: str, bystander: Bystander) -> None:
    """Requests of every API and version, whole and spoiled: none is served."""
    target = Target(topic="hidden-from-strangers", topic_id=None)  # type: ignore[arg-type]
    secured.forget_peak()
    before = secured.resident_bytes()
    leaks: list[bytes] = []

    def send_some(random: Random) -> None:
        frames = []
        for _ in range(random.randint(1, 4)):
            frame = valid_frame(*random.choice(VERSIONS), target, random)
            frames.append(mutated(frame, random) if random.random() < 0.8 else frame)
        _, received = exchange(protocol, b"".join(frames) + METADATA, open_socket=secured.open)
        leaks.extend([received] if b"hidden-from" in received else [])

    with bystander:
        rounds = repeat(send_some, FUZZ_SECONDS / SHARE)
    print(f"{rounds} connections")
    assert [] == leaks
    assert grown(secured, before) < BEFORE_LOGIN_BYTES_MAX
    bystander.check()


def login_frames(random: Random) -> list[bytes]:
    """A login that nearly succeeds, with faults in any of its messages."""
    version = random.randrange(3)
    match random.randrange(4):
        case 0:
            return [handshake_frame(), authenticate_frame(plain_message(ADMIN, "guess"), version)]
        case 1:
            first = random.choice((b"n,,n=admin,r=nonce", b"n,a=admin,n=mallory,r=nonce", b"y,,n=admin,r=nonce,m=x"))
            final = b"c=biws,r=nonce,p=" + b"AAAA" * 11
            frames = [authenticate_frame(each, version) for each in (first, final)]
            return [handshake_frame("SCRAM-SHA-256"), *frames]
        case 2:
            return [handshake_frame(version=0), raw_frame(plain_message(ADMIN, "guess"))]
        case _:
            wrong = random.choice(CRAFTED)
            return [handshake_frame(), authenticate_frame(wrong, version)]


def test_mutated_logins_do_not_log_in(secured: SecuredProcess, protocol: str, bystander: Bystander) -> None:
    secured.forget_peak()
    before = secured.resident_bytes()
    leaks: list[list[bytes]] = []

    def try_one(random: Random) -> None:
        frames = login_frames(random)
        if random.random() < 0.8:
            at = random.randrange(len(frames))
            frames[at] = mutated(frames[at], random)
        if random.random() < 0.3:
            extra = random.choice((METADATA, handshake_frame(), request_frame(ApiKey.API_VERSIONS, 3, {})))
            frames.insert(random.randrange(len(frames) + 1), extra)
        _, received = exchange(protocol, b"".join(frames) + METADATA, open_socket=secured.open)
        leaks.extend([frames] if b"hidden-from" in received else [])

    with bystander:
        rounds = repeat(try_one, FUZZ_SECONDS / SHARE)
    print(f"{rounds} logins")
    assert [] == leaks
    assert grown(secured, before) < BEFORE_LOGIN_BYTES_MAX
    bystander.check()


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX + 1, 100 << 20, 2**31 - 1, 0, -1])
def test_frames_before_a_login_have_a_size_of_their_own(secured: SecuredProcess, protocol: str, size: int) -> None:
    with secured.open(protocol) as connection:
        connection.sendall(pack(">ihhi", size, ApiKey.SASL_HANDSHAKE, 1, 1))
        assert is_closed_by_peer(connection)


def test_memory_before_a_login_is_bounded_in_all(secured: SecuredProcess, protocol: str, bystander: Bystander) -> None:
    """Each claims a frame of the largest size, sends nearly all of it, and waits."""
    count = CONNECTIONS[protocol]
    content = pack(">ihhi", FRAME_BYTES_MAX, ApiKey.SASL_AUTHENTICATE, 2, 1) + bytes(FRAME_BYTES_MAX - 100)
    small = pack(">ihhi", 16_000, ApiKey.SASL_AUTHENTICATE, 2, 1) + bytes(15_000)
    allow_descriptors(count + SPARE_DESCRIPTORS)
    secured.forget_peak()
    before = secured.resident_bytes()
    kept = []
    with bystander, ExitStack() as opened:
        for number in range(count):
            each = opened.enter_context(secured.open(protocol))
            try:
                each.sendall(content if number % 4 == 0 else small)
                kept += [each] if number % 4 == 0 else []
            except OSError:
                # There is no memory for more large frames: the broker has closed it.
                continue
        open_still = kept

        def is_bounded() -> bool:
            nonlocal open_still
            open_still = [each for each in open_still if not is_closed_by_peer(each, seconds=0.02)]
            return len(open_still) <= LARGE_FRAMES_BYTES_MAX // FRAME_BYTES_MAX

        # The last ones may not have been looked at yet.
        wait_until(is_bounded, "large frames beyond the bound are closed")
        assert open_still
        bystander.wait_disturbed()
    assert grown(secured, before) < BEFORE_LOGIN_BYTES_MAX
    bystander.check()


def test_no_memory_for_array_counts_before_a_login(secured: SecuredProcess) -> None:
    """Two thousand million elements in some bytes, wherever the first array of any API and version may be."""
    secured.forget_peak()
    before = secured.resident_bytes()
    for api_key in SERVED:
        for version in {SERVED[api_key].lowest, SERVED[api_key].highest}:
            head = request_frame(api_key, version, {"topics": [], "resources": []})[4:]
            for lie in (b"\x7f\xff\xff\xff" * 20, b"\xff\xff\xff\xff\x07" * 20):
                content = head[: 14 if version == SERVED[api_key].lowest else 15] + lie
                exchange("SASL_PLAINTEXT", pack(">i", len(content)) + content, patience=5.0, open_socket=secured.open)
    for frame in (request_frame(ApiKey.API_VERSIONS, 3, {}), authenticate_frame(b"")):
        # As many tagged fields as fit: of a request that may be sent before a login.
        bomb = frame[4:-1] + b"\x80\x80\x08" + b"\x64\x00" * (1 << 17)
        content = pack(">i", len(bomb)) + bomb
        before_it = handshake_frame() if frame[5] == ApiKey.SASL_AUTHENTICATE else b""
        exchange("SASL_PLAINTEXT", before_it + content, patience=5.0, open_socket=secured.open)
    assert grown(secured, before) < BEFORE_LOGIN_BYTES_MAX / 4


def test_answers_that_are_not_read_before_a_login(secured: SecuredProcess, protocol: str) -> None:
    """The one request that may be repeated, ApiVersions in an unknown version, by a client that never reads."""
    frame = request_frame(ApiKey.API_VERSIONS, 0, {})
    unknown = frame[:6] + pack(">h", 99) + frame[8:]
    secured.forget_peak()
    before = secured.resident_bytes()
    with secured.open(protocol, receive_bytes=4096) as silent:
        content = unknown * 500_000
        taken = send_what_is_taken(silent, content, seconds=1.0)
        print(f"{taken // len(unknown)} of 500000 requests were taken")
        assert taken < len(content)
    assert grown(secured, before) < BEFORE_LOGIN_BYTES_MAX / 4


def test_logins_that_stall_end(secured: SecuredProcess, stalled: tuple[float, list[socket.socket]]) -> None:
    """Late in this module, when most of their time is over; before a crowd of others ends them."""
    began, opened = stalled
    for each in opened:
        assert is_closed_by_peer(each, seconds=max(1.0, began + 2 * LOGIN_SECONDS - time.monotonic()))


def test_the_login_of_others_is_not_hindered_by_a_crowd(secured: SecuredProcess, bystander: Bystander) -> None:
    """More connections than there may be logins: those of the busiest address end, the newest get through."""
    allow_descriptors(1200 + SPARE_DESCRIPTORS)
    with bystander, ExitStack() as opened:
        crowd = [opened.enter_context(secured.open("SASL_PLAINTEXT")) for _ in range(1100)]
        for user in (ADMIN, MALLORY):
            with secured.open_as(user, "SASL_PLAINTEXT"), secured.open_as(user, "SASL_SSL"):
                pass
        assert is_closed_by_peer(crowd[0])
        bystander.wait_disturbed()
    bystander.check()
