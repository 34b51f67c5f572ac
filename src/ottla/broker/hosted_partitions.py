"""Assembles what a broker hosts: the logs in its data dirs, and the partitions that the cluster assigns to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.broker.assignment import Assignment, GateOf
from ottla.broker.configs.config_view import ConfigView
from ottla.broker.startup.metadata_recovery import SeenMetadata
from ottla.env.world import World
from ottla.metadata.image import ClusterImage
from ottla.model.base64_ids import id_text, parse_id
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.replication.log_dir_moves import LogDirMoves
from ottla.replication.lost_logs import LostLogs
from ottla.replication.partition_table import PartitionTable
from ottla.storage.log_store import LogStore
from ottla.transport.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPartitions:
    """The logs of a broker, the partitions on them, and what opens and closes both."""

    logs: LogStore
    log_dir_moves: LogDirMoves
    lost_logs: LostLogs
    partitions: PartitionTable
    assignment: Assignment


def build_partitions(
    broker_id: BrokerId,
    world: World,
    configs: ConfigView,
    turn: Turn,
    *,
    cluster_id: str,
    data_dirs: Sequence[str],
    image: Callable[[], ClusterImage],
    gate_of: GateOf,
    may_lead_since: Callable[[int], bool],
    on_trouble: Callable[[], None],
) -> HostedPartitions:
    """The partitions of a broker, none of them opened. `on_trouble` is called when a log has a problem."""

    def topic_name(topic_id: str) -> str | None:
        parsed = parse_id(topic_id)
        topic = image().topics_by_id.get(parsed) if parsed is not None else None
        return topic.name if topic is not None else None

    def leader_epoch(partition: TopicPartition, topic_id: str | None) -> LeaderEpoch | None:
        topic = image().topics.get(partition.topic)
        if topic is None or id_text(topic.id) != topic_id or partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[partition.partition].leader_epoch

    logs = LogStore(
        world.disk,
        world.clock,
        world.random,
        data_dirs,
        node_id=broker_id,
        cluster_id=cluster_id,
        owner=f"broker {broker_id}",
        config_of=configs.log_config,
        on_trouble=on_trouble,
        name_of=topic_name,
        metadata_seen=SeenMetadata(image).newest,
        leader_epoch_of=leader_epoch,
    )
    lost_logs = LostLogs(broker_id, logs, world.clock)
    partitions = PartitionTable(broker_id, image)
    assignment = Assignment(
        broker_id,
        logs,
        partitions,
        lost_logs,
        image,
        turn,
        world.clock,
        settings_of=configs.settings_of,
        gate_of=gate_of,
        may_lead_since=may_lead_since,
    )
    return HostedPartitions(
        logs=logs,
        log_dir_moves=LogDirMoves(logs, world.clock, configs.log_dir_rate),
        lost_logs=lost_logs,
        partitions=partitions,
        assignment=assignment,
    )
