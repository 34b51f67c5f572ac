"""A group moves from the classic protocol to the consumer protocol and back, member by member, while it reads."""

from dataclasses import dataclass

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConsumerGroupListing

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import JAVA, NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.group_flavours import BY_NAME, JAVA_CONSUMER, Flavour
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    Outcomes,
    check_never_shared,
    each_once,
    places,
    send_round,
    side_by_side,
    wait_read,
    wait_shared,
)
from tests.compat.clients.shapes import KEEP_ALL
from tests.waiting import wait_until

PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From whom to whom; the first one's name is the way's."""

    older: Flavour
    newer: Flavour


WAYS = {
    way.older.name: way
    for way in (
        Way(older=BY_NAME[f"{JAVA}-range"], newer=JAVA_CONSUMER),
        Way(older=BY_NAME[f"{JAVA}-cooperative-sticky"], newer=JAVA_CONSUMER),
        Way(older=BY_NAME["java-3.9.2-cooperative-sticky"], newer=JAVA_CONSUMER),
        Way(older=BY_NAME["confluent-kafka-range"], newer=BY_NAME["confluent-kafka-consumer"]),
        Way(older=BY_NAME["franz-go-cooperative-sticky"], newer=BY_NAME["franz-go-consumer"]),
    )
}


@pytest.fixture(scope="module")
def migrated(broker: Broker, client_of: ClientOf) -> Outcomes[None]:
    """Two members are replaced one by one, each by one that joins before it leaves, and then all the way back."""
    writer = client_of(NAMES[0])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def listed(group: str) -> ConsumerGroupListing:
        (found,) = [each for each in admin.list_consumer_groups().result(30).valid if each.group_id == group]
        return found

    def wait_stable(group: str) -> None:
        """Returns once all members know the last assignment, also those whose partitions it did not change.

        A group that becomes classic before that refuses these members' generation, and they lose their partitions:
        also in Kafka.
        """
        wait_until(lambda: listed(group).state is ConsumerGroupState.STABLE, f"{group} is stable")

    def story(older: Flavour) -> None:
        newer = WAYS[older.name].newer
        group = topic = f"migrated-{older.name}"
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        everyone = [Member(client_of(older.client), older, group, topics=[topic]) for _ in range(2)]
        present = list(everyone)
        types = []
        for rounds, flavour in enumerate((newer, newer, older, older), start=1):
            everyone.append(Member(client_of(flavour.client), flavour, group, topics=[topic]))
            present.append(everyone[-1])
            wait_shared(present, places(topic, PARTITIONS))
            wait_stable(group)
            present.pop(0).leave()
            wait_shared(present, places(topic, PARTITIONS))
            send_round(writer, topic, PARTITIONS)
            assert each_once(topic, PARTITIONS, rounds=rounds) == wait_read(everyone, rounds * ROUND * PARTITIONS)
            types.append(listed(group).type)
        check_never_shared(everyone)
        for member in present:
            member.leave()
        consumer, classic = ConsumerGroupType.CONSUMER, ConsumerGroupType.CLASSIC
        assert [consumer, consumer, consumer, classic] == types

    return side_by_side(story, [way.older for way in WAYS.values()])


@pytest.mark.parametrize("older", WAYS)
def test_there_and_back(migrated: Outcomes[None], older: str) -> None:
    """Every record is read once, whoever is there; the group is a classic one only while nobody else is in it."""
    migrated[older].result()
