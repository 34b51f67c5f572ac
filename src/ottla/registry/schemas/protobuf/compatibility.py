"""Whether one Protobuf schema can read what another one wrote.

The rules, and the names and paths of what they find, are those of Confluent's registry. Fields are compared by number:
their types must be the same message, or scalars with the same encoding, and must not become exclusive in a oneof.
Names of fields and everything in enums can change. Two things are ours: groups are compared, because a group is encoded
differently from a message; and required fields are found in editions too.

Messages of the schema itself are compared by name. Messages of imports are compared when a field uses them, each pair
once, so the time is linear in the size of both schemas.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final

from ottla.registry.schemas.parsed_schema import Incompatibility
from ottla.registry.schemas.protobuf import features as features_module
from ottla.registry.schemas.protobuf.features import Features, with_options
from ottla.registry.schemas.protobuf.symbols import MAIN, FileView, Symbol, SymbolTable, joined
from ottla.registry.schemas.protobuf.syntax_tree import Enum, Field, Message
from ottla.registry.schemas.time_limit import check_time

_SCALAR: Final = "scalar"
_MAP: Final = "map"
_MESSAGE: Final = "message"
_GROUP: Final = "group"

_ENUM_KIND: Final = "number"
_SCALAR_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), _ENUM_KIND),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
"""Scalar types with the same value here can replace each other: they have the same encoding."""


def incompatibilities(writer: SymbolTable, reader: SymbolTable) -> Sequence[Incompatibility]:
    """Why a reader cannot read what was written with the writer's schema."""
    return _Comparison(writer, reader).findings()


@dataclass(frozen=True, slots=True)
class _Side:
    """A message on one side, and how its names are found."""

    message: Message
    full_name: str
    view: FileView
    features: Features
    """Those inside the message."""


@dataclass(frozen=True, slots=True)
class _Type:
    """A field's type: a scalar (or enum), a map, a message, or a group."""

    kind: str
    text: str
    scalar_kind: str = ""
    symbol: Symbol | None = None
    key: "_Type | None" = None
    value: "_Type | None" = None


@dataclass(frozen=True, slots=True)
class _Use:
    """A field whose type is a pair of messages of imports: incompatible if that pair is."""

    pair: tuple[str, str]
    path: str
    message: str


@dataclass(slots=True)
class _Found:
    own: list[Incompatibility] = dataclass_field(default_factory=list)
    uses: list[_Use] = dataclass_field(default_factory=list)


class _Comparison:
    def __init__(self, writer: SymbolTable, reader: SymbolTable) -> None:
        self._writer = writer
        self._reader = reader
        self._pairs: dict[tuple[str, str], _Found] = {}
        self._pending: list[tuple[tuple[str, str], Symbol, Symbol]] = []
        self._found = _Found()

    def findings(self) -> Sequence[Incompatibility]:
        main = self._found
        writer, reader = self._writer.files[MAIN], self._reader.files[MAIN]
        if writer.package != reader.package:
            self._add(
                "PACKAGE_CHANGED",
                (),
                f"the package is {reader.package or 'empty'} for the reader, "
                f"but {writer.package or 'empty'} for the writer",
            )
        self._types(
            _messages(writer.types),
            _messages(reader.types),
            (writer.package, self._writer.view(MAIN), _file_features(self._writer, MAIN)),
            (reader.package, self._reader.view(MAIN), _file_features(self._reader, MAIN)),
            (),
        )
        while self._pending:
            pair, writer_symbol, reader_symbol = self._pending.pop()
            self._found = self._pairs[pair]
            local_name = _local_name(self._writer, writer_symbol)
            self._message(
                self._side(self._writer, writer_symbol),
                self._side(self._reader, reader_symbol),
                tuple(local_name.split(".")),
            )
        return self._all(main)

    def _all(self, main: _Found) -> Sequence[Incompatibility]:
        """What was found, with the uses of those pairs that are incompatible, directly or through their own fields."""
        users: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for pair, found in self._pairs.items():
            for use in found.uses:
                users.setdefault(use.pair, []).append(pair)
        pending = [pair for pair, found in self._pairs.items() if found.own]
        broken = set(pending)
        while pending:
            for user in users.get(pending.pop(), ()):
                if user not in broken:
                    broken.add(user)
                    pending.append(user)
        result: list[Incompatibility] = []
        for found in (main, *self._pairs.values()):
            result += found.own
            result += [
                Incompatibility(kind="FIELD_NAMED_TYPE_CHANGED", path=use.path, message=use.message)
                for use in found.uses
                if use.pair in broken
            ]
        return result

    def _add(self, kind: str, path: tuple[str, ...], message: str) -> None:
        self._found.own.append(Incompatibility(kind=kind, path=_path_text(path), message=message))

    def _side(self, table: SymbolTable, symbol: Symbol) -> _Side:
        assert isinstance(symbol.node, Message)
        features = with_options(table.features_around(symbol), symbol.node.options)
        return _Side(symbol.node, symbol.full_name, table.view(symbol.path), features)

    # Types

    def _types(
        self,
        writers: Mapping[str, Message],
        readers: Mapping[str, Message],
        writer_scope: tuple[str, FileView, Features],
        reader_scope: tuple[str, FileView, Features],
        path: tuple[str, ...],
    ) -> None:
        """Messages of one scope, by name. What only the reader has does not matter."""
        for name, writer in writers.items():
            inner = (*path, name)
            reader = readers.get(name)
            if reader is not None:
                self._message(_inside(writer, *writer_scope), _inside(reader, *reader_scope), inner)
            elif not writer.is_map_entry:
                self._add("MESSAGE_REMOVED", inner, f"the reader's schema has no message {'.'.join(inner)}")

    def _message(self, writer: _Side, reader: _Side, path: tuple[str, ...]) -> None:
        self._fields(writer, reader, path)
        self._types(
            _messages_of(writer.message),
            _messages_of(reader.message),
            (writer.full_name, writer.view, writer.features),
            (reader.full_name, reader.view, reader.features),
            path,
        )

    def _fields(self, writer: _Side, reader: _Side, path: tuple[str, ...]) -> None:
        writers = {field.number: field for field in writer.message.fields}
        readers = {field.number: field for field in reader.message.fields}
        deleted = _deleted_oneofs(writer.message, reader.message, readers)
        self._exclusive(writer.message, reader.message, writers, path)
        for number in sorted(writers.keys() | readers.keys()):
            check_time()
            written, read = writers.get(number), readers.get(number)
            if read is None:
                assert written is not None
                self._removed(written, writer, deleted, path)
            elif written is None:
                if _is_required(read, reader.features) and read.oneof is None:
                    self._add(
                        "REQUIRED_FIELD_ADDED",
                        (*path, str(number)),
                        f"the reader requires field {number} ({read.name}) of {reader.full_name}, "
                        "which the writer's schema does not have",
                    )
            else:
                inner = (*path, str(number))
                if read.oneof is not None:
                    inner = (*path, reader.message.oneofs[read.oneof].name, str(number))
                self._field(written, read, writer, reader, inner)

    def _removed(self, field: Field, writer: _Side, deleted: set[int], path: tuple[str, ...]) -> None:
        what = f"field {field.number} ({field.name}) of {writer.full_name}"
        if field.oneof is not None:
            if field.oneof not in deleted:
                oneof = writer.message.oneofs[field.oneof].name
                self._add(
                    "ONEOF_FIELD_REMOVED",
                    (*path, oneof, str(field.number)),
                    f"the reader's schema has no {what}, a member of oneof {oneof}",
                )
        elif _is_required(field, writer.features):
            self._add(
                "REQUIRED_FIELD_REMOVED",
                (*path, str(field.number)),
                f"the reader's schema has no {what}, which the writer's schema requires",
            )

    def _exclusive(self, writer: Message, reader: Message, writers: Mapping[int, Field], path: tuple[str, ...]) -> None:
        """Fields that the writer could set together must not be members of one oneof for the reader."""
        members: dict[int, list[Field]] = {}
        for field in reader.fields:
            if field.oneof is not None and field.number in writers:
                members.setdefault(field.oneof, []).append(field)
        for index, oneof in enumerate(reader.oneofs):
            origins: set[tuple[str, int]] = set()
            moved = 0
            for field in members.get(index, ()):
                written = writers[field.number]
                if written.oneof is not None:
                    origins.add(("oneof", written.oneof))
                else:
                    origins.add(("field", field.number))
                    moved += 1
            if len(origins) > 1:
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self._add(
                    kind,
                    (*path, oneof.name),
                    f"the members of oneof {oneof.name} of {'.'.join(path)} could be set together by the writer, "
                    "but exclude each other for the reader",
                )

    # Fields

    def _field(self, written: Field, read: Field, writer: _Side, reader: _Side, path: tuple[str, ...]) -> None:
        what = f"field {read.number} ({read.name}) of {reader.full_name}"
        written_type, read_type = _type_of(written, writer), _type_of(read, reader)
        labels = (written.label, read.label) if written.oneof is None and read.oneof is None else (None, None)
        self._compare(written_type, read_type, labels, what, path)

    def _compare(
        self,
        written: _Type,
        read: _Type,
        labels: tuple[str | None, str | None],
        what: str,
        path: tuple[str, ...],
    ) -> None:
        if written.kind != read.kind:
            self._add(
                "FIELD_KIND_CHANGED",
                path,
                f"{what} is a {read.kind} ({read.text}) for the reader, "
                f"but a {written.kind} ({written.text}) for the writer",
            )
        elif written.kind == _SCALAR:
            self._compare_scalars(written, read, labels, what, path)
        elif written.kind == _MAP:
            assert written.key is not None
            assert written.value is not None
            assert read.key is not None
            assert read.value is not None
            self._compare(written.key, read.key, (None, None), f"the key of {what}", path)
            self._compare(written.value, read.value, (None, None), f"the value of {what}", path)
        else:
            self._compare_messages(written, read, what, path)

    def _compare_scalars(
        self,
        written: _Type,
        read: _Type,
        labels: tuple[str | None, str | None],
        what: str,
        path: tuple[str, ...],
    ) -> None:
        if written.scalar_kind != read.scalar_kind:
            self._add(
                "FIELD_SCALAR_KIND_CHANGED",
                path,
                f"{what} is {read.text} for the reader, but {written.text} for the writer: "
                "the two are encoded differently",
            )
        elif None not in labels and labels[0] != labels[1] and written.scalar_kind != "string or bytes":
            self._add(
                "FIELD_NUMERIC_LABEL_CHANGED",
                path,
                f"{what} is {labels[1]} for the reader, but {labels[0]} for the writer",
            )

    def _compare_messages(self, written: _Type, read: _Type, what: str, path: tuple[str, ...]) -> None:
        assert written.symbol is not None
        assert read.symbol is not None
        message = f"{what} is {read.symbol.full_name} for the reader, but {written.symbol.full_name} for the writer"
        if _local_name(self._writer, written.symbol) != _local_name(self._reader, read.symbol):
            self._add("FIELD_NAMED_TYPE_CHANGED", path, message)
            return
        if written.symbol.path == MAIN == read.symbol.path or written.symbol.node is read.symbol.node:
            return  # Compared by name, or the same message of a known file.
        pair = (written.symbol.full_name, read.symbol.full_name)
        if pair not in self._pairs:
            self._pairs[pair] = _Found()
            self._pending.append((pair, written.symbol, read.symbol))
        self._found.uses.append(
            _Use(pair, _path_text(path), f"the type of {what}, {read.symbol.full_name}, changed incompatibly")
        )


def _path_text(path: Iterable[str]) -> str:
    return "#/" + "/".join(path)


def _messages(types: Iterable[Message | Enum]) -> dict[str, Message]:
    return {type_.name: type_ for type_ in types if isinstance(type_, Message)}


def _messages_of(message: Message) -> dict[str, Message]:
    """The nested messages, groups among them."""
    return _messages(message.types) | _messages(field.group for field in message.fields if field.group is not None)


def _inside(message: Message, scope: str, view: FileView, features: Features) -> _Side:
    return _Side(message, joined(scope, message.name), view, with_options(features, message.options))


def _file_features(table: SymbolTable, path: str) -> Features:
    file = table.files[path]
    return with_options(features_module.DEFAULTS[file.syntax], file.options)


def _local_name(table: SymbolTable, symbol: Symbol) -> str:
    """The name without the package of its file."""
    package = table.files[symbol.path].package
    return symbol.full_name[len(package) + 1 :] if package else symbol.full_name


def _is_required(field: Field, features: Features) -> bool:
    return (
        field.label == "required" or with_options(features, field.options).get("field_presence") == "LEGACY_REQUIRED"
    ) and field.oneof is None


def _deleted_oneofs(writer: Message, reader: Message, readers: Mapping[int, Field]) -> set[int]:
    """The oneofs that the reader does not have, by name, and of whose members it has none."""
    names = {oneof.name for oneof in reader.oneofs}
    deleted = {index for index, oneof in enumerate(writer.oneofs) if oneof.name not in names}
    return deleted - {field.oneof for field in writer.fields if field.oneof is not None and field.number in readers}


def _type_of(field: Field, side: _Side) -> _Type:
    if field.key_type is not None:
        return _Type(
            _MAP,
            field.type_text,
            key=_named_type(field.key_type, side.full_name, side.view),
            value=_named_type(field.type, side.full_name, side.view),
        )
    type_ = _named_type(field.type, side.full_name, side.view)
    if type_.kind == _MESSAGE:
        encoding = with_options(side.features, field.options).get("message_encoding")
        if field.group is not None or encoding == "DELIMITED":
            return _Type(_GROUP, type_.text, symbol=type_.symbol)
    return type_


def _named_type(name: str, scope: str, view: FileView) -> _Type:
    symbol = view.type(name, scope)
    if symbol is None:
        return _Type(_SCALAR, name, scalar_kind=_SCALAR_KINDS[name])
    if isinstance(symbol.node, Enum):
        return _Type(_SCALAR, f"enum {symbol.full_name}", scalar_kind=_ENUM_KIND)
    assert isinstance(symbol.node, Message)
    if symbol.node.is_map_entry:
        members = {member.name: member for member in symbol.node.fields}
        key = _named_type(members["key"].type, symbol.full_name, view)
        value = _named_type(members["value"].type, symbol.full_name, view)
        return _Type(_MAP, f"map<{key.text}, {value.text}>", key=key, value=value)
    return _Type(_MESSAGE, symbol.full_name, symbol=symbol)
