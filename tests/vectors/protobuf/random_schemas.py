"""Random Protobuf schemas, and random changes of them: valid by construction, with every part of the language.

A schema is a small model that changes are made to; `Schema.texts` writes it down. The same seed gives the same schema.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

INTEGERS = ["int32", "int64", "uint32", "uint64", "sint32", "sint64"]
SCALARS = ["double", "float", *INTEGERS, "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"]
KEYS = [type_ for type_ in SCALARS if type_ not in ("double", "float", "bytes")]
KNOWN = {
    "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
    "google.protobuf.Any": "google/protobuf/any.proto",
    "google.protobuf.StringValue": "google/protobuf/wrappers.proto",
    "google.type.Money": "google/type/money.proto",
    "confluent.type.Decimal": "confluent/type/decimal.proto",
}
OPTIONS_PATH = "opts/options.proto"
OPTIONS_TEXT = """syntax = "proto2";
package opts;
import "google/protobuf/descriptor.proto";
message Rich {
  optional string name = 1;
  optional Part part = 2;
  repeated Part parts = 3;
  repeated int32 numbers = 4;
  map<string, int32> counts = 5;
  optional bool flag = 6;
  extensions 100 to 200;
}
message Part {
  optional int32 a = 1;
  repeated string b = 2;
  optional Part deeper = 3;
  optional Mood mood = 4;
  optional double d = 5;
}
enum Mood { GOOD = 0; BAD = 1; }
extend Rich { optional string more = 100; }
extend google.protobuf.FileOptions { optional string file_note = 50001; optional Rich file_rich = 50002; }
extend google.protobuf.MessageOptions { optional int32 message_number = 50001; optional Rich message_rich = 50002; }
extend google.protobuf.FieldOptions {
  optional Mood mood = 50001;
  repeated string labels = 50002;
  optional Rich rich = 50003;
  optional double ratio = 50004;
}
extend google.protobuf.EnumOptions { optional bool enum_flag = 50001; }
extend google.protobuf.EnumValueOptions { optional string value_note = 50001; }
extend google.protobuf.ServiceOptions { optional string service_note = 50001; }
extend google.protobuf.MethodOptions { optional Rich method_rich = 50001; }
extend google.protobuf.OneofOptions { optional int32 oneof_number = 50001; }
"""
FIELD_OPTIONS = (
    "deprecated = true",
    "deprecated = false",
    "(opts.mood) = BAD",
    "(.opts.mood) = GOOD",
    '(opts.labels) = "one"',
    '(opts.labels) = "two \\"quoted\\" and \\\\ and \\t and \\x41"',
    '(opts.rich) = { name: "n" part { a: 1 b: "x" b: "y" } numbers: [1, 2, 3] }',
    '(opts.rich) = { parts: [{ a: 1 }, { a: 0x10, mood: BAD }], counts { key: "k" value: 3 }, [opts.more]: "m" }',
    "(opts.rich) = { part { deeper { deeper { d: 1.5 } } } flag: true; }",
    '(opts.rich).name = "dotted"',
    "(opts.rich).part.a = -5",
    "(opts.ratio) = 2.25",
    "(opts.ratio) = -inf",
    '(confluent.field_meta) = { doc: "a doc", tags: ["PII", "X"], params: [{ key: "a", value: "b" }] }',
    '(confluent.field_meta).doc = "dotted"',
)
MESSAGE_OPTIONS = (
    "deprecated = true",
    "(opts.message_number) = 0x1F",
    '(opts.message_rich) = { name: "m", parts { a: 1 } parts { a: 2 } }',
    '(opts.message_rich).part = { b: ["q"] }',
    '(confluent.message_meta) = { doc: "d" }',
    "no_standard_descriptor_accessor = false",
)
FILE_OPTIONS = (
    'java_package = "com.example"',
    "java_multiple_files = true",
    "optimize_for = SPEED",
    'go_package = "example.com/x"',
    '(opts.file_note) = "note"',
    '(opts.file_rich).name = "file"',
    "(opts.file_rich).part.deeper.a = 3",
    "cc_enable_arenas = true",
)


@dataclass
class FieldModel:
    name: str
    number: int
    type: str
    label: str | None = None
    key: str | None = None
    oneof: str | None = None
    options: list[str] = field(default_factory=list)


@dataclass
class EnumModel:
    name: str
    values: list[tuple[str, int, list[str]]]
    statements: list[str] = field(default_factory=list)


@dataclass
class MessageModel:
    name: str
    fields: list[FieldModel] = field(default_factory=list)
    messages: list["MessageModel"] = field(default_factory=list)
    enums: list[EnumModel] = field(default_factory=list)
    oneof_options: dict[str, list[str]] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)


@dataclass
class FileModel:
    syntax: str
    package: str
    imports: list[str] = field(default_factory=list)
    messages: list[MessageModel] = field(default_factory=list)
    enums: list[EnumModel] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def all_messages(self) -> list[MessageModel]:
        result: list[MessageModel] = []
        pending = list(self.messages)
        while pending:
            message = pending.pop()
            result.append(message)
            pending.extend(message.messages)
        return result


@dataclass
class Schema:
    """A file and the files that it refers to, by path."""

    main: FileModel
    libraries: dict[str, FileModel]

    def texts(self, rng: Random) -> tuple[str, dict[str, str]]:
        references = {OPTIONS_PATH: OPTIONS_TEXT} if OPTIONS_PATH in self.main.imports else {}
        # What is imported comes first.
        for path, library in self.libraries.items():
            references[path] = written(library, rng)
        return written(self.main, rng), references


class Generator:
    """Builds schemas and changes them."""

    def __init__(self, seed: int, *, with_options: bool = True) -> None:
        self.rng = Random(seed)
        self._count = 0
        self._with_options = with_options

    def schema(self) -> Schema:
        rng = self.rng
        libraries: dict[str, FileModel] = {}
        available: list[tuple[str, str, str]] = []
        if rng.random() < 0.5:
            deep = self._file(rng.choice(("proto2", "proto3")), rng.choice(("deep.er", "lib")), [], size=2)
            libraries["lib/deep.proto"] = deep
            upper = self._file(
                rng.choice(("proto2", "proto3")),
                rng.choice(("lib", "other", "")),
                _exported(deep, "lib/deep.proto")
                if deep.syntax == "proto3"
                else _messages_only(deep, "lib/deep.proto"),
                size=2,
            )
            if "lib/deep.proto" in upper.imports and rng.random() < 0.3:
                upper.imports[upper.imports.index("lib/deep.proto")] = "public lib/deep.proto"
            libraries["lib/upper.proto"] = upper
            for path, library in libraries.items():
                available += _exported(library, path)
        syntax = rng.choice(("proto2", "proto3", "proto3"))
        if syntax == "proto3":
            # An enum of proto2 cannot be used in proto3.
            available = [a for a in available if libraries[a[1]].syntax == "proto3" or a[2] == "message"]
        main = self._file(syntax, rng.choice(("", "a", "a.b", "lib")), available, size=rng.randint(1, 4), is_main=True)
        return Schema(main, libraries)

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _file(
        self, syntax: str, package: str, available: list[tuple[str, str, str]], size: int, *, is_main: bool = False
    ) -> FileModel:
        rng = self.rng
        file = FileModel(syntax, package)
        file.messages = [self._message(syntax, 0) for _ in range(size)]
        file.enums = [self._enum(syntax) for _ in range(rng.randint(0, 1))]
        local = _exported(file, "")
        for message in file.all_messages():
            self._fill(message, file, local + available)
        if is_main and self._with_options:
            self._decorate(file)
        if is_main and rng.random() < 0.2 and file.messages:
            one, two = (rng.choice(local_messages(file)) for _ in range(2))
            options = " { option deprecated = true; }" if rng.random() < 0.5 else ";"
            file.statements.append(
                f"service {self._name('Service')} {{ rpc Call ({one}) returns (stream {two}){options} "
                f"rpc Other (stream .{two}) returns ({one}) {{}} }}"
            )
        return file

    def _message(self, syntax: str, depth: int) -> MessageModel:
        rng = self.rng
        message = MessageModel(self._name("Message"))
        if depth < 3:
            message.messages = [self._message(syntax, depth + 1) for _ in range(rng.choice((0, 0, 1, 2)))]
        message.enums = [self._enum(syntax) for _ in range(rng.choice((0, 0, 1)))]
        return message

    def _enum(self, syntax: str) -> EnumModel:
        rng = self.rng
        name = self._name("Enum")
        first = 0 if syntax == "proto3" else rng.choice((0, 1, -3))
        values: list[tuple[str, int, list[str]]] = [(f"{name.upper()}_V0", first, [])]
        for index in range(rng.randint(0, 3)):
            options = ["deprecated = true"] if rng.random() < 0.2 else []
            values.append((f"{name.upper()}_V{index + 1}", first + index + 1, options))
        statements = []
        if rng.random() < 0.2:
            statements.append(rng.choice(("reserved 100, 200 to 210;", 'reserved "GONE";', "reserved 1000 to max;")))
        if rng.random() < 0.2:
            values.append((f"{name.upper()}_ALIAS", first, []))
            statements.append("option allow_alias = true;")
        return EnumModel(name, values, statements)

    def _fill(self, message: MessageModel, file: FileModel, available: list[tuple[str, str, str]]) -> None:
        rng = self.rng
        numbers = rng.sample(range(1, 40), rng.randint(0, 6))
        for number in numbers:
            message.fields.append(self.field(number, file, available))
        if rng.random() < 0.4:
            oneof = self._name("choice")
            message.oneof_options[oneof] = []
            for number in rng.sample(range(40, 60), rng.randint(1, 3)):
                member = self.field(number, file, available, plain=True)
                member.oneof = oneof
                message.fields.append(member)
        if rng.random() < 0.3:
            message.statements.append(
                rng.choice(
                    (
                        "reserved 1000;",
                        "reserved 1000 to 1010, 1020;",
                        'reserved "old", "older";',
                        "reserved 5000 to max;",
                    )
                )
            )
        if file.syntax == "proto2" and rng.random() < 0.2:
            message.statements.append(rng.choice(("extensions 100 to 199;", "extensions 100, 110 to 120, 130 to 130;")))
            message.statements.append(f"extend {message.name} {{ optional int32 {self._name('extension')} = 110; }}")

    def field(
        self, number: int, file: FileModel, available: list[tuple[str, str, str]], *, plain: bool = False
    ) -> FieldModel:
        rng = self.rng
        name = self._name(rng.choice(("field", "my_field_", "_f", "camelCase")))
        if not plain and rng.random() < 0.15:
            type_ = self._type(file, available)
            if "Enum" in type_:
                type_ = rng.choice(SCALARS)  # An enum in a map must start with 0, which not all of ours do.
            return FieldModel(name, number, type_, key=rng.choice(KEYS))
        type_ = self._type(file, available)
        label: str | None
        if plain:
            label = None
        elif file.syntax == "proto2":
            label = rng.choice(("optional", "optional", "required", "repeated"))
        else:
            label = rng.choice((None, None, "optional", "repeated"))
        options: list[str] = []
        if file.syntax == "proto2" and label in ("optional", "required") and rng.random() < 0.3:
            options += self._default(type_)
        if rng.random() < 0.1:
            options.append(f'json_name = "json{number}"')
        if label == "repeated" and type_ in ("int32", "double", "bool") and rng.random() < 0.5:
            options.append(rng.choice(("packed = true", "packed = false")))
        if rng.random() < 0.1:
            options.insert(0, "deprecated = true")
        return FieldModel(name, number, type_, label, options=options)

    def _default(self, type_: str) -> list[str]:
        rng = self.rng
        if type_ == "string":
            return [rng.choice(('default = "text"', "default = 'it\\'s \\n'", 'default = "a" "b"'))]
        if type_ == "bool":
            return ["default = true"]
        if type_ in ("double", "float"):
            return [rng.choice(("default = 1.5", "default = -2", "default = inf", "default = 1e3", "default = .25"))]
        if type_ in SCALARS and type_ != "bytes":
            return [rng.choice(("default = 7", "default = 0x1f", "default = 017", "default = 0"))]
        return []

    def _type(self, file: FileModel, available: list[tuple[str, str, str]]) -> str:
        rng = self.rng
        choice = rng.random()
        if choice < 0.5 or not available:
            return rng.choice(SCALARS)
        if choice < 0.6:
            known = rng.choice(sorted(KNOWN))
            _import(file, KNOWN[known])
            return rng.choice(("", ".")) + known
        full_name, path, _ = rng.choice(available)
        if path:
            _import(file, path)
            return "." + full_name
        # Names of the file itself may leave out the package.
        if file.package and rng.random() < 0.5:
            return full_name[len(file.package) + 1 :]
        return rng.choice(("", ".")) + full_name

    def _decorate(self, file: FileModel) -> None:
        """Adds options, custom ones too."""
        rng = self.rng
        used: list[str] = []

        def pick(options: tuple[str, ...], chance: float) -> list[str]:
            picked: dict[str, str] = {}
            while rng.random() < chance:
                option = rng.choice(options)
                name = option.split(" = ")[0]
                if "labels" not in name:
                    # One option sets a message once, either as a whole or one of its fields.
                    picked.setdefault(name.split(")")[0].strip("(."), option)
                else:
                    picked[option] = option
            used.extend(picked.values())
            return list(picked.values())

        file.options = pick(FILE_OPTIONS, 0.4)
        for message in file.all_messages():
            message.statements += [f"option {option};" for option in pick(MESSAGE_OPTIONS, 0.2)]
            for one in message.fields:
                one.options = [o for o in one.options if not o.startswith("deprecated")] + pick(FIELD_OPTIONS, 0.25)
            for oneof in message.oneof_options:
                message.oneof_options[oneof] = pick(("(opts.oneof_number) = 3",), 0.2)
            for enum in message.enums:
                enum.statements += [f"option {option};" for option in pick(("(opts.enum_flag) = true",), 0.2)]
        for enum in file.enums:
            enum.values = [
                (name, number, options + pick(('(opts.value_note) = "v"',), 0.1))
                for name, number, options in enum.values
            ]
        if any("opts." in option for option in used):
            _import(file, OPTIONS_PATH)
        if any("confluent." in option for option in used):
            _import(file, "confluent/meta.proto")

    # Changes

    def changed(self, schema: Schema) -> Schema:
        """Another version of a schema, with one to four changes, in the file itself or in what it imports."""
        rng = self.rng
        schema = deepcopy(schema)
        for _ in range(rng.randint(1, 4)):
            files = [schema.main, schema.main, schema.main, *schema.libraries.values()]
            file = rng.choice(files)
            if not file.messages:
                continue
            message = rng.choice(file.all_messages())
            rng.choice(self._changes)(self, schema, file, message)
        return schema

    def _add_field(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        message.fields.append(self.field(self._free_number(message), file, _exported(file, "")))

    def _free_number(self, message: MessageModel) -> int:
        return self.rng.choice([n for n in range(1, 90) if n not in {f.number for f in message.fields}])

    def _remove_field(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        if message.fields:
            message.fields.remove(self.rng.choice(message.fields))
            _without_empty_oneofs(message)

    def _change_type(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        if message.fields:
            one = self.rng.choice(message.fields)
            other = self.field(one.number, file, _exported(file, ""), plain=one.label is None)
            one.type = self.rng.choice((other.type, self.rng.choice(SCALARS)))
            one.options = []
            if "Enum" in one.type and one.key is not None:
                one.type = self.rng.choice(SCALARS)
            if self.rng.random() < 0.2 and one.label is None and one.oneof is None and "Enum" not in one.type:
                one.key = self.rng.choice(KEYS)

    def _change_label(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        plain = [one for one in message.fields if one.oneof is None and one.key is None]
        if plain:
            one = self.rng.choice(plain)
            labels = ("optional", "required", "repeated") if file.syntax == "proto2" else (None, "optional", "repeated")
            one.label = self.rng.choice(labels)
            one.options = []

    def _rename_field(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        if message.fields:
            self.rng.choice(message.fields).name = self._name("renamed")

    def _move_into_oneof(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        plain = [one for one in message.fields if one.oneof is None and one.key is None]
        if not plain:
            return
        if not message.oneof_options or self.rng.random() < 0.3:
            message.oneof_options[self._name("choice")] = []
        oneof = self.rng.choice(list(message.oneof_options))
        for one in self.rng.sample(plain, min(len(plain), self.rng.randint(1, 3))):
            one.oneof, one.label = oneof, None
            one.options = []
        _without_empty_oneofs(message)

    def _move_out_of_oneof(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        members = [one for one in message.fields if one.oneof is not None]
        for one in self.rng.sample(members, min(len(members), self.rng.randint(1, 2))):
            one.oneof = None
            one.label = "optional" if file.syntax == "proto2" else None
        _without_empty_oneofs(message)

    def _rename_oneof(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        if message.oneof_options:
            old = self.rng.choice(list(message.oneof_options))
            new = self._name("renamed_choice")
            message.oneof_options[new] = message.oneof_options.pop(old)
            for one in message.fields:
                if one.oneof == old:
                    one.oneof = new

    def _remove_oneof(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        if message.oneof_options:
            old = self.rng.choice(list(message.oneof_options))
            message.fields = [one for one in message.fields if one.oneof != old]
            _without_empty_oneofs(message)

    def _reorder(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        self.rng.shuffle(message.messages)
        self.rng.shuffle(file.messages)

    def _add_message(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        message.messages.append(self._message(file.syntax, 3))

    def _remove_message(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        """Removes a nested or top message if nothing else needs it."""
        texts = [one.type for other in file.all_messages() for one in other.fields]
        texts += [one.type for library in schema.libraries.values() for m in library.all_messages() for one in m.fields]
        texts += [one.type for m in schema.main.all_messages() for one in m.fields] + file.statements
        for group in (file.messages, message.messages):
            if group:
                victim = self.rng.choice(group)
                inside = {m.name for m in FileModel("", "", messages=[victim]).all_messages()}
                inside |= {e.name for m in FileModel("", "", messages=[victim]).all_messages() for e in m.enums}
                if not any(name in text for name in inside for text in texts):
                    group.remove(victim)
                    return

    def _change_package(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        if (
            file is schema.main
            and not any(
                one.type.removeprefix(".").startswith(file.package + ".")
                for m in file.all_messages()
                for one in m.fields
            )
            and not file.statements
        ):
            file.package = self.rng.choice(("x.y", "z"))

    def _change_enum(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        for enum in (*message.enums, *file.enums):
            if len(enum.values) > 1 and self.rng.random() < 0.5 and not enum.statements:
                enum.values.pop()
            else:
                name = self._name(enum.name.upper() + "_NEW")
                enum.values.append((name, 60 + len(enum.values), []))

    def _enum_for_number(self, schema: Schema, file: FileModel, message: MessageModel) -> None:
        enums = [full_name for full_name, _, kind in _exported(file, "") if kind == "enum"]
        types = ("int32", "int64", "sint32", "bool", "uint32")
        numbers = [one for one in message.fields if one.type in types and one.key is None]
        if enums and numbers:
            one = self.rng.choice(numbers)
            one.type = "." + self.rng.choice(enums)
            one.options = []

    _changes = (
        _add_field,
        _remove_field,
        _change_type,
        _change_type,
        _change_label,
        _rename_field,
        _move_into_oneof,
        _move_into_oneof,
        _move_out_of_oneof,
        _rename_oneof,
        _remove_oneof,
        _reorder,
        _add_message,
        _remove_message,
        _change_package,
        _change_enum,
        _enum_for_number,
    )


def _without_empty_oneofs(message: MessageModel) -> None:
    used = {one.oneof for one in message.fields}
    message.oneof_options = {name: options for name, options in message.oneof_options.items() if name in used}


def _import(file: FileModel, path: str) -> None:
    if path not in file.imports and f"public {path}" not in file.imports:
        file.imports.append(path)


def _exported(file: FileModel, path: str) -> list[tuple[str, str, str]]:
    """The types of a file: full name, path, and whether message or enum."""
    result: list[tuple[str, str, str]] = []

    def visit(messages: list[MessageModel], enums: list[EnumModel], scope: str) -> None:
        result.extend((scope + enum.name, path, "enum") for enum in enums)
        for message in messages:
            result.append((scope + message.name, path, "message"))
            visit(message.messages, message.enums, f"{scope}{message.name}.")

    visit(file.messages, file.enums, f"{file.package}." if file.package else "")
    return result


def _messages_only(file: FileModel, path: str) -> list[tuple[str, str, str]]:
    return [one for one in _exported(file, path) if one[2] == "message"]


def local_messages(file: FileModel) -> list[str]:
    return [full_name for full_name, _, kind in _exported(file, "") if kind == "message"]


def written(file: FileModel, rng: Random) -> str:
    """A file as text, in a layout that is random too."""
    lines: list[str] = []
    if file.syntax == "proto3" or rng.random() < 0.5:
        lines.append(f'syntax = "{file.syntax}";')
    if file.package:
        lines.append(f"package {file.package};")
    for path in file.imports:
        kind, _, bare = path.rpartition(" ")
        lines.append(f'import {kind} "{bare}";')
    lines += [f"option {option};" for option in file.options]
    for message in file.messages:
        lines += _written_message(message, rng)
    for enum in file.enums:
        lines += _written_enum(enum)
    lines += file.statements
    style = rng.random()
    if style < 0.2:
        return " ".join(lines)
    if style < 0.4:
        return "\n".join(f"{line}  // comment {index}" for index, line in enumerate(lines)) + "\n"
    return "\n".join(lines) + "\n/* the\n end */\n"


def _written_message(message: MessageModel, rng: Random) -> list[str]:
    parts: list[list[str]] = [[statement] for statement in message.statements]
    parts += [_written_message(nested, rng) for nested in message.messages]
    parts += [_written_enum(enum) for enum in message.enums]
    parts += [[_written_field(one)] for one in message.fields if one.oneof is None]
    for oneof, options in message.oneof_options.items():
        members = [_written_field(one) for one in message.fields if one.oneof == oneof]
        parts.append([f"oneof {oneof} {{", *(f"option {option};" for option in options), *members, "}"])
    if rng.random() < 0.5:
        # Extensions are declared before they are used, or after: both are right.
        rng.shuffle(parts)
    return [f"message {message.name} {{", *("  " + line for part in parts for line in part), "}"]


def _written_field(one: FieldModel) -> str:
    type_ = one.type if one.key is None else f"map<{one.key},{one.type}>"
    options = f" [{', '.join(one.options)}]" if one.options else ""
    return f"{one.label + ' ' if one.label else ''}{type_} {one.name} = {one.number}{options};"


def _written_enum(enum: EnumModel) -> list[str]:
    values = [
        f"{name} = {number}{f' [{chr(44).join(options)}]' if options else ''};" for name, number, options in enum.values
    ]
    return [f"enum {enum.name} {{", *enum.statements, *values, "}"]
