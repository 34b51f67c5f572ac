"""Columns of keys and values as bytes, by serializers that write whole columns, and the headers that they add."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from ottla.client.needed_arrow import pa
from ottla.client.producer.errors import SerializationError
from ottla.client.serializers import AnySerializer, ColumnSerializer, NotPreparedError
from ottla.client.values import Header
from ottla.model.errors import MisuseError
from ottla.records.arrow import HEADER, HEADERS


@dataclass(frozen=True, slots=True)
class ColumnSerializers:
    """The serializers of a producer, as far as they write columns."""

    writers: Mapping[str, ColumnSerializer]
    """By what they write: `key` or `value`."""

    @classmethod
    def of(cls, key: AnySerializer | None, value: AnySerializer | None) -> "ColumnSerializers":
        """Serializers that write single records only are left out."""
        both: dict[str, object] = {"key": key, "value": value}
        return cls({name: each for name, each in both.items() if isinstance(each, ColumnSerializer)})

    def __bool__(self) -> bool:
        return bool(self.writers)

    def apply(self, topic: str, piece: pa.RecordBatch, *, key: str, value: str, headers: str) -> pa.RecordBatch:
        """The rows with bytes for keys and values. Raises `SerializationError`, and `NotPreparedError`."""
        names = {"key": key, "value": value}
        for what, writer in self.writers.items():
            name = names[what]
            place = piece.schema.get_field_index(name)
            if place < 0 or pa.types.is_null(piece.column(place).type):
                continue
            column = piece.column(place)
            try:
                data, added = writer.serialize_column(topic, column, what == "key")
            except NotPreparedError:
                raise
            except Exception as error:
                raise SerializationError(
                    f"column {name} cannot be written as {what}s of topic {topic}: {error}"
                ) from error
            piece = piece.set_column(place, name, data)
            if added:
                piece = _with_headers(piece, headers, added, data)
        return piece


def _with_headers(piece: pa.RecordBatch, name: str, added: Sequence[Header], data: pa.Array) -> pa.RecordBatch:
    """The rows with headers added to each whose key or value is not null, behind those that it has."""
    rows = pc.indices_nonzero(data.is_valid()).cast(pa.int64())
    parts, owners = [], []
    lengths = pa.repeat(pa.scalar(0, pa.int64()), len(data))
    place = piece.schema.get_field_index(name)
    if place >= 0 and not pa.types.is_null(piece.column(place).type):
        try:
            present = piece.column(place).cast(HEADERS)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MisuseError(f"column {name} cannot be sent as headers: {error}") from error
        parts.append(present.flatten())
        owners.append(pc.list_parent_indices(present))
        lengths = pc.list_value_length(present).fill_null(0).cast(pa.int64())
    for header, value in added:
        parts.append(pa.repeat(pa.scalar({"key": header, "value": value}, HEADER), len(rows)))
        owners.append(rows)
        lengths = pc.add(lengths, data.is_valid().cast(pa.int64()))
    # The sort is stable: what a row had comes first.
    items = pa.concat_arrays(parts).take(pc.array_sort_indices(pa.concat_arrays(owners)))
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    lists = pa.Array.from_buffers(HEADERS, len(data), [None, ends.buffers()[1]], children=[items])
    return piece.set_column(place, name, lists) if place >= 0 else piece.append_column(name, lists)
