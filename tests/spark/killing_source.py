"""A data source like `ottla` whose processes die, or raise, at a chosen point of the commit protocol, once.

Two options of its own: `killAt` names the point, and `killFolder` is where the process that dies leaves a note, so that
the next one lives. Everything else is the real thing: only what happens before and after its steps is added here.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ottla.spark.data_source import OttlaDataSource
from ottla.spark.sink.broker_requests import SinkBroker
from ottla.spark.sink.stream_writer import StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

POINTS = (
    "mid-write",
    "before-fence",
    "before-decision",
    "after-decision",
    "half-committed",
    "after-commit",
    "after-done",
)
"""Where a process can be killed, in the order in which they come."""
_HANG_SECONDS = 600
_STORE, _COMMIT = SinkBroker.store, SinkBroker.commit


class KillingSource(OttlaDataSource):
    """Format `ottla_killing`."""

    @classmethod
    def name(cls) -> str:
        return "ottla_killing"

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        given = self._given()
        plan = KillPlan(given.pop("killat", ""), given.pop("killfolder", ""), given.pop("killhow", "kill"))
        return KillingWriter(given, schema, plan)


class KillPlan:
    """Where to die, how, and whether somebody did already."""

    def __init__(self, point: str, folder: str, how: str) -> None:
        self._point = point
        self._folder = folder
        self._how = how
        """`kill` this process, with no abort after it, as if the driver had died; `driver` really kills that; `worker`
        kills this process only; `raise` an error; `broker` kills that; `stop` and `hang` leave it there, asleep."""

    @property
    def has_abort(self) -> bool:
        """Whether Spark's call after a failure reaches the sink."""
        return self._how not in ("kill", "driver")

    def at(self, point: str) -> None:
        """The process is there."""
        if point != self._point or not self._is_first():
            return
        match self._how:
            case "raise":
                raise RuntimeError(f"told to fail at {point}")
            case "broker":
                os.kill(int((Path(self._folder) / "broker").read_text()), signal.SIGKILL)
            case "hang":
                sleep(_HANG_SECONDS)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "driver":
                os.killpg(int((Path(self._folder) / "driver").read_text()), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self) -> bool:
        try:
            with (Path(self._folder) / f"{self._point}-happened").open("x") as note:
                note.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True


class KillingWriter(StreamWriter):
    """Lets the plan know where it is."""

    def __init__(self, options: dict[str, str], schema: "StructType", plan: KillPlan) -> None:
        super().__init__(options, schema)
        self._plan = plan

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return super().write(self._half_way(iterator))

    def _half_way(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from ottla.spark.sink import row_writer

        # So that rows are on their way before the task dies.
        row_writer._PIECE_BYTES = 1  # type: ignore[misc]
        for batch in batches:
            half = max(batch.num_rows // 2, 1)
            yield batch.slice(0, half)
            if TaskContext.get().partitionId() == 0:
                self._plan.at("mid-write")
            yield batch.slice(half)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.at("before-fence")
        _listen(self._plan)
        super().commit(messages, batchId)
        self._plan.at("after-done")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if self._plan.has_abort:
            super().abort(messages, batchId)


def _listen(plan: KillPlan) -> None:
    """Adds the plan's points to what this process does with brokers, in the place of those of a plan before."""
    store, commit = _STORE, _COMMIT

    async def stored(self: SinkBroker, decision: Any) -> None:
        if not decision.is_done:
            plan.at("before-decision")
        await store(self, decision)
        if not decision.is_done:
            plan.at("after-decision")

    async def committed(self: SinkBroker, transactions: Any) -> Any:
        if len(transactions) > 1:
            await commit(self, transactions[:1])
        plan.at("half-committed")
        refused = await commit(self, transactions)
        plan.at("after-commit")
        return refused

    SinkBroker.store, SinkBroker.commit = stored, committed  # type: ignore[method-assign]
