"""Keys and values of records as JSON, by the schemas that they were written with.

What cannot be decoded stays as it is, with a mark; the first one is reported at once, and their number at the end.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from ottla.cli.consume.decoded_record import DecodedRecord
from ottla.cli.output import human_count, say
from ottla.model.ids import TopicPartition
from ottla.records.record import Record
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_reader import ReadPart, SchemaReader

MARK: Final = b"[not decoded] "


class SchemaDecoder:
    """Decodes the records of one command. Blocks to ask the registry for schemas that are new to it."""

    def __init__(self, registry: RegistryClient) -> None:
        self._reader = SchemaReader(registry)
        self._failures = 0

    def decode(self, partition: TopicPartition, records: Iterable[Record]) -> list[Record]:
        """The records with decoded keys and values."""
        return [self._decoded(partition, record) for record in records]

    def _decoded(self, partition: TopicPartition, record: Record) -> DecodedRecord:
        key = self._reader.read(partition.topic, record.headers, record.key, is_key=True)
        value = self._reader.read(partition.topic, record.headers, record.value, is_key=False)
        decoded = DecodedRecord(
            record.offset,
            record.timestamp,
            _line(record.key, key),
            _line(record.value, value),
            record.headers,
        )
        decoded.raw_key, decoded.raw_value = record.key, record.value
        decoded.key_part, decoded.value_part = key, value
        for part, name in ((key, "key"), (value, "value")):
            if part.error is not None:
                self._failures += 1
                if self._failures == 1:
                    say(f"{partition} offset {record.offset}: cannot decode the {name}: {part.error}")
        return decoded

    def report(self) -> None:
        """Says how many keys and values could not be decoded."""
        if self._failures > 1:
            say(f"{human_count(self._failures, 'key or value', 'keys and values')} could not be decoded")


def _line(data: bytes | None, part: ReadPart) -> bytes | None:
    if data is None:
        return None
    return msgspec.json.encode(part.value) if part.error is None else MARK + data
