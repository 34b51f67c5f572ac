"""Admission, case by case: so much in a round, so much in all, one is always let in, who waits keeps its place."""

import asyncio

import pytest

from ottla.broker.requests.admission import HELD_BYTES_MAX, ROUND_BYTES_MAX, ROUND_SECONDS_MAX, Admission
from ottla.env.real_clock import RealClock

API = 3
OFFSET_COMMIT = 8
JOIN_GROUP = 11
SYNC_GROUP = 14


class StillClock(RealClock):
    """Time passes only if a test says so."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def never() -> None:
    pytest.fail("nobody waits here")


async def test_a_round_has_its_measure() -> None:
    admission = Admission(StillClock())
    assert admission.admit(API, ROUND_BYTES_MAX - 1, never)
    assert admission.admit(API, 1, never)
    resumed: list[int] = []
    assert not admission.admit(API, 1, lambda: resumed.append(1))
    assert [] == resumed
    await asyncio.sleep(0)
    assert [1] == resumed
    assert admission.admit(API, 1, never)


async def test_commits_of_many_offsets_cost_a_part_of_their_size() -> None:
    """Fifty offsets each: a round takes those of sixteen connections, and small ones as any other request."""
    admission = Admission(StillClock())
    for _ in range(16):
        assert admission.admit(OFFSET_COMMIT, 1100, never)
    await asyncio.sleep(0)
    for _ in range(ROUND_BYTES_MAX // 100):
        assert admission.admit(OFFSET_COMMIT, 100, never)
    resumed: list[int] = []
    assert not admission.admit(OFFSET_COMMIT, 100, lambda: resumed.append(1))
    await asyncio.sleep(0)
    assert [1] == resumed


async def test_the_assignments_of_a_leader_cost_a_part_of_their_size() -> None:
    """Fifty members: a round takes the leader's request and those of all others."""
    admission = Admission(StillClock())
    assert admission.admit(SYNC_GROUP, 5500, never)
    for _ in range(49):
        assert admission.admit(SYNC_GROUP, 130, never)


async def test_one_request_is_let_in_whatever_its_size() -> None:
    admission = Admission(StillClock())
    assert admission.admit(API, 2 * HELD_BYTES_MAX, never)
    admission.release(API, 2 * HELD_BYTES_MAX)
    await asyncio.sleep(0)
    assert admission.admit(API, 2 * HELD_BYTES_MAX, never)


async def test_what_is_not_answered_is_bounded() -> None:
    admission = Admission(StillClock())
    assert admission.admit(API, HELD_BYTES_MAX, never)
    await asyncio.sleep(0)
    resumed: list[int] = []
    assert not admission.admit(API, 1, lambda: resumed.append(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert [] == resumed
    admission.release(API, HELD_BYTES_MAX)
    await asyncio.sleep(0)
    assert [1] == resumed


async def test_a_full_round_refuses_one_of_those_that_wait_not_all() -> None:
    admission = Admission(StillClock())
    size = ROUND_BYTES_MAX // 4 - 1
    served: list[int] = []
    offered: list[int] = []

    def want(name: int) -> None:
        offered.append(name)
        if admission.admit(API, size, lambda: want(name)):
            served.append(name)
            admission.release(API, size)

    for name in range(40):
        want(name)
    offered.clear()
    for rounds in range(2, 11):
        await asyncio.sleep(0)
        assert list(range(4 * rounds)) == served
    # Thirty-six wait for nine rounds; each but the last has offered one more request than it served.
    assert 36 + 8 == len(offered)


async def test_a_connection_that_was_served_waits_behind_the_others() -> None:
    admission = Admission(StillClock())
    served: list[str] = []
    wishes = {"a": 3, "b": 1, "c": 1}

    def want(name: str) -> None:
        while wishes[name]:
            if not admission.admit(API, ROUND_BYTES_MAX - 1, lambda: want(name)):
                return
            wishes[name] -= 1
            served.append(name)
            admission.release(API, ROUND_BYTES_MAX - 1)

    for name in wishes:
        want(name)
    for _ in range(5):
        await asyncio.sleep(0)
    # First all that it may, then behind those that came meanwhile.
    assert ["a", "a", "b", "c", "a"] == served


async def test_who_waits_keeps_its_place() -> None:
    admission = Admission(StillClock())
    served: list[str] = []

    def want(name: str) -> None:
        if admission.admit(API, ROUND_BYTES_MAX, lambda: want(name)):
            served.append(name)
            admission.release(API, ROUND_BYTES_MAX)

    for name in "abcd":
        want(name)
    for expected in ("a", "ab", "abc", "abcd"):
        assert list(expected) == served
        await asyncio.sleep(0)


async def test_requests_that_wait_for_others_do_not_keep_them_out() -> None:
    admission = Admission(StillClock())
    assert admission.admit(JOIN_GROUP, 2 * HELD_BYTES_MAX, never)
    await asyncio.sleep(0)
    assert admission.admit(JOIN_GROUP, 2 * HELD_BYTES_MAX, never)
    await asyncio.sleep(0)
    assert admission.admit(API, 1, never)


async def test_after_slow_rounds_less_is_let_in_and_after_fast_ones_more() -> None:
    clock = StillClock()
    size = ROUND_BYTES_MAX // 8
    admission = Admission(clock)

    async def served_in_rounds(seconds: float, rounds: int) -> list[int]:
        """Requests of each round, each of which takes this long."""
        counts = []
        for _ in range(rounds):
            count = 0
            while admission.admit(API, size, lambda: None):
                admission.release(API, size)
                count += 1
            clock.seconds += seconds
            await asyncio.sleep(0)
            counts.append(count)
        return counts

    assert [8, 8] == await served_in_rounds(0.0, 2)
    assert [8, 4, 2, 1, 1, 1] == await served_in_rounds(2 * ROUND_SECONDS_MAX, 6)
    assert [1, 1, 1, 1, 2, 4, 8] == await served_in_rounds(0.0, 7)
