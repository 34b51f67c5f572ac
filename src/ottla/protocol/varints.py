"""Unsigned varints as the protocol's flexible versions count with: seven bits to a byte, the lowest first."""

from typing import Final

_SMALL: Final = [bytes((value,)) for value in range(0x80)]


def unsigned_varint(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return _SMALL[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
