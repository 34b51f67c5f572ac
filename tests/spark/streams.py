"""Runs streaming queries in tests, and keeps what their micro-batches gave."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.topics import values_of
from tests.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


class Batches:
    """What a query's micro-batches gave; the same batch run again takes the place of the first."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """What `foreachBatch` calls."""
        self.rows[batch_id] = rows.collect()

    @property
    def values(self) -> list[bytes]:
        """All values, batch by batch."""
        return [value for batch_id in sorted(self.rows) for value in values_of(self.rows[batch_id])]

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had."""
        return [len(self.rows[batch_id]) for batch_id in sorted(self.rows)]


def run_available(stream: "DataFrame", checkpoint: Path) -> Batches:
    """Reads all there is, and ends."""
    found = Batches()
    query = (
        stream.writeStream.foreachBatch(found)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_SECONDS), "the query did not end"
    finally:
        query.stop()
    return found


@contextmanager
def running(stream: "DataFrame", checkpoint: Path, found: Batches) -> Iterator["StreamingQuery"]:
    """A query that goes on until it is left."""
    query = stream.writeStream.foreachBatch(found).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def wait_for(what: str, query: "StreamingQuery", condition: Callable[[], object]) -> None:
    """Waits for something that a query brings about; a query that fails meanwhile raises its error."""

    def is_so() -> object:
        if (error := query.exception()) is not None:
            raise error
        return condition()

    wait_until(is_so, what)


def offset_in(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """The source's offset that Spark wrote down before a micro-batch."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    found: dict[str, Any] = json.loads(lines[2])
    return found
