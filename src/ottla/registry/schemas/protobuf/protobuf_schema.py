"""A Protobuf schema behind the interface of all schema languages."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from google.protobuf import descriptor_pb2

from ottla.registry.schemas.parsed_schema import Incompatibility, InvalidSchemaError, ParsedSchema, Tags
from ottla.registry.schemas.protobuf import canonical_text
from ottla.registry.schemas.protobuf.compatibility import incompatibilities
from ottla.registry.schemas.protobuf.descriptor_trees import tree_of
from ottla.registry.schemas.protobuf.descriptors import file_descriptor
from ottla.registry.schemas.protobuf.known_files import KNOWN_PATHS, known_file
from ottla.registry.schemas.protobuf.parsing import parse_file
from ottla.registry.schemas.protobuf.symbols import MAIN, SymbolTable
from ottla.registry.schemas.protobuf.syntax_tree import File, Message
from ottla.registry.schemas.protobuf.tags import file_with_tags, tags_of
from ottla.registry.schemas.protobuf.validation import check_types, validate

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")
_SERIALIZED_NAME: Final = "default"


def parse_new(text: str, references: Mapping[str, str]) -> "ProtobufSchema":
    """A Protobuf schema from its text, or from a FileDescriptorProto in base64. References are named by import path.

    Raises `InvalidSchemaError`.
    """
    file, trees = _tree(text), _trees(references)
    table = SymbolTable({**_imported(file, trees), MAIN: file})
    validate(table, text)
    return ProtobufSchema(table)


def parse(text: str, references: Mapping[str, str]) -> "ProtobufSchema":
    """The same for a schema that is registered already: what Confluent's registry accepts but protoc refuses is read.

    All files of the references, and all known ones, are seen without imports. Only syntax and types must be right.
    """
    file, trees = _tree(text), _trees(references)
    files = {**_imported(file, trees), MAIN: file}
    try:
        table = SymbolTable(files)
        validate(table, text)
    except InvalidSchemaError:
        known = {path: known_file(path) for path in sorted(KNOWN_PATHS)}
        table = SymbolTable({**known, **trees, **files}, lenient=True)
        check_types(table, text)
    return ProtobufSchema(table)


def _trees(references: Mapping[str, str]) -> dict[str, File]:
    trees: dict[str, File] = {}
    for path, reference in references.items():
        try:
            trees[path] = _tree(reference)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"reference {path}: {error}") from error
    return trees


def _tree(text: str) -> File:
    if _BASE64.match(text):
        try:
            return tree_of(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise InvalidSchemaError(f"the text is neither a .proto file nor base64: {error}") from error
    return parse_file(text)


def _imported(file: File, references: Mapping[str, File]) -> dict[str, File]:
    """The files that a file imports, directly or not, each after those that it imports itself.

    A reference hides a known file of the same path.
    """
    files: dict[str, File] = {}
    open_paths: set[str] = set()
    pending = [import_.path for import_ in reversed(file.imports)]
    while pending:
        path = pending[-1]
        found = references.get(path) or (known_file(path) if path in KNOWN_PATHS else None)
        if found is None or path in files:
            pending.pop()
        elif path in open_paths:
            # All that it imports is there.
            open_paths.remove(path)
            files[path] = found
            pending.pop()
        else:
            open_paths.add(path)
            for import_ in reversed(found.imports):
                if import_.path in open_paths:
                    raise InvalidSchemaError(f"{path} and {import_.path} import each other")
                pending.append(import_.path)
    return files


class ProtobufSchema(ParsedSchema):
    """A valid `.proto` file with the files that it imports."""

    def __init__(self, table: SymbolTable) -> None:
        self._table = table

    @property
    def table(self) -> SymbolTable:
        """The file (path "") and its imports, with their names."""
        return self._table

    @cached_property
    def _canonical_text(self) -> str:
        return canonical_text.canonical_text(self._table.files[MAIN])

    @property
    def canonical_text(self) -> str:
        return self._canonical_text

    def normalized_text(self) -> str:
        return canonical_text.normalized_text(self._table)

    def formatted(self, format: str) -> str:
        match format.strip().lower():
            case "ignore_extensions":
                return canonical_text.text_without_extensions(self._table.files[MAIN])
            case "serialized":
                return base64.b64encode(self.file_descriptor(_SERIALIZED_NAME).SerializeToString()).decode()
            case _:
                return self.canonical_text

    def file_descriptor(self, name: str) -> descriptor_pb2.FileDescriptorProto:
        """The schema as a FileDescriptorProto with a file name."""
        return file_descriptor(self._table, MAIN, name)

    def import_descriptors(self) -> Iterable[descriptor_pb2.FileDescriptorProto]:
        """The FileDescriptorProtos of all imports, each after those that it imports itself."""
        imported = _imported(self._table.files[MAIN], self._table.files)
        return (file_descriptor(self._table, path, path) for path in imported)

    def has_top_level_field(self, name: str) -> bool:
        messages = (type_ for type_ in self._table.files[MAIN].types if isinstance(type_, Message))
        return any(field.name == name and field.oneof is None for message in messages for field in message.fields)

    def tags(self) -> Tags:
        return tags_of(self._table.files[MAIN])

    def with_tags(self, add: Tags, remove: Tags) -> str:
        return canonical_text.canonical_text(file_with_tags(self._table.files[MAIN], add, remove))

    def incompatibilities(self, writer: ParsedSchema) -> Sequence[Incompatibility]:
        if not isinstance(writer, ProtobufSchema):
            raise TypeError("only two Protobuf schemas can be compared")
        return incompatibilities(writer.table, self._table)
