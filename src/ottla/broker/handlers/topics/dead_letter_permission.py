"""Whether a client may have the broker write the dead letters of a topic to another topic.

Without this, a client that may create a topic, or change its configs, could have the broker write to any other one. The
default name, `dlq.<topic>`, belongs to the topic: it needs no permission while no other topic has it.
"""

from collections.abc import Mapping

from ottla.broker.requests.context import RequestContext
from ottla.controller.companions_state import mark_of
from ottla.metadata.configs.queue_settings import CompanionMark, queue_settings_of
from ottla.metadata.image import ClusterImage
from ottla.model.queue_names import CompanionKind
from ottla.security.authorizer import denied
from ottla.security.resources import Operation, ResourceType


def check_dead_letters(
    context: RequestContext,
    image: ClusterImage,
    topic: str,
    configs: Mapping[str, str],
    current: Mapping[str, str] | None = None,
) -> None:
    """Raises a DeniedError unless the client may give a topic these configs, instead of the `current` ones: it must
    be allowed to write to a dead-letter topic that changes, and to create a missing one that it names itself."""
    name = _dead_letters(topic, configs)
    if context.authorizer.allows_all or name is None or (current is not None and name == _dead_letters(topic, current)):
        return
    found = image.topics.get(name)
    settings = queue_settings_of(configs)
    is_named = settings is not None and bool(settings.dead_letter_name)
    if found is None and not is_named:
        return
    if found is not None and mark_of(found) == CompanionMark(topic, CompanionKind.DEAD_LETTERS):
        return
    context.check(Operation.WRITE, ResourceType.TOPIC, name)
    if (
        found is None
        and not context.sees_cluster(Operation.CREATE)
        and not context.allows(Operation.CREATE, ResourceType.TOPIC, name)
    ):
        raise denied(context.connection, Operation.CREATE, ResourceType.TOPIC, name)


def _dead_letters(topic: str, configs: Mapping[str, str]) -> str | None:
    """The dead-letter topic of a topic with these configs; None if it has none."""
    settings = queue_settings_of(configs)
    if settings is None or settings.companion is not None or not settings.enables(CompanionKind.DEAD_LETTERS):
        return None
    return settings.dead_letters_of(topic)
