"""The throttle of a reassignment: sets and removes the configs that limit how fast replicas are copied."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster
    from ottla.model.ids import TopicPartition
    from ottla.operations.reassignment.plan import Placement

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


def throttled_replicas(present: "Placement", plan: "Placement") -> dict[str, dict[str, str]]:
    """The configs of each topic that moves: present replicas are throttled as leaders, new ones as followers."""
    topics: dict[str, dict[str, list[str]]] = {}
    for partition in sorted(plan):
        before = present.get(partition, ())
        coming = [each for each in plan[partition] if each not in before]
        if coming:
            lists = topics.setdefault(partition.topic, {LEADER_REPLICAS: [], FOLLOWER_REPLICAS: []})
            lists[LEADER_REPLICAS] += [f"{partition.partition}:{each}" for each in before]
            lists[FOLLOWER_REPLICAS] += [f"{partition.partition}:{each}" for each in coming]
    return {topic: {name: ",".join(pairs) for name, pairs in lists.items()} for topic, lists in topics.items()}


async def set_throttle(
    cluster: "Cluster", present: "Placement", plan: "Mapping[TopicPartition, tuple[int, ...]]", bytes_per_second: int
) -> None:
    """Limits how fast the replicas of a plan are copied."""
    from ottla.client.admin.config_requests import Resource, ResourceType, alter_configs

    everywhere = Resource(type=ResourceType.BROKER, name="")
    await alter_configs(cluster, everywhere, dict.fromkeys(RATES, str(bytes_per_second)))
    for topic, configs in throttled_replicas(present, plan).items():
        await alter_configs(cluster, Resource(type=ResourceType.TOPIC, name=topic), configs)


async def clear_throttle(cluster: "Cluster", topics: Iterable[str], *, rates: bool = True) -> bool:
    """Removes the throttle; returns whether there was one. Without `rates`, those of brokers stay: other topics may
    still move."""
    from ottla.client.admin.config_requests import ConfigSource, Resource, ResourceType, alter_configs, describe_configs

    had_any = False
    wanted = [(Resource(type=ResourceType.TOPIC, name=each), (LEADER_REPLICAS, FOLLOWER_REPLICAS)) for each in topics]
    if rates:
        wanted.append((Resource(type=ResourceType.BROKER, name=""), RATES))
    for resource, names in wanted:
        entries = await describe_configs(cluster, resource, names)
        given = [each.name for each in entries if each.source is not ConfigSource.DEFAULT and each.value]
        if given:
            had_any = True
            await alter_configs(cluster, resource, dict.fromkeys(given))
    if rates:
        for broker, own in (await _rates_of_brokers(cluster)).items():
            had_any = True
            await alter_configs(cluster, Resource(type=ResourceType.BROKER, name=str(broker)), dict.fromkeys(own))
    return had_any


class ThrottleConfigs(NamedTuple):
    """The configs of a throttle that are set."""

    rates: "Mapping[str, str]"
    """Rates in bytes per second by what they are set for: a broker, or all brokers."""
    topics: tuple[str, ...]
    """Topics with throttled replicas."""

    def __bool__(self) -> bool:
        return bool(self.rates or self.topics)


async def find_throttle(cluster: "Cluster", topics: Iterable[str]) -> ThrottleConfigs:
    """The configs of a throttle that are set for brokers and for these topics."""
    from ottla.client.admin.config_requests import (
        ConfigSource,
        Resource,
        ResourceType,
        describe_configs,
        describe_many,
    )

    default = await describe_configs(cluster, Resource(type=ResourceType.BROKER, name=""), RATES)
    given = [each.value for each in default if each.source is not ConfigSource.DEFAULT and each.value]
    rates = {"all brokers": min(given, key=int)} if given else {}
    for broker, found in (await _rates_of_brokers(cluster)).items():
        rates[f"broker {broker}"] = min(found.values(), key=int)
    resources = [Resource(type=ResourceType.TOPIC, name=each) for each in topics]
    configs = await describe_many(cluster, resources, (LEADER_REPLICAS, FOLLOWER_REPLICAS))
    throttled = (
        resource.name
        for resource, entries in configs.items()
        if any(each.source is ConfigSource.TOPIC and each.value for each in entries)
    )
    return ThrottleConfigs(rates, tuple(sorted(throttled)))


async def _rates_of_brokers(cluster: "Cluster") -> "dict[int, dict[str, str]]":
    """The rates that are set for single brokers, as kafka-reassign-partitions does; brokers that are away are left."""
    from ottla.client.admin.config_requests import ConfigSource, Resource, ResourceType, describe_configs
    from ottla.model.errors import RetriableError

    found: dict[int, dict[str, str]] = {}
    for broker in sorted(cluster.view.brokers):
        try:
            entries = await describe_configs(cluster, Resource(type=ResourceType.BROKER, name=str(broker)), RATES)
        except RetriableError:
            continue
        own = {each.name: each.value for each in entries if each.source is ConfigSource.DYNAMIC_BROKER and each.value}
        if own:
            found[broker] = own
    return found
