"""What a group reads grows while it reads: a topic is created that its pattern matches, and partitions are added."""

import pytest

from tests.compat.clients.catalogue import NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.group_flavours import FLAVOURS, PATTERNS, Flavour, names
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    Outcomes,
    each_once,
    leaving,
    places,
    send_round,
    side_by_side,
    wait_read,
    wait_shared,
)
from tests.compat.clients.shapes import KEEP_ALL

PARTITIONS = 2


@pytest.fixture(scope="module")
def matched(client_of: ClientOf) -> Outcomes[None]:
    """Two members by a pattern; a second topic comes that matches, and one that does not."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> None:
        group = f"matched-{flavour.name}"
        first, second = f"{group}.first", f"{group}.second"
        client = client_of(flavour.client)
        writer.create_topic(first, partitions=PARTITIONS, configs=KEEP_ALL)
        with leaving([]) as members:
            for _ in range(2):
                members.append(Member(client, flavour, group, pattern=rf"{group}\..*"))
            wait_shared(members, places(first, PARTITIONS))
            for name in (second, f"{group}-other"):
                writer.create_topic(name, partitions=PARTITIONS, configs=KEEP_ALL)
            wait_shared(members, places(first, PARTITIONS) | places(second, PARTITIONS))
            for topic in (first, second):
                send_round(writer, topic, PARTITIONS)
            expected = each_once(first, PARTITIONS, rounds=1) + each_once(second, PARTITIONS, rounds=1)
            assert expected == wait_read(members, expected.total())

    return side_by_side(story, PATTERNS)


@pytest.mark.parametrize("flavour", names(PATTERNS))
def test_a_topic_that_matches_is_read(matched: Outcomes[None], flavour: str) -> None:
    matched[flavour].result()


@pytest.fixture(scope="module")
def widened(client_of: ClientOf) -> Outcomes[None]:
    """Two members, and partitions that come later."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> None:
        group = topic = f"widened-{flavour.name}"
        client = client_of(flavour.client)
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        with leaving([]) as members:
            for _ in range(2):
                members.append(Member(client, flavour, group, topics=[topic]))
            wait_shared(members, places(topic, PARTITIONS))
            writer.call("create_partitions", topic=topic, count=2 * PARTITIONS)
            wait_shared(members, places(topic, 2 * PARTITIONS))
            send_round(writer, topic, 2 * PARTITIONS)
            assert each_once(topic, 2 * PARTITIONS, rounds=1) == wait_read(members, 2 * PARTITIONS * ROUND)

    return side_by_side(story, FLAVOURS)


@pytest.mark.parametrize("flavour", names(FLAVOURS))
def test_new_partitions_are_read(widened: Outcomes[None], flavour: str) -> None:
    widened[flavour].result()
