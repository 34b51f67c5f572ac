"""The throttle of a reassignment is set, found and removed."""

from ottla.client.admin.config_requests import Resource, ResourceType, alter_configs
from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.throttle import RATES, ThrottleConfigs, clear_throttle, find_throttle, set_throttle
from ottla.testing import InProcessBroker


async def test_a_throttle_of_topics_and_of_all_brokers(cluster: Cluster, ottla_shared_broker: InProcessBroker) -> None:
    moved, other = (ottla_shared_broker.create_topic(f"operations-{name}") for name in ("moved", "unmoved"))
    await cluster.refresh()
    partition = TopicPartition(moved, 0)
    assert ThrottleConfigs({}, ()) == await find_throttle(cluster, [moved, other])
    await set_throttle(cluster, {partition: (0,)}, {partition: (0, 1)}, 5000)
    set_ = ThrottleConfigs({"all brokers": "5000"}, (moved,))
    assert set_ == await find_throttle(cluster, [other, moved])
    assert await clear_throttle(cluster, [other, moved], rates=False)
    assert ThrottleConfigs({"all brokers": "5000"}, ()) == await find_throttle(cluster, [moved])
    assert await clear_throttle(cluster, [moved])
    assert ThrottleConfigs({}, ()) == await find_throttle(cluster, [moved])
    assert not await clear_throttle(cluster, [moved])


async def test_rates_of_single_brokers_are_found_and_removed(cluster: Cluster) -> None:
    """As kafka-reassign-partitions sets them."""
    await cluster.refresh()
    broker = Resource(type=ResourceType.BROKER, name="0")
    await alter_configs(cluster, broker, dict(zip(RATES, ("7000", "900"), strict=True)))
    assert ThrottleConfigs({"broker 0": "900"}, ()) == await find_throttle(cluster, [])
    assert await clear_throttle(cluster, [])
    assert ThrottleConfigs({}, ()) == await find_throttle(cluster, [])
