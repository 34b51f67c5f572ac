"""Static members: they go away and come back without a rebalance, and nobody can be the same member twice."""

import pytest

from tests.compat.clients.catalogue import NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.group_flavours import CONSUMER, STATIC, TOLD_OF_FENCING, Flavour, names
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    Outcomes,
    each_once,
    leaving,
    places,
    send_round,
    side_by_side,
    wait_failed,
    wait_read,
    wait_shared,
)
from tests.compat.clients.shapes import KEEP_ALL

PARTITIONS = 4
FENCED_INSTANCE_ID = 82
UNRELEASED_INSTANCE_ID = 111


@pytest.fixture(scope="module")
def restarted(client_of: ClientOf) -> Outcomes[None]:
    """Of two members one goes and comes back under its name."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> None:
        group = topic = f"static-{flavour.name}"
        client = client_of(flavour.client)
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        with leaving([]) as members:
            for name in ("one", "two"):
                members.append(Member(client, flavour, group, topics=[topic], instance=name))
            before = wait_shared(members, places(topic, PARTITIONS))
            send_round(writer, topic, PARTITIONS)
            assert each_once(topic, PARTITIONS, rounds=1) == wait_read(members, ROUND * PARTITIONS)

            gone = members.pop()
            gone.leave()
            members.append(Member(client, flavour, group, topics=[topic], instance="two"))
            after = wait_shared(members, places(topic, PARTITIONS))
            assert before[1].owned == after[1].owned
            assert before[0].events == after[0].events
            send_round(writer, topic, PARTITIONS)
            read = wait_read([gone, *members], 2 * ROUND * PARTITIONS)
            assert each_once(topic, PARTITIONS, rounds=2) == read

    return side_by_side(story, STATIC)


@pytest.mark.parametrize("flavour", names(STATIC))
def test_a_restart_without_a_rebalance(restarted: Outcomes[None], flavour: str) -> None:
    """The other member sees nothing of it, and the one that is back has what it had."""
    restarted[flavour].result()


@pytest.fixture(scope="module")
def doubled(client_of: ClientOf) -> Outcomes[None]:
    """A second member under a name that is taken."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> None:
        group = topic = f"doubled-{flavour.name}"
        client = client_of(flavour.client)
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        with leaving([]) as members:
            for _ in range(2):
                members.append(Member(client, flavour, group, topics=[topic], instance="twin"))
                if len(members) == 1:
                    wait_shared(members, places(topic, PARTITIONS))
            first, second = members
            # The classic protocol believes the newcomer, the newer one the member that is there.
            if flavour.protocol == CONSUMER:
                assert UNRELEASED_INSTANCE_ID == wait_failed(second)
                wait_shared([first], places(topic, PARTITIONS))
            else:
                assert FENCED_INSTANCE_ID == wait_failed(first)
                wait_shared([second], places(topic, PARTITIONS))

    return side_by_side(story, TOLD_OF_FENCING)


@pytest.mark.parametrize("flavour", names(TOLD_OF_FENCING))
def test_a_name_that_is_taken(doubled: Outcomes[None], flavour: str) -> None:
    doubled[flavour].result()
