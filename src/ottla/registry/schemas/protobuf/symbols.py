"""What the names in a file mean: the symbols of the file and of its imports, and protoc's rules for finding them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf.features import DEFAULTS, Features, with_options
from ottla.registry.schemas.protobuf.syntax_tree import (
    NAME_LENGTH_MAX,
    SCALAR_TYPES,
    Enum,
    EnumValue,
    Extend,
    Field,
    File,
    Message,
    Method,
    OneOf,
    Service,
)

MAIN: Final = ""
"""The path of the file that is not imported: the schema itself."""

Node = Message | Enum | EnumValue | Field | OneOf | Service | Method | None


class Symbol(NamedTuple):
    """A name that a file defines. `node` is None for a package; an extension has the name that it extends."""

    full_name: str
    path: str
    node: Node
    extendee: str | None = None
    scope: str = ""
    """The message, or package, that it is defined in."""

    @property
    def is_type(self) -> bool:
        return isinstance(self.node, Message | Enum)

    @property
    def has_members(self) -> bool:
        return self.node is None or isinstance(self.node, Message | Enum | Service)


def joined(scope: str, name: str) -> str:
    """The full name of what is defined in a scope, which is empty outside of packages."""
    return f"{scope}.{name}" if scope else name


def map_entry_name(field_name: str) -> str:
    """The name of the message that a map field stands for, as protoc builds it."""
    parts = []
    upper = True
    for character in field_name:
        if character == "_":
            upper = True
        else:
            parts.append(character.upper() if upper and character.isascii() else character)
            upper = False
    return "".join(parts) + "Entry"


def symbols_of(file: File, path: str) -> Iterator[Symbol]:
    """The symbols that a file defines, packages excepted. The values of an enum are siblings of the enum."""
    for type_ in file.types:
        yield from _type_symbols(type_, file.package, path)
    yield from _extend_symbols(file.extends, file.package, path)
    for service in file.services:
        full_name = joined(file.package, service.name)
        yield Symbol(full_name, path, service, None, file.package)
        for method in service.methods:
            yield Symbol(joined(full_name, method.name), path, method, None, full_name)


def _type_symbols(type_: Message | Enum, scope: str, path: str) -> Iterator[Symbol]:
    full_name = joined(scope, type_.name)
    yield Symbol(full_name, path, type_, None, scope)
    if isinstance(type_, Enum):
        for value in type_.values:
            yield Symbol(joined(scope, value.name), path, value, None, scope)
        return
    for field in type_.fields:
        yield Symbol(joined(full_name, field.name), path, field, None, full_name)
        if field.group is not None:
            yield from _type_symbols(field.group, full_name, path)
    for oneof in type_.oneofs:
        yield Symbol(joined(full_name, oneof.name), path, oneof, None, full_name)
    for nested in type_.types:
        yield from _type_symbols(nested, full_name, path)
    yield from _extend_symbols(type_.extends, full_name, path)


def _extend_symbols(extends: Iterable[Extend], scope: str, path: str) -> Iterator[Symbol]:
    for extend in extends:
        for field in extend.fields:
            yield Symbol(joined(scope, field.name), path, field, extend.extendee, scope)
            if field.group is not None:
                yield from _type_symbols(field.group, scope, path)


def package_names(package: str) -> Iterator[str]:
    """A package and the packages around it: `a.b.c`, `a.b`, `a`."""
    while package:
        yield package
        package = package.rpartition(".")[0]


class SymbolTable:
    """The symbols of a file (path "") and of all files that it imports, directly or not.

    A lenient table is for schemas that other registries accepted: what is defined twice has its first meaning, and all
    files see each other, whether imported or not.
    """

    def __init__(self, files: Mapping[str, File], *, lenient: bool = False) -> None:
        self.files = files
        self.is_lenient = lenient
        self.symbols: dict[str, Symbol] = {}
        self.missing_imports = False
        """Whether an import of the main file is not among the files; the names that it defines are not known then."""
        self._views: dict[str, FileView] = {}
        for path, file in files.items():
            for symbol in symbols_of(file, path):
                if len(symbol.full_name) > NAME_LENGTH_MAX:
                    raise InvalidSchemaError(
                        f"the full name of a definition is longer than {NAME_LENGTH_MAX} characters: "
                        f"{symbol.full_name[:100]}..."
                    )
                earlier = self.symbols.setdefault(symbol.full_name, symbol)
                if earlier.node is not symbol.node and path == MAIN and not lenient:
                    raise InvalidSchemaError(_duplicate(earlier, symbol))
        self.missing_imports = any(import_.path not in files for import_ in files[MAIN].imports)
        if lenient:
            return
        for path, file in files.items():
            for package in package_names(file.package):
                taken = self.symbols.get(package)
                if taken is not None and MAIN in (path, taken.path):
                    raise InvalidSchemaError(f"the name {package} is both a package and another definition")

    def features_around(self, symbol: Symbol) -> Features:
        """The features that a type inherits from its file and from the messages around it."""
        file = self.files[symbol.path]
        features = with_options(DEFAULTS[file.syntax], file.options)
        scope = file.package
        for part in symbol.full_name[len(scope) + bool(scope) :].split(".")[:-1]:
            scope = joined(scope, part)
            outer = self.symbols.get(scope)
            if outer is not None and isinstance(outer.node, Message):
                features = with_options(features, outer.node.options)
        return features

    def is_closed(self, symbol: Symbol) -> bool:
        """Whether an enum is closed: its fields have only the values that it declares."""
        assert isinstance(symbol.node, Enum)
        return with_options(self.features_around(symbol), symbol.node.options)["enum_type"] == "CLOSED"

    def view(self, path: str) -> "FileView":
        """The names as they are seen from a file."""
        view = self._views.get(path)
        if view is None:
            view = self._views[path] = FileView(self, path)
        return view


def _duplicate(earlier: Symbol, symbol: Symbol) -> str:
    where = "" if earlier.path == symbol.path else f" in {earlier.path}"
    note = ""
    if isinstance(symbol.node, EnumValue):
        note = "; enum values are defined in the scope around their enum"
    return f"the name {symbol.full_name} is already defined{where}{note}"


class FileView:
    """What one file sees: its own symbols, those of its imports, and what these import publicly."""

    def __init__(self, table: SymbolTable, path: str) -> None:
        self._symbols = table.symbols
        self.table = table
        file = table.files[path]
        self.visible = set(table.files) if table.is_lenient else {path}
        for import_ in file.imports:
            self._add(import_.path)
        self._packages = {
            name for seen in self.visible if seen in table.files for name in package_names(table.files[seen].package)
        }
        self._types: dict[tuple[str, str], Symbol | None] = {}

    def _add(self, path: str) -> None:
        pending = [path]
        while pending:
            path = pending.pop()
            if path in self.visible or path not in self.table.files:
                continue
            self.visible.add(path)
            pending.extend(i.path for i in self.table.files[path].imports if i.kind == "public")

    def find(self, full_name: str) -> Symbol | None:
        symbol = self._symbols.get(full_name)
        if symbol is not None and symbol.path in self.visible:
            return symbol
        if full_name in self._packages:
            return Symbol(full_name, MAIN, None)
        return None

    def lookup(self, name: str, scope: str, *, only_types: bool = False) -> Symbol | None:
        """What a name means in a scope. The innermost scope that knows the first part of the name decides."""
        if name.startswith("."):
            return self.find(name[1:])
        first, _, rest = name.partition(".")
        while True:
            symbol = self.find(joined(scope, first))
            if symbol is not None:
                if rest:
                    if symbol.has_members:
                        return self.find(joined(scope, name))
                elif not only_types or symbol.is_type:
                    return symbol
            if not scope:
                return None
            scope = scope.rpartition(".")[0]

    def type(self, name: str, scope: str) -> Symbol | None:
        """The message or enum that a field's type names; None for a scalar type, and if there is no such type."""
        if name in SCALAR_TYPES:
            return None
        key = (name, scope)
        try:
            return self._types[key]
        except KeyError:
            symbol = self.lookup(name, scope, only_types=True)
            if symbol is not None and not symbol.is_type:
                symbol = None
            self._types[key] = symbol
            return symbol

    def message(self, name: str, scope: str) -> Symbol | None:
        symbol = self.type(name, scope)
        return symbol if symbol is not None and isinstance(symbol.node, Message) else None

    def extension(self, name: str, scope: str) -> Symbol | None:
        symbol = self.lookup(name, scope)
        return symbol if symbol is not None and symbol.extendee is not None else None

    def hint(self, name: str) -> str:
        """Why a name might not be found."""
        symbol = self._symbols.get(name.removeprefix("."))
        if symbol is not None and symbol.path not in self.visible:
            return f"; {symbol.full_name} is defined in {symbol.path}, which is not imported"
        return ""
