"""The end of the broker in the middle of what a group does: members and offsets are as they were written, no more.

As in `test_coordinator_crashes.py` the broker's files are copied at a chosen write, and a new broker opens the copy. An
answer that was not sent counts for nothing: the member asks again. What a member was told is true afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from tests.crash.doomed_broker import DoomedBroker
from tests.crash.group_client import ClassicMember, ServerSideMember
from tests.crash.places import commit_offsets, committed_offsets, fetch_offsets
from tests.crash.transaction_client import GROUP_KEY, find_coordinator
from tests.crash.watched_disk import Point, classic_group, offsets, server_side_group
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic

GROUP: Final = "readers"
TOPIC: Final = "data"
PARTITIONS: Final = 2
FLUSHED: Final = {"log.flush.interval.messages": "1"}


@contextmanager
def opened(data: Path, settings: dict[str, str] | None = None) -> Iterator[DoomedBroker]:
    """A broker on these files, once it has read its groups."""
    with DoomedBroker(data, settings=settings) as broker:
        wait_until(lambda: is_loaded(broker.address), "groups are loaded")
        yield broker


def is_loaded(address: str) -> bool:
    code: ErrorCode = fetch_offsets(address, GROUP, TOPIC, [0]).error_code
    return code is not ErrorCode.coordinator_load_in_progress


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[DoomedBroker]:
    """The one that is to end; it has a topic."""
    with DoomedBroker(tmp_path / "data") as broker:
        make_topic(broker.address)
        yield broker


def make_topic(address: str) -> None:
    with RawConnection(address) as connection:
        create_topic(connection, TOPIC, PARTITIONS)
        find_coordinator(connection, GROUP_KEY, GROUP)


# Offsets


@pytest.mark.parametrize("is_after", [False, True], ids=["before the write", "after it"])
def test_an_offset_commit_without_an_answer(doomed: DoomedBroker, is_after: bool) -> None:
    """Written is committed, though nobody was told; the client asks again, and it is the same."""
    commit_offsets(doomed.address, GROUP, TOPIC, {0: 3})
    doomed.watch({"commit": Point(sees=offsets, is_after=is_after)})
    commit_offsets(doomed.address, GROUP, TOPIC, {0: 5, 1: 7})
    with opened(doomed.left_at("commit")) as after:
        assert ([5, 7] if is_after else [3, -1]) == committed_offsets(after.address, GROUP, TOPIC, PARTITIONS)
        commit_offsets(after.address, GROUP, TOPIC, {0: 5, 1: 7})
        assert [5, 7] == committed_offsets(after.address, GROUP, TOPIC, PARTITIONS)
        left = after.kill()
    with opened(left) as again:
        assert [5, 7] == committed_offsets(again.address, GROUP, TOPIC, PARTITIONS)


@pytest.mark.parametrize("settings", [{}, FLUSHED], ids=["as it comes", "flushed"])
def test_what_a_power_cut_takes_of_offsets(tmp_path: Path, settings: dict[str, str]) -> None:
    """What was answered is safe if every append is flushed, and only then."""
    with DoomedBroker(tmp_path / "data", settings=settings) as broker:
        make_topic(broker.address)
        commit_offsets(broker.address, GROUP, TOPIC, {0: 3})
        broker.watch({"commit": Point(sees=offsets, loses_unsynced=True)})
        commit_offsets(broker.address, GROUP, TOPIC, {0: 5})
        unanswered, answered = broker.left_at("commit"), broker.kill("answered", loses_unsynced=True)
    for left, safe in ((unanswered, 3), (answered, 5)):
        with opened(left, settings) as after:
            expected = [safe if settings else -1, -1]
            assert expected == committed_offsets(after.address, GROUP, TOPIC, PARTITIONS)


# The classic protocol


def first_generation(address: str) -> ClassicMember:
    """A member alone in its group, with its assignment."""
    alice = ClassicMember(address=address, group=GROUP)
    alice.join()
    assert (ErrorCode.none, b"all") == alice.sync({alice.member_id: b"all"})
    assert ErrorCode.none is alice.commit(TOPIC, 0, 4)
    return alice


def second_join(alice: ClassicMember) -> ClassicMember:
    """Another comes, and the first joins again: both are in the next generation, and none has an assignment."""
    bob = ClassicMember(address=alice.address, group=GROUP)
    bob.begin_join()
    wait_until(lambda: alice.heartbeat() is ErrorCode.rebalance_in_progress, "the rebalance has begun")
    assert alice.member_id == alice.join().leader
    assert {alice.generation} == {bob.end_join().generation_id}
    return bob


def moved_to(address: str, *members: ClassicMember) -> list[ClassicMember]:
    return [replace(member, address=address) for member in members]


def check_first_generation(address: str, alice: ClassicMember, bob: ClassicMember) -> None:
    """The group is in its first generation, as if the second had never begun; and it can begin anew."""
    alice, bob = moved_to(address, alice, bob)
    assert ErrorCode.none is alice.heartbeat(1)
    assert ErrorCode.illegal_generation is alice.heartbeat()
    assert (ErrorCode.illegal_generation, b"") == alice.sync({alice.member_id: b"half", bob.member_id: b"half"})
    assert ErrorCode.unknown_member_id is bob.heartbeat()
    assert (ErrorCode.unknown_member_id, b"") == bob.sync()
    assert (ErrorCode.none, b"all") == replace(alice, generation=1).sync()
    assert [4, -1] == committed_offsets(address, GROUP, TOPIC, PARTITIONS)
    check_rebalance(replace(alice, generation=1))


def check_rebalance(alice: ClassicMember) -> None:
    """A new member comes, and both get their shares."""
    bob = second_join(alice)
    shares = {alice.member_id: b"one", bob.member_id: b"other"}
    assert (ErrorCode.none, b"one") == alice.sync(shares)
    assert (ErrorCode.none, b"other") == bob.sync()


def test_killed_when_the_first_member_has_joined(doomed: DoomedBroker) -> None:
    """Nothing was written, so that nobody is known."""
    alice = ClassicMember(address=doomed.address, group=GROUP)
    alice.join()
    with opened(doomed.kill()) as after:
        (alice,) = moved_to(after.address, alice)
        assert ErrorCode.unknown_member_id is alice.heartbeat()
        assert (ErrorCode.unknown_member_id, b"") == alice.sync({alice.member_id: b"all"})
        again = first_generation(after.address)
        assert 1 == again.generation
        check_rebalance(again)


def test_killed_when_all_have_joined_and_none_is_synced(doomed: DoomedBroker) -> None:
    alice = first_generation(doomed.address)
    bob = second_join(alice)
    with opened(doomed.kill()) as after:
        check_first_generation(after.address, alice, bob)


@pytest.mark.parametrize("is_after", [False, True], ids=["before the write", "after it"])
def test_killed_while_the_leaders_assignment_is_written(doomed: DoomedBroker, is_after: bool) -> None:
    """Once it is written it is true for all, though nobody had an answer."""
    alice = first_generation(doomed.address)
    bob = second_join(alice)
    doomed.watch({"sync": Point(sees=classic_group, is_after=is_after)})
    shares = {alice.member_id: b"one", bob.member_id: b"other"}
    assert (ErrorCode.none, b"one") == alice.sync(shares)
    with opened(doomed.left_at("sync")) as after:
        if not is_after:
            check_first_generation(after.address, alice, bob)
            return
        alice, bob = moved_to(after.address, alice, bob)
        assert (ErrorCode.none, b"other") == bob.sync()
        # The leader may have thought again: what was written counts.
        assert (ErrorCode.none, b"one") == alice.sync({alice.member_id: b"another", bob.member_id: b"another"})
        assert [ErrorCode.none] * 2 == [alice.heartbeat(), bob.heartbeat()]
        assert ErrorCode.illegal_generation is bob.heartbeat(bob.generation - 1)
        assert ErrorCode.none is bob.commit(TOPIC, 1, 9)
        assert [4, 9] == committed_offsets(after.address, GROUP, TOPIC, PARTITIONS)


# The server-side protocol


def server_side(address: str, name: str) -> ServerSideMember:
    with RawConnection(address) as connection:
        (topic,) = connection.ask(3, 12, {"topics": [{"topic_id": None, "name": TOPIC}]}).topics
    return ServerSideMember(address=address, group=GROUP, topic=TOPIC, topic_id=topic.topic_id, member_id=name)


def settle(*members: ServerSideMember) -> None:
    """Beats until each has what it may have, and each partition has its one owner."""
    for _ in range(10):
        for member in members:
            given = member.beat()
            member.owned = member.owned if given is None else given
            owned = [index for each in members for index in each.owned]
            assert len(set(owned)) == len(owned), "two members own the same partition"
        if {member.epoch for member in members} == {members[0].epoch} and len(owned) == PARTITIONS:
            return
    pytest.fail(f"the members do not agree: {members}")


@pytest.mark.parametrize("is_after", [False, True], ids=["before the write", "after it"])
def test_killed_while_a_member_comes(doomed: DoomedBroker, is_after: bool) -> None:
    """It had no answer, comes again under the same name, and is one member."""
    doomed.watch({"join": Point(sees=server_side_group, is_after=is_after)})
    alice = server_side(doomed.address, "alice")
    settle(replace(alice))
    with opened(doomed.left_at("join")) as after:
        alice = replace(alice, address=after.address)
        settle(alice)
        assert (0, 1) == alice.owned
        bob = server_side(after.address, "bob")
        settle(alice, bob)
        assert [1, 1] == [len(alice.owned), len(bob.owned)]


def begin_handover(address: str) -> tuple[ServerSideMember, ServerSideMember]:
    """The first has all, the second has come and waits; the first is told to give one up, and has not yet."""
    alice, bob = server_side(address, "alice"), server_side(address, "bob")
    settle(alice)
    assert () == (bob.beat() or ())
    kept = alice.beat()
    assert kept is not None
    assert 1 == len(kept)
    return alice, bob


def test_killed_before_a_partition_is_given_up(doomed: DoomedBroker) -> None:
    """The new owner waits for the old one, whoever coordinates."""
    alice, bob = begin_handover(doomed.address)
    with opened(doomed.kill()) as after:
        alice, bob = replace(alice, address=after.address), replace(bob, address=after.address)
        assert () == (bob.beat() or ())
        settle(alice, bob)
        assert [1, 1] == [len(alice.owned), len(bob.owned)]


@pytest.mark.parametrize("is_after", [False, True], ids=["before the write", "after it"])
def test_killed_while_a_partition_is_given_up(doomed: DoomedBroker, is_after: bool) -> None:
    """The member says again what it has given up, in the epoch that it knows."""
    alice, bob = begin_handover(doomed.address)
    kept = alice.beat()
    alice.owned = kept if kept is not None else alice.owned[:1]
    doomed.watch({"given up": Point(sees=server_side_group, is_after=is_after)})
    before = replace(alice)
    alice.beat()
    with opened(doomed.left_at("given up")) as after:
        alice, bob = replace(before, address=after.address), replace(bob, address=after.address)
        settle(alice, bob)
        assert [1, 1] == [len(alice.owned), len(bob.owned)]


@pytest.mark.parametrize("kind", ["classic", "server-side"])
def test_a_killed_broker_forgets_no_member(doomed: DoomedBroker, kind: str) -> None:
    """A group at rest is at rest afterwards: nobody has to join again."""
    if kind == "classic":
        alice = first_generation(doomed.address)
        with opened(doomed.kill()) as after:
            (alice,) = moved_to(after.address, alice)
            assert ErrorCode.none is alice.heartbeat()
            assert ErrorCode.none is alice.commit(TOPIC, 0, 6)
            assert [6, -1] == committed_offsets(after.address, GROUP, TOPIC, PARTITIONS)
        return
    member = server_side(doomed.address, "alice")
    settle(member)
    with opened(doomed.kill()) as after:
        epoch = member.epoch
        member.address = after.address
        settle(member)
        assert (epoch, (0, 1)) == (member.epoch, member.owned)
