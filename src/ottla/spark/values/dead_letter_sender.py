"""Records that no format could decode, on their way from an executor to a dead-letter topic.

A producer for each cluster is kept in the worker's process, and closed with it. Everything is written before `send`
returns, so that a batch of rows is never handed on while its bad records might still be lost. A task that Spark runs
again sends its dead letters again; their headers say which record each one was.
"""

import atexit
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.client.parallel.dead_letters import (
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP,
    ORIGIN_TOPIC,
    error_story,
    with_story,
)
from ottla.client.producer.options import ProducerConfig
from ottla.model.errors import OttlaError
from ottla.spark.option_names import chosen_for, client_options
from ottla.spark.values.rejected_rows import RejectedRow

if TYPE_CHECKING:
    from ottla.client.producer.blocking_producer import Producer


class DeadLetterError(OttlaError):
    """A bad record could not be put aside, so the batch it is in cannot go on. Says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopic:
    """Where bad records go."""

    name: str
    client: Mapping[str, str]
    """The source's `kafka.` options, which name the cluster."""

    def send(self, records: pa.RecordBatch, rejected: Iterable[RejectedRow]) -> None:
        """Writes the rejected rows of a batch with the connector's columns; raises `DeadLetterError`."""
        bad = list(rejected)
        rows = records.take(pa.array([each.index for each in bad])).to_pylist()
        producer = _producer(self.client)
        try:
            sent = [
                producer.send(
                    self.name,
                    row["value"],
                    row["key"],
                    headers(row, each.error),
                    timestamp_ms=_milliseconds(row["timestamp"]),
                )
                for row, each in zip(rows, bad, strict=True)
            ]
            producer.flush()
            for delivery in sent:
                delivery.get(0)
        except OttlaError as error:
            raise DeadLetterError(f"a bad record could not be written to the topic {self.name}: {error}") from error


def headers(row: Mapping[str, Any], error: BaseException) -> list[tuple[str, bytes | None]]:
    """The record's own headers, and those that say where it came from and what is wrong with it."""
    stack = "".join(traceback.format_exception(error))
    timestamp = _milliseconds(row["timestamp"])
    origin = {
        ORIGIN_TOPIC: row["topic"],
        ORIGIN_PARTITION: str(row["partition"]),
        ORIGIN_OFFSET: str(row["offset"]),
        ORIGIN_TIMESTAMP: "" if timestamp is None else str(timestamp),
    }
    own = [(each["key"], each["value"]) for each in row.get("headers") or ()]
    return with_story(own, {**origin, **error_story(error, stack)})


def _milliseconds(timestamp: Any) -> int | None:
    found = None if timestamp is None else round(timestamp.timestamp() * 1000)
    return found if found is not None and found >= 0 else None


_producers: Final[dict[tuple[tuple[str, str], ...], "Producer"]] = {}
_lock: Final = threading.Lock()


def _producer(client: Mapping[str, str]) -> "Producer":
    from ottla.client.producer.blocking_producer import Producer

    key = tuple(sorted(client.items()))
    with _lock:
        if key not in _producers:
            if not _producers:
                atexit.register(_close_all)
            _producers[key] = Producer(**chosen_for(ProducerConfig, client_options(client)))
        return _producers[key]


def _close_all() -> None:
    with _lock:
        for producer in _producers.values():
            producer.close()
        _producers.clear()
