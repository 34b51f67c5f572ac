"""What turns keys and values into bytes: any callable, or an object that also wants to know the topic."""

from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable

from ottla.client.producer.errors import SerializationError
from ottla.client.producer.record_fields import shown

Serialized = bytes | bytearray | memoryview | None
_KINDS: Final = (bytes, bytearray, memoryview)


@runtime_checkable
class Serializer(Protocol):
    """For those that need the topic, such as schemas; others are plain callables of the value."""

    def serialize(self, topic: str, value: Any) -> Serialized:
        """The value's bytes; None for none."""


Serialize = Callable[[str, Any], Serialized]


def serialize_with(serializer: Callable[[Any], Serialized] | Serializer | None, what: str) -> Serialize | None:
    """A function of (topic, value) that raises `SerializationError` that names `what`; None if bytes need none."""
    if serializer is None:
        return None
    if isinstance(serializer, Serializer):
        call: Serialize = serializer.serialize
    else:
        plain = serializer

        def call(topic: str, value: Any) -> Serialized:
            return plain(value)

    name = getattr(serializer, "__name__", type(serializer).__name__)

    def serialize(topic: str, value: Any) -> Serialized:
        try:
            made = call(topic, value)
        except Exception as error:
            raise SerializationError(
                f"the {what} serializer {name} failed for a record of topic {topic}, on {shown(value)}: {error!r}"
            ) from error
        if made is not None and not isinstance(made, _KINDS):
            raise SerializationError(
                f"the {what} serializer {name} made {type(made).__name__} of {shown(value)}; it must make bytes or None"
            )
        return made

    return serialize
