"""The metrics of a producer, under the names that Kafka's clients use."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class ProducerCounts:
    """Counters; written by the thread of the sender only."""

    records_sent: int = 0
    bytes_sent: int = 0
    batches_sent: int = 0
    requests: int = 0
    records_failed: int = 0
    uncompressed_bytes: int = 0
    latency_ms_total: float = 0.0
    latency_ms_max: float = 0.0
    queue_ms_total: float = 0.0
    answers: int = 0
    buffer_waits: int = 0
    buffer_wait_ms: float = 0.0

    def as_metrics(self, **now: float) -> dict[str, dict[str, Any]]:
        """The metrics as one group; `now` adds current values, with _ for - in their names."""
        values: dict[str, Any] = {
            "record-send-total": self.records_sent,
            "record-error-total": self.records_failed,
            "outgoing-byte-total": self.bytes_sent,
            "request-total": self.requests,
            "batch-size-avg": _ratio(self.bytes_sent, self.batches_sent),
            "records-per-request-avg": _ratio(self.records_sent, self.requests),
            "compression-rate-avg": _ratio(self.bytes_sent, self.uncompressed_bytes),
            "request-latency-avg": _ratio(self.latency_ms_total, self.answers),
            "request-latency-max": self.latency_ms_max,
            "record-queue-time-avg": _ratio(self.queue_ms_total, self.batches_sent),
            "bufferpool-wait-total": self.buffer_waits,
            "bufferpool-wait-time-ms-total": self.buffer_wait_ms,
        }
        return {"producer-metrics": values | {name.replace("_", "-"): value for name, value in now.items()}}


def _ratio(total: float, count: float) -> float:
    return total / count if count else 0.0
