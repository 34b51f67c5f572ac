"""Runs streaming queries in tests, and keeps what their micro-batches gave."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import waiting
from tests.spark.topics import values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 90


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
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
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


def wait_until(what: str, query: "StreamingQuery", is_so: Any) -> None:
    """Waits for something that a query brings about; a query that fails meanwhile raises its error."""

    def is_so_or_failed() -> bool:
        if is_so():
            return True
        if (error := query.exception()) is not None:
            raise error
        return False

    waiting.wait_until(is_so_or_failed, what, TIMEOUT_S)


def offset_in(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """The source's offset that Spark wrote down before a micro-batch."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    found: dict[str, Any] = json.loads(lines[2])
    return found
