"""Where the race is run: two brokers with the same records in their topics, and one Spark session that knows both.

A contender is a format of Spark on one of the brokers. What they do there is in `reads.py`, `writes.py` and
`micro_batches.py`.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kafka_race.arena import create_topic
from benchmarks.kafka_race.brokers import RECIPES, RunningBroker
from benchmarks.spark_race.connector import connector_jars, use_matching_spark
from ottla.client.producer.blocking_producer import Producer
from ottla.spark.launch.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 4
CORES: Final = 2
TABLE_ROWS: Final = 20_000
IN_FLIGHT: Final = 20
"""Tables under way while a topic is filled."""

CONNECTOR: Final = "connector on kafka"
OURS: Final = "ottla on ottla"
OURS_ON_KAFKA: Final = "ottla on kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One of Spark's formats, talking to one broker."""

    name: str
    format: str
    bootstrap: str

    def reading(self, topic: str) -> dict[str, str]:
        """The options that name the topic and its whole length."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def writing(self, topic: str) -> dict[str, str]:
        """The options of a sink."""
        return {"kafka.bootstrap.servers": self.bootstrap, "topic": topic}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Brokers that run, a session that is warm, and a folder for files."""

    spark: "SparkSession"
    brokers: tuple[RunningBroker, ...]
    contenders: tuple[Contender, ...]
    folder: Path

    def fill(self, topic: str, size: int, count: int) -> None:
        """The same records into a new topic of both brokers."""
        for broker in self.brokers:
            create_topic(broker, topic, PARTITIONS)
            with Producer(bootstrap_servers=broker.address.bootstrap) as producer:
                sent = []
                for rows in tables(size, count):
                    sent.append(producer.send_table(topic, rows))
                    if len(sent) > IN_FLIGHT:
                        sent.pop(0).get(60)
                for delivery in sent:
                    delivery.get(60)

    def new_topic(self, topic: str) -> None:
        """An empty topic on both brokers."""
        for broker in self.brokers:
            create_topic(broker, topic, PARTITIONS)

    def rows_in_files(self, size: int, count: int) -> Path:
        """A folder of Parquet files with that many rows of key and value, one file for each task that will read it."""
        folder = self.folder / f"rows-{size}"
        folder.mkdir()
        for number in range(PARTITIONS):
            rows = pa.concat_tables(tables(size, count // PARTITIONS))
            # Random bytes do not compress, and looking for repetitions would only be work for the reader.
            pq.write_table(rows, folder / f"{number}.parquet", compression="none", use_dictionary=False)
        return folder

    def checkpoint(self) -> str:
        """A new folder for one stream."""
        return tempfile.mkdtemp(prefix="checkpoint-", dir=self.folder)


def tables(size: int, count: int) -> Iterator[pa.Table]:
    """Rows with a key of 8 bytes and a value of `size` bytes, in tables that are sent one after the other."""
    keys = [index.to_bytes(8, "big") for index in range(TABLE_ROWS)]
    noise = os.urandom(size + TABLE_ROWS)
    values = [noise[index : index + size] for index in range(TABLE_ROWS)]
    rows = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    while count > 0:
        yield rows.slice(0, count)
        count -= min(count, TABLE_ROWS)


@contextlib.contextmanager
def prepared_ground(settings: dict[str, str] | None = None) -> Iterator[Ground]:
    """Starts all; stops all at the end, and leaves no file."""
    jars = connector_jars(use_matching_spark())
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-spark-race-")))
        brokers = tuple(_started(stack, recipe, folder) for recipe in RECIPES)
        address = {broker.name: broker.address.bootstrap for broker in brokers}
        spark = build_session(
            "race",
            master=f"local[{CORES}]",
            settings={
                "spark.jars": ",".join(map(str, jars)),
                "spark.driver.memory": "2g",
                "spark.ui.showConsoleProgress": "false",
                "spark.log.level": "ERROR",
                **(settings or {}),
            },
        )
        stack.callback(spark.stop)
        yield Ground(
            spark=spark,
            brokers=brokers,
            contenders=(
                Contender(name=CONNECTOR, format="kafka", bootstrap=address["kafka"]),
                Contender(name=OURS, format="ottla", bootstrap=address["ottla"]),
                Contender(name=OURS_ON_KAFKA, format="ottla", bootstrap=address["kafka"]),
            ),
            folder=folder,
        )


def _started(stack: contextlib.ExitStack, recipe: Any, folder: Path) -> RunningBroker:
    broker = RunningBroker(recipe, folder / recipe.name)
    stack.callback(broker.stop)
    broker.start()
    broker.wait_listening()
    return broker
