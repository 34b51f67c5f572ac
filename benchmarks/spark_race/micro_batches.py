"""What a micro-batch costs when there is little in it: the time that Spark itself reports for each.

A stream takes a topic to its end in batches of a thousand rows. The first batches of a query, which start Python
workers, clients and producers, are not counted: a query lives for weeks.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from benchmarks.measure import Goal, Result, interleaved
from benchmarks.spark_race.ground import CONNECTOR, OURS, OURS_ON_KAFKA, Contender, Ground
from benchmarks.spark_race.reported_time import ReportedTime

GOALS: Final = (Goal(rival=OURS, at_least=1.0), Goal(rival=OURS_ON_KAFKA, at_least=1.0))
BATCH_ROWS: Final = 1000
BATCHES_UNCOUNTED: Final = 3


def micro_batch_races(ground: Ground, batches: int, *, rounds: int, quick: bool) -> Iterator[Result]:
    """Into nowhere, which is the source's part; and from topic to topic, which is both."""
    topic = "small-batches"
    ground.fill(topic, 100, BATCH_ROWS * batches)
    for title, writes in (("topic to nowhere", False), ("topic to topic", True)):
        clock = ReportedTime()
        targets = {contender.name: f"small-{contender.name.replace(' ', '-')}" for contender in ground.contenders}
        if writes:
            for target in targets.values():
                ground.new_topic(target)
        yield interleaved(
            {
                contender.name: partial(
                    run_batches, ground, contender, topic, targets[contender.name] if writes else None, clock
                )
                for contender in ground.contenders
            },
            title=f"micro-batches of {BATCH_ROWS} rows, {title}",
            unit="batches",
            baseline=CONNECTOR,
            goals=GOALS,
            rounds=rounds,
            quick=quick,
            clock=clock,
        )


def run_batches(ground: Ground, contender: Contender, topic: str, target: str | None, clock: ReportedTime) -> float:
    """A new query over the whole topic; how many batches were counted, their time reported to `clock`."""
    options = {**contender.reading(topic), "maxOffsetsPerTrigger": str(BATCH_ROWS)}
    rows = ground.spark.readStream.format(contender.format).options(**options).load()
    if target is None:
        writer = rows.writeStream.format("noop")
    else:
        writer = rows.select("key", "value").writeStream.format(contender.format).options(**contender.writing(target))
    query = writer.option("checkpointLocation", ground.checkpoint()).trigger(availableNow=True).start()
    query.awaitTermination()
    counted = [progress for progress in query.recentProgress if progress["numInputRows"] > 0][BATCHES_UNCOUNTED:]
    clock.advance(sum(_seconds(progress) for progress in counted))
    return len(counted)


def _seconds(progress: Any) -> float:
    milliseconds: float = progress["durationMs"]["triggerExecution"]
    return milliseconds / 1000
