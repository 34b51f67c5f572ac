"""Offsets of groups: committed with metadata, found again, sought away from, and reset when they lead nowhere."""

import time
from collections import Counter

import pytest

from tests.compat.clients.catalogue import JAVA, NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.clients.group_flavours import FLAVOURS, SEEKING, Flavour, names
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    Outcomes,
    committed,
    each_once,
    leaving,
    places,
    send_round,
    side_by_side,
    wait_read,
    wait_shared,
)
from tests.compat.clients.shapes import KEEP_ALL, small
from tests.waiting import PATIENCE_SECONDS

PARTITIONS = 2


@pytest.fixture(scope="module")
def resumed(client_of: ClientOf) -> Outcomes[None]:
    """A member reads all, commits something else, and goes; the next one begins there."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> None:
        group = topic = f"resumed-{flavour.name}"
        client = client_of(flavour.client)
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        send_round(writer, topic, PARTITIONS)
        with leaving([]) as members:
            members.append(Member(client, flavour, group, topics=[topic], commits=False))
            wait_read(members, PARTITIONS * ROUND)
            nothing = [(partition, -1, "") for partition in range(PARTITIONS)]
            assert nothing == committed(client, group, topic, PARTITIONS)
            members[0].commit([(topic, 0, 3, "třetí"), (topic, 1, 7, "")])
            for other in (client, client_of(JAVA)):
                assert [(0, 3, "třetí"), (1, 7, "")] == committed(other, group, topic, PARTITIONS)
        with leaving([]) as members:
            members.append(Member(client, flavour, group, topics=[topic], commits=False))
            expected = each_once(topic, PARTITIONS, rounds=1)
            expected -= Counter([*((topic, 0, offset) for offset in range(3)), *((topic, 1, at) for at in range(7))])
            assert expected == wait_read(members, expected.total())

    return side_by_side(story, FLAVOURS)


@pytest.mark.parametrize("flavour", names(FLAVOURS))
def test_the_next_member_begins_at_the_committed_offset(resumed: Outcomes[None], flavour: str) -> None:
    resumed[flavour].result()


@pytest.fixture(scope="module")
def sought(client_of: ClientOf) -> Outcomes[None]:
    """A member has read all, and is told to read the end of one partition again."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> None:
        group = topic = f"sought-{flavour.name}"
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        send_round(writer, topic, PARTITIONS)
        with leaving([]) as members:
            members.append(Member(client_of(flavour.client), flavour, group, topics=[topic]))
            wait_read(members, PARTITIONS * ROUND)
            members[0].seek(topic, 1, 6)
            expected = each_once(topic, PARTITIONS, rounds=1) + Counter((topic, 1, at) for at in range(6, ROUND))
            assert expected == wait_read(members, expected.total())

    return side_by_side(story, SEEKING)


@pytest.mark.parametrize("flavour", names(SEEKING))
def test_seeking(sought: Outcomes[None], flavour: str) -> None:
    sought[flavour].result()


@pytest.fixture(scope="module")
def reset(client_of: ClientOf) -> Outcomes[None]:
    """Where a group begins that has no offset, or one behind the end."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> None:
        topic = f"reset-{flavour.name}"
        client = client_of(flavour.client)
        writer.create_topic(topic, configs=KEEP_ALL)
        writer.send(topic, small(ROUND))
        commit_behind_the_end(client, flavour, topic)
        with leaving([]) as members:
            members.append(Member(client, flavour, topic, topics=[topic], commits=False))
            assert each_once(topic, 1, rounds=1) == wait_read(members, ROUND)
        assert ROUND <= first_from_the_end(writer, client, flavour, topic)

    return side_by_side(story, FLAVOURS)


def commit_behind_the_end(client: ForeignClient, flavour: Flavour, topic: str) -> None:
    """As a group of the topic's name."""
    with leaving([]) as members:
        members.append(Member(client, flavour, topic, topics=[topic], commits=False))
        wait_read(members, ROUND)
        members[0].commit([(topic, 0, 1000, "")])


def first_from_the_end(writer: ForeignClient, client: ForeignClient, flavour: Flavour, topic: str) -> int:
    """The first offset that a new group reads when it begins at the end."""
    with leaving([]) as members:
        members.append(Member(client, flavour, f"{topic}-late", topics=[topic], reset="latest", commits=False))
        wait_shared(members, places(topic, 1))
        # Nobody says when a member has found the end; what is written before that is not for it.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (records := members[0].state().records):
            assert time.monotonic() < deadline, "the member reads nothing"
            writer.send(topic, small(1))
        _, _, first = records[0]
        return first


@pytest.mark.parametrize("flavour", names(FLAVOURS))
def test_where_an_offset_is_missing_or_leads_nowhere(reset: Outcomes[None], flavour: str) -> None:
    reset[flavour].result()
