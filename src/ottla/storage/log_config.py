"""The config of a log: Kafka's topic configs that concern storage, parsed and frozen."""

from dataclasses import dataclass, field
from typing import Final

from ottla.records.layout import Codec, TimestampType

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
UNLIMITED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One log's settings; each field is the Kafka topic config of that name. -1 means no limit where it does in
    Kafka."""

    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    flush_messages: int = UNLIMITED
    flush_ms: int = UNLIMITED
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_compact: bool = False
    cleanup_delete: bool = True
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = MIB + 12
    compression: Codec | None = None
    """The codec that batches are stored with; None keeps the producer's codec."""
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = UNLIMITED
    timestamp_after_max_ms: int = HOUR_MS
    producer_id_expiration_ms: int = DAY_MS
    roll_ms: int = field(init=False)
    """The age at which a segment is rolled: the records of a compacted topic must be sealed before they can be
    cleaned."""
    batch_bytes_max: int = field(init=False)
    """The size limit of a batch: its own limit, or because it must fit into a segment."""
    takes_as_is: bool = field(init=False)
    """Whether batches are stored unchanged: with their codec, their timestamps, and without a check for keys."""
    takes_own_as_is: bool = field(init=False)
    """The same for the broker's own batches, which are not compressed and have keys."""

    def __post_init__(self) -> None:
        longest = self.segment_ms - self.segment_jitter_ms
        object.__setattr__(
            self, "roll_ms", min(longest, self.max_compaction_lag_ms) if self.cleanup_compact else longest
        )
        object.__setattr__(self, "batch_bytes_max", min(self.max_message_bytes, self.segment_bytes))
        as_is = self.compression is None and self.timestamp_type is TimestampType.CREATE_TIME
        object.__setattr__(self, "takes_as_is", as_is and not self.cleanup_compact)
        is_plain = self.compression in (None, Codec.NONE) and self.timestamp_type is TimestampType.CREATE_TIME
        object.__setattr__(self, "takes_own_as_is", is_plain)
