"""The broker configs of share groups and of the share coordinator, with the names, types and defaults of Kafka 4.4.

`group_configs.py` has the configs that a group may override.
"""

from typing import Final

from ottla.metadata.configs.definition import ConfigType, UpdateMode
from ottla.metadata.configs.definition import define as _define

_INT, _SHORT, _LIST, _STRING, _BOOLEAN = (
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LIST,
    ConfigType.STRING,
    ConfigType.BOOLEAN,
)
_ANY: Final = UpdateMode.CLUSTER_WIDE
_UNUSED: Final = "It has no effect in Ottla."

SHARE_CONFIGS: Final = (
    _define("errors.deadletterqueue.topic.name.prefix", _STRING, "dlq.",
            "How the name of a share group's dead-letter topic must begin; empty for any name.", update_mode=_ANY),
    _define("errors.deadletterqueue.auto.create.topics.enable", _BOOLEAN, "false",
            "Whether the dead-letter topic of a share group is created if it does not exist.", update_mode=_ANY),
    _define("group.share.session.timeout.ms", _INT, "45000", "The session timeout of share groups.", 1),
    _define("group.share.min.session.timeout.ms", _INT, "45000", "The smallest session timeout of share groups.", 1),
    _define("group.share.max.session.timeout.ms", _INT, "60000", "The largest session timeout of share groups.", 1),
    _define("group.share.heartbeat.interval.ms", _INT, "5000", "The heartbeat interval of share groups.", 1),
    _define("group.share.min.heartbeat.interval.ms", _INT, "5000",
            "The smallest heartbeat interval of share groups.", 1),
    _define("group.share.max.heartbeat.interval.ms", _INT, "15000",
            "The largest heartbeat interval of share groups.", 1),
    _define("group.share.max.size", _INT, "200", "How many members a share group may have.", 1, 1000),
    _define("group.share.assignors", _LIST, "simple", "The assignors of share groups.", allowed=("simple",)),
    _define("group.share.assignment.interval.ms", _INT, "1000",
            "The shortest time between two assignments of a share group; 0 for no limit.", 0, update_mode=_ANY),
    _define("group.share.min.assignment.interval.ms", _INT, "0",
            "The smallest assignment interval of share groups.", 0),
    _define("group.share.max.assignment.interval.ms", _INT, "15000",
            "The largest assignment interval of share groups.", 0),
    _define("group.share.initialize.retry.interval.ms", _INT, "30000",
            "How long a share group waits for the share coordinator to initialize a partition before it asks again.",
            1, is_hidden=True),
    _define("group.share.delivery.count.limit", _INT, "5",
            "How many times a record is delivered to a share group at most.", 2, 10),
    _define("group.share.min.delivery.count.limit", _INT, "2", "The smallest delivery count limit of a group.", 2, 5),
    _define("group.share.max.delivery.count.limit", _INT, "10", "The largest delivery count limit of a group.", 5, 25),
    _define("group.share.record.lock.duration.ms", _INT, "30000",
            "How long a member of a share group may hold a record before it is delivered again.", 1000, 3600000),
    _define("group.share.min.record.lock.duration.ms", _INT, "15000",
            "The smallest record lock duration of a group.", 1000, 30000),
    _define("group.share.max.record.lock.duration.ms", _INT, "60000",
            "The largest record lock duration of a group.", 30000, 3600000),
    _define("group.share.partition.max.record.locks", _INT, "2000",
            "How many records of a partition a share group may have in flight.", 100, 10000),
    _define("group.share.min.partition.max.record.locks", _INT, "100",
            "The smallest limit of records in flight of a group.", 100, 2000),
    _define("group.share.max.partition.max.record.locks", _INT, "4000",
            "The largest limit of records in flight of a group.", 2000, 10000),
    _define("group.share.max.share.sessions", _INT, "2000", "How many share sessions a broker keeps.", 1),
    _define("share.fetch.purgatory.purge.interval.requests", _INT, "1000",
            f"How often completed share fetches are purged. {_UNUSED}"),
    _define("share.coordinator.state.topic.num.partitions", _INT, "50",
            "The number of partitions of the share-group state topic.", 1),
    _define("share.coordinator.state.topic.replication.factor", _SHORT, "3",
            "The number of replicas of the share-group state topic.", 1),
    _define("share.coordinator.state.topic.min.isr", _SHORT, "2",
            "min.insync.replicas of the share-group state topic.", 1),
    _define("share.coordinator.state.topic.segment.bytes", _INT, "104857600",
            "The segment size of the share-group state topic.", 1),
    _define("share.coordinator.state.topic.compression.codec", _INT, "0",
            "The codec number of the share-group state topic.", 0, 4),
    _define("share.coordinator.state.topic.prune.interval.ms", _INT, "300000",
            "How often records of the share-group state topic that are no longer needed are deleted.", 1,
            is_hidden=True),
    _define("share.coordinator.cold.partition.snapshot.interval.ms", _INT, "300000",
            "How long a share-partition may stay unchanged before it gets a new snapshot.", 1, is_hidden=True),
    _define("share.coordinator.snapshot.update.records.per.snapshot", _INT, "500",
            "How many updates of a share-partition are written between two snapshots.", 0, 500),
    _define("share.coordinator.write.timeout.ms", _INT, "5000",
            f"How long the share coordinator waits for its replicas. {_UNUSED}", 1),
    _define("share.coordinator.load.buffer.size", _INT, "5242880",
            f"The read buffer for loading share-group state. {_UNUSED}", 1),
    _define("share.coordinator.threads", _INT, "1",
            "Threads of the share coordinator. It has no effect in Ottla: one event loop does all the work.", 1),
    _define("share.coordinator.append.linger.ms", _INT, "-1",
            f"How long the share coordinator waits for more writes. {_UNUSED}", -1),
    _define("share.coordinator.cached.buffer.max.bytes", _INT, "1048588",
            f"The largest buffer that the share coordinator keeps. {_UNUSED}", 524288, update_mode=_ANY),
)  # fmt: skip

ORDERED: Final = (
    ("group.share.min.session.timeout.ms", "group.share.session.timeout.ms"),
    ("group.share.session.timeout.ms", "group.share.max.session.timeout.ms"),
    ("group.share.min.heartbeat.interval.ms", "group.share.heartbeat.interval.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    ("group.share.min.assignment.interval.ms", "group.share.assignment.interval.ms"),
    ("group.share.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.max.delivery.count.limit"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
    ("group.share.max.size", "group.share.max.share.sessions"),
)
"""Configs of which the first may not be larger than the second."""
