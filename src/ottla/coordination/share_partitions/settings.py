"""The settings of a group's share-partitions, `share.*`, with Kafka's defaults."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionSettings:
    """What a group's configs mean for its share-partitions."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    in_flight_max: int = 2_000
    """How many offsets may be between the start offset and the end of what was delivered."""
    allows_renewal: bool = True
    release_backoff_ms: int = 0
    """How long a record that was released after its first delivery waits; doubled with each further delivery."""
    release_backoff_max_ms: int = 60_000
    is_read_committed: bool = False
    starts_at_earliest: bool = False
    """Where a group starts in a partition: at its start, or else at its end."""
    reset_age_ms: int | None = None
    """If set, a group starts at the first record that is not older than this."""
    dead_letter_topic: str = ""
    """Where records go that were rejected or delivered too often; empty if they are only archived."""
    copies_dead_letters: bool = False
    """Whether a dead letter has the content of its record."""

    def release_delay_ms(self, delivery_count: int) -> int:
        """How long a record waits that is released after this number of deliveries."""
        if not self.release_backoff_ms:
            return 0
        return min(self.release_backoff_ms << min(max(delivery_count - 1, 0), 30), self.release_backoff_max_ms)


SettingsOf = Callable[[str], SharePartitionSettings]
"""The current settings of a group."""
