"""The broker is killed and comes back: open members go on where they were, and groups know what was committed."""

import pytest

from tests.compat.clients.broker_under_test import broker_under_test
from tests.compat.clients.catalogue import BY_NAME, NAMES
from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.clients.group_flavours import FLAVOURS, Flavour, names
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    Outcomes,
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
def outlived(tmp_path_factory: pytest.TempPathFactory) -> Outcomes[None]:
    """Two members of each group read, the broker crashes, and they read on; then others take their places."""
    folder = tmp_path_factory.mktemp("outlived")
    broker = broker_under_test(folder / "broker")
    with broker:
        clients = {name: kind.start(broker.bootstrap, folder / f"{name}.log") for name, kind in BY_NAME.items()}
        try:
            beginnings = side_by_side(lambda flavour: begin(clients, flavour), FLAVOURS)
            broker.kill()
            broker.start()
            return side_by_side(lambda flavour: go_on(clients, flavour, beginnings[flavour.name].result()), FLAVOURS)
        finally:
            for client in clients.values():
                client.close()


def begin(clients: dict[str, ForeignClient], flavour: Flavour) -> list[Member]:
    """Two members that have read and committed all."""
    group = topic = f"outlived-{flavour.name}"
    writer, client = clients[NAMES[0]], clients[flavour.client]
    writer.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
    members = [Member(client, flavour, group, topics=[topic]) for _ in range(2)]
    wait_shared(members, places(topic, PARTITIONS))
    send_round(writer, topic, PARTITIONS)
    assert each_once(topic, PARTITIONS, rounds=1) == wait_read(members, ROUND * PARTITIONS)
    wait_committed(client, group, topic, [ROUND] * PARTITIONS)
    return members


def go_on(clients: dict[str, ForeignClient], flavour: Flavour, members: list[Member]) -> None:
    """They read what comes behind the crash, and a member that never met the old broker goes on behind them."""
    group = topic = f"outlived-{flavour.name}"
    writer, client = clients[NAMES[0]], clients[flavour.client]
    with leaving(members):
        wait_shared(members, places(topic, PARTITIONS))
        send_round(writer, topic, PARTITIONS)
        assert each_once(topic, PARTITIONS, rounds=2) == wait_read(members, 2 * ROUND * PARTITIONS)
        wait_committed(client, group, topic, [2 * ROUND] * PARTITIONS)
    with leaving([]) as newer:
        newer.append(Member(client, flavour, group, topics=[topic]))
        wait_shared(newer, places(topic, PARTITIONS))
        send_round(writer, topic, PARTITIONS)
        expected = each_once(topic, PARTITIONS, rounds=3) - each_once(topic, PARTITIONS, rounds=2)
        assert expected == wait_read(newer, ROUND * PARTITIONS)


@pytest.mark.parametrize("flavour", names(FLAVOURS))
def test_members_and_offsets_outlive_the_broker(outlived: Outcomes[None], flavour: str) -> None:
    outlived[flavour].result()
