"""An export of a registry: one JSON object on each line, in the order in which an import must write them.

The first line describes the file. Then come configs and modes as they were set, the highest ids of contexts, and the
versions of all subjects with their ids, each after the versions that it refers to.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from ottla.model.errors import CorruptError
from ottla.registry.state.qualified_subjects import qualify_beside

FORMAT: Final = "ottla-registry-export"
VERSION: Final = 1


class ArchiveError(CorruptError):
    """The file is not an export of a registry; names the line."""


def header(url: str) -> dict[str, Any]:
    """The first line."""
    return {"kind": FORMAT, "version": VERSION, "registry": url}


def in_order(schemas: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Versions so that each comes after those that it refers to, and after the earlier versions of its subject."""
    by_key = {(each["subject"], each["version"]): each for each in schemas}
    keys = sorted(by_key)
    before = {later: earlier for earlier, later in pairwise(keys) if earlier[0] == later[0]}
    ordered: dict[tuple[str, int], dict[str, Any]] = {}
    begun: set[tuple[str, int]] = set()
    for first in keys:
        # A stack instead of recursion: a chain of references may be long. In a circle, no order is right.
        stack = [first]
        while stack:
            key = stack[-1]
            references = by_key[key].get("references") or []
            needed = [(qualify_beside(key[0], each["subject"]), each["version"]) for each in references]
            needed += [before[key]] if key in before else []
            left = [each for each in needed if each in by_key and each not in begun] if key not in begun else []
            begun.add(key)
            if left:
                stack.extend(left)
            else:
                ordered.setdefault(key, by_key[key])
                stack.pop()
    return list(ordered.values())


def read_lines(lines: Iterable[str], name: str) -> Iterator[dict[str, Any]]:
    """The objects of an export, without its first line. Raises `ArchiveError`."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            kind = entry["kind"]
        except (ValueError, TypeError, KeyError):
            raise ArchiveError(f"{name}, line {number}: not an export of a registry") from None
        if number == 1:
            if kind != FORMAT:
                raise ArchiveError(f"{name}: not an export of a registry (its first line says {kind!r})")
            if entry.get("version") != VERSION:
                raise ArchiveError(f"{name}: written by a newer Ottla (version {entry.get('version')} of the format)")
            continue
        yield entry
