"""The sinks of a project as streaming queries: topics exactly once, Parquet by Spark's own sink, Delta by its own."""

from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.columns import is_own
from ottla.spark.pipelines.problems import Problem, ProjectError
from ottla.spark.pipelines.project import PROJECT_FILE, Project, Sink
from ottla.spark.pipelines.sources import FORMAT, option_text, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sink_writer(rows: "DataFrame", project: Project, name: str) -> Any:
    """A `DataStreamWriter` for one sink, without its trigger, name and checkpoint."""
    sink = project.settings.sinks[name]
    options = {key: option_text(value) for key, value in sink.options.items()}
    if sink.topic is not None:
        return topic_writer(_records(rows, sink, name), project, sink.topic, options).outputMode(sink.mode)
    plain = rows.select(*(f"`{column}`" for column in _plain_columns(rows)))
    _refuse_missing(name, sink.partition_by, plain.columns, "partition_by")
    kind = "delta" if sink.delta is not None else "parquet"
    writer = plain.writeStream.format(kind).option("path", place_of(project, sink.delta or sink.parquet or ""))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    return writer.options(**options).outputMode(sink.mode)


def topic_writer(records: "DataFrame", project: Project, topic: str, options: dict[str, str]) -> Any:
    """A `DataStreamWriter` for records that have key, value and perhaps headers."""
    writer = records.writeStream.format(FORMAT).option("kafka.bootstrap.servers", project.settings.bootstrap)
    return writer.option("topic", topic).options(**options)


def _plain_columns(rows: "DataFrame") -> list[str]:
    return [column for column in rows.columns if not is_own(column)]


def _records(rows: "DataFrame", sink: Sink, name: str) -> "DataFrame":
    """Rows as records: what the sink's format makes of them, and the key."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    columns = _plain_columns(rows)
    if sink.format == "json":
        value = F.to_json(F.struct(*(F.col(f"`{column}`") for column in columns)))
        further: list[str] = []
    else:
        _refuse_missing(name, ["value"], columns, f"format {sink.format}")
        value = F.col("value").cast("string" if sink.format == "string" else "binary")
        further = [column for column in ("headers", "partition") if column in columns]
    key = F.col("key") if sink.key is None and sink.format != "json" and "key" in columns else None
    try:
        if sink.key is not None:
            key = F.expr(sink.key)
        chosen = [value.alias("value"), *further]
        if key is not None:
            is_binary = rows.select(key.alias("key")).schema["key"].dataType.typeName() == "binary"
            chosen.insert(0, (key if is_binary else key.cast("string")).alias("key"))
        return rows.select(*chosen)
    except AnalysisException as error:
        words = (
            f"key of [sinks.{name}] cannot be made of the columns {', '.join(columns)}: {str(error).splitlines()[0]}"
        )
        raise ProjectError([Problem(file=PROJECT_FILE, words=words)]) from error


def _refuse_missing(name: str, wanted: list[str], columns: list[str], what: str) -> None:
    missing = [column for column in wanted if column not in columns]
    if missing:
        words = f"{what} of [sinks.{name}] needs the column {missing[0]}; the view has {', '.join(columns)}"
        raise ProjectError([Problem(file=PROJECT_FILE, words=words)])
