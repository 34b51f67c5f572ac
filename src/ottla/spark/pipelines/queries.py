"""The streaming queries of a project: one for each sink, and one for each view that can have dead letters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.loading import unused_views
from ottla.spark.pipelines.project import Project
from ottla.spark.pipelines.project_file import parse_span
from ottla.spark.pipelines.rejections import dead_letter_rows
from ottla.spark.pipelines.run_files import checkpoint_place
from ottla.spark.pipelines.sinks import sink_writer, topic_writer
from ottla.spark.pipelines.views import ViewBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEAD_LETTERS: Final = "dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query that is ready to start."""

    name: str
    view: str
    to: str
    writer: Any


def dead_letter_query(view: str) -> str:
    """The name of the query that writes the dead letters of one view."""
    return f"{DEAD_LETTERS}-{view}"


def query_names(project: Project) -> list[str]:
    """The queries that a project may have, by what its files say; which views reject anything only Spark knows."""
    names = list(project.settings.sinks)
    if project.settings.dead_letters is not None:
        names += [dead_letter_query(view) for view in _used_views(project)]
    return names


def plan_queries(spark: "SparkSession", project: Project, *, once: bool) -> list[PlannedQuery]:
    """All queries of a project. Raises `ProjectError` for what Spark finds wrong."""
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


def _used_views(project: Project) -> list[str]:
    unused = set(unused_views(project))
    return [view for view in project.order if view not in unused]


def _is_static(project: Project, view: str) -> bool:
    """Whether a view is made of tables only, and so never is a stream; the topic of a table has a stream of its own."""
    if view in project.settings.sources:
        return project.settings.sources[view].static
    sources = [project.settings.sources[each] for each in project.needed_for(view) if each in project.settings.sources]
    return all(source.static or source.latest_by_key for source in sources)
