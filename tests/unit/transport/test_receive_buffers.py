"""The lending of receive buffers by itself: sizes, the bound, waiting, and what happens when all wait."""

from functools import partial

from ottla.transport.receive_buffers import SMALL_BYTES, ReceiveBuffers

MIB = 1024 * 1024


HOST = "10.0.0.1"


def pool(bytes_max: int) -> ReceiveBuffers:
    """With a bound for all, and none for a single address."""
    buffers = ReceiveBuffers(bytes_max)
    buffers.host_bytes_max = bytes_max
    return buffers


def lent(buffers: ReceiveBuffers, size: int, held_bytes: int = 0, host: str = HOST) -> bytearray:
    made = buffers.lend(size, host, held_bytes=held_bytes)
    assert made is not None
    return made


def test_sizes_are_rounded_up_and_small_ones_do_not_count() -> None:
    buffers = pool(10 * MIB)
    sizes = [1, SMALL_BYTES, SMALL_BYTES + 1, 2 * SMALL_BYTES, 300_000, MIB + 1]
    assert [SMALL_BYTES, SMALL_BYTES, 2 * SMALL_BYTES, 2 * SMALL_BYTES, 512 * 1024, 2 * MIB] == [
        len(lent(buffers, size)) for size in sizes
    ]
    assert 4 * SMALL_BYTES + 512 * 1024 + 2 * MIB == buffers.lent_bytes


def test_the_bound_holds_and_who_waits_is_called_once() -> None:
    buffers = pool(2 * MIB)
    calls: list[str] = []
    first, second = lent(buffers, MIB), lent(buffers, MIB)
    assert buffers.lend(MIB, HOST) is None
    assert buffers.lend(SMALL_BYTES + 1, HOST) is None
    buffers.when_free(lambda: calls.append("a"), HOST)
    buffers.when_free(lambda: calls.append("b"), HOST)
    buffers.give_back(lent(buffers, SMALL_BYTES), HOST)
    assert [] == calls
    buffers.give_back(first, HOST)
    assert ["a", "b"] == calls
    buffers.forget(second, HOST)
    assert ["a", "b"] == calls
    assert 0 == buffers.lent_bytes


def test_what_is_given_back_is_lent_again_and_what_is_forgotten_is_not() -> None:
    buffers = pool(8 * MIB)
    kept, forgotten = lent(buffers, MIB), lent(buffers, MIB)
    buffers.give_back(kept, HOST)
    buffers.forget(forgotten, HOST)
    again = [lent(buffers, MIB) for _ in range(2)]
    assert again[0] is kept
    assert again[1] is not forgotten


def test_not_more_than_some_is_kept() -> None:
    buffers = pool(1024 * MIB)
    for buffer in [lent(buffers, 4 * MIB) for _ in range(20)]:
        buffers.give_back(buffer, HOST)
    assert 16 * MIB == sum(len(each) for free in buffers._free.values() for each in free) == buffers._kept_bytes


def test_one_larger_than_the_bound_goes_alone() -> None:
    buffers = pool(MIB)
    large = lent(buffers, 5 * MIB)
    assert buffers.lend(MIB, HOST) is None
    buffers.give_back(large, HOST)
    assert MIB == len(lent(buffers, MIB))


def test_one_that_exchanges_does_not_count_twice() -> None:
    buffers = pool(2 * MIB)
    held = lent(buffers, MIB)
    larger = lent(buffers, 2 * MIB, held_bytes=MIB)
    buffers.give_back(held, HOST)
    assert 2 * MIB == buffers.lent_bytes == len(larger)


def test_when_all_wait_one_goes_beyond_the_bound() -> None:
    buffers = pool(3 * MIB)
    woken: list[int] = []
    held = [lent(buffers, MIB) for _ in range(3)]
    for at in (0, 1):
        assert buffers.lend(2 * MIB, HOST, held_bytes=MIB) is None
        buffers.when_free(partial(woken.append, at), HOST, held_bytes=MIB)
    larger = lent(buffers, 2 * MIB, held_bytes=MIB)
    # One is enough: the next waits for it.
    assert buffers.lend(2 * MIB, HOST, held_bytes=MIB) is None
    buffers.give_back(held[2], HOST)
    assert [0, 1] == woken
    buffers.give_back(larger, HOST)
    assert 2 * MIB == buffers.lent_bytes
    # Those who were woken do not wait any more, so that the bound holds again.
    assert buffers.lend(3 * MIB, HOST) is None


def test_one_address_holds_its_share_and_no_more() -> None:
    buffers = ReceiveBuffers(8 * MIB)
    assert 2 * MIB == buffers.host_bytes_max
    held = [lent(buffers, MIB) for _ in range(2)]
    assert buffers.lend(SMALL_BYTES + 1, HOST) is None
    woken: list[str] = []
    buffers.when_free(lambda: woken.append("same address"), HOST)
    other = lent(buffers, MIB, host="10.0.0.2")
    assert [(HOST, 2 * MIB), ("10.0.0.2", MIB)] == buffers.largest_hosts(5)
    buffers.give_back(held[0], HOST)
    assert ["same address"] == woken
    assert MIB == len(lent(buffers, MIB))
    buffers.give_back(other, "10.0.0.2")
    assert [(HOST, 2 * MIB)] == buffers.largest_hosts(5)


def test_when_all_of_an_address_wait_one_goes_beyond_its_share() -> None:
    buffers = ReceiveBuffers(8 * MIB)
    for _ in range(2):
        lent(buffers, MIB)
    other = lent(buffers, 2 * MIB, host="10.0.0.2")
    assert buffers.lend(2 * MIB, HOST, held_bytes=MIB) is None
    buffers.when_free(lambda: None, HOST, held_bytes=MIB)
    # The other address holds memory and does not wait: that must not keep this one from finishing.
    assert 2 * MIB == len(lent(buffers, 2 * MIB, held_bytes=MIB))
    assert 2 * MIB == len(other)
