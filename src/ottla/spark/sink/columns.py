"""The columns of a DataFrame that make a record; checked before a row is written.

Without `valueFormat` they have the names of Spark's own connector, and other columns are not written. With it, columns
are the fields of the value, and those of the record have the names that reading gives them: `_key`, `_headers`,
`_partition`, `_topic`. Pure: takes names and types as Spark writes them.
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
    """The names of the columns to write; None for those that the DataFrame does not have."""

    value: str
    key: str | None
    headers: str | None
    partition: str | None
    topic: str | None
    """Also None if an option sets the topic."""
    fields: tuple[str, ...] = ()
    """With `valueFormat`: the columns that are the fields of the value. Its column `value` is made of them."""

    @property
    def record(self) -> dict[str, str]:
        """Names of the producer by names in the DataFrame."""
        value = None if self.fields else self.value
        named = {"key": self.key, "value": value, "headers": self.headers, "partition": self.partition}
        return {role: name for role, name in named.items() if name is not None}


def field_columns(columns: Iterable[tuple[str, str]], topic: str | None) -> SinkColumns:
    """The columns to write with `valueFormat`; raises `OptionError` if they cannot be written."""
    every = list(columns)
    fields = tuple(name for name, _ in every if not name.startswith("_"))
    if not fields:
        there = ", ".join(name for name, _ in every) or "none"
        raise OptionError(
            f"no column for the value; the columns are {there}; those that begin with _ are not part of it"
        )
    own = [(name[1:], kind) for name, kind in every if name in ("_key", "_headers", "_partition", "_topic")]
    found = sink_columns([*own, ("value", "binary")], topic)
    named = {role: None if getattr(found, role) is None else f"_{role}" for role in ("key", "headers", "partition")}
    return SinkColumns(value="value", topic=None if found.topic is None else "_topic", fields=fields, **named)


def sink_columns(columns: Iterable[tuple[str, str]], topic: str | None) -> SinkColumns:
    """The columns to write, from pairs of (name, type); raises `OptionError` if they cannot be written."""
    found: dict[str, str] = {}
    every = list(columns)
    for name, kind in every:
        role = name.lower()
        if role not in _TYPES or (role == "topic" and topic is not None):
            continue
        if role in found:
            raise OptionError(f"columns {found[role]} and {name} have the same role; rename one of them")
        if not kind.lower().startswith(_TYPES[role]) or (role in ("topic", "partition") and kind not in _TYPES[role]):
            wanted = " or ".join(_TYPES[role])
            raise OptionError(f"column {name} must be of type {wanted}, not {kind}; cast it")
        found[role] = name
    if "value" not in found:
        there = ", ".join(name for name, _ in every) or "none"
        raise OptionError(f"no column value of type string or binary; the columns are {there}")
    if topic is None and "topic" not in found:
        raise OptionError("no topic; set the option topic, or add a column topic")
    return SinkColumns(
        value=found["value"],
        key=found.get("key"),
        headers=found.get("headers"),
        partition=found.get("partition"),
        topic=found.get("topic"),
    )
