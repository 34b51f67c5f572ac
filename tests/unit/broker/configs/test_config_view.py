"""The configuration that acts: static configs, dynamic ones over them, a topic's own over both."""

from dataclasses import replace
from uuid import UUID

from ottla.broker.configs.config_view import ConfigView
from ottla.broker.configs.configuration import BrokerConfig
from ottla.controller.decisions import TopicDefaults
from ottla.controller.elections_state import TopicRules
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.ids import TopicPartition
from ottla.replication.throttles import ThrottledSide

OWN = {"retention.ms": "5", "follower.replication.throttled.replicas": "0:3"}
TOPIC = TopicImage(name="t", id=UUID(int=1), partitions=(), configs=OWN)
IMAGE = ClusterImage(
    topics={"t": TOPIC},
    broker_configs={
        "": {"num.partitions": "4", "min.insync.replicas": "2", "log.retention.ms": "7"},
        "3": {"follower.replication.throttled.rate": "1000"},
        "4": {"log.retention.ms": "9"},
    },
)


def view() -> ConfigView:
    return ConfigView(BrokerConfig.parse(settings={"node.id": "3", "log.retention.ms": "6"}), lambda: IMAGE)


def test_dynamic_configs_are_over_the_static_ones_once_they_are_applied() -> None:
    configs = view()
    assert (6, 5) == (
        configs.log_config(TopicPartition("other", 0)).retention_ms,
        configs.log_config(TopicPartition("t", 0)).retention_ms,
    )
    assert (TopicDefaults(partition_count=1, replication_factor=1), None) == (
        configs.topic_defaults(),
        configs.throttled_rate(ThrottledSide.FOLLOWER),
    )
    configs.apply(IMAGE)
    assert (7, 5) == (
        configs.log_config(TopicPartition("other", 0)).retention_ms,
        configs.log_config(TopicPartition("t", 0)).retention_ms,
    )
    assert TopicDefaults(partition_count=4, replication_factor=1) == configs.topic_defaults()
    assert TopicRules(min_in_sync=2, allows_unclean=False) == configs.rules_of(TOPIC)
    assert (None, 1000) == tuple(map(configs.throttled_rate, ThrottledSide))
    configs.apply(replace(IMAGE, broker_configs={}, features={}))
    assert configs.static == configs.current
    # With eligible leader replicas, it is a config of the cluster.
    configs.apply(replace(IMAGE, broker_configs={}))
    assert {"min.insync.replicas": "1"} == configs.current.cluster_wide


def test_throttled_replicas_are_the_topics_own() -> None:
    configs = view()
    assert ((), ("0:3",)) == tuple(configs.throttled_replicas(side, "t") for side in ThrottledSide)
    assert ((), ()) == tuple(configs.throttled_replicas(side, "unknown") for side in ThrottledSide)


def test_topics_with_the_same_configs_share_their_settings() -> None:
    configs = view()
    assert configs.settings_of(OWN) is configs.settings_of(dict(reversed(OWN.items())))
    before = configs.settings_of({})
    configs.apply(IMAGE)
    assert (6, 7) == (before.log.retention_ms, configs.settings_of({}).log.retention_ms)
