"""The sources of a project as DataFrames: topics as streams or tables of the latest values, Parquet and Delta files."""

from typing import TYPE_CHECKING, Any, Final

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.columns import ORIGIN
from ottla.spark.pipelines.loading import schema_text
from ottla.spark.pipelines.parsing import DECODED_BY_SOURCE, decoded_rows, parsed_rows
from ottla.spark.pipelines.project import Project, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "ottla"
KEY: Final = "key"
"""The column with the record's key, unless it was given another name."""


def source_rows(spark: "SparkSession", project: Project, view: str, *, group_id: str) -> "DataFrame":
    """The rows of a source, with `_origin` and `_rejected` if it is a topic; `group_id` follows what is read."""
    source = project.settings.sources[view]
    if source.topic is None:
        return _file_rows(spark, project, source)
    if source.latest_by_key:
        return _latest_by_key(spark, project, source)
    return stream_rows(spark, project, view, group_id=group_id)


def stream_rows(spark: "SparkSession", project: Project, view: str, *, group_id: str) -> "DataFrame":
    """The rows of a topic as a stream, also of one that is a table to join with: for its dead letters."""
    source = project.settings.sources[view]
    options = {"startingOffsets": source.starting_offsets, "groupId": group_id}
    rows = _topic_rows(spark.readStream, project, source, options)
    if not source.latest_by_key:
        return rows
    # In a table, a record without a value is not a mistake: it deletes its key.
    return with_key(rows, source).where(f"{ORIGIN}.value IS NOT NULL")


def _latest_by_key(spark: "SparkSession", project: Project, source: Source) -> "DataFrame":
    """The last record of each key, unless it has no value: then the key was deleted.

    Spark plans a table beside a stream anew for each micro-batch, so this reads the topic as it is at that moment.
    """
    from pyspark.sql import functions as F

    rows = with_key(_topic_rows(spark.read, project, source, {}), source)
    others = [name for name in rows.columns if name != ORIGIN]
    last = F.max_by(F.struct(*(F.col(f"`{name}`") for name in (*others, ORIGIN))), F.col(f"{ORIGIN}.offset"))
    latest = rows.groupBy(F.col(f"{ORIGIN}.key").alias("_key")).agg(last.alias("_last")).select("_last.*")
    return latest.where(F.col(f"{ORIGIN}.value").isNotNull())


def with_key(rows: "DataFrame", source: Source) -> "DataFrame":
    """The rows with the record's key as text in their first column: `key`, or as the source calls it."""
    from pyspark.sql import functions as F

    name = source.key_column
    has_key = source.format not in DECODED_BY_SOURCE
    if has_key:
        # Text and bytes have their key as a column already.
        return rows if name is None else rows.withColumnRenamed(KEY, name)
    if name is None and KEY in rows.columns:
        return rows
    if name in rows.columns:
        raise MisuseError(
            f"latest_by_key = {name!r} names the column of the record's key, and the value has a column {name} as well;"
            " give another name"
        )
    return rows.select(F.col(f"{ORIGIN}.key").cast("string").alias(name or KEY), "*")


def _topic_rows(reader: Any, project: Project, source: Source, options: dict[str, str]) -> "DataFrame":
    everything = {
        "kafka.bootstrap.servers": project.settings.bootstrap,
        "subscribe": source.topic or "",
        "includeHeaders": "true",
        # What another pipeline wrote counts once it is committed.
        "kafka.isolation.level": "read_committed",
        **options,
        **{key: option_text(value) for key, value in source.options.items()},
    }
    schema = None if source.schema is None else schema_text(project, source.schema).strip()
    reader = reader.format(FORMAT).options(**everything)
    if source.format in DECODED_BY_SOURCE:
        return decoded_rows(reader, source, schema)
    return parsed_rows(reader.load(), source)


def _file_rows(spark: "SparkSession", project: Project, source: Source) -> "DataFrame":
    kind = "delta" if source.delta is not None else "parquet"
    path = place_of(project, source.delta or source.parquet or "")
    options = {key: option_text(value) for key, value in source.options.items()}
    if source.static:
        return spark.read.format(kind).options(**options).load(path)
    reader = spark.readStream.format(kind).options(**options)
    if kind == "parquet":
        # A stream of files does not look into them for their columns, a batch does.
        schema = schema_text(project, source.schema) if source.schema else spark.read.parquet(path).schema
        reader = reader.schema(schema)
    return reader.load(path)


def place_of(project: Project, path: str) -> str:
    """A path of the project: relative ones begin at its folder, those with a scheme stay as they are."""
    return path if "://" in path else str((project.folder / path).resolve())


def option_text(value: str | int | float | bool) -> str:
    """A value of TOML as Spark's options take it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
