"""Which columns of a DataFrame are what of a record, as Spark's own connector has it; checked before a row is written.

Pure: takes names and types as Spark spells them. Columns that are none of these are not written.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.client.options import OptionError

_TEXT: Final = ("string", "binary")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = {"topic": ("string",), "key": _TEXT, "value": _TEXT, "headers": (_HEADERS,), "partition": ("int",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The columns that are written, by what they are; None for those that a DataFrame does not have."""

    value: str
    key: str | None
    headers: str | None
    partition: str | None
    topic: str | None
    """None also if an option names the topic."""

    @property
    def record(self) -> dict[str, str]:
        """From what the producer calls them to what they are called in the DataFrame."""
        named = {"key": self.key, "value": self.value, "headers": self.headers, "partition": self.partition}
        return {role: name for role, name in named.items() if name is not None}


def sink_columns(columns: Iterable[tuple[str, str]], topic: str | None) -> SinkColumns:
    """What to write of columns given as (name, type); raises `OptionError` for those that cannot be written."""
    found: dict[str, str] = {}
    every = list(columns)
    for name, kind in every:
        role = name.lower()
        if role not in _TYPES or (role == "topic" and topic is not None):
            continue
        if role in found:
            raise OptionError(f"there are two columns {found[role]} and {name}; rename one of them")
        if not kind.lower().startswith(_TYPES[role]) or (role in ("topic", "partition") and kind not in _TYPES[role]):
            wanted = " or ".join(_TYPES[role])
            raise OptionError(f"the column {name} must be of type {wanted}, and is of type {kind}; cast it")
        found[role] = name
    if "value" not in found:
        there = ", ".join(name for name, _ in every) or "none"
        raise OptionError(f"there is no column value to write, of type string or binary; the columns are {there}")
    if topic is None and "topic" not in found:
        raise OptionError("where do rows go? name a topic with the option topic, or add a column topic")
    return SinkColumns(
        value=found["value"],
        key=found.get("key"),
        headers=found.get("headers"),
        partition=found.get("partition"),
        topic=found.get("topic"),
    )
