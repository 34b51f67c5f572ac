"""Which message of a Protobuf schema a value is: the index of a top-level message, then of those nested in it.

The indexes follow the schema's id: their count, then each, as zigzag varints. The first message of a file, the most
frequent case, is a single zero byte.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.schemas.protobuf.symbols import MAIN, joined
from ottla.registry.schemas.protobuf.syntax_tree import Enum, File, Message
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError

_DEPTH_MAX: Final = 64
_VARINT_BYTES_MAX: Final = 5

FIRST: Final = (0,)


def encoded_indexes(indexes: Sequence[int]) -> bytes:
    """The bytes that follow a schema's id."""
    if tuple(indexes) == FIRST:
        return b"\0"
    return b"".join(_encoded(number) for number in (len(indexes), *indexes))


def read_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The indexes at a position, and the position after them. Raises `ValueNotReadableError`."""
    if data[start : start + 1] == b"\0":
        return FIRST, start + 1
    count, position = _read(data, start)
    if not 0 < count <= _DEPTH_MAX:
        raise ValueNotReadableError(f"the value has {count} message indexes, which is not possible in Protobuf")
    indexes = []
    for _ in range(count):
        index, position = _read(data, position)
        indexes.append(index)
    return tuple(indexes), position


def _encoded(number: int) -> bytes:
    number <<= 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _read(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), position
    raise ValueNotReadableError("the message indexes after the schema id are cut off or malformed")


def message_name(schema: ProtobufSchema, indexes: Sequence[int]) -> str:
    """The full name of the message at these indexes. Raises `ValueNotReadableError`."""
    file = _file(schema)
    name = file.package
    types = file.types
    for index in indexes:
        message = next((m for position, m in enumerate(_messages(types)) if position == index), None)
        if message is None:
            raise ValueNotReadableError(f"the schema has no message with the indexes {list(indexes)}")
        name, types = joined(name, message.name), message.types
    return name


def indexes_of(schema: ProtobufSchema, full_name: str, *, normalized: bool = False) -> tuple[int, ...]:
    """The indexes of a message. In a normalized schema, messages that maps stand for do not count.

    Raises `ValueNotSerializableError`.
    """
    file = _file(schema)
    prefix = f"{file.package}." if file.package else ""
    indexes = []
    types = file.types
    parts = full_name.removeprefix(prefix).split(".") if full_name.startswith(prefix) else []
    for part in parts:
        counted = [m for m in _messages(types) if not (normalized and m.is_map_entry)]
        index = next((position for position, message in enumerate(counted) if message.name == part), None)
        if index is None:
            break
        indexes.append(index)
        types = counted[index].types
    if not parts or len(indexes) < len(parts):
        raise ValueNotSerializableError(f"the schema has no message {full_name}")
    return tuple(indexes)


def first_message_name(schema: ProtobufSchema) -> str | None:
    """The full name of the first message, if there is one."""
    file = _file(schema)
    first = next(_messages(file.types), None)
    return None if first is None else joined(file.package, first.name)


def _messages(types: Sequence[Message | Enum]) -> Iterator[Message]:
    return (type_ for type_ in types if isinstance(type_, Message))


def _file(schema: ProtobufSchema) -> File:
    """The file whose messages count: the schema itself, or what it imports publicly if it has nothing of its own."""
    files = schema.table.files
    main = files[MAIN]
    if not main.types and not main.services and not main.extends and len(main.imports) == 1:
        only = main.imports[0]
        if only.kind == "public" and only.path in files and files[only.path].types:
            return files[only.path]
    return main
