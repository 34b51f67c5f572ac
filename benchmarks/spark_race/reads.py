"""Reading a whole topic into Spark: as a batch, with all columns or the values alone, and as a stream to its end.

What is read is handed to Spark's sink that forgets everything, so that nothing but reading is measured.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.measure import Goal, Result, interleaved
from benchmarks.spark_race.ground import CONNECTOR, OURS, OURS_ON_KAFKA, Contender, Ground

GOALS: Final = (Goal(rival=OURS, at_least=1.5), Goal(rival=OURS_ON_KAFKA, at_least=1.5))


def read_races(ground: Ground, topic: str, size: int, count: int, *, rounds: int, quick: bool) -> Iterator[Result]:
    """All of them, on a topic that holds `count` records."""
    for contender in ground.contenders:
        _check_count(ground, contender, topic, count)
    tasks = {
        f"batch read, {size} B, all columns": read_batch,
        f"batch read, {size} B, values only": read_values,
        f"stream read, {size} B, AvailableNow": read_stream,
    }
    for title, task in tasks.items():
        yield interleaved(
            {contender.name: partial(task, ground, contender, topic, count) for contender in ground.contenders},
            title=title,
            unit="rows",
            baseline=CONNECTOR,
            goals=GOALS,
            rounds=rounds,
            quick=quick,
        )


def read_batch(ground: Ground, contender: Contender, topic: str, count: int) -> float:
    """The columns that both have unless asked for more."""
    rows = ground.spark.read.format(contender.format).options(**contender.reading(topic)).load()
    rows.write.format("noop").mode("overwrite").save()
    return count


def read_values(ground: Ground, contender: Contender, topic: str, count: int) -> float:
    """One column. Spark tells only its own sources which columns are wanted; ours is told by a schema."""
    reader = ground.spark.read.format(contender.format).options(**contender.reading(topic))
    rows = reader.schema("value BINARY").load() if contender.format == "ottla" else reader.load().select("value")
    rows.write.format("noop").mode("overwrite").save()
    return count


def read_stream(ground: Ground, contender: Contender, topic: str, count: int) -> float:
    """A new query from the start of the topic to where it ends now."""
    rows = ground.spark.readStream.format(contender.format).options(**contender.reading(topic)).load()
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", ground.checkpoint())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = sum(progress["numInputRows"] for progress in query.recentProgress)
    if read != count:
        raise RuntimeError(f"{contender.name} read {read} of {count} rows of {topic}")
    return count


def _check_count(ground: Ground, contender: Contender, topic: str, count: int) -> None:
    """A race is no use if somebody reads something else than was written."""
    read = ground.spark.read.format(contender.format).options(**contender.reading(topic)).load().count()
    if read != count:
        raise RuntimeError(f"{contender.name} counts {read} of {count} rows in {topic}")
