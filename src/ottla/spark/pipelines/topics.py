"""The topics of a project: whether they are there, before Spark is started for nothing."""

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.model.errors import MisuseError
from ottla.spark.pipelines.project import Project


def topics_of(project: Project) -> list[str]:
    """Every topic that a project reads or writes, each once."""
    settings = project.settings
    found = [source.topic for source in settings.sources.values()] + [sink.topic for sink in settings.sinks.values()]
    if settings.dead_letters is not None:
        found.append(settings.dead_letters.topic)
    # A source may name several, as the connector does.
    return list(dict.fromkeys(name.strip() for topic in found if topic is not None for name in topic.split(",")))


def provide_topics(project: Project, *, create: bool) -> list[str]:
    """Raises `MisuseError` if a topic is missing; or creates those, with the brokers' defaults, and answers them."""
    if not topics_of(project):
        return []
    with Admin(bootstrap_servers=project.settings.bootstrap) as admin:
        there = set(admin.list_topics())
        missing = [topic for topic in topics_of(project) if topic not in there]
        if missing and not create:
            commands = ", ".join(f"`ottla topics create {topic}`" for topic in missing)
            raise MisuseError(
                f"{project.settings.bootstrap} has no topic {' and no topic '.join(missing)}; make it with {commands}, "
                "or let the pipeline make it: --create-topics"
            )
        if missing:
            admin.create_topics([NewTopic(topic) for topic in missing], wait_for_metadata=True)
        return missing
