"""Which subject of the registry the schema of a key or value belongs to.

A strategy is a function of the topic, whether it is the key, and the full name of the record, which is None for schemas
that have no name.
"""

from collections.abc import Callable
from typing import Final

from ottla.registry.serde.errors import ValueNotSerializableError

SubjectName = Callable[[str, bool, str | None], str]
_TOPICS_MAX: Final = 10_000
_NEEDS_NAME: Final = (ValueNotSerializableError, TypeError, AttributeError, LookupError)
"""What a strategy may raise if the record has no name. Other errors, such as those of a network, are not hidden."""


def topic_subject(topic: str, is_key: bool, record_name: str | None) -> str:
    """One schema for the topic: orders-key, orders-value."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_subject(topic: str, is_key: bool, record_name: str | None) -> str:
    """One schema for the record, in all topics: shop.Order."""
    return _named(record_name)


def topic_record_subject(topic: str, is_key: bool, record_name: str | None) -> str:
    """One schema for each record in the topic: orders-shop.Order."""
    return f"{topic}-{_named(record_name)}"


class SubjectContexts:
    """The contexts of a strategy's subjects, in which ids are meant: each context has ids of its own."""

    def __init__(self, subject_name: SubjectName) -> None:
        self._subject_name = subject_name
        self._known: dict[tuple[str, bool], str | None] = {}

    def find(self, topic: str, is_key: bool) -> str | None:
        """The context of keys or values of a topic, such as `:.staging:`; None for the default context."""
        try:
            return self._known[topic, is_key]
        except KeyError:
            if len(self._known) >= _TOPICS_MAX:
                self._known.clear()
            context = self._known[topic, is_key] = self._asked(topic, is_key)
            return context

    def _asked(self, topic: str, is_key: bool) -> str | None:
        # The record's name is not known before the schema is; the context does not depend on it.
        for name in (None, ""):
            try:
                return context_prefix(self._subject_name(topic, is_key, name))
            except _NEEDS_NAME:
                continue
        return None


def context_prefix(subject: str | None) -> str | None:
    """The context in front of a subject, such as `:.staging:`; None for the default context."""
    if subject is None or not subject.startswith(":."):
        return None
    context, colon, _ = subject[1:].partition(":")
    return f":{context}:" if colon and context != "." else None


def _named(record_name: str | None) -> str:
    if record_name is None:
        raise ValueNotSerializableError("the subject is named after the record, but the schema is not a record")
    return record_name
