"""Topics for Apache Spark: the data source `ottla`, for batches and streams, reading and writing, without a jar.

Reading: `data_source.py` is what Spark talks to; `source_options.py` knows the options; `offset_text.py` the offsets as
people and checkpoints write them; `range_plan.py` decides which offsets a micro-batch and a task get; the readers
(`batch_reader.py`, `stream_reader.py`) ask the cluster on the driver, and `range_scan.py` reads ranges on executors.
Option names of Kafka's own clients (`kafka.…`) are translated in `option_names.py`.

Writing: `stream_writer.py` and `batch_writer.py` are what Spark talks to; `sink_task.py` is a task, and
`sink_coordinator.py` the driver; `sink_decision_state.py` decides, and `sink_broker.py` asks the brokers.

Values: `value_format.py` makes columns of them, and `rejected_rows.py` finds those that are bad. `progress.py` reads
what a query reports, and `follow_groups` has consumer groups follow it.
"""

from typing import TYPE_CHECKING, Final

from ottla.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.spark.progress import StreamProgress, stream_progress
    from ottla.spark.source.group_offsets_listener import FollowGroups, follow_groups

__all__ = ["FollowGroups", "StreamProgress", "follow_groups", "stream_progress"]

_HOMES: Final = {
    "FollowGroups": "ottla.spark.source.group_offsets_listener",
    "StreamProgress": "ottla.spark.progress",
    "follow_groups": "ottla.spark.source.group_offsets_listener",
    "stream_progress": "ottla.spark.progress",
}

# Most of the package needs no Spark, and must not load it.
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
