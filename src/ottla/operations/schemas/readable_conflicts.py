"""Why a schema is not compatible, in sentences: registries answer with parts in braces."""

import re
from typing import Final

_CONFLICT: Final = re.compile(
    r"\{errorType:'[A-Z_]+', description:'(?P<text>.*?)'"
    r"(?P<more>(?:, (?:additionalInfo|path|reader|writer):'.*?')*)\}",
    re.DOTALL,
)
_PART: Final = re.compile(r", (path|reader|writer):'(.*?)'(?=, (?:path|reader|writer):'|$)", re.DOTALL)
_VERSION: Final = re.compile(r"\{oldSchemaVersion: (-?\d+)\}")
_LEVEL: Final = re.compile(r"compatibility: '([A-Z_]+)'\}")


def readable_conflicts(messages: str) -> list[str]:
    """One line for each conflict in the messages of a registry, then what was compared. Empty if nothing is found."""
    found = _VERSION.search(messages)
    # The text of the old schema follows, which may contain anything.
    head = messages if found is None else messages[: found.start()]
    lines = list(dict.fromkeys(_line(each) for each in _CONFLICT.finditer(head)))
    if not lines:
        return []
    levels = _LEVEL.findall(messages)
    against = [f"version {found[1]}"] if found is not None else []
    against += [f"compatibility level {levels[-1]}"] if levels else []
    return [*lines, *([f"checked against {', '.join(against)}"] if against else [])]


def _line(conflict: re.Match[str]) -> str:
    parts = dict(_PART.findall(conflict["more"]))
    text = conflict["text"].rstrip(".")
    if "path" in parts and parts["path"] not in text:
        text = f"{parts['path']}: {text}"
    if "reader" in parts and "writer" in parts:
        text += f" (reader: {parts['reader']}, writer: {parts['writer']})"
    return text
