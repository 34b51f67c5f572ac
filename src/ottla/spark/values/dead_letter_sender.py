"""Sends records that cannot be decoded from an executor to a dead-letter topic.

The worker process keeps one producer per cluster. All records are written before `send` returns, so that a batch of
rows is never passed on while its bad records might be lost. A task that Spark repeats sends its dead letters again;
their headers identify the original record.
"""

import atexit
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.client.producer.options import ProducerConfig
from ottla.model.dead_letters import DeadLetter, Origin, dead_letter_headers, error_reason, error_type
from ottla.model.errors import OttlaError
from ottla.registry.serde.arrow.row_decoding import RejectedRow
from ottla.spark.option_names import chosen_for, client_options

if TYPE_CHECKING:
    from ottla.client.producer.blocking_producer import Producer


class DeadLetterError(OttlaError):
    """A bad record could not be written to the dead-letter topic, so its batch fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopic:
    """The dead-letter topic."""

    name: str
    client: Mapping[str, str] = field(repr=False)
    """The `kafka.` options of the source, which name the cluster."""

    def send(self, records: pa.RecordBatch, rejected: Iterable[RejectedRow], schema_ids: pa.Array | None) -> None:
        """Writes the rejected rows of a batch that has the columns of the connector; raises `DeadLetterError`.

        `schema_ids` has the id of each record's schema as text, if the values have schemas of a registry.
        """
        bad = list(rejected)
        places = pa.array([each.index for each in bad])
        rows = records.take(places).to_pylist()
        ids = [None] * len(bad) if schema_ids is None else schema_ids.take(places).to_pylist()
        producer = _producer(self.client)
        try:
            sent = [
                producer.send(
                    self.name,
                    row["value"],
                    row["key"],
                    headers(row, each.error, schema_id),
                    timestamp_ms=_milliseconds(row["timestamp"]),
                )
                for row, each, schema_id in zip(rows, bad, ids, strict=True)
            ]
            producer.flush()
            for delivery in sent:
                delivery.get(0)
        except OttlaError as error:
            raise DeadLetterError(
                f"a bad record could not be written to dead-letter topic {self.name}: {error}"
            ) from error


def headers(
    row: Mapping[str, Any], error: BaseException, schema_id: str | None = None
) -> list[tuple[str, bytes | None]]:
    """The headers of the record, and those with its origin, its schema and the reason."""
    letter = DeadLetter(
        origin=Origin(topic=row["topic"], partition=row["partition"], offset=row["offset"]),
        reason=error_reason(error),
        exception=error_type(error),
        timestamp_ms=_milliseconds(row["timestamp"]),
        stack="".join(traceback.format_exception(error)),
        schema_id=schema_id,
    )
    own = [(each["key"], each["value"]) for each in row.get("headers") or ()]
    return dead_letter_headers(own, letter)


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
