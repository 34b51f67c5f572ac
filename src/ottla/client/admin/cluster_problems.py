"""The problems of a cluster, as `ottla cluster health` and the console list them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ottla.client.admin.broker_states import BrokerProbe, BrokerState, probe_brokers
from ottla.client.admin.config_requests import Resource, ResourceType, describe_configs
from ottla.client.admin.damaged_logs import damaged_logs
from ottla.client.admin.topic_requests import lost_replicas
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView, PartitionView
from ottla.model.ids import TopicPartition
from ottla.model.min_isr import effective_min_isr


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem; as text it is the line of `ottla cluster health`."""

    text: str
    advice: str = ""
    """What to do, if the text does not say it."""
    is_severe: bool = False
    """Whether something cannot be read, written or changed because of it."""
    topic: str | None = None
    broker: int | None = None

    def __str__(self) -> str:
        return self.text


async def find_problems(
    cluster: Cluster, view: ClusterView, probes: Mapping[int, BrokerProbe] | None = None
) -> list[Problem]:
    """The problems; empty if the cluster is healthy. Asks all brokers, unless `probes` has their answers."""
    minimums = await _minimums(cluster, view)
    if probes is None:
        probes = await probe_brokers(cluster, view)
    online = [broker for broker, probe in probes.items() if probe.state is BrokerState.ONLINE]
    return [
        *_controller_problems(view),
        *(each for broker, probe in probes.items() for each in _broker_problems(view, broker, probe)),
        *_partition_problems(view, minimums),
        *await _lost_replica_problems(cluster, view),
        *(
            Problem(text=str(each), is_severe=not each.is_served, topic=each.partition.topic, broker=each.broker)
            for each in await damaged_logs(cluster, view, online)
        ),
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def _is_under_replicated(partition: PartitionView) -> bool:
    return len(partition.isr) < len(partition.replicas)


async def _minimums(cluster: Cluster, view: ClusterView) -> dict[str, int]:
    """min.insync.replicas of the topics with under-replicated partitions."""
    found: dict[str, int] = {}
    for name, topic in sorted(view.topics.items()):
        if any(map(_is_under_replicated, topic.partitions)):
            resource = Resource(type=ResourceType.TOPIC, name=name)
            (entry,) = await describe_configs(cluster, resource, ["min.insync.replicas"], of_any=True)
            found[name] = int(entry.value or 1)
    return found


def _controller_problems(view: ClusterView) -> Iterator[Problem]:
    if view.controller is None:
        yield Problem(
            text="no controller: topics cannot be changed and leaders cannot be elected",
            advice="Check that the brokers reach their metadata store; one of them becomes the controller.",
            is_severe=True,
        )


def _broker_problems(view: ClusterView, broker: int, probe: BrokerProbe) -> Iterator[Problem]:
    registered = view.brokers.get(broker)
    count = sum(broker in each.replicas for topic in view.topics.values() for each in topic.partitions)
    held = _counted(count, "partition")
    if probe.state is BrokerState.SILENT:
        role = ", the controller," if view.controller == broker else ""
        address = None if registered is None else registered.address
        yield Problem(
            text=f"broker {broker} at {address}{role} does not answer; it has replicas of {held}",
            advice="Check its process, its log and the network to it.",
            is_severe=True,
            broker=broker,
        )
    elif probe.state is BrokerState.MISSING:
        yield Problem(
            text=f"broker {broker} is missing: it has replicas of {held}, but is not registered in the cluster",
            advice="Start it again; if it will not come back, move its replicas with `ottla cluster reassign`.",
            is_severe=True,
            broker=broker,
        )
    for log_dir in probe.log_dirs:
        if log_dir.error_code:
            yield Problem(
                text=f"log dir {log_dir.path} of broker {broker} has failed: {log_dir.error_code.name}",
                advice="Replace the disk, or make room on it, and restart the broker.",
                is_severe=True,
                broker=broker,
            )


def _partition_problems(view: ClusterView, minimums: Mapping[str, int]) -> Iterator[Problem]:
    for name in sorted(view.topics):
        for each in view.topics[name].partitions:
            if each.leader is None:
                yield Problem(
                    text=f"partition {name}-{each.index} has no leader: it can be neither read nor written",
                    advice=f"Start one of its in-sync replicas: broker {_listed(each.isr)}.",
                    is_severe=True,
                    topic=name,
                )
            elif len(each.isr) < (needed := effective_min_isr(minimums.get(name, 1), len(each.replicas))):
                in_sync = _counted(len(each.isr), "in-sync replica")
                yield Problem(
                    text=f"partition {name}-{each.index} refuses writes with acks=all: {in_sync}, "
                    f"min.insync.replicas requires {needed}",
                    advice=f"Start the replicas that are not in sync: broker {_listed(_behind(each))}.",
                    is_severe=True,
                    topic=name,
                )
            elif _is_under_replicated(each):
                yield Problem(
                    text=f"partition {name}-{each.index} is under-replicated: "
                    f"{len(each.isr)} of {len(each.replicas)} replicas in sync",
                    advice=f"Wait until broker {_listed(_behind(each))} has caught up, or start it.",
                    topic=name,
                )


def _behind(partition: PartitionView) -> list[int]:
    return [each for each in partition.replicas if each not in partition.isr]


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "(none)"


async def _lost_replica_problems(cluster: Cluster, view: ClusterView) -> list[Problem]:
    """One for each replica that has lost its log and has not been copied again."""
    topics = [name for name, topic in view.topics.items() if any(map(_is_under_replicated, topic.partitions))]
    lost = await lost_replicas(cluster, topics)
    return [
        each
        for name, brokers in sorted(lost.items())
        for each in _lost(name, view.topics[name.topic].partitions[name.partition], brokers)
    ]


def _lost(name: TopicPartition, partition: PartitionView, lost: tuple[int, ...]) -> Iterator[Problem]:
    intact = [broker for broker in partition.isr if broker not in lost]
    if partition.leader is not None:
        what = f"it is copied again from leader {partition.leader}"
    elif intact:
        what = f"start one of the in-sync replicas {intact} to copy it from"
    else:
        what = (
            "no in-sync replica has it. Restore its folder and restart the broker; or accept the loss with"
            f" ottla cluster elect --unclean --topic {name.topic} --partition {name.partition}"
        )
    for broker in lost:
        yield Problem(
            text=f"{name} has lost its log on broker {broker}: {what}",
            is_severe=partition.leader is None,
            topic=name.topic,
            broker=broker,
        )
