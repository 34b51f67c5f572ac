"""As much of an AMQP 0-9-1 client as the race needs, and as little work per message as possible.

A client library of Python would be the limit long before RabbitMQ is. So messages are sent as bytes that were joined
before, many in one call, and what arrives is kept with the time of its arrival and looked at afterwards.
"""

import socket
import time
from collections.abc import Iterator, Sequence
from struct import Struct
from types import TracebackType
from typing import Final, Self

from benchmarks.queue_race.rival import MARK

METHOD, HEADER, BODY = 1, 2, 3
FRAME: Final = Struct(">BHI")
FRAME_END: Final = b"\xce"
METHOD_ID: Final = Struct(">HH")
ACK: Final = Struct(">QB")
CHANNEL: Final = 1
TIMEOUT_S: Final = 120.0
PERSISTENT: Final = b"\x02"
DELIVERY_MODE_AND_EXPIRATION: Final = 1 << 12 | 1 << 8

START, START_OK = (10, 10), (10, 11)
TUNE, TUNE_OK = (10, 30), (10, 31)
OPEN, OPEN_OK = (10, 40), (10, 41)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
PUBLISH, ACKED = (60, 40), (60, 80)
CONSUME, CONSUME_OK = (60, 20), (60, 21)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)


class AmqpConnection:
    """One connection with one channel, as user guest."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        self._sent = 0
        self._confirmed = 0
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._wait(START)
        self._call(0, START_OK, _table({}) + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US"))
        tune = self._wait(TUNE)
        self._call(0, TUNE_OK, tune[:6] + b"\0\0")
        self._ask(0, OPEN, _short("/") + b"\0\0", OPEN_OK)
        self._ask(CHANNEL, CHANNEL_OPEN, b"\0", CHANNEL_OPEN_OK)
        self._ask(CHANNEL, CONFIRM_SELECT, b"\0", CONFIRM_SELECT_OK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def declare(self, queue: str, dead_letters_to: str | None = None) -> None:
        """A durable queue; messages that expire in it go to another one."""
        arguments = (
            {}
            if dead_letters_to is None
            else {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letters_to}
        )
        self._ask(CHANNEL, DECLARE, b"\0\0" + _short(queue) + b"\x02" + _table(arguments), DECLARE_OK)

    def publish(self, queue: str, bodies: Sequence[bytes], delays_ms: Sequence[int], outstanding_max: int) -> None:
        """Sends persistent messages with a TTL each; at most `outstanding_max` are unconfirmed when it returns."""
        publish = _frame(METHOD, METHOD_ID.pack(*PUBLISH) + b"\0\0" + _short("") + _short(queue) + b"\0")
        parts: list[bytes] = []
        for body, delay in zip(bodies, delays_ms, strict=True):
            properties = DELIVERY_MODE_AND_EXPIRATION.to_bytes(2, "big") + PERSISTENT + _short(str(delay))
            header = b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + properties
            parts += (publish, _frame(HEADER, header), _frame(BODY, body))
        self._socket.sendall(b"".join(parts))
        self._sent += len(bodies)
        self.wait_confirmed(outstanding_max)

    def wait_confirmed(self, outstanding_max: int = 0) -> None:
        """Returns when at most `outstanding_max` messages are unconfirmed."""
        while self._sent - self._confirmed > outstanding_max:
            kind, payload = self._next_frame()
            if kind == METHOD and METHOD_ID.unpack_from(payload) == ACKED:
                tag, is_multiple = ACK.unpack_from(payload, 4)
                self._confirmed = tag if is_multiple else self._confirmed + 1

    def consume(self, queue: str) -> None:
        """Messages come from now on, without acknowledgement."""
        arguments = b"\0\0" + _short(queue) + _short("") + b"\x02" + _table({})
        self._ask(CHANNEL, CONSUME, arguments, CONSUME_OK)

    def receive(self, count: int) -> list[tuple[bytes, float]]:
        """The bodies of the next messages, and when they arrived."""
        bodies = self._bodies([(b"", time.time())])
        # Every body begins with the mark, which a chunk may cut.
        seen, end = len(bodies) + self._left.count(MARK), self._left[1 - len(MARK) :]
        chunks: list[tuple[bytes, float]] = []
        while seen < count:
            chunks.append(self._chunk())
            end += chunks[-1][0]
            seen += end.count(MARK)
            end = end[1 - len(MARK) :]
        bodies += self._bodies(chunks)
        while len(bodies) < count:
            bodies += self._bodies([self._chunk()])
        return bodies

    def _chunk(self) -> tuple[bytes, float]:
        chunk = self._socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError("RabbitMQ closed the connection")
        return chunk, time.time()

    def _bodies(self, chunks: list[tuple[bytes, float]]) -> list[tuple[bytes, float]]:
        bodies = []
        data = self._left
        for chunk, arrived in chunks:
            data += chunk
            at = 0
            for kind, payload, end in _split(data):
                at = end
                if kind == BODY:
                    bodies.append((payload, arrived))
            data = data[at:]
        self._left = data
        return bodies

    def _ask(self, channel: int, method: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> bytes:
        self._call(channel, method, arguments)
        return self._wait(answer)

    def _call(self, channel: int, method: tuple[int, int], arguments: bytes) -> None:
        self._socket.sendall(_frame(METHOD, METHOD_ID.pack(*method) + arguments, channel))

    def _wait(self, method: tuple[int, int]) -> bytes:
        """The arguments of the next method, which must be this one."""
        kind, payload = self._next_frame()
        if kind != METHOD or METHOD_ID.unpack_from(payload) != method:
            raise ConnectionError(f"RabbitMQ sent another frame than {method}: {payload[:200]!r}")
        return payload[4:]

    def _next_frame(self) -> tuple[int, bytes]:
        while True:
            for kind, payload, end in _split(self._left):
                self._left = self._left[end:]
                return kind, payload
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("RabbitMQ closed the connection")
            self._left += chunk


def _split(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """The whole frames: kind, payload and end."""
    at = 0
    while len(data) - at >= FRAME.size:
        kind, _, size = FRAME.unpack_from(data, at)
        end = at + FRAME.size + size + 1
        if end > len(data):
            return
        yield kind, data[at + FRAME.size : end - 1], end
        at = end


def _frame(kind: int, payload: bytes, channel: int = CHANNEL) -> bytes:
    return FRAME.pack(kind, channel, len(payload)) + payload + FRAME_END


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data


def _long(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _table(values: dict[str, str]) -> bytes:
    return _long(b"".join(_short(name) + b"S" + _long(value.encode()) for name, value in values.items()))
