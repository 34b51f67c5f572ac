"""Fields of damaged JSON documents: every read stays within its column. `kernels.py` calls the target here."""

import json
from array import array
from random import Random
from typing import Any

from ottla.console.filters.json_fields import ODD, PATHS_MAX, json_fields
from tests.fuzz import damage

NAMES = ("a", "b", "é", "0", "long" * 40, '\n"\\', "\U0001f600")
TEXTS = ("", "x", "é" * 20, "\U0001f600", '\x01\n\\"', "plain text of more than sixteen bytes", "y" * 2000)
NUMBERS = (0, -1, 1.5, -0.0, 1e300, 1e-300, 123456789012345678, 10**40, 0.1 + 0.2)


def fields(chance: Random) -> None:
    """Some documents, damaged or not, and some paths into them."""
    documents = [_document(chance) for _ in range(chance.choice((0, 1, 2, 5, 40)))]
    bounds = array("i", [0])
    for document in documents:
        bounds.append(bounds[-1] + len(document))
    paths = [_path(chance) for _ in range(chance.choice((1, 1, 2, 3, PATHS_MAX)))]
    first = chance.randrange(len(documents) + 1)
    count = len(documents) - first
    for kinds, *_ in json_fields(bounds, damage.exact(b"".join(documents)), first, count, paths):
        if len(kinds) != count or (kinds and max(kinds) > ODD):
            raise AssertionError(f"{documents} have the kinds {kinds!r}")


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
