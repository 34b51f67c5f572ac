"""The throttle of a reassignment: sets and removes the configs that limit how fast replicas are copied."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

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


async def clear_throttle(cluster: "Cluster", topics: Iterable[str]) -> bool:
    """Removes the throttle; returns whether there was one."""
    from ottla.client.admin.config_requests import ConfigSource, Resource, ResourceType, alter_configs, describe_configs

    had_any = False
    wanted = [(Resource(type=ResourceType.TOPIC, name=each), (LEADER_REPLICAS, FOLLOWER_REPLICAS)) for each in topics]
    for resource, names in [*wanted, (Resource(type=ResourceType.BROKER, name=""), RATES)]:
        entries = await describe_configs(cluster, resource, names)
        given = [each.name for each in entries if each.source is not ConfigSource.DEFAULT and each.value]
        if given:
            had_any = True
            await alter_configs(cluster, resource, dict.fromkeys(given))
    return had_any
