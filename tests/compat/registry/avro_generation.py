"""Random Avro schemas as JSON values, and random changes to them. The same seed gives the same schemas."""

import copy
import json
from random import Random
from typing import Any, Final

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMES: Final = ("A", "B", "C", "Order", "Item", "int_", "record", "Map")
FIELD_NAMES: Final = ("a", "b", "c", "d", "e", "id", "key", "value", "metadata")
SPACES: Final = ("", "shop", "shop.eu", "x.y")
SYMBOLS: Final = ("RED", "GREEN", "BLUE", "A", "b", "C_1")
TEXTS: Final = (
    "",
    "a",
    'with "quotes" and \\',
    "tab\tand\nline",
    "\x01\x1f\x7f",
    "ärger €",
    "😀",
    "/* no comment */",
    "\u2028",
)
NUMBERS: Final = (
    0, 1, -1, 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 0.0, -0.0, 1.5, 0.1, 1e7, 9999999.0, 1e-3, 9.99e-4, 1e21,
                  123456789012345.6, 3.4e38, 1.7976931348623157e308, 5e-5)  # fmt: skip
LOGICAL: Final = (
    ("int", "date"), ("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-millis"),
    ("long", "timestamp-micros"), ("long", "timestamp-nanos"), ("long", "local-timestamp-millis"), ("string", "uuid"),
    ("bytes", "big-decimal"), ("int", "timestamp-millis"), ("string", "date"), ("int", "own"),
)  # fmt: skip


class SchemaSource:
    """Makes schemas. With `wild`, a part of them is not valid."""

    def __init__(self, random: Random, *, wild: bool = False) -> None:
        self.random = random
        self._wild = wild
        self._defined: list[str] = []
        self._open: list[str] = []
        self._count = 0

    def schema(self, *, depth: int = 3) -> Any:
        """A schema, a record most of the time."""
        self._defined, self._open, self._count = [], [], 0
        kinds = ("record",) * 8 + ("union", "array", "map", "enum", "fixed", "primitive")
        return self._type(depth, "", self.random.choice(kinds))

    def json_value(self, depth: int = 2) -> Any:
        """A value for a property."""
        pick = self.random.randrange(8 if depth else 5)
        if pick < 2:
            return self.random.choice(TEXTS)
        if pick < 4:
            return self.random.choice(NUMBERS)
        if pick == 4:
            return self.random.choice((None, True, False))
        if pick == 5:
            return [self.json_value(depth - 1) for _ in range(self.random.randrange(3))]
        return {self.random.choice(("z", "b", "a", "é")): self.json_value(depth - 1) for _ in range(3)}

    def _chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def _type(self, depth: int, space: str, kind: str | None = None) -> Any:
        if kind is None:
            plain = ("primitive",) * 5 + ("logical", "reference")
            nested = ("record", "record", "enum", "fixed", "array", "map", "union", "union")
            kind = self.random.choice(plain + (nested if depth > 0 else ("enum", "fixed")))
        return getattr(self, f"_{kind}")(depth, space)

    def _primitive(self, depth: int, space: str) -> Any:
        name = self.random.choice(PRIMITIVES)
        if self._chance(5):
            return {"type": name, **self._properties()}
        return name

    def _logical(self, depth: int, space: str) -> Any:
        if self._chance(3):
            precision = self.random.choice((1, 4, 9, 38, 0, "4") if self._wild else (4, 9, 38))
            json = {"type": "bytes", "logicalType": "decimal", "precision": precision, **self._properties()}
            if self._chance(2):
                json["scale"] = self.random.choice((0, 2, 4))
            return self._shuffled(json)
        kind, logical = self.random.choice(LOGICAL)
        json = {"type": kind, "logicalType": logical, **self._properties()}
        if self._chance(6):
            json["avro.java.string"] = "String"
        return self._shuffled(json)

    def _reference(self, depth: int, space: str) -> Any:
        names = self._defined + self._open
        if not names or self._chance(12):
            return "Unknown" if self._wild and self._chance(4) else self.random.choice(PRIMITIVES)
        full = self.random.choice(names)
        own_space, _, simple = full.rpartition(".")
        written = simple if own_space == space else full
        if own_space == "" and space != "":
            # A name in the null namespace cannot be written inside of another one before it is defined.
            written = simple if full in self._defined else "string"
        if written in PRIMITIVES or self._chance(10):
            return {"type": full, "dropped": 1} if own_space or not space else written
        return written

    def _properties(self) -> dict[str, Any]:
        if not self._chance(3):
            return {}
        names = ("zeta", "alpha", "mid", "Upper", "ü", "connect.name", "default", "order")
        return {name: self.json_value() for name in self.random.sample(names, self.random.randrange(1, 4))}

    def _head(self, kind: str, space: str) -> tuple[dict[str, Any], str, str]:
        self._count += 1
        name = f"{self.random.choice(NAMES)}{self._count}"
        own_space = space
        json: dict[str, Any] = {"type": kind}
        style = self.random.randrange(5)
        if style == 0:
            own_space = self.random.choice(SPACES)
            json.update({"name": name, "namespace": own_space})
        elif style == 1:
            own_space = self.random.choice(SPACES[1:])
            json["name"] = f"{own_space}.{name}"
            if self._chance(3):
                json["namespace"] = "ignored"
        else:
            json["name"] = name
        if self._wild and self._chance(15):
            json["name"] = self.random.choice(("1a", "a-b", "ä", "", "a..b", "int", ".", "x.int", 5, "shop.A1", "A1"))
        if self._chance(4):
            json["doc"] = self.random.choice(TEXTS)
        if self._chance(4):
            choices = ["Old", "shop.Old", "x.y.Older", name, f"{own_space}.Before" if own_space else "Before", "enum"]
            json["aliases"] = [self.random.choice(choices) for _ in range(self.random.randrange(4))]
        return json, own_space, f"{own_space}.{name}" if own_space else name

    def _record(self, depth: int, space: str) -> Any:
        json, own_space, full = self._head("error" if self._chance(12) else "record", space)
        self._open.append(full)
        count = self.random.randrange(5)
        names = self.random.sample(FIELD_NAMES, count)
        if self._wild and self._chance(20) and names:
            names.append(names[0])
        json["fields"] = [self._field(name, depth, own_space) for name in names]
        self._open.remove(full)
        self._defined.append(full)
        return self._shuffled({**json, **self._properties()})

    def _field(self, name: str, depth: int, space: str) -> Any:
        kind = self._type(depth - 1, space)
        json: dict[str, Any] = {"name": name, "type": kind}
        if self._chance(2):
            json["default"] = self._default(kind)
        if json.get("default", 0) is _NO_DEFAULT:
            del json["default"]
        if self._wild and self._chance(15):
            json["default"] = self.json_value()
        if self._chance(6):
            json["order"] = self.random.choice(("ascending", "descending", "ignore", "IGNORE"))
        if self._chance(5):
            json["doc"] = self.random.choice(TEXTS)
        if self._chance(4):
            json["aliases"] = [self.random.choice((*FIELD_NAMES, "old")) for _ in range(self.random.randrange(3))]
        return self._shuffled(
            {**json, **{k: v for k, v in self._properties().items() if k not in ("default", "order")}}
        )

    def _enum(self, depth: int, space: str) -> Any:
        json, _, full = self._head("enum", space)
        json["symbols"] = self.random.sample(SYMBOLS, self.random.randrange(1, len(SYMBOLS)))
        properties = self._properties()
        properties.pop("default", None)
        if self._chance(3):
            json["default"] = self.random.choice(json["symbols"])
        self._defined.append(full)
        return self._shuffled({**json, **properties})

    def _fixed(self, depth: int, space: str) -> Any:
        json, _, full = self._head("fixed", space)
        json["size"] = self.random.choice((0, 1, 12, 16))
        if self._chance(3):
            json["logicalType"] = self.random.choice(("duration", "uuid", "decimal"))
            if json["logicalType"] == "decimal":
                json["precision"] = self.random.choice((2, 9, 28, 29))
        self._defined.append(full)
        return self._shuffled({**json, **self._properties()})

    def _array(self, depth: int, space: str) -> Any:
        return self._shuffled({"type": "array", "items": self._type(depth - 1, space), **self._properties()})

    def _map(self, depth: int, space: str) -> Any:
        return self._shuffled({"type": "map", "values": self._type(depth - 1, space), **self._properties()})

    def _union(self, depth: int, space: str) -> Any:
        branches: list[Any] = []
        taken: set[str] = set()
        for _ in range(self.random.randrange(5)):
            branch = self._type(depth - 1, space)
            kind = branch if isinstance(branch, str) else branch["type"] if isinstance(branch, dict) else "union"
            if kind in ("record", "error", "enum", "fixed") or (self._wild and self._chance(10)):
                branches.append(branch)
            elif kind not in taken and kind != "union" and (kind in PRIMITIVES or kind in ("array", "map")):
                taken.add(kind)
                branches.append(branch)
        return branches

    def _default(self, kind: Any) -> Any:
        """A value that fits the type, or `_NO_DEFAULT`."""
        if isinstance(kind, list):
            return self._default(self.random.choice(kind[:1] * 3 + kind)) if kind else _NO_DEFAULT
        name = kind if isinstance(kind, str) else kind["type"]
        match name:
            case "null":
                return None
            case "boolean":
                return self._chance(2)
            case "int":
                return self.random.choice((0, -5, 2**31 - 1))
            case "long":
                return self.random.choice((0, 7, -(2**63)))
            case "float" | "double":
                return self.random.choice((*NUMBERS, "NaN", "-Infinity", " 1.5f "))
            case "bytes" | "string":
                return self.random.choice(TEXTS)
            case "enum":
                return self.random.choice((*kind["symbols"], "NOT_A_SYMBOL"))
            case "fixed":
                return "ÿ"
            case "array":
                return [each for each in [self._default(kind["items"])] if each is not _NO_DEFAULT]
            case "map":
                return {k: v for k, v in [("k", self._default(kind["values"]))] if v is not _NO_DEFAULT}
            case "record" | "error":
                found = {each["name"]: self._default(each["type"]) for each in kind["fields"]}
                return {k: v for k, v in found.items() if v is not _NO_DEFAULT}
        return _NO_DEFAULT

    def _shuffled(self, json: dict[str, Any]) -> dict[str, Any]:
        """The attributes in another order, except that types stay in the order in which names are defined."""
        items = list(json.items())
        if self._chance(2):
            self.random.shuffle(items)
        return dict(items)


_NO_DEFAULT: Final[Any] = object()


def changed(schema: Any, random: Random) -> Any:
    """A copy with a few changes, as schemas evolve."""
    fresh = [copy.deepcopy(schema)]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = _places(fresh, 0)
        holder, key = random.choice(places)
        _change(holder, key, random)
    return fresh[0]


def _places(holder: Any, key: Any) -> list[tuple[Any, Any]]:
    """Where types are: (container, key)."""
    found = [(holder, key)]
    node = holder[key]
    if isinstance(node, list):
        for position in range(len(node)):
            found.extend(_places(node, position))
    elif isinstance(node, dict):
        for name in ("items", "values"):
            if name in node:
                found.extend(_places(node, name))
        for field in node.get("fields", ()):
            found.extend(_places(field, "type"))
    return found


def _change(holder: Any, key: Any, random: Random) -> None:
    node = holder[key]
    kind = node if isinstance(node, str) else "union" if isinstance(node, list) else node["type"]
    pick = random.randrange(6)
    if kind in ("record", "error") and pick < 5:
        _change_record(node, random)
    elif kind == "enum" and pick < 5:
        _change_enum(node, random)
    elif kind == "fixed" and pick < 4:
        node["size"] = random.choice((0, 1, 12, 16))
    elif kind == "union" and pick < 5:
        _change_union(node, random)
    elif kind in PRIMITIVES and pick < 4:
        holder[key] = random.choice(PRIMITIVES)
    elif kind in ("array", "map") and pick < 2:
        inner = node.pop("items", None) if kind == "array" else node.pop("values", None)
        node.update({"type": "map", "values": inner} if kind == "array" else {"type": "array", "items": inner})
    elif not isinstance(node, list) and not isinstance(holder, list):
        holder[key] = random.choice(
            ([node], ["null", node] if kind != "null" else [node], [node, {"type": "map", "values": "int"}])
        )
        if kind == "map":
            holder[key] = [node]
    elif isinstance(node, list) and len(node) == 1:
        holder[key] = node[0]


def _change_record(node: Any, random: Random) -> None:
    fields = node["fields"]
    match random.randrange(8):
        case 0 | 1 if fields:
            fields.pop(random.randrange(len(fields)))
        case 2:
            fields.append({"name": f"new{random.randrange(3)}{len(fields)}", "type": "int", "default": 1})
        case 3:
            fields.insert(
                0, {"name": f"new{random.randrange(3)}{len(fields)}", "type": random.choice(("int", "string"))}
            )
        case 4 if fields:
            field = random.choice(fields)
            old, field["name"] = field["name"], f"renamed{random.randrange(3)}"
            if random.randrange(2):
                field["aliases"] = [old]
        case 5 if fields:
            random.choice(fields).pop("default", None)
        case 6 if fields:
            # Types may only be moved if none of them is used by name.
            random.shuffle(fields)
        case _:
            _rename(node, random)


def _rename(node: Any, random: Random) -> None:
    old = node["name"]
    if random.randrange(2):
        node["namespace"] = random.choice(SPACES)
        node["name"] = str(old).rpartition(".")[2]
    else:
        node["name"] = f"{old}_renamed"
    if random.randrange(2):
        node["aliases"] = [old, "Old"]


def _change_enum(node: Any, random: Random) -> None:
    match random.randrange(4):
        case 0 if len(node["symbols"]) > 1:
            node["symbols"].pop()
            node.pop("default", None)
        case 1:
            node["symbols"].append(f"NEW_{len(node['symbols'])}")
        case 2:
            node["default"] = node["symbols"][0]
        case _:
            _rename(node, random)


def _change_union(node: list[Any], random: Random) -> None:
    match random.randrange(3):
        case 0 if node:
            node.pop(random.randrange(len(node)))
        case 1 if not any(each in ("int", {"type": "int"}) or isinstance(each, dict) for each in node):
            node.append("int")
        case _:
            random.shuffle(node)


def text_of(schema: Any, random: Random) -> str:
    """The schema's text in one of the layouts in which people write JSON."""
    match random.randrange(4):
        case 0:
            return json.dumps(schema, indent=2)
        case 1:
            return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        case 2:
            return f"/* a comment */ {json.dumps(schema)} // another"
    return json.dumps(schema, ensure_ascii=False)
