"""The configuration that acts on this broker now, and what it means for a topic and for the other parts.

The static configuration is under the dynamic configs of the cluster's image. A topic's own configs are over both.
Most topics share their settings with others, so that resolved settings are kept.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.configs.configuration import BrokerConfig, unknown_broker_config
from ottla.broker.configs.topic_settings import TopicSettings
from ottla.controller.decisions import TopicDefaults
from ottla.controller.elections_state import TopicRules
from ottla.metadata.configs.definition import COMPLAINTS_MAX
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.ids import TopicPartition
from ottla.replication.throttles import ThrottledSide
from ottla.storage.log_config import LogConfig

_LOGGER: Final = logging.getLogger(__name__)
_SETTINGS_KEPT_MAX: Final = 1000
_SHOWN_MAX: Final = 100
_MIN_ISR: Final = "min.insync.replicas"
_RATES: Final = {side: f"{side}.replication.throttled.rate" for side in ThrottledSide}


class ConfigView:
    """`current` is replaced whole when a dynamic config changes: read it again instead of keeping it."""

    def __init__(self, static: BrokerConfig, image: Callable[[], ClusterImage]) -> None:
        self.static: Final = static
        """As the operator wrote it."""
        self.current = static
        """With the dynamic configs over it."""
        self._image = image
        self._unknown: frozenset[str] = frozenset()
        self._settings: dict[tuple[tuple[str, str], ...], TopicSettings] = {}

    def apply(self, image: ClusterImage) -> None:
        """Takes the dynamic configs of an image."""
        self._settings.clear()
        cluster_wide = image.broker_configs.get("", {})
        if image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
            # As in Kafka, min.insync.replicas is then a config of the cluster, and the static value its default.
            cluster_wide = {_MIN_ISR: str(self.static.min_insync_replicas), **cluster_wide}
        self.current = self.static.with_dynamic(cluster_wide, image.broker_configs.get(str(self.static.broker_id), {}))
        unknown = self.current.unknown_configs
        for name in sorted(unknown - self._unknown)[:COMPLAINTS_MAX]:
            _LOGGER.warning(
                "dynamic broker config %s has no effect: %s", name[:_SHOWN_MAX], unknown_broker_config(name)
            )
        self._unknown = unknown

    def settings_of(self, configs: Mapping[str, str]) -> TopicSettings:
        """The settings of a topic with these configs of its own."""
        key = tuple(sorted(configs.items()))
        settings = self._settings.get(key)
        if settings is None:
            if len(self._settings) >= _SETTINGS_KEPT_MAX:
                self._settings.clear()
            settings = self._settings[key] = TopicSettings.resolve(self.current, configs)
        return settings

    def log_config(self, partition: TopicPartition) -> LogConfig:
        """The settings of a partition's log; the defaults if the image does not have its topic."""
        topic = self._image().topics.get(partition.topic)
        return self.settings_of(topic.configs if topic is not None else {}).log_of(partition)

    def topic_defaults(self) -> TopicDefaults:
        """What a new topic gets that does not say otherwise."""
        return TopicDefaults(
            partition_count=self.current.num_partitions, replication_factor=self.current.default_replication_factor
        )

    def rules_of(self, topic: TopicImage) -> TopicRules:
        """What a topic's configs mean for elections."""
        settings = self.settings_of(topic.configs)
        return TopicRules(
            min_in_sync=settings.min_insync_replicas,
            allows_unclean=settings.unclean_leader_election_enable,
            keeps_eligible=self._image().features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0,
        )

    def throttled_rate(self, side: ThrottledSide) -> int | None:
        """The rate of throttled replication in bytes per second; None if there is no throttle."""
        rate = self.current.values.get(_RATES[side])
        return rate if isinstance(rate, int) else None

    def log_dir_rate(self) -> int | None:
        """The limit of bytes per second that are copied between data dirs; None if there is none."""
        rate = self.current.values.get("replica.alter.log.dirs.io.max.bytes.per.second")
        return rate if isinstance(rate, int) else None

    def throttled_replicas(self, side: ThrottledSide, topic: str) -> tuple[str, ...]:
        """The throttled replicas of a topic: `partition:broker` pairs, or `*` for all."""
        found = self._image().topics.get(topic)
        if found is None:
            return ()
        settings = self.settings_of(found.configs)
        if side is ThrottledSide.LEADER:
            return settings.leader_throttled_replicas
        return settings.follower_throttled_replicas
