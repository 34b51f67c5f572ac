"""Spoils a frame a little, in ways that parsers get wrong: bits, cuts, doubles, insertions, counts that lie."""

from collections.abc import Callable
from random import Random
from struct import pack
from typing import Final

LENGTH_BYTES: Final = 4
HEADER_BYTES: Final = 14
"""Key, version, correlation id and a short client id: faults here are found at once, and hide those behind them."""
NASTY: Final = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x0f\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\xc3\x28",
)
"""Numbers at the ends of their ranges, counts that promise millions, varints that do not end, text that is none."""


def mutated(frame: bytes, random: Random) -> bytes:
    """The frame with one to four faults; mostly its length is made right again, or nobody would look further."""
    header = bytearray(frame[LENGTH_BYTES : LENGTH_BYTES + HEADER_BYTES])
    body = bytearray(frame[LENGTH_BYTES + HEADER_BYTES :])
    for _ in range(random.randint(1, 4)):
        random.choice(_FAULTS)(header if random.random() < 0.1 else body, random)
    content = header + body
    if random.random() < 0.05:
        return pack(">i", random.choice((-1, 0, 3, 2**31 - 1, len(content) + 1))) + content
    return pack(">i", len(content)) + content


def _flip(content: bytearray, random: Random) -> None:
    if content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _overwrite(content: bytearray, random: Random) -> None:
    at, nasty = random.randrange(len(content) + 1), random.choice(NASTY)
    content[at : at + len(nasty)] = nasty


def _insert(content: bytearray, random: Random) -> None:
    at = random.randrange(len(content) + 1)
    content[at:at] = random.choice((random.choice(NASTY), random.randbytes(random.randint(1, 20))))


def _remove(content: bytearray, random: Random) -> None:
    at = random.randrange(len(content) + 1)
    del content[at : at + random.randint(1, 8)]


def _cut(content: bytearray, random: Random) -> None:
    del content[random.randrange(len(content) + 1) :]


def _double(content: bytearray, random: Random) -> None:
    start = random.randrange(len(content) + 1)
    end = min(len(content), start + random.randint(1, 64))
    content[end:end] = bytes(content[start:end]) * random.choice((1, 1, 2, 50))


_FAULTS: Final[tuple[Callable[[bytearray, Random], None], ...]] = (_flip, _overwrite, _insert, _remove, _cut, _double)
