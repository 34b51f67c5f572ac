"""Fields of damaged JSON documents: every read stays within its column. `kernels.py` calls the target here."""

import json
from array import array
from random import Random
from typing import Any

from ottla.console.filters.json_fields import NULL_KIND, ODD, PATHS_MAX, json_fields, rows_with, rows_with_number
from tests.fuzz import damage

NAMES = ("a", "b", "é", "0", "long" * 40, '\n"\\', "\U0001f600")
TEXTS = ("", "x", "é" * 20, "\U0001f600", '\x01\n\\"', "plain text of more than sixteen bytes", "y" * 2000)
NUMBERS = (0, -1, 1.5, -0.0, 1e300, 1e-300, 123456789012345678, 10**40, 0.1 + 0.2)


def fields(chance: Random) -> None:
    """Some documents, damaged or not, and some paths into them."""
    documents = _documents(chance)
    bounds = array("i", [0])
    for document in documents:
        bounds.append(bounds[-1] + len(document))
    paths = [_path(chance) for _ in range(chance.choice((1, 1, 2, 3, PATHS_MAX)))]
    first = chance.randrange(len(documents) + 1)
    count = len(documents) - first
    data = damage.exact(b"".join(documents))
    found = json_fields(bounds, data, first, count, paths)
    for kinds, *_ in found:
        if len(kinds) != count or (kinds and max(kinds) > ODD):
            raise AssertionError(f"{documents} have the kinds {kinds!r}")
    for row, document in enumerate(documents[first:]):
        alone = json_fields(array("i", [0, len(document)]), damage.exact(document), 0, 1, paths)
        if [kinds[row] for kinds, *_ in found] != [kinds[0] for kinds, *_ in alone]:
            raise AssertionError(f"behind {documents[: first + row]}, {document!r} is read as another one")
    _marks(chance, bounds, data, first, documents[first:])


def _marks(chance: Random, bounds: "array[int]", data: Any, first: int, documents: list[bytes]) -> None:
    """The rows that are marked, and that only these are read."""
    count = len(documents)
    wanted = chance.choice((b"a", b'"a"', b'"', b"plain text of", b"y" * 63, b"y" * 64, b"y" * 65, b"\\u00"))
    for may_escape in (False, True):
        marks = rows_with(bounds, data, first, count, wanted, may_escape=may_escape)
        expected = bytes(wanted in each or (may_escape and b"\\" in each) for each in documents)
        if marks != expected:
            raise AssertionError(f"{wanted!r} is in {expected!r} of {documents}, not in {marks!r}")
    low, high = sorted((float(chance.choice(NUMBERS)), chance.choice((-1.0, 0.0, 1e300))))
    marks = rows_with_number(bounds, data, first, count, chance.choice(NAMES), low, high)
    if len(marks) != count or marks.count(0) + marks.count(1) != count:
        raise AssertionError(f"{documents} have the marks {marks!r}")
    for kinds, *_ in json_fields(bounds, data, first, count, [_path(chance), _path(chance)], marks):
        if any(kind != NULL_KIND and not mark for kind, mark in zip(kinds, marks, strict=True)):
            raise AssertionError(f"of {documents}, those without a mark in {marks!r} were read: {kinds!r}")


def _documents(chance: Random) -> list[bytes]:
    """Some have the names of the one before them."""
    found: list[bytes] = []
    for _ in range(chance.choice((0, 1, 2, 5, 40, 300))):
        if found and chance.random() < 0.7:
            found.append(damage.damaged_bytes(chance, found[-1]) if chance.random() < 0.2 else found[-1])
        else:
            found.append(_document(chance))
    return found


def _path(chance: Random) -> tuple[str | int, ...]:
    steps = (*NAMES, 0, 1, -1, 2**70)
    return tuple(chance.choice(steps) for _ in range(chance.choice((0, 1, 1, 2, 3))))


def _document(chance: Random) -> bytes:
    text = json.dumps(_value(chance, 0), ensure_ascii=chance.random() < 0.5).encode()
    if chance.random() < 0.2:
        text = text.replace(b":", b" :\t", 2)
    if chance.random() < 0.05:
        text = b"[" * chance.choice((99, 100, 101, 5000)) + text
    if chance.random() < 0.5:
        text = damage.damaged_bytes(chance, text)
    return text[: chance.randrange(len(text) + 1)] if chance.random() < 0.3 else text


def _value(chance: Random, depth: int) -> Any:
    match chance.randrange(6 if depth < 4 else 4):
        case 0:
            return chance.choice((None, True, False))
        case 1:
            return chance.choice(NUMBERS)
        case 2 | 3:
            return chance.choice(TEXTS)
        case 4:
            return [_value(chance, depth + 1) for _ in range(chance.randrange(4))]
        case _:
            return {chance.choice(NAMES): _value(chance, depth + 1) for _ in range(chance.randrange(4))}
