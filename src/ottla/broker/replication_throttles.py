"""Which partitions' copying is slowed down on this broker, and by how much, as the configs say.

The rates are dynamic configs of brokers (`leader.` and `follower.replication.throttled.rate`), the partitions are
configs of topics (`….throttled.replicas`). Counting is `ottla.replication.throttle`'s.
"""

from typing import TYPE_CHECKING, Final

from ottla.broker.topic_settings import TopicSettings
from ottla.replication.partition import Partition
from ottla.replication.throttle import Throttle, is_named

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


class ReplicationThrottles:
    """One throttle for all that this broker sends to followers, one for all that it takes from leaders."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._throttles: dict[str, Throttle] = {}

    def of_leader(self, partition: Partition) -> Throttle | None:
        """What slows down followers of a partition that is led here; mostly nothing."""
        throttle = self._throttle(_LEADER_RATE)
        if throttle is None:
            return None
        settings = self._settings(partition)
        named = settings is not None and is_named(settings.leader_throttled_replicas, partition.index, self._broker.id)
        return throttle if named else None

    def of_follower(self, partition: Partition) -> Throttle | None:
        """What slows down the copying of a partition to here; mostly nothing."""
        throttle = self._throttle(_FOLLOWER_RATE)
        if throttle is None:
            return None
        settings = self._settings(partition)
        named = settings is not None and is_named(
            settings.follower_throttled_replicas, partition.index, self._broker.id
        )
        return throttle if named else None

    def _throttle(self, name: str) -> Throttle | None:
        rate = self._broker.config.values.get(name)
        if not isinstance(rate, int):
            return None
        known = self._throttles.get(name)
        if known is None or known.bytes_per_second != rate:
            known = self._throttles[name] = Throttle(rate, self._broker.clock.monotonic())
        return known

    def _settings(self, partition: Partition) -> TopicSettings | None:
        topic = self._broker.image.topics.get(partition.topic)
        return None if topic is None else self._broker.settings_of(topic.configs)
