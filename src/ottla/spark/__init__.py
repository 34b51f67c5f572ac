"""Topics for Apache Spark: the data source `ottla`, for batches and streams, reading and writing, without a jar.

Spark calls `data_source.py`. Option names of Kafka's own clients (`kafka.…`) are translated in `option_names.py`.

Reading is in `source/`: `options.py` parses the options, `offset_text.py` reads and writes offsets as text;
`admission.py` decides which offsets a micro-batch gets, `span_plan.py` which of them a task gets. The readers
(`batch_reader.py`, `stream_reader.py`) ask the cluster on the driver, and `span_scan.py` reads spans on executors.

Writing is in `sink/`: Spark calls `stream_writer.py` and `batch_writer.py`; `task.py` is the side of the executor,
`driver.py` that of the driver; `decision_state.py` decides, and `broker_requests.py` asks the brokers.

Values are in `values/`: `value_format.py` decodes them into columns and handles those that cannot be decoded,
`value_encoder.py` encodes. `progress.py` reads what a query reports; `follow_groups` commits it to consumer groups.
`pipelines/` runs projects declared in files, `launch/` starts Spark.
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
