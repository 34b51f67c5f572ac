"""The sources of a project as DataFrames: topics as streams or tables of latest values, Parquet and Delta files."""

from typing import TYPE_CHECKING, Any, Final

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.dataframes.added_columns import ORIGIN
from ottla.spark.pipelines.dataframes.record_rows import DECODED_BY_SOURCE, decoded_rows, parsed_rows
from ottla.spark.pipelines.declaration.loading import schema_text
from ottla.spark.pipelines.declaration.project import Project, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "ottla"
KEY: Final = "key"
"""The default name of the key column."""


def source_rows(spark: "SparkSession", project: Project, view: str, *, group_id: str) -> "DataFrame":
    """The rows of a source, with `_origin` and `_rejected` if it is a topic; `group_id` commits the offsets read."""
    source = project.settings.sources[view]
    if source.topic is None:
        return _file_rows(spark, project, source)
    if source.latest_by_key:
        return _latest_by_key(spark, project, source)
    return stream_rows(spark, project, view, group_id=group_id)


def stream_rows(spark: "SparkSession", project: Project, view: str, *, group_id: str) -> "DataFrame":
    """The rows of a topic as a stream; of a table of latest values too, for its dead letters."""
    source = project.settings.sources[view]
    options = {"startingOffsets": source.starting_offsets, "groupId": group_id}
    rows = _topic_rows(spark.readStream, project, source, options)
    if not source.latest_by_key:
        return rows
    # In a table of latest values, a null value deletes its key; it is not an error.
    return with_key(rows, source).where(f"{ORIGIN}.value IS NOT NULL")


def _latest_by_key(spark: "SparkSession", project: Project, source: Source) -> "DataFrame":
    """The last record of each key, without deleted keys (null values).

    Spark plans a table joined to a stream again for each micro-batch, so each one reads the present end of the topic.
    """
    from pyspark.sql import functions as F

    rows = with_key(_topic_rows(spark.read, project, source, {}), source)
    others = [name for name in rows.columns if name != ORIGIN]
    last = F.max_by(F.struct(*(F.col(f"`{name}`") for name in (*others, ORIGIN))), F.col(f"{ORIGIN}.offset"))
    latest = rows.groupBy(F.col(f"{ORIGIN}.key").alias("_key")).agg(last.alias("_last")).select("_last.*")
    return latest.where(F.col(f"{ORIGIN}.value").isNotNull())


def with_key(rows: "DataFrame", source: Source) -> "DataFrame":
    """The rows with the key of the record as a string in the first column: `key`, or the name set in the source."""
    from pyspark.sql import functions as F

    name = source.key_column
    has_key = source.format not in DECODED_BY_SOURCE
    if has_key:
        # Strings and bytes have the key as a column already.
        return rows if name is None else rows.withColumnRenamed(KEY, name)
    if name is None and KEY in rows.columns:
        return rows
    if name in rows.columns:
        raise MisuseError(
            f"latest_by_key = {name!r}: the value already has a column {name}; choose another name for the key column"
        )
    return rows.select(F.col(f"{ORIGIN}.key").cast("string").alias(name or KEY), "*")


def _topic_rows(reader: Any, project: Project, source: Source, options: dict[str, str]) -> "DataFrame":
    everything = {
        "kafka.bootstrap.servers": project.settings.bootstrap,
        **project.kafka_security(),
        "subscribe": source.topic or "",
        "includeHeaders": "true",
        # Records of another pipeline are read once they are committed.
        "kafka.isolation.level": "read_committed",
        **options,
        **{key: option_text(value) for key, value in source.options.items()},
    }
    schema = None if source.schema is None else schema_text(project, source.schema).strip()
    reader = reader.format(FORMAT).options(**everything)
    if source.format in DECODED_BY_SOURCE:
        login = project.registry_login() if source.has_registered_schema else {}
        return decoded_rows(reader, source, schema, project.settings.registry, login)
    return parsed_rows(reader.load(), source)


def _file_rows(spark: "SparkSession", project: Project, source: Source) -> "DataFrame":
    kind = "delta" if source.delta is not None else "parquet"
    path = place_of(project, source.delta or source.parquet or "")
    options = {key: option_text(value) for key, value in source.options.items()}
    if source.static:
        return spark.read.format(kind).options(**options).load(path)
    reader = spark.readStream.format(kind).options(**options)
    if kind == "parquet":
        # Spark infers columns from files only for a batch read.
        schema = schema_text(project, source.schema) if source.schema else spark.read.parquet(path).schema
        reader = reader.schema(schema)
    return reader.load(path)


def place_of(project: Project, path: str) -> str:
    """A path of the project: relative to its folder; paths with a scheme are unchanged."""
    return path if "://" in path else str((project.folder / path).resolve())


def option_text(value: str | int | float | bool) -> str:
    """A TOML value as a Spark option."""
    return str(value).lower() if isinstance(value, bool) else str(value)
