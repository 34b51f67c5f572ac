"""Members join a group, share its partitions, read every record once, and leave; of one library, and of several."""

from dataclasses import dataclass

import pytest

from tests.compat.clients.catalogue import NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.group_flavours import FLAVOURS, INCREMENTAL, RANGE, Flavour, names
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    MemberState,
    Outcomes,
    check_never_shared,
    committed,
    each_once,
    leaving,
    places,
    send_round,
    side_by_side,
    wait_read,
    wait_shared,
)
from tests.compat.clients.shapes import KEEP_ALL

PARTITIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What a change of the group did to one member that stayed."""

    before: MemberState
    after: MemberState

    def interrupted(self) -> frozenset[tuple[str, int]]:
        """Partitions that it had before and behind the change, but not all the time."""
        events = self.after.events[len(self.before.events) :]
        taken = frozenset(place for event in events if event.kind != "assigned" for place in event.places)
        return taken & self.before.owned & self.after.owned


@pytest.fixture(scope="module")
def joined(client_of: ClientOf) -> Outcomes[list[Move]]:
    """Three members come one by one, and one goes again; what each change did to those who stayed."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> list[Move]:
        group = topic = f"joined-{flavour.name}"
        client = client_of(flavour.client)
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        moves: list[Move] = []
        before: list[MemberState] = []
        with leaving([]) as members:
            for count in (1, 2, 3):
                members.append(Member(client, flavour, group, topics=[topic]))
                after = wait_shared(members, places(topic, PARTITIONS))
                moves += [Move(before=one, after=other) for one, other in zip(before, after, strict=False)]
                send_round(writer, topic, PARTITIONS)
                read = wait_read(members, count * ROUND * PARTITIONS)
                assert each_once(topic, PARTITIONS, rounds=count) == read
                before = [member.state() for member in members]

            gone = members.pop(0)
            gone.leave()
            after = wait_shared(members, places(topic, PARTITIONS))
            moves += [Move(before=one, after=other) for one, other in zip(before[1:], after, strict=True)]
            send_round(writer, topic, PARTITIONS)
            read = wait_read([gone, *members], 4 * ROUND * PARTITIONS)
            assert each_once(topic, PARTITIONS, rounds=4) == read
            check_never_shared([gone, *members])
        ends = [(partition, 4 * ROUND) for partition in range(PARTITIONS)]
        assert ends == [row[:2] for row in committed(client, group, topic, PARTITIONS)]
        return moves

    return side_by_side(story, FLAVOURS)


@pytest.mark.parametrize("flavour", names(FLAVOURS))
def test_members_share_the_partitions(joined: Outcomes[list[Move]], flavour: str) -> None:
    """Each partition has one owner at a time, each record is read once, and what was read is committed."""
    assert 5 == len(joined[flavour].result())


@pytest.mark.parametrize("flavour", names(INCREMENTAL))
def test_a_partition_that_stays_is_never_revoked(joined: Outcomes[list[Move]], flavour: str) -> None:
    assert [frozenset()] * 5 == [move.interrupted() for move in joined[flavour].result()]


def test_an_eager_member_gives_everything_up_at_each_rebalance(joined: Outcomes[list[Move]]) -> None:
    """The counterpart: without it the test above could not fail."""
    moves = joined["aiokafka-range"].result()
    assert [move.before.owned & move.after.owned for move in moves] == [move.interrupted() for move in moves]


@pytest.fixture(scope="module")
def mixed(client_of: ClientOf) -> Outcomes[None]:
    """Each library first in a group, and so its leader, with another library behind it."""
    writer = client_of(NAMES[0])
    ring = list(RANGE)
    behind = dict(zip(ring, ring[1:] + ring[:1], strict=True))

    def story(flavour: Flavour) -> None:
        group = topic = f"mixed-{flavour.name}"
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        with leaving([]) as members:
            for count, name in enumerate((flavour.client, behind[flavour.client]), start=1):
                members.append(Member(client_of(name), RANGE[name], group, topics=[topic]))
                wait_shared(members, places(topic, PARTITIONS))
                send_round(writer, topic, PARTITIONS)
                read = wait_read(members, count * ROUND * PARTITIONS)
                assert each_once(topic, PARTITIONS, rounds=count) == read
            check_never_shared(members)

    return side_by_side(story, RANGE.values())


@pytest.mark.parametrize("first", RANGE)
def test_two_libraries_in_one_group(mixed: Outcomes[None], first: str) -> None:
    mixed[RANGE[first].name].result()


def test_all_libraries_in_one_group(client_of: ClientOf, topic: str) -> None:
    """One partition for each."""
    writer = client_of(NAMES[0])
    writer.create_topic(topic, partitions=len(RANGE), configs=KEEP_ALL)
    with leaving([]) as members:
        for name, flavour in RANGE.items():
            members.append(Member(client_of(name), flavour, topic, topics=[topic]))
        wait_shared(members, places(topic, len(RANGE)))
        send_round(writer, topic, len(RANGE))
        assert each_once(topic, len(RANGE), rounds=1) == wait_read(members, ROUND * len(RANGE))
