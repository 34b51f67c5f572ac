"""Brokers that will not come back: what is forgotten of them, and what must not be."""

from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

import pytest

from ottla.controller.brokers_state import BrokerNotRegisteredError, decide_unregister
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import broker_configs_key, starts_key
from ottla.metadata.store import Delete
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import BrokerId, LeaderEpoch

GONE = BrokerId(3)
IMAGE = ClusterImage(
    starts=MappingProxyType({GONE: 4}),
    revisions=MappingProxyType({starts_key(GONE): 7, broker_configs_key("3"): 9, starts_key(BrokerId(1)): 2}),
)


def test_a_broker_that_is_gone_is_forgotten() -> None:
    expected = (Delete(starts_key(GONE), 7), Delete(broker_configs_key("3"), 9))
    assert expected == decide_unregister(IMAGE, GONE).operations


def test_an_unknown_broker() -> None:
    with pytest.raises(BrokerNotRegisteredError, match="no broker 5"):
        decide_unregister(IMAGE, BrokerId(5))


def test_a_broker_that_runs() -> None:
    image = replace(IMAGE, brokers=MappingProxyType({GONE: BrokerImage(id=GONE, host="h", port=1)}))
    with pytest.raises(InvalidRequestError, match="broker 3 is running"):
        decide_unregister(image, GONE)


def test_a_broker_with_replicas() -> None:
    partition = PartitionImage(
        replicas=(BrokerId(1), GONE), isr=(BrokerId(1),), leader=BrokerId(1), leader_epoch=LeaderEpoch(0)
    )
    topic = TopicImage(name="t", id=UUID(int=1), partitions=(partition, partition))
    with pytest.raises(InvalidRequestError, match="broker 3 has 2 replicas"):
        decide_unregister(replace(IMAGE, topics=MappingProxyType({"t": topic})), GONE)
