"""The sinks of a project as streaming queries: topics exactly once, Parquet and Delta with their own sinks."""

from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.dataframes.added_columns import is_own
from ottla.spark.pipelines.dataframes.sources import FORMAT, option_text, place_of
from ottla.spark.pipelines.declaration.problems import Problem, ProjectError
from ottla.spark.pipelines.declaration.project import PROJECT_FILE, Project, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sink_writer(rows: "DataFrame", project: Project, name: str) -> Any:
    """A `DataStreamWriter` for one sink, without its trigger, name and checkpoint."""
    sink = project.settings.sinks[name]
    options = {key: option_text(value) for key, value in sink.options.items()}
    if sink.topic is not None and sink.has_registered_schema:
        registered = {"schemaRegistryUrl": sink.registry or project.settings.registry or "", "valueFormat": sink.format}
        registered |= {} if sink.subject is None else {"valueSubject": sink.subject}
        registered |= project.registry_login()
        fields = _fields(rows, sink, name)
        return topic_writer(fields, project, sink.topic, registered | options).outputMode(sink.mode)
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
    return writer.options(**project.kafka_security()).option("topic", topic).options(**options)


def _plain_columns(rows: "DataFrame") -> list[str]:
    return [column for column in rows.columns if not is_own(column)]


def _fields(rows: "DataFrame", sink: Sink, name: str) -> "DataFrame":
    """The columns that are the fields of a value with a schema, and the key as `_key`."""
    from pyspark.sql import functions as F

    columns = _plain_columns(rows)
    fields = [F.col(f"`{column}`") for column in columns]
    return _with_key(rows, [] if sink.key is None else [(F.expr(sink.key), "_key")], fields, name)


def _records(rows: "DataFrame", sink: Sink, name: str) -> "DataFrame":
    """Rows as records: the value in the format of the sink, and the key."""
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
    if sink.key is not None:
        key = F.expr(sink.key)
    return _with_key(rows, [] if key is None else [(key, "key")], [value.alias("value"), *further], name)


def _with_key(rows: "DataFrame", keys: list[tuple[Any, str]], chosen: list[Any], name: str) -> "DataFrame":
    """The chosen columns, after the key if there is one: bytes as they are, anything else as a string."""
    from pyspark.errors import AnalysisException

    try:
        found = []
        for key, role in keys:
            is_binary = rows.select(key.alias(role)).schema[role].dataType.typeName() == "binary"
            found.append((key if is_binary else key.cast("string")).alias(role))
        return rows.select(*found, *chosen)
    except AnalysisException as error:
        words = (
            f"key in [sinks.{name}] cannot be computed from the columns {', '.join(_plain_columns(rows))}: "
            f"{str(error).splitlines()[0]}"
        )
        raise ProjectError([Problem(file=PROJECT_FILE, message=words)]) from error


def _refuse_missing(name: str, wanted: list[str], columns: list[str], what: str) -> None:
    missing = [column for column in wanted if column not in columns]
    if missing:
        words = f"{what} in [sinks.{name}] needs the column {missing[0]}; the view has {', '.join(columns)}"
        raise ProjectError([Problem(file=PROJECT_FILE, message=words)])
