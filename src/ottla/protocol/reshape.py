"""Messages whose old versions differ in shape, not only in fields: a list of names that became a list of objects.

Covers what matching fields by name cannot (`messages.py`). Each pair of functions takes the message of the wire's
version and the one of the newest, and answers the latter, or the former, with what the other knows.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from ottla.protocol.apis import ApiKey

Reshape = Callable[[Any, Any], Any]


def _field_names(message: Any) -> set[str]:
    return {field.name for field in fields(message)}


def _delete_topics_up(old: Any, new: Any) -> Any:
    """Names became topics, each with a name or an id."""
    if "topic_names" not in _field_names(old):
        return new
    from kio.schema.delete_topics.v6.request import DeleteTopicState

    return replace(new, topics=tuple(DeleteTopicState(name=name, topic_id=None) for name in old.topic_names))


def _delete_topics_down(old: Any, new: Any) -> Any:
    if "topic_names" not in _field_names(old):
        return old
    return replace(old, topic_names=tuple(topic.name for topic in new.topics))


def _find_coordinator_up(old: Any, new: Any) -> Any:
    """One key became several."""
    return new if "key" not in _field_names(old) else replace(new, coordinator_keys=(old.key,))


def _find_coordinator_down(old: Any, new: Any) -> Any:
    is_same = "key" not in _field_names(old) or not new.coordinator_keys
    return old if is_same else replace(old, key=new.coordinator_keys[0])


def _coordinators_up(old: Any, new: Any) -> Any:
    """One coordinator became several, each with its key and its error."""
    if "coordinators" in _field_names(old):
        return new
    from kio.schema.find_coordinator.v6.response import Coordinator

    return replace(
        new,
        coordinators=(
            Coordinator(
                key="",
                node_id=old.node_id,
                host=old.host,
                port=old.port,
                error_code=old.error_code,
                error_message=getattr(old, "error_message", None),
            ),
        ),
    )


def _coordinators_down(old: Any, new: Any) -> Any:
    if "coordinators" in _field_names(old) or not new.coordinators:
        return old
    names = _field_names(old) & {"node_id", "host", "port", "error_code", "error_message"}
    return replace(old, **{name: getattr(new.coordinators[0], name) for name in names})


REQUESTS: Final[dict[ApiKey, tuple[Reshape, Reshape]]] = {
    ApiKey.DELETE_TOPICS: (_delete_topics_up, _delete_topics_down),
    ApiKey.FIND_COORDINATOR: (_find_coordinator_up, _find_coordinator_down),
}
"""By API: (old request, new one as far as fields match) → new; (old one as far as fields match, new request) → old."""

RESPONSES: Final[dict[ApiKey, tuple[Reshape, Reshape]]] = {
    ApiKey.FIND_COORDINATOR: (_coordinators_up, _coordinators_down),
}
"""The same for responses."""
