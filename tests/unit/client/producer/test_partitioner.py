"""The partitioner agrees with Java's client; its hashes are those of Kafka's own tests."""

import pytest

from ottla.client.producer.partitioner import StickyChoice, murmur2, partition_for_key
from ottla.sim.random import SimRandom


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert expected & 0xFFFFFFFF == murmur2(key)


def test_a_negative_hash_is_made_positive_by_dropping_its_sign() -> None:
    assert (-973932308 & 0x7FFFFFFF) % 7 == partition_for_key(b"21", 7)


def test_sticky_stays_until_told_and_then_goes_elsewhere() -> None:
    sticky = StickyChoice(3, SimRandom(7))
    seen = set()
    for _ in range(50):
        before = sticky.current
        assert before == sticky.current
        sticky.move_on()
        assert before != sticky.current
        seen.add(sticky.current)
    assert {0, 1, 2} == seen


def test_sticky_with_one_partition_has_no_choice() -> None:
    sticky = StickyChoice(1, SimRandom(7))
    sticky.move_on()
    assert 0 == sticky.current
