"""Writing rows into a topic: as a batch, and as a stream. Both sinks run with their defaults.

So the connector's may write a row twice when a task is tried again, while ours writes each exactly once: all of a batch
in transactions that end together. Afterwards the connector counts what everybody wrote, committed rows only.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measure import Goal, Result, interleaved
from benchmarks.spark_race.ground import CONNECTOR, OURS, OURS_ON_KAFKA, Contender, Ground

GOALS: Final = (Goal(rival=OURS, at_least=1.0), Goal(rival=OURS_ON_KAFKA, at_least=1.0))
SCHEMA: Final = "key BINARY, value BINARY"


def write_races(ground: Ground, size: int, count: int, *, rounds: int, quick: bool) -> Iterator[Result]:
    """Batch and stream, `count` rows each time."""
    files = ground.rows_in_files(size, count)
    for kind, task in (("batch", write_batch), ("stream", write_stream)):
        topics = {
            contender.name: f"{kind}-{size}-{contender.name.replace(' ', '-')}" for contender in ground.contenders
        }
        for topic in topics.values():
            ground.new_topic(topic)
        result = interleaved(
            {
                contender.name: partial(task, ground, contender, topics[contender.name], files, count)
                for contender in ground.contenders
            },
            title=f"{kind} write, {size} B, exactly once (the connector: at least once)",
            unit="rows",
            baseline=CONNECTOR,
            goals=GOALS,
            rounds=rounds,
            quick=quick,
        )
        for contender in ground.contenders:
            # Every round, and the one before them that warms up.
            _check_written(ground, contender, topics[contender.name], count * (result.rounds + 1))
        yield result


def write_batch(ground: Ground, contender: Contender, topic: str, files: Path, count: int) -> float:
    """One job."""
    rows = ground.spark.read.schema(SCHEMA).parquet(str(files))
    rows.write.format(contender.format).options(**contender.writing(topic)).mode("append").save()
    return count


def write_stream(ground: Ground, contender: Contender, topic: str, files: Path, count: int) -> float:
    """A new query, and one micro-batch."""
    rows = ground.spark.readStream.schema(SCHEMA).parquet(str(files))
    query = (
        rows.writeStream.format(contender.format)
        .options(**contender.writing(topic))
        .option("checkpointLocation", ground.checkpoint())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return count


def _check_written(ground: Ground, contender: Contender, topic: str, count: int) -> None:
    options = {**contender.reading(topic), "kafka.isolation.level": "read_committed"}
    written = ground.spark.read.format("kafka").options(**options).load().count()
    if written != count:
        raise RuntimeError(f"{contender.name} wrote {written} rows into {topic}, and should have written {count}")
