"""Keys and values of Arrow batches as typed columns, by deserializers that read whole columns.

All batches of a topic get the same type. A value that cannot be read is treated as a corrupt batch is: the records
before it are handed out first. Or, if the caller wants that, it is kept in a column of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ottla.client.consumer.errors import RecordDeserializationError
from ottla.client.fetch.arrow_chunks import Polled, all_starts
from ottla.client.fetch.chunk import Chunk
from ottla.client.needed_arrow import pa
from ottla.client.serializers import ColumnDeserializer, Deserializer
from ottla.model.ids import TopicPartition

BadValues = Literal["raise", "keep"]
"""What happens to a key or value that cannot be read."""

_ERROR: Final = pa.struct([pa.field("reason", pa.string(), nullable=False), pa.field("data", pa.binary())])
_Column = tuple[pa.Array, Sequence[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """The deserializers of a consumer, as far as they read columns."""

    readers: Mapping[str, ColumnDeserializer]
    """By the name of the column, which is `key` or `value`."""

    @classmethod
    def of(cls, key: Deserializer | None, value: Deserializer | None) -> "TypedColumns":
        """Deserializers that read single records only are left out."""
        both: dict[str, object] = {"key": key, "value": value}
        return cls({name: each for name, each in both.items() if isinstance(each, ColumnDeserializer)})

    def __bool__(self) -> bool:
        return bool(self.readers)

    def apply(self, polled: Polled, chunks: Sequence[Chunk], *, headers: bool, bad_values: BadValues) -> Polled:
        """What was polled, with typed columns. Raises `NotPreparedError`: prepare, then call it again."""
        if polled.error is not None or not self.readers:
            return polled
        found: dict[TopicPartition, list[pa.RecordBatch]] = {}
        rewinds = dict(polled.rewinds)
        for topic in {partition.topic for partition in polled.batches}:
            partitions = {each: some for each, some in polled.batches.items() if each.topic == topic}
            batches = [batch for some in partitions.values() for batch in some]
            columns = {name: self._columns(topic, name, batches) for name in self.readers}
            first = 0
            for partition, some in partitions.items():
                typed: list[pa.RecordBatch] = []
                for at, batch in enumerate(some, first):
                    own = {name: each[at] for name, each in columns.items()}
                    bad = min((row for _, rows in own.values() for row, _ in rows), default=None)
                    if bad is None or bad_values == "keep":
                        typed.append(_with(batch, own, headers=headers, bad_values=bad_values))
                        continue
                    offset: int = batch.column("offset")[bad].as_py()
                    if bad == 0 and not typed:
                        error = _error(partition, offset, own, bad)
                        return Polled(batches={}, rewinds=all_starts(chunks), error=error)
                    if bad:
                        whole = _with(batch, own, headers=headers, bad_values=bad_values)
                        typed.append(whole.slice(0, bad))
                    rewinds[partition] = offset
                    break
                found[partition] = typed
                first += len(some)
        return Polled(batches={each: found[each] for each in polled.batches}, rewinds=rewinds, error=None)

    def _columns(self, topic: str, name: str, batches: Sequence[pa.RecordBatch]) -> list[_Column]:
        """The column of each batch, all of one type."""
        reader = self.readers[name]
        while True:
            columns: list[_Column] = [
                reader.deserialize_column(topic, each.column(name), each.column("headers"), name == "key")
                for each in batches
            ]
            kinds = [each.type for each, _ in columns if not pa.types.is_null(each.type)]
            # A schema that was found in a later batch may have changed the type; the second time it is known.
            if all(each == kinds[0] for each in kinds):
                break
        if not kinds:
            return columns
        return [(pa.nulls(len(each), kinds[0]) if pa.types.is_null(each.type) else each, bad) for each, bad in columns]


def _with(
    batch: pa.RecordBatch, columns: Mapping[str, _Column], *, headers: bool, bad_values: BadValues
) -> pa.RecordBatch:
    fields, arrays = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name == "headers" and not headers:
            continue
        typed, _ = columns.get(field.name, (array, ()))
        fields.append(pa.field(field.name, typed.type, nullable=field.nullable))
        arrays.append(typed)
    if bad_values == "keep":
        for name, (_, bad) in columns.items():
            fields.append(pa.field(f"{name}_error", _ERROR))
            arrays.append(_errors(batch.column(name), bad))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _errors(data: pa.Array, bad: Iterable[tuple[int, str]]) -> pa.Array:
    """Reason and bytes of each bad value; null for the others."""
    rows = dict(bad)
    if not rows:
        return pa.nulls(len(data), _ERROR)
    places = pa.array(sorted(rows), pa.int64())
    reasons = pa.array([rows[row] for row in sorted(rows)], pa.string())
    kept = pa.StructArray.from_arrays([reasons, data.take(places)], fields=list(_ERROR))
    numbers: list[int | None] = [None] * len(data)
    for number, row in enumerate(sorted(rows)):
        numbers[row] = number
    return kept.take(pa.array(numbers, pa.int64()))


def _error(
    partition: TopicPartition, offset: int, columns: Mapping[str, _Column], row: int
) -> RecordDeserializationError:
    name, reason = next((name, reason) for name, (_, bad) in columns.items() for at, reason in bad if at == row)
    return RecordDeserializationError(
        partition,
        offset,
        f"cannot read the {name} of the record at offset {offset} of {partition}: {reason}; seek to {offset + 1} or"
        ' later to skip it, or poll with bad_values="keep"',
    )
