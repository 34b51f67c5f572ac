"""The streaming queries of a project: one per sink, and one per view that can have dead letters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.dataframes.rejections import dead_letter_rows
from ottla.spark.pipelines.dataframes.sinks import sink_writer, topic_writer
from ottla.spark.pipelines.dataframes.view_builder import ViewBuilder
from ottla.spark.pipelines.declaration.project import Project
from ottla.spark.pipelines.declaration.project_file import parse_span
from ottla.spark.pipelines.running.query_names import dead_letter_query
from ottla.spark.pipelines.running.run_files import checkpoint_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query that is ready to start."""

    name: str
    view: str
    to: str
    writer: Any


def plan_queries(spark: "SparkSession", project: Project, *, once: bool) -> list[PlannedQuery]:
    """All queries of a project. Raises `ProjectError` if Spark finds a problem."""
    builder = ViewBuilder(spark, project)
    planned = []
    for name, sink in project.settings.sinks.items():
        writer = sink_writer(builder.build(sink.view, name).good, project, name)
        planned.append((name, sink.view, sink.topic or sink.parquet or sink.delta or "", writer))
    letters = project.settings.dead_letters
    if letters is not None:
        for view in project.order:
            if view in builder.rejecting and not _is_static(project, view):
                name = dead_letter_query(view)
                rows = dead_letter_rows(builder.build_rejected(view, name), view, project.name)
                planned.append((name, view, letters.topic, topic_writer(rows, project, letters.topic, {})))
    trigger = (
        {"availableNow": True} if once else {"processingTime": f"{parse_span(project.settings.trigger)} milliseconds"}
    )
    return [
        PlannedQuery(
            name=name,
            view=view,
            to=to,
            writer=writer.queryName(f"{project.name}.{name}")
            .option("checkpointLocation", checkpoint_place(project, name))
            .trigger(**trigger),
        )
        for name, view, to, writer in planned
    ]


def _is_static(project: Project, view: str) -> bool:
    """Whether a view depends on tables only and is never a stream; the topic of a table has its own stream."""
    if view in project.settings.sources:
        return project.settings.sources[view].static
    sources = [project.settings.sources[each] for each in project.needed_for(view) if each in project.settings.sources]
    return all(source.static or source.latest_by_key for source in sources)
