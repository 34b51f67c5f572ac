"""Frames of requests, whole ones and damaged ones, and results to answer them with, from one random generator."""

from array import array
from random import Random
from struct import pack

from ottla.protocol.results import FetchResult, ProduceResult
from ottla.protocol.scan import Endpoint
from tests.fuzz import damage

PRODUCE, FETCH = 0, 1
TEXTS = ("", "t", "topic", "é", "long" * 40)


def varint(value: int) -> bytes:
    """As the flexible versions write lengths and counts."""
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


class RequestWriter:
    """Writes the fields of one request, in the encoding of its version."""

    def __init__(self, chance: Random, *, flexible: bool) -> None:
        self._chance = chance
        self._flexible = flexible
        self.content = bytearray()

    def number(self, layout: str) -> None:
        bits = {"b": 7, "h": 15, "i": 31, "q": 63}[layout]
        value = self._chance.choice((0, 1, -1, self._chance.getrandbits(bits), -self._chance.getrandbits(bits)))
        self.content += pack(">" + layout, value)

    def sized(self, data: bytes | None, layout: str) -> None:
        """A string or records; None is null."""
        size = -1 if data is None else len(data)
        self.content += varint(size + 1) if self._flexible else pack(">" + layout, size)
        self.content += data or b""

    def text(self, *, nullable: bool = False) -> None:
        text = None if nullable and self._chance.random() < 0.5 else self._chance.choice(TEXTS).encode()
        self.sized(text, "h")

    def topic(self, *, by_id: bool) -> None:
        if by_id:
            self.content += self._chance.randbytes(16)
        else:
            self.text()

    def count(self, choices: tuple[int, ...] = (0, 1, 1, 2, 3)) -> int:
        count = self._chance.choice(choices)
        self.content += varint(count + 1) if self._flexible else pack(">i", count)
        return count

    def tags(self, *known: tuple[int, bytes]) -> None:
        """Some of the known fields, and sometimes one that nobody knows."""
        if not self._flexible:
            return
        fields = [field for field in known if self._chance.random() < 0.5]
        if self._chance.random() < 0.2:
            fields.append((self._chance.choice((7, 200)), self._chance.randbytes(self._chance.choice((0, 1, 130)))))
        self.content += varint(len(fields))
        for tag, data in fields:
            self.content += varint(tag) + varint(len(data)) + data


def produce_body(chance: Random, version: int) -> bytes:
    writer = RequestWriter(chance, flexible=version >= 9)
    writer.text(nullable=True)
    writer.number("h")
    writer.number("i")
    for _ in range(writer.count()):
        writer.topic(by_id=version >= 13)
        for _ in range(writer.count()):
            writer.number("i")
            writer.sized(chance.choice((None, b"", chance.randbytes(chance.choice((1, 61, 126, 127, 300))))), "i")
            writer.tags()
        writer.tags()
    writer.tags()
    return bytes(writer.content)


def fetch_body(chance: Random, version: int) -> bytes:
    writer = RequestWriter(chance, flexible=version >= 12)
    for layout in ("i" if version < 15 else "") + "iiib" + ("ii" if version >= 7 else ""):
        writer.number(layout)
    for _ in range(writer.count()):
        writer.topic(by_id=version >= 13)
        for _ in range(writer.count()):
            epochs = ("i" if version >= 9 else "", "i" if version >= 12 else "", "q" if version >= 5 else "")
            for layout in f"i{epochs[0]}q{epochs[1]}{epochs[2]}i":
                writer.number(layout)
            writer.tags((0, bytes(16)), (1, bytes(8)))
        writer.tags()
    if version >= 7:
        for _ in range(writer.count()):
            writer.topic(by_id=version >= 13)
            for _ in range(writer.count()):
                writer.number("i")
            writer.tags()
    if version >= 11:
        writer.text()
    writer.tags((0, b"\x03id"), (1, bytes(13)))
    return bytes(writer.content)


def request_frame(chance: Random) -> bytes:
    """One frame; its content is often damaged, its length seldom."""
    api_key, version = chance.choice(((PRODUCE, chance.randrange(15)), (FETCH, chance.randrange(20)), (18, 3), (3, 9)))
    flexible = version >= {PRODUCE: 9, FETCH: 12}.get(api_key, 3)
    body = {PRODUCE: produce_body, FETCH: fetch_body}.get(api_key, lambda chance, _: chance.randbytes(5))
    client_id = chance.choice((b"\xff\xff", b"\0\x02me"))
    head = pack(">hhi", api_key, version, chance.getrandbits(31))
    rest = client_id + (b"\0" if flexible else b"") + body(chance, version)
    if chance.random() < 0.6:
        rest = damage.damaged_bytes(chance, rest)
    length = len(head + rest) if chance.random() < 0.95 else chance.choice(damage.ODD_NUMBERS)
    return pack(">i", length) + head + rest


def arrived(chance: Random) -> "array[int]":
    """Some frames, the last perhaps cut off; in memory that ends exactly where they do."""
    data = b"".join(request_frame(chance) for _ in range(chance.choice((1, 1, 2, 3))))
    return damage.exact(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)


def endpoints(chance: Random) -> list[Endpoint]:
    count = chance.choice((0, 0, 1, 40))
    return [(number, chance.choice(TEXTS), 9092, chance.choice((None, *TEXTS))) for number in range(count)]


def produce_result(chance: Random) -> ProduceResult:
    errors = chance.choice(
        (None, [], [(1, None), (2, chance.choice(TEXTS))] * chance.choice((1, chance.randrange(100))))
    )
    leader = chance.choice((None, (1, 2), (-1, -1)))
    message = chance.choice((None, *TEXTS))
    return ProduceResult(chance.randrange(100), chance.getrandbits(40), -1, 0, errors, message, leader)


def fetch_result(chance: Random, topic: str | bytes, partition: int) -> FetchResult:
    records = chance.choice((None, b"", chance.randbytes(chance.choice((1, 126, 127, 128, 20_000)))))
    aborted = chance.choice((None, [], [(1, 2)] * chance.choice((1, chance.randrange(130)))))
    tags = chance.choice((None, (3, 4))), chance.choice((None, (1, 2)))
    return FetchResult(topic, partition, 0, 9, 9, 0, aborted, -1, records, len(records or b""), *tags)
