"""Brokers: which answer, what they lead, how full their disks are, and their configs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.broker_states import BrokerProbe, BrokerState, probe_brokers
from ottla.client.admin.config_requests import ConfigEntry, ConfigSource, ResourceType
from ottla.client.admin.topic_requests import LogDir
from ottla.client.admin.values import ConfigResource
from ottla.client.network.cluster_view import ClusterView
from ottla.console.cluster.access import Access
from ottla.console.cluster.broker_metrics import BrokerMetrics
from ottla.console.errors import NotFoundError
from ottla.transport.addresses import Address

_NEAR_FULL: Final = 0.85
_FULL: Final = 0.95
_DYNAMIC: Final = frozenset({ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER})


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """One log dir. Sizes are None where the broker does not say them."""

    path: str
    error: str
    """Why it has failed; empty if it works."""
    log_bytes: int
    used_bytes: int | None
    total_bytes: int | None
    partitions: int

    @property
    def used_share(self) -> float | None:
        """How full the disk is, 0 to 1."""
        if self.total_bytes is None or self.used_bytes is None or not self.total_bytes:
            return None
        return self.used_bytes / self.total_bytes

    @property
    def level(self) -> str:
        """How worrying that is: empty, "near" or "full"."""
        share = self.used_share or 0.0
        return "full" if share >= _FULL else "near" if share >= _NEAR_FULL else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One broker."""

    id: int
    address: Address | None
    rack: str | None
    state: BrokerState
    is_controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    """Replicas of this broker that are not in sync."""
    disks: tuple[DiskUse, ...]
    metrics: BrokerMetrics | None
    """From its /metrics, if the console knows the URL."""

    @property
    def log_bytes(self) -> int | None:
        """The bytes of its partitions; None if it does not answer."""
        return sum(each.log_bytes for each in self.disks) if self.disks else None

    @property
    def level(self) -> str:
        """The state as a level of `ui.status`."""
        if self.state is not BrokerState.ONLINE or any(each.error for each in self.disks):
            return "error"
        return "warning" if any(each.level for each in self.disks) else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedPartition:
    """A partition with a replica on a broker."""

    topic: str
    partition: int
    is_leader: bool
    is_in_sync: bool
    size_bytes: int | None
    log_dir: str
    lag: int | None


async def list_brokers(access: Access) -> list[BrokerRow]:
    """Every broker that is registered or has replicas, asked just now, with the rights of the user."""
    cluster = access.cluster
    view = await cluster.retry(cluster.refresh)
    return rows_of(view, await probe_brokers(cluster, view, accepts_denial=True), access.sampler.metrics)


def rows_of(
    view: ClusterView, probes: Mapping[int, BrokerProbe], metrics: Mapping[int, BrokerMetrics]
) -> list[BrokerRow]:
    """The rows of what was found before."""
    placed = [each for topic in view.topics.values() for each in topic.partitions]
    rows = []
    for broker, probe in sorted(probes.items()):
        registered = view.brokers.get(broker)
        held = [each for each in placed if broker in each.replicas]
        rows.append(
            BrokerRow(
                id=broker,
                address=None if registered is None else registered.address,
                rack=None if registered is None else registered.rack,
                state=probe.state,
                is_controller=view.controller == broker,
                leaders=sum(each.leader == broker for each in placed),
                replicas=len(held),
                out_of_sync=sum(broker not in each.isr for each in held),
                disks=tuple(map(_disk, probe.log_dirs)),
                metrics=metrics.get(broker),
            )
        )
    return rows


def _disk(log_dir: LogDir) -> DiskUse:
    total = log_dir.total_bytes if log_dir.total_bytes >= 0 else None
    usable = log_dir.usable_bytes if log_dir.usable_bytes >= 0 else None
    return DiskUse(
        path=log_dir.path,
        error=log_dir.error_code.name if log_dir.error_code else "",
        log_bytes=sum(max(0, each.size_bytes) for each in log_dir.partitions),
        used_bytes=None if total is None or usable is None else total - usable,
        total_bytes=total,
        partitions=len(log_dir.partitions),
    )


async def find_broker(access: Access, broker: int) -> tuple[BrokerRow, list[LedPartition]]:
    """One broker and its partitions. Raises `NotFoundError`."""
    cluster = access.cluster
    view = await cluster.retry(cluster.refresh)
    probes = await probe_brokers(cluster, view, accepts_denial=True)
    if broker not in probes:
        raise NotFoundError(f"broker {broker} is not in the cluster, and has no replicas")
    row = next(each for each in rows_of(view, probes, access.sampler.metrics) if each.id == broker)
    placed = {
        (each.partition.topic, each.partition.partition): (log_dir.path, each)
        for log_dir in probes[broker].log_dirs
        for each in log_dir.partitions
        if not each.is_future
    }
    partitions = []
    for name, topic in sorted(view.topics.items()):
        for each in topic.partitions:
            if broker not in each.replicas:
                continue
            path, replica = placed.get((name, each.index), ("", None))
            partitions.append(
                LedPartition(
                    topic=name,
                    partition=each.index,
                    is_leader=each.leader == broker,
                    is_in_sync=broker in each.isr,
                    size_bytes=None if replica is None else replica.size_bytes,
                    log_dir=path,
                    lag=None if replica is None else replica.lag,
                )
            )
    return row, partitions


async def broker_configs(access: Access, broker: int) -> list[ConfigEntry]:
    """The configs of a broker with their documentation; those that were changed first, then by name."""
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    found = await access.admin().describe_configs([resource], include_documentation=True)
    return sorted(found[resource].values(), key=lambda each: (not is_changed(each), each.name))


def is_changed(entry: ConfigEntry) -> bool:
    """Whether the config is set somewhere, and not a default."""
    return entry.source is not ConfigSource.DEFAULT


def is_dynamic(entry: ConfigEntry) -> bool:
    """Whether the config was set while the broker ran, so that removing it has an effect."""
    return entry.source in _DYNAMIC


async def check_config(access: Access, broker: int, entry: ConfigEntry, value: str | None) -> None:
    """Lets the broker validate a change. Raises what it refuses."""
    resource = ConfigResource(ResourceType.BROKER, str(broker), {entry.name: value})
    await access.admin().alter_configs([resource], validate_only=True)


async def set_config(access: Access, broker: int, entry: ConfigEntry, value: str | None) -> None:
    """Sets a config of one broker while it runs; None removes it, so that the default applies again."""
    action = "remove broker config" if value is None else "set broker config"
    recorded = {"value": "hidden"} if entry.is_sensitive else {"value": value, "before": entry.value}
    async with access.change(action, f"broker {broker}", {"config": entry.name, **recorded}):
        await access.admin().alter_configs([ConfigResource(ResourceType.BROKER, str(broker), {entry.name: value})])
