"""Serializers and deserializers of keys and values: plain callables, or objects that see more than the value.

A serializer may need the topic (`Serializer`), or add headers and ask a server first (`RecordSerializer`); a
deserializer may need the topic and the headers (`RecordDeserializer`). Either may convert whole Arrow columns, for
`send_table` and `poll_arrow` (`ColumnSerializer`, `ColumnDeserializer`). Those that lack something raise
`NotPreparedError`: blocking clients then prepare in the thread that called them, asyncio clients in another thread, so
that the event loop is never blocked, and both try again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from ottla.client.arguments import shown
from ottla.client.producer.errors import SerializationError
from ottla.client.values import Header

if TYPE_CHECKING:
    import pyarrow as pa

Serialized = bytes | bytearray | memoryview | None
_KINDS: Final = (bytes, bytearray, memoryview)


class NotPreparedError(Exception):
    """Raised by a serializer or deserializer that needs something first, such as a schema from a registry."""

    def __init__(self, prepare: Callable[[], object]) -> None:
        """`prepare` may block. Once it has returned, the same call succeeds; it raises why that is not possible."""
        super().__init__("not prepared")
        self.prepare = prepare


@runtime_checkable
class Serializer(Protocol):
    """A serializer that needs the topic, for example for schemas; others are plain callables of the value."""

    def serialize(self, topic: str, value: Any) -> Serialized:
        """The bytes of the value, or None."""


@runtime_checkable
class RecordSerializer(Protocol):
    """A serializer that adds headers, or may have to be prepared."""

    def serialize_record(self, topic: str, value: Any, is_key: bool) -> tuple[Serialized, Sequence[Header]]:
        """The bytes of a key or value, or None, and headers to add. Raises `NotPreparedError`."""


@runtime_checkable
class RecordDeserializer(Protocol):
    """A deserializer that needs the topic or headers, or may have to be prepared."""

    def deserialize_record(self, topic: str, headers: Sequence[Header], data: bytes, is_key: bool) -> Any:
        """The key or value in the bytes. Raises `NotPreparedError`."""


@runtime_checkable
class ColumnSerializer(Protocol):
    """A serializer that also writes Arrow columns."""

    def serialize_column(self, topic: str, values: "pa.Array", is_key: bool) -> "tuple[pa.Array, Sequence[Header]]":
        """The bytes of the keys or values, as the serializer of single records writes them, and headers to add.

        Nulls stay null, and get no headers. Raises `NotPreparedError`.
        """


class DeserializedColumn(NamedTuple):
    """Keys or values as an Arrow column. Bad ones are null, and listed by row, with the reason."""

    values: "pa.Array"
    bad: Sequence[tuple[int, str]]


@runtime_checkable
class ColumnDeserializer(Protocol):
    """A deserializer that also reads Arrow columns."""

    def deserialize_column(
        self, topic: str, values: "pa.Array", headers: "pa.Array", is_key: bool
    ) -> DeserializedColumn:
        """The typed column of the bytes, whose type depends on the topic only. Raises `NotPreparedError`.

        The type may change from call to call; a column without a value may have the type null.
        """


AnySerializer = Callable[[Any], Serialized] | Serializer | RecordSerializer
Deserializer = Callable[[bytes], Any] | RecordDeserializer
Serialize = Callable[[str, Any], Serialized]


def serialize_with(serializer: AnySerializer | None, what: str) -> Serialize | None:
    """A function of (topic, value) that raises `SerializationError` about `what`; None without a serializer.

    Not for a `RecordSerializer`.
    """
    if serializer is None:
        return None
    call = _plain_call(serializer)
    name = _name_of(serializer)

    def serialize(topic: str, value: Any) -> Serialized:
        try:
            made = call(topic, value)
        except Exception as error:
            raise SerializationError(
                f"the {what} serializer {name} failed for a record of topic {topic}, on {shown(value)}: {error!r}"
            ) from error
        if made is not None and not isinstance(made, _KINDS):
            raise SerializationError(
                f"the {what} serializer {name} must return bytes or None, not {type(made).__name__}; given"
                f" {shown(value)}"
            )
        return made

    return serialize


class KeyAndValueSerializers:
    """The serializers of a client whose records may get headers from them."""

    def __init__(self, key_serializer: AnySerializer | None, value_serializer: AnySerializer | None) -> None:
        self._serialize_key = self._serialize_with(key_serializer, "key")
        self._serialize_value = self._serialize_with(value_serializer, "value")

    def serialize(self, topic: str, value: Any, key: Any) -> tuple[Any, Any, list[Header]]:
        """Value, key, and headers to add. Raises `SerializationError`, and `NotPreparedError` to be prepared first."""
        headers: list[Header] = []
        made_key = self._serialize_key(topic, key, headers)
        return self._serialize_value(topic, value, headers), made_key, headers

    async def serialized(self, topic: str, value: Any, key: Any) -> tuple[Any, Any, list[Header]]:
        """Like `serialize`; prepares in another thread."""
        while True:
            try:
                return self.serialize(topic, value, key)
            except NotPreparedError as missing:
                await asyncio.to_thread(missing.prepare)

    @staticmethod
    def _serialize_with(serializer: AnySerializer | None, what: str) -> Callable[[str, Any, list[Header]], Serialized]:
        if not isinstance(serializer, RecordSerializer):
            plain = serialize_with(serializer, what)
            return lambda topic, value, headers: value if plain is None else plain(topic, value)
        rich, name, is_key = serializer, _name_of(serializer), what == "key"

        def serialize(topic: str, value: Any, headers: list[Header]) -> Serialized:
            try:
                made, added = rich.serialize_record(topic, value, is_key)
            except NotPreparedError as missing:
                raise NotPreparedError(partial(prepare, topic, value, missing)) from None
            except Exception as error:
                raise SerializationError(
                    f"the {what} serializer {name} failed for a record of topic {topic}, on {shown(value)}: {error}"
                ) from error
            headers.extend(added)
            return made

        def prepare(topic: str, value: Any, missing: NotPreparedError) -> None:
            try:
                missing.prepare()
            except Exception as error:
                raise SerializationError(
                    f"the {what} serializer {name} could not be prepared for a record of topic {topic}, on"
                    f" {shown(value)}: {error}"
                ) from error

        return serialize


async def deserialized(
    deserializer: Deserializer | None, topic: str, headers: Sequence[Header], data: bytes | None, *, is_key: bool
) -> Any:
    """What a deserializer makes of a key or value; prepares it in another thread. A null stays None."""
    if deserializer is None or data is None:
        return data
    if not isinstance(deserializer, RecordDeserializer):
        return deserializer(data)
    while True:
        try:
            return deserializer.deserialize_record(topic, headers, data, is_key)
        except NotPreparedError as missing:
            await asyncio.to_thread(missing.prepare)


def _plain_call(serializer: AnySerializer) -> Serialize:
    if isinstance(serializer, Serializer):
        return serializer.serialize
    if isinstance(serializer, RecordSerializer):
        raise TypeError(f"{_name_of(serializer)} adds headers")
    plain = serializer

    def call(topic: str, value: Any) -> Serialized:
        return plain(value)

    return call


def _name_of(serializer: AnySerializer) -> str:
    return getattr(serializer, "__name__", type(serializer).__name__)
