"""Unsigned varints as the protocol's flexible versions count with: seven bits to a byte, the lowest first."""


def unsigned_varint(value: int) -> bytes:
    """A number that is not negative."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
