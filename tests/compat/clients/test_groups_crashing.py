"""A member's process is killed: its partitions move to the others when its session ends, and nothing is lost."""

from collections import Counter

import pytest

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import BY_NAME, NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.group_flavours import FLAVOURS, Flavour, names
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    Outcomes,
    Record,
    each_once,
    leaving,
    places,
    send_round,
    side_by_side,
    wait_committed,
    wait_read,
    wait_shared,
)
from tests.compat.clients.shapes import KEEP_ALL

PARTITIONS = 4


@pytest.fixture(scope="module")
def survived(broker: Broker, client_of: ClientOf, tmp_path_factory: pytest.TempPathFactory) -> Outcomes[None]:
    """Two members in each group; one is in a program that is killed when all groups have read and committed."""
    writer = client_of(NAMES[0])
    folder = tmp_path_factory.mktemp("doomed")
    doomed = {name: kind.start(broker.bootstrap, folder / f"{name}.log") for name, kind in BY_NAME.items()}

    def topic_of(flavour: Flavour) -> str:
        return f"crashed-{flavour.name}"

    def before(flavour: Flavour) -> tuple[Member, Counter[Record]]:
        group = topic = topic_of(flavour)
        writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
        programs = (client_of(flavour.client), doomed[flavour.client])
        members = [Member(program, flavour, group, topics=[topic]) for program in programs]
        wait_shared(members, places(topic, PARTITIONS))
        send_round(writer, topic, PARTITIONS)
        assert each_once(topic, PARTITIONS, rounds=1) == wait_read(members, ROUND * PARTITIONS)
        wait_committed(programs[0], group, topic, [ROUND] * PARTITIONS)
        return members[0], Counter(members[1].state().records)

    def behind(flavour: Flavour) -> None:
        topic = topic_of(flavour)
        survivor, read_by_other = beginnings[flavour.name].result()
        with leaving([survivor]):
            wait_shared([survivor], places(topic, PARTITIONS))
            send_round(writer, topic, PARTITIONS)
            read = wait_read([survivor], 2 * ROUND * PARTITIONS - read_by_other.total())
            assert each_once(topic, PARTITIONS, rounds=2) == read + read_by_other

    beginnings = side_by_side(before, FLAVOURS)
    for program in doomed.values():
        program.kill()
    return side_by_side(behind, FLAVOURS)


@pytest.mark.parametrize("flavour", names(FLAVOURS))
def test_a_survivor_takes_over(survived: Outcomes[None], flavour: str) -> None:
    survived[flavour].result()
