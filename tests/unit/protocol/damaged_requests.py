"""Damaged requests, read by kio and without it: both say the same, or both refuse."""

from collections.abc import Callable

from hypothesis import strategies as st
from kio.serial.errors import SerialError


def check_damage(
    data: st.DataObject, body: bytes, *, by_kio: Callable[[bytes], object], by_us: Callable[[bytes], object]
) -> None:
    """Changes up to three bytes of a request, and lets both read it."""
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    expected: object
    try:
        expected = by_kio(bytes(damaged))
    except (SerialError, ValueError, OverflowError, EOFError):
        expected = None
    found: object
    try:
        found = by_us(bytes(damaged))
    except ValueError:
        found = None
    assert expected == found
