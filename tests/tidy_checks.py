"""The house rules as functions: text in, complaints out.

Each check looks at one file's text and returns a list of complaints, empty when all is well, so that a test can also
feed it a bad snippet and see it complain. Which files they look at is decided in `test_tidy.py`. Layers are also held
by import-linter, which sees chains of imports but neither `*_state.py` patterns nor Cython sources; the rooms and their
layers are read from its contracts in `pyproject.toml`.
"""

import ast
import itertools
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

IMPURE: Final = frozenset({"asyncio", "os", "random", "socket", "subprocess", "threading", "time"})
"""What a pure module may not import: clocks, disks, networks, threads and chance."""
WORLD: Final = IMPURE - {"asyncio"}
"""What a shell may not import either, since the ports of `env` stand in for it."""


def rooms_of(contracts: Collection[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Every room, and the rooms that it may import, by import-linter's contracts: those of lower layers, without those
    that another contract forbids it."""
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    rooms: dict[str, frozenset[str]] = {}
    for layer in reversed(layers):
        below = frozenset(rooms)
        rooms.update({room.strip(" ()"): below for room in layer.split("|")})
    for contract in contracts:
        if contract["type"] == "forbidden":
            forbidden = {name.removeprefix("ottla.") for name in contract["forbidden_modules"]}
            sources = {name.removeprefix("ottla.") for name in contract["source_modules"]} & rooms.keys()
            rooms.update({room: rooms[room] - forbidden for room in sources})
    return rooms


ROOMS: Final = rooms_of(
    tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
)


BANNED_WORDS: Final = {
    "common": "name the one thing the code does",
    "helpers": "name the one thing the code does",
    "manager": "say what it does: shard, store, cleaner",
    "misc": "name the one thing the code does",
    "node": "say broker",
    "purgatory": "say waiter",
    "server": "say broker",
    "stimulus": "say event",
    "term": "say leader_epoch",
    "util": "name the one thing the code does",
    "utils": "name the one thing the code does",
}
BANNED_PHRASES: Final = {
    "control_message": "say marker",
    "latest_offset": "say end_offset (exclusive) or last_offset (inclusive)",
    "message_set": "say batch",
    "record_set": "say batch",
}
NAMES_OF_SPARK: Final = frozenset({"latestOffset", "reportLatestOffset"})
"""Methods that Spark calls by these names; what a data source is called there is not ours to choose."""
BANNED_MODULES: Final = {"base": "name the duty of the file"}
BANNED_PROSE: Final = {
    r"anew": "say again, or new",
    r"nobody": "name the component: no client, no broker, no caller",
    r"shall": "say must, or what happens",
    r"so many": "say the number, or name the parameter",
    r"such a one": "name the thing",
    r"whoever": "name the component",
    r"(?<!there )(?:is|are|was|were) no (?!longer\b|more\b)\w+": "say is not a",
}
"""Phrases that a reader stumbles over, in comments, docstrings, messages and documents: what to say instead."""


class Block(NamedTuple):
    """A class or a function somewhere in a source file."""

    kind: str
    name: str
    line: int
    documented: bool
    outermost: bool


def python_blocks(text: str) -> list[Block]:
    """Every class and function of a Python source or stub."""
    return _outline(text)[0]


@cache  # Several checks look at the same files, and parsing is most of their work.
def _outline(text: str) -> tuple[list[Block], list[ast.Import | ast.ImportFrom]]:
    """The classes and functions of a Python source, and its imports."""
    tree = ast.parse(text)
    outermost = {id(child) for child in tree.body}
    blocks: list[Block] = []
    imports: list[ast.Import | ast.ImportFrom] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            is_documented = ast.get_docstring(node) is not None
            blocks.append(Block(kind, node.name, node.lineno, is_documented, id(node) in outermost))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
    return blocks, imports


_CYTHON_DEFINITION: Final = re.compile(
    r"^(?P<indent> *)(?P<keyword>(?:async )?def|cpdef|cdef class|class|cdef(?! extern| struct| enum| union| packed))"
    r" (?P<rest>.*)$"
)
_DOCSTRING_START: Final = re.compile(r'^[rRuU]?("""|\'\'\'|"|\')')


def cython_blocks(text: str) -> list[Block]:
    """Every class and function of a Cython source, by indentation: there is no parser for it in the library."""
    lines = text.splitlines()
    blocks = []
    for index, line in enumerate(lines):
        found = _CYTHON_DEFINITION.match(line)
        if found is None:
            continue
        body = _signature_end(lines, index)
        if body is None:
            continue
        name = re.findall(r"(\w+)\s*(?=[(:])", found["rest"])
        if not name:
            continue
        indent = len(found["indent"])
        end = _block_end(lines, body, indent)
        following = next((lines[at].strip() for at in range(body, end) if lines[at].strip()), "")
        blocks.append(
            Block(
                "class" if found["keyword"].endswith("class") else "function",
                name[0],
                index + 1,
                _DOCSTRING_START.match(following) is not None,
                # A function in C alone is nobody's public name.
                indent == 0 and found["keyword"] != "cdef",
            )
        )
    return blocks


def _signature_end(lines: list[str], start: int) -> int | None:
    """The line after a definition's colon; None for a declaration, such as a variable or a prototype."""
    depth = 0
    for index in range(start, len(lines)):
        code = lines[index].split("#")[0].rstrip()
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))
        if depth <= 0:
            return index + 1 if code.endswith(":") else None
    return None


def _block_end(lines: list[str], body: int, indent: int) -> int:
    """The line after the last one that is indented deeper than its definition."""
    end = body
    for index in range(body, len(lines)):
        if not lines[index].strip():
            continue
        if len(lines[index]) - len(lines[index].lstrip()) <= indent:
            break
        end = index + 1
    return end


def undocumented(text: str, blocks: Collection[Block], stub: str = "") -> list[str]:
    """A module, a public class and a public function say what they promise. Methods may speak by their names.

    A kernel's promises may stand in its stub instead, where an editor finds them.
    """
    promised = {block.name for block in python_blocks(stub) if block.documented and block.outermost}
    opening = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    complaints = [] if _DOCSTRING_START.match(opening) else ["the module has no docstring"]
    return complaints + [
        f"line {block.line}: {block.kind} {block.name} has no docstring"
        for block in blocks
        if block.outermost and not block.name.startswith("_") and not (block.documented or block.name in promised)
    ]


def badly_named_module(path: PurePosixPath) -> list[str]:
    """A file is named by its one duty; a package by its folder."""
    stem = path.parent.name if path.stem == "__init__" else path.stem
    complaints = [f"module {stem}: {BANNED_MODULES[stem]}"] if stem in BANNED_MODULES else []
    return complaints + [f"module {stem}: {BANNED_WORDS[word]}" for word in _words(stem) if word in BANNED_WORDS]


def badly_named(blocks: Collection[Block]) -> list[str]:
    """One word per concept, and no word that means nothing, in the names of classes and functions."""
    complaints = []
    for block in blocks:
        if block.name in NAMES_OF_SPARK:
            continue
        words = _words(block.name)
        phrases = ["_".join(pair) for pair in itertools.pairwise(words)]
        reasons = [BANNED_WORDS[word] for word in words if word in BANNED_WORDS]
        reasons += [BANNED_PHRASES[phrase] for phrase in phrases if phrase in BANNED_PHRASES]
        complaints += [f"line {block.line}: {block.kind} {block.name}: {reason}" for reason in reasons]
    return complaints


def badly_worded(text: str) -> list[str]:
    """Plain technical English, in all that a person reads."""
    return [
        f"line {number}: {found[0]}: {advice}"
        for number, line in enumerate(text.splitlines(), start=1)
        for phrase, advice in _PROSE
        for found in phrase.finditer(line)
    ]


_PROSE: Final = [(re.compile(rf"\b{phrase}\b", re.IGNORECASE), advice) for phrase, advice in BANNED_PROSE.items()]


def _words(name: str) -> list[str]:
    """A name in snake or camel case as its words, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def imported_modules(path: PurePosixPath, text: str) -> set[str]:
    """The dotted names a source imports, at whatever depth; for a Cython source also what it cimports."""
    if path.suffix in (".pyx", ".pxd"):
        return set(_cython_imports(text))
    return set(_python_imports(path, text))


def _python_imports(path: PurePosixPath, text: str) -> Iterator[str]:
    package = path.parent.parts
    for node in _outline(text)[1]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*above, *((node.module,) if node.module else ())))
            # `from ottla import env` names a room only in what it takes.
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _cython_imports(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if found := re.match(r"\s*from\s+([\w.]+)\s+c?import\s+(.*)", line):
            taken = re.findall(r"\w+", found[2].split("#")[0]) or [""]
            yield from (f"{found[1]}.{name}" for name in taken)
        elif found := re.match(r"\s*c?import\s+([\w., ]+)", line):
            yield from (name.split()[0] for name in found[1].split(",") if name.strip())


def impure(path: PurePosixPath, text: str) -> list[str]:
    """Pure modules decide, shells do: `path` is below `src`, as in ottla/storage/log.py."""
    room = path.parts[1] if len(path.parts) > 2 else ""
    pure = path.stem.endswith("_state") or room in ("model", "records")
    forbidden = IMPURE if pure else WORLD if room == "storage" else frozenset()
    roots = {name.split(".")[0] for name in imported_modules(path, text)}
    return [f"imports {name}: take it from a port, or take `now` as an argument" for name in sorted(roots & forbidden)]


def out_of_its_room(path: PurePosixPath, text: str) -> list[str]:
    """Imports point down only. A new room must find its place among the layers."""
    if len(path.parts) < 3:
        return []
    room = path.parts[1]
    if room not in ROOMS:
        return [f"room {room} is in none of the layers of pyproject.toml"]
    parts = [name.split(".") for name in imported_modules(path, text)]
    known = {part[1] for part in parts if part[0] == "ottla" and len(part) > 1}
    return [f"{room} may not know {name}" for name in sorted((known & ROOMS.keys()) - ROOMS[room] - {room})]


_PARTS: Final = re.compile(r"(?<!\bself)(?<!\bottla\.broker)\.parts\b")


def behind_the_front_door(path: PurePosixPath, text: str) -> list[str]:
    """Tests know what users of a broker know; what they cannot do without is in one module."""
    return [] if path.name == "inside.py" else _lines_with(_PARTS, text, "parts of a broker: only inside.py may")


def unexplained_skips(text: str) -> list[str]:
    """A test that is not run says why."""
    if "skip" not in text and "xfail" not in text:
        return []  # Without parsing it, since no mark or call that is looked for can be there.
    complaints = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            reasons = [keyword.value for keyword in node.keywords if keyword.arg in ("reason", "msg")]
            if called.endswith((".skip", ".xfail")) and called.startswith("pytest"):
                reasons += node.args
            explained = any(not (isinstance(reason, ast.Constant) and not reason.value) for reason in reasons)
            if re.fullmatch(r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)", called) and not explained:
                complaints.append(f"line {node.lineno}: {called} without a reason")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bare = [ast.unparse(decorator) for decorator in node.decorator_list if isinstance(decorator, ast.Attribute)]
            complaints += [
                f"line {node.lineno}: {name} without a reason"
                for name in bare
                if re.fullmatch(r"pytest\.mark\.(skip|xfail)", name)
            ]
    return complaints


# Written in halves, or this file would complain about itself.
_UNFINISHED: Final = re.compile(r"\b(" + "TO" "DO|FIX" "ME|XX" "X|HA" r"CK)\b")
_MACHINE_PATH: Final = re.compile(r"(?<![\w.~])/(?:ro" r"ot|ho" r"me|Us" r"ers|wo" r"rk)/\w")
_REGISTRY: Final = re.compile("index" r"-url|arti" r"factory|find" r"-links", re.IGNORECASE)


def unfinished(text: str) -> list[str]:
    """What is left to do belongs where work is planned, not in the code."""
    return _lines_with(_UNFINISHED, text, "unfinished")


def tied_to_a_machine(text: str) -> list[str]:
    """The project runs anywhere: it names no folder and no package mirror of the machine it was written on."""
    return _lines_with(_MACHINE_PATH, text, "a machine's path") + _lines_with(_REGISTRY, text, "a package mirror")


def _lines_with(pattern: re.Pattern[str], text: str, complaint: str) -> list[str]:
    if not pattern.search(text):
        return []
    return [
        f"line {number}: {complaint}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
