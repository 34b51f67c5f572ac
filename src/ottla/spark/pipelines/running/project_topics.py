"""Checks or creates the topics of a project before Spark is started."""

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.model.errors import MisuseError
from ottla.spark.pipelines.declaration.project import Project


def topics_of(project: Project) -> list[str]:
    """Every topic that a project reads or writes, each once."""
    settings = project.settings
    found = [source.topic for source in settings.sources.values()] + [sink.topic for sink in settings.sinks.values()]
    if settings.dead_letters is not None:
        found.append(settings.dead_letters.topic)
    # A source may list several topics, separated by commas.
    return list(dict.fromkeys(name.strip() for topic in found if topic is not None for name in topic.split(",")))


def ensure_topics(project: Project, *, create: bool) -> list[str]:
    """Raises `MisuseError` if topics are missing, or creates them with the defaults of the broker and returns them."""
    if not topics_of(project):
        return []
    with Admin(**project.admin_options()) as admin:
        there = set(admin.list_topics())
        missing = [topic for topic in topics_of(project) if topic not in there]
        if missing and not create:
            commands = ", ".join(f"`ottla topics create {topic}`" for topic in missing)
            raise MisuseError(
                f"missing topics at {project.settings.bootstrap}: {', '.join(missing)}; create them with {commands}, "
                "or pass --create-topics"
            )
        if missing:
            admin.create_topics([NewTopic(topic) for topic in missing], wait_for_metadata=True)
        return missing
