"""Arrow at the edge of the columnar kernel: record batches of the log to and from Arrow's, without a copy.

The only module here that needs pyarrow, which is an optional part of the installation. What Arrow columns a log record
has is `SCHEMA`; how they are filled is the kernels' business (`columns`, `columns_encode`).
"""

from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import MisuseError
from ottla.records.columns import decode
from ottla.records.columns_encode import encode
from ottla.records.packed import BinaryColumn, Columns, HeadersColumn

if TYPE_CHECKING:
    from typing_extensions import Buffer

TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")
HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS: Final = pa.list_(pa.field("item", HEADER, nullable=False))
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
    ]
)
"""What decoding gives; without headers their column is missing."""

_KERNEL_TYPES: Final = frozenset({pa.binary(), pa.string(), pa.large_binary(), pa.large_string()})
_WIDE_TYPES: Final = frozenset({pa.large_binary(), pa.large_string()})


def decode_arrow(buffer: "Buffer", position: int = 0, **options: Any) -> tuple[pa.RecordBatch, Columns]:
    """`columns.decode` with the same options: the records for Arrow, and the columns that say how far they reach."""
    columns = decode(buffer, position, **options)
    return to_record_batch(columns), columns


def to_record_batch(columns: Columns) -> pa.RecordBatch:
    """The columns as Arrow arrays over the same memory."""
    count = columns.count
    arrays = [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(columns.timestamps)]),
        _binary_array(columns.keys, count, pa.binary()),
        _binary_array(columns.values, count, pa.binary()),
    ]
    if columns.headers is None:
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(SCHEMA)[:-1]))
    headers = columns.headers
    items = pa.Array.from_buffers(
        HEADER,
        headers.count,
        [None],
        children=[
            _binary_array(headers.keys, headers.count, pa.string()),
            _binary_array(headers.values, headers.count, pa.binary()),
        ],
    )
    arrays.append(pa.Array.from_buffers(HEADERS, count, [None, pa.py_buffer(headers.offsets)], children=[items]))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def encode_arrow(
    rows: pa.RecordBatch | pa.Table,
    *,
    key: str = "key",
    value: str = "value",
    timestamp: str = "timestamp",
    headers: str = "headers",
    default_timestamp: int = -1,
    base_offset: int = 0,
    base_sequence: int = -1,
    **options: Any,
) -> list[memoryview]:
    """Rows as batches for one partition; the options are those of `columns_encode.encode`, `order` for no table.

    A column that the rows do not have counts as null, a null or missing timestamp as `default_timestamp`. Keys and
    values may be of any type that Arrow casts to binary; timestamps are int64 milliseconds or Arrow timestamps of any
    unit; headers a list or map of string to binary. Pieces of a table begin new batches.
    """
    pieces = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    batches: list[memoryview] = []
    for piece in pieces:
        batches += encode(
            piece.num_rows,
            keys=_binary_column(_column(piece, key), key),
            values=_binary_column(_column(piece, value), value),
            timestamps=_timestamps(_column(piece, timestamp), timestamp, default_timestamp),
            headers=_headers_column(_column(piece, headers), headers),
            default_timestamp=default_timestamp,
            base_offset=base_offset,
            base_sequence=base_sequence,
            **options,
        )
        base_offset += piece.num_rows
        if base_sequence >= 0:
            base_sequence = (base_sequence + piece.num_rows) & 0x7FFFFFFF
    return batches


def _binary_array(column: BinaryColumn, count: int, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, null_count=column.null_count)


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index)


def _cast(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MisuseError(f"column {name} of type {array.type} cannot be sent as {kind}: {error}") from error


def _binary_column(array: pa.Array | None, name: str, kind: pa.DataType | None = None) -> BinaryColumn | None:
    if array is None or pa.types.is_null(array.type):
        return None
    if array.type not in _KERNEL_TYPES or (kind is not None and array.type != kind):
        array = _cast(array, kind or pa.binary(), name)
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        validity=validity if array.null_count else None,
        offsets=offsets if offsets is not None else b"\x00" * 8,
        data=data if data is not None else b"",
        null_count=array.null_count,
        start=array.offset,
        wide=array.type in _WIDE_TYPES,
    )


def _timestamps(array: pa.Array | None, name: str, default: int) -> "Buffer | None":
    if array is None or pa.types.is_null(array.type):
        return None
    if pa.types.is_timestamp(array.type) and array.type.unit != "ms":
        # Sending keeps milliseconds; what is finer than that is cut off, as Kafka's own clients do.
        array = pc.cast(array, pa.timestamp("ms", array.type.tz), safe=False)
    array = _cast(array, pa.int64(), name)
    if array.null_count:
        array = array.fill_null(default)
    if len(array) == 0:
        return None
    whole = memoryview(array.buffers()[1]).cast("B")
    return whole[8 * array.offset : 8 * (array.offset + len(array))]


def _headers_column(array: pa.Array | None, name: str) -> HeadersColumn | None:
    if array is None or pa.types.is_null(array.type) or len(array) == 0:
        return None
    if pa.types.is_map(array.type) or not pa.types.is_list(array.type):
        array = _cast(array, HEADERS, name)
    items = array.values
    if not pa.types.is_struct(items.type) or items.type.num_fields != 2:
        raise MisuseError(f"column {name} of type {array.type} is not a list of headers with a key and a value each")
    keys, values = items.flatten()
    return HeadersColumn(
        offsets=array.buffers()[1],
        keys=cast(BinaryColumn, _binary_column(keys, f"{name}.key", pa.string())),
        values=_binary_column(values, f"{name}.value") or _all_null(len(values)),
        count=len(items),
        validity=array.buffers()[0] if array.null_count else None,
        start=array.offset,
    )


def _all_null(count: int) -> BinaryColumn:
    return BinaryColumn(validity=bytes((count + 7) // 8), offsets=bytes(4 * (count + 1)), data=b"", null_count=count)
