"""The check of the demo: compares the written orders with the topics and Parquet files, each order once."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from examples.order_stream import Expected
from ottla import Consumer, TopicPartition
from ottla.model.dead_letters import OFFSET, PARTITION, SCHEMA_ID, TOPIC
from ottla.spark.pipelines.running.parquet_files import committed_files

WINDOWS_TOPIC: Final = "orders-per-minute"
DEAD_TOPIC: Final = "orders-dead"
CLOSING: Final = "closing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One claim: two numbers that must be equal."""

    claim: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def committed_records(bootstrap: str, topic: str, partitions: int) -> list[Any]:
    """All committed records of a topic."""
    places = [TopicPartition(topic, index) for index in range(partitions)]
    found: list[Any] = []
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=500).values():
                found += records
    return found


def windows_of(records: list[Any]) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]], int]:
    """Orders and cents by minute and country, and the number of duplicate windows."""
    orders: Counter[tuple[str, str]] = Counter()
    cents: Counter[tuple[str, str]] = Counter()
    for record in records:
        row = json.loads(record.value)
        window = (row["minute"][:19], row["country"])
        orders[window] += row["orders"]
        cents[window] += round(row["amount"] * 100)
    return orders, cents, len(records) - len(orders)


def _has_schema(record: Any) -> bool:
    return any(key == SCHEMA_ID for key, _ in record.headers)


def prove(bootstrap: str, partitions: int, archive: Path, expected: Expected) -> list[Line]:
    """All claims with the numbers found."""
    orders, cents, twice = windows_of(committed_records(bootstrap, WINDOWS_TOPIC, partitions))
    dead = committed_records(bootstrap, DEAD_TOPIC, partitions)
    origins = {tuple(value for key, value in record.headers if key in (TOPIC, PARTITION, OFFSET)) for record in dead}
    files = committed_files(archive) if archive.exists() else []
    archived = [row for file in files for row in pq.ParquetFile(file).read(["id", "schema_id"]).to_pylist()]
    ids = [row["id"] for row in archived]
    # The ids of schemas count up.
    schemas = sorted({int(row["schema_id"]) for row in archived})
    evolved = [row for row in archived if schemas.index(int(row["schema_id"])) == 1 and row["id"] != CLOSING]
    clean = expected.orders - expected.wrong
    return [
        Line(claim="orders in dead letters", expected=expected.wrong, found=len(dead)),
        Line(claim="different ones among them", expected=expected.wrong, found=len(origins)),
        Line(claim="orders in the windows", expected=clean, found=orders.total()),
        Line(
            claim="windows that are right to the cent",
            expected=len(expected.windows),
            found=sum(
                orders[key] == expected.windows[key] and cents[key] == expected.cents[key] for key in expected.windows
            ),
        ),
        Line(claim="windows written twice", expected=0, found=twice),
        Line(claim="orders in Parquet", expected=clean, found=len([name for name in ids if name != CLOSING])),
        Line(claim="different ones among them", expected=clean, found=len(set(ids) - {CLOSING})),
        Line(claim="with the second schema", expected=expected.evolved, found=len(evolved)),
        Line(claim="schemas of orders", expected=2, found=len(schemas)),
        Line(claim="dead letters that name their schema", expected=expected.named, found=sum(map(_has_schema, dead))),
    ]
