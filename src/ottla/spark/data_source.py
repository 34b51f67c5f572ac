"""The data source `ottla`, as Spark's Python API wants it: it names the reader or writer for each kind of query.

Spark makes an object of this for every use, on the driver and in workers, so nothing happens here but choosing. Options
arrive with names in lower case. Reading is in `batch_reader.py` and `stream_reader.py`; writing in `batch_writer.py`
and `stream_writer.py`.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from ottla.spark.launch.quiet_exit import expect_in_daemon

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


# Each of Spark's processes that plans something for this data source loads it, and is ended some time later.
expect_in_daemon()


class OttlaDataSource(DataSource):
    """Topics of Ottla or Apache Kafka as tables and streams; found by Spark under the format name `ottla`."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "ottla"

    def schema(self) -> "StructType | str":
        """The columns of Spark's Kafka connector, or those that `valueFormat` promises."""
        from ottla.spark.source.schema import source_schema

        return source_schema(self._given())

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Reads a batch."""
        from ottla.spark.source.batch_reader import BatchReader

        return BatchReader(self._given(), schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        """Reads a stream."""
        from ottla.spark.source.stream_reader import StreamReader

        return StreamReader(self._given(), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """Writes a batch; a topic can only be added to."""
        from ottla.client.options import OptionError
        from ottla.spark.sink.batch_writer import BatchWriter

        if overwrite:
            raise OptionError('a topic cannot be overwritten; use mode("append")')
        return BatchWriter(self._given(), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        """Writes a stream. In output mode complete, each micro-batch writes the whole result again."""
        from ottla.spark.sink.stream_writer import StreamWriter

        return StreamWriter(self._given(), schema)

    def _given(self) -> dict[str, str]:
        options: dict[str, Any] = dict(self.options)
        return {str(name).lower(): str(value) for name, value in options.items()}
