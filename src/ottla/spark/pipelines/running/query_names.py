"""The names of a project's queries: one per sink, and one per view that can have dead letters. Pure."""

from typing import Final

from ottla.spark.pipelines.declaration.loading import unused_views
from ottla.spark.pipelines.declaration.project import Project

DEAD_LETTERS: Final = "dead_letters"


def dead_letter_query(view: str) -> str:
    """The name of the query that writes the dead letters of one view."""
    return f"{DEAD_LETTERS}-{view}"


def query_names(project: Project) -> list[str]:
    """The queries that a project may have; only Spark knows which views can reject rows."""
    names = list(project.settings.sinks)
    if project.settings.dead_letters is not None:
        unused = set(unused_views(project))
        names += [dead_letter_query(view) for view in project.order if view not in unused]
    return names


def view_of(project: Project, query: str) -> str:
    """The view whose rows a query writes."""
    sink = project.settings.sinks.get(query)
    return query.removeprefix(f"{DEAD_LETTERS}-") if sink is None else sink.view
