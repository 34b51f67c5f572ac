"""Memory that is handed out without being cleared, and used again."""

import pytest

from ottla.model.errors import MisuseError
from ottla.records.packed_buffer import uninitialized

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 1000, MIB, 40 * MIB])
def test_so_many_bytes_that_can_be_written(size: int) -> None:
    buffer = uninitialized(size)
    view = memoryview(buffer)
    assert (size, size, False) == (len(buffer), len(view), view.readonly)
    view[:] = bytes(size)
    assert 0 == sum(view[-1000:])


def test_fewer_than_none_are_refused() -> None:
    with pytest.raises(MisuseError, match="-1 bytes make no sense"):
        uninitialized(-1)


def test_memory_in_use_is_never_handed_out_again() -> None:
    held: list[memoryview] = []
    for number in range(200):
        view = memoryview(uninitialized(MIB // 2 + 1000 * number))
        view[:] = bytes([number]) * len(view)
        held.append(view)
        if number % 3:
            del held[number // 3]
    assert [len(view) for view in held] == [view.tobytes().count(view[0]) for view in held]


def test_what_was_given_back_last_is_there_for_what_is_nearly_its_size() -> None:
    # Many of another size first: what is kept must follow what is needed.
    several = [uninitialized(2 * MIB) for _ in range(40)]
    del several
    for size in (5 * MIB, 5 * MIB + 1000, 5 * MIB - 50_000):
        view = memoryview(uninitialized(size))
        view[: len(MARK)] = MARK
        del view
        assert MARK == memoryview(uninitialized(size + 500))[: len(MARK)]


MARK = b"used before, and nobody cleared it"
