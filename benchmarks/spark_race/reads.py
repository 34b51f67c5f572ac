"""Reading a whole topic into Spark: as a batch, with all columns or the values alone, and as a stream to its end.

What is read is handed to Spark's sink that forgets everything, so that nothing but reading is measured. A stream's time
is also shown in its two parts, of the same runs: a start, which costs the same whatever there is to read, and reading.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.measure import Goal, Result, interleaved
from benchmarks.spark_race.ground import CONNECTOR, OURS, OURS_ON_KAFKA, Contender, Ground
from benchmarks.spark_race.reported_time import ReportedTime

GOALS: Final = (Goal(rival=OURS, at_least=1.5), Goal(rival=OURS_ON_KAFKA, at_least=1.5))


def read_races(ground: Ground, topic: str, size: int, count: int, *, rounds: int, quick: bool) -> Iterator[Result]:
    """All of them, on a topic that holds `count` records."""
    for contender in ground.contenders:
        _check_count(ground, contender, topic, count)
    tasks = {
        f"batch read, {size} B, all columns": read_batch,
        f"batch read, {size} B, values only": read_values,
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
    yield from _stream_races(ground, topic, size, count, rounds=rounds, quick=quick)


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


def read_stream(
    ground: Ground, contender: Contender, topic: str, count: int, parts: list[tuple[float, float]]
) -> float:
    """A new query from the start of the topic to where it ends now; adds the seconds of its start, and of the rest."""
    began = time.perf_counter()
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
    # A stream's tasks run within what Spark calls `addBatch`.
    reading = sum(progress["durationMs"].get("addBatch", 0) for progress in query.recentProgress) / 1000
    parts.append((time.perf_counter() - began - reading, reading))
    return count


def _stream_races(ground: Ground, topic: str, size: int, count: int, *, rounds: int, quick: bool) -> Iterator[Result]:
    """A whole stream, and then the two parts of the same runs, which are told again and not measured again."""
    parts: dict[str, list[tuple[float, float]]] = {contender.name: [] for contender in ground.contenders}
    yield interleaved(
        {
            contender.name: partial(read_stream, ground, contender, topic, count, parts[contender.name])
            for contender in ground.contenders
        },
        title=f"stream read, {size} B, AvailableNow",
        unit="rows",
        baseline=CONNECTOR,
        goals=GOALS,
        rounds=rounds,
        quick=quick,
    )
    for title, unit, part, amount in (
        (f"stream read, {size} B, of that its start and end", "streams", 0, 1),
        (f"stream read, {size} B, of that its micro-batches", "rows", 1, count),
    ):
        clock = ReportedTime()
        yield interleaved(
            {name: partial(_told_again, clock, iter(found), part, amount) for name, found in parts.items()},
            title=title,
            unit=unit,
            baseline=CONNECTOR,
            rounds=rounds,
            quick=quick,
            clock=clock,
        )


def _told_again(clock: ReportedTime, runs: Iterator[tuple[float, float]], part: int, amount: int) -> float:
    clock.advance(next(runs)[part])
    return amount


def _check_count(ground: Ground, contender: Contender, topic: str, count: int) -> None:
    """Fails if a format reads anything but what was written: its time would say nothing."""
    read = ground.spark.read.format(contender.format).options(**contender.reading(topic)).load().count()
    if read != count:
        raise RuntimeError(f"{contender.name} counts {read} of {count} rows in {topic}")
