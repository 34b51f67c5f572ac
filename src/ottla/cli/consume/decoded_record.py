"""A record whose key and value were decoded by their schemas. Pure; `ottla.cli.schemas.decoding` decodes."""

from typing import TYPE_CHECKING

from ottla.records.record import Record

if TYPE_CHECKING:
    from ottla.registry.serde.schema_reader import ReadPart


class DecodedRecord(Record):
    """A record whose key and value are JSON, or marked if they are not decoded."""

    raw_key: bytes | None
    """As it is in the log."""
    raw_value: bytes | None
    key_part: "ReadPart"
    value_part: "ReadPart"
