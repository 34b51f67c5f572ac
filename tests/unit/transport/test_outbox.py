"""What waits to be sent: bytes and file ranges of every size in any mixture, past a socket that is full anywhere."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.env.ports import File
from ottla.env.real_network import RealSocket
from ottla.model.buffer import Buffer
from ottla.transport.outbox import (
    COPIED_RANGE_BYTES_MAX,
    GATHERED_BYTES_MAX,
    SENT_PER_TURN_BYTES_MAX,
    Outbox,
    Piece,
)
from tests.unit.transport.rig import FileRange, file_of

pytestmark = pytest.mark.both_loops

MIB = 1024 * 1024
CONTENT = Random(1).randbytes(MIB)


class NarrowSocket:
    """A socket with room for so many bytes in each call, as given; then none, then again."""

    def __init__(self, rooms: Sequence[int]) -> None:
        self._rooms = rooms
        self._calls = 0
        self.received = bytearray()
        self.flags: list[bool] = []

    def _room(self) -> int:
        self._calls += 1
        return self._rooms[(self._calls - 1) % len(self._rooms)]

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        content = b"".join(bytes(each) for each in buffers)[: self._room()]
        self.received += content
        self.flags.append(more)
        return len(content)

    def send_file(self, file: File, position: int, size: int) -> int:
        content = file.read_at(position, min(size, self._room()))
        self.received += content
        self.flags.append(False)
        return len(content)

    def recv_into(self, buffer: memoryview) -> int:
        raise BlockingIOError

    def on_readable(self, callback: Callable[[], None] | None) -> None: ...

    def expect(self, size: int) -> None: ...

    def on_writable(self, callback: Callable[[], None] | None) -> None: ...

    def peer(self) -> str:
        return "narrow"

    def descriptor(self) -> int | None:
        return None

    def close(self) -> None: ...


@pytest.fixture
def file(tmp_path: Path) -> File:
    return file_of(tmp_path, CONTENT)


def content_of(pieces: Sequence[Piece]) -> bytes:
    return b"".join(
        each if isinstance(each, bytes) else CONTENT[each.position : each.position + each.size] for each in pieces
    )


def send_all(outbox: Outbox, narrow: NarrowSocket) -> None:
    for _ in range(100_000):
        if not outbox.bytes_waiting:
            return
        before = outbox.bytes_waiting
        assert before - outbox.send(narrow) == outbox.bytes_waiting
        # A piece is in memory until the whole of it is out.
        assert sum(len(each) for each in outbox._pieces if isinstance(each, bytes)) == outbox.memory_bytes
    pytest.fail("it does not end")


SIZES = st.one_of(
    st.integers(0, 100),
    st.integers(COPIED_RANGE_BYTES_MAX - 2, COPIED_RANGE_BYTES_MAX + 2),
    st.integers(0, 300_000),
)


@given(
    kinds=st.lists(st.tuples(st.booleans(), SIZES), max_size=12),
    rooms=st.lists(st.sampled_from([0, 1, 100, 5000, 65_536, 10**9]), min_size=1, max_size=8).filter(any),
    rest=st.integers(0, 12),
)
def test_everything_arrives_in_order_wherever_the_socket_is_full(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[bool, int]], rooms: list[int], rest: int
) -> None:
    file = file_of(tmp_path_factory.getbasetemp(), CONTENT)
    random = Random(2)
    if min(room for room in rooms if room) < 5000:
        kinds = [(is_file, size % 2000 if not is_file else size % 70_000) for is_file, size in kinds]
        rooms = [room if room > 100 else room * 50 for room in rooms]
    pieces: list[Piece] = [
        FileRange(file, random.randrange(MIB - size), size) if is_file else CONTENT[:size] for is_file, size in kinds
    ]
    outbox, narrow = Outbox(), NarrowSocket(rooms)
    outbox.add(pieces[:rest])
    outbox.send(narrow)
    outbox.add(pieces[rest:])
    send_all(outbox, narrow)
    assert content_of(pieces) == bytes(narrow.received)
    # What says that more comes is never the last.
    assert [False] == narrow.flags[-1:] or not narrow.flags


def test_byte_by_byte(file: File) -> None:
    pieces: list[Piece] = [b"head", FileRange(file, 10, 300), b"", b"mid", FileRange(file, 5, 70_000), b"tail"]
    outbox, narrow = Outbox(), NarrowSocket([1, 0, 997])
    outbox.add(pieces)
    assert (4 + 300 + 3 + 70_000 + 4, 11, 5) == (outbox.bytes_waiting, outbox.memory_bytes, len(outbox))
    send_all(outbox, narrow)
    assert content_of(pieces) == bytes(narrow.received)


def test_small_pieces_are_gathered_and_large_ranges_announced(file: File) -> None:
    outbox, narrow = Outbox(), NarrowSocket([10**9])
    outbox.add([b"a" * 10, FileRange(file, 0, COPIED_RANGE_BYTES_MAX), b"b" * 10])
    outbox.send(narrow)
    assert [False] == narrow.flags
    outbox.add([b"head", FileRange(file, 0, COPIED_RANGE_BYTES_MAX + 1)])
    outbox.send(narrow)
    assert [False, True, False] == narrow.flags


def test_a_gathered_send_has_its_limit() -> None:
    outbox, narrow = Outbox(), NarrowSocket([10**9])
    outbox.add([b"x" * 1000] * (GATHERED_BYTES_MAX // 1000 + 100))
    outbox.send(narrow)
    assert [True, False] == narrow.flags


def test_one_call_does_not_take_the_event_loop_for_itself(file: File) -> None:
    outbox, narrow = Outbox(), NarrowSocket([10**9])
    outbox.add([FileRange(file, 0, MIB)] * 20)
    assert SENT_PER_TURN_BYTES_MAX == outbox.send(narrow)
    assert 20 * MIB - SENT_PER_TURN_BYTES_MAX == outbox.bytes_waiting


@pytest.mark.parametrize("size", [1000, COPIED_RANGE_BYTES_MAX, 200_000])
async def test_a_real_socket_that_is_full_in_every_kind(file: File, size: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    near = NearSocket(ours)
    try:
        pieces: list[Piece] = [b"h" * 100, FileRange(file, 3, size), b"m" * 200_000, FileRange(file, 0, size)] * 3
        outbox = Outbox()
        outbox.add(pieces)
        received = bytearray()
        was_full = 0
        while outbox.bytes_waiting:
            was_full += 0 == outbox.send(near)
            received += theirs.recv(3000)
        theirs.setblocking(False)
        while len(received) < len(content_of(pieces)):
            received += theirs.recv(1 << 20)
        assert content_of(pieces) == bytes(received)
        assert was_full > 0
    finally:
        near.close()
        theirs.close()


class NearSocket(RealSocket):
    """A real socket without TCP's options."""

    def __init__(self, connected: socket.socket) -> None:
        import asyncio

        connected.setblocking(False)
        self._socket = connected
        self._descriptor = connected.fileno()
        self._loop = asyncio.get_running_loop()
        self._peer = "near"


@pytest.mark.parametrize("size", [COPIED_RANGE_BYTES_MAX, 200_000])
async def test_a_file_shorter_than_promised(tmp_path: Path, size: int) -> None:
    short = file_of(tmp_path, b"x" * 1000, "short")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    near = NearSocket(ours)
    outbox = Outbox()
    outbox.add([FileRange(short, 1000, size)])
    with pytest.raises(OSError, match="ends before"):
        outbox.send(near)
    near.close()
    theirs.close()
