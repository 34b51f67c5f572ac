# cython: boundscheck=False, wraparound=False, cdivision=True
"""The columnar kernel, writing side: packed columns in, batches out, and no Python object per record.

Rows become records in order and are cut into batches by size. Plain batches lie one behind the other in one piece of
memory; Python is asked only to compress. `packed.py` describes what goes in, `arrow.py` makes it of Arrow arrays, and
`columns.pyx` is the way back.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t

from ottla.records.packed_buffer cimport give_back, hand_over, ottla_copy, ottla_growable, reserve
from ottla.model.errors import BatchTooLargeError, MisuseError
from ottla.records.compression import compress
from ottla.records.layout import Codec

from ottla.records.record_wire cimport (
    ottla_batch_fields, ottla_field_size, ottla_record_body_size, ottla_seal, ottla_seal_around,
)
from ottla.records.wire cimport (
    OTTLA_APPEND_TIME_BIT, OTTLA_HEADER_BYTES, OTTLA_TRANSACTIONAL_BIT, ottla_crc32c, ottla_put_varint, ottla_sub64,
    ottla_varint_size,
)

cdef enum:
    # Beyond what a record's lengths and deltas take together.
    RECORD_OVERHEAD_BYTES = 24
    # How much is written before its checksum is taken: it must still be in the processor's nearest caches, and be
    # whole rounds of the checksum's longest stride.
    CHECKSUM_BYTES = 2 * 3 * 4096
    NULL_FIELD = -1
    BAD_FIELD = -2

cdef enum Halt:
    GOOD, BAD_COLUMN, BAD_HEADER_KEY, TOO_LARGE, NO_MEMORY


# Like all here that hold buffers, not for the garbage collector, which would drop them without releasing them.
@cython.no_gc
@cython.final
cdef class _BinaryIn:
    """A column of byte strings, its buffers held and known to be long enough for its rows; no buffers: all null."""

    cdef Py_buffer _validity_view, _offsets_view, _data_view
    cdef const uint8_t* _validity
    cdef const int32_t* _narrow
    cdef const int64_t* _wide
    cdef const uint8_t* _data
    cdef const uint8_t* _end
    cdef int64_t _start

    def __cinit__(self, column, int64_t rows, str name):
        cdef size_t width
        if column is None or rows == 0:
            return
        self._start = column.start
        width = 8 if column.wide else 4
        PyObject_GetBuffer(column.offsets, &self._offsets_view, PyBUF_SIMPLE)
        PyObject_GetBuffer(column.data, &self._data_view, PyBUF_SIMPLE)
        if self._start < 0 or <size_t>self._offsets_view.len // width < <size_t>(self._start + rows + 1):
            raise MisuseError(f"column {name}: {self._offsets_view.len} bytes of offsets are too few for {rows} rows")
        if column.validity is not None:
            PyObject_GetBuffer(column.validity, &self._validity_view, PyBUF_SIMPLE)
            if self._validity_view.len < (self._start + rows + 7) // 8:
                raise MisuseError(f"column {name}: {self._validity_view.len} bytes of validity are too few")
            self._validity = <const uint8_t*>self._validity_view.buf
        if column.wide:
            self._wide = <const int64_t*>self._offsets_view.buf
        else:
            self._narrow = <const int32_t*>self._offsets_view.buf
        self._data = <const uint8_t*>self._data_view.buf
        self._end = self._data + self._data_view.len

    def __dealloc__(self):
        PyBuffer_Release(&self._validity_view)
        PyBuffer_Release(&self._offsets_view)
        PyBuffer_Release(&self._data_view)

    cdef inline int64_t _get(self, int64_t row, const uint8_t** field) noexcept nogil:
        """Where a row's bytes start, and how many there are, or one of the negative answers."""
        cdef int64_t first, end
        row += self._start
        if self._validity != NULL and not (self._validity[row >> 3] >> (row & 7)) & 1:
            return NULL_FIELD
        if self._narrow != NULL:
            first = self._narrow[row]
            end = self._narrow[row + 1]
        elif self._wide != NULL:
            first = self._wide[row]
            end = self._wide[row + 1]
        else:
            return NULL_FIELD
        if first < 0 or end < first or end > self._end - self._data:
            return BAD_FIELD
        field[0] = self._data + first
        return end - first


@cython.no_gc
@cython.final
cdef class _HeadersIn:
    """A column of header lists, its buffers held and known to be long enough for its rows."""

    cdef Py_buffer _validity_view, _offsets_view
    cdef const uint8_t* _validity
    cdef const int32_t* _offsets
    cdef int64_t _start, _count
    cdef _BinaryIn _keys, _values

    def __cinit__(self, column, int64_t rows):
        self._count = column.count
        self._start = column.start
        self._keys = _BinaryIn(column.keys, self._count, "headers.key")
        self._values = _BinaryIn(column.values, self._count, "headers.value")
        PyObject_GetBuffer(column.offsets, &self._offsets_view, PyBUF_SIMPLE)
        if self._start < 0 or self._offsets_view.len // 4 < self._start + rows + 1:
            raise MisuseError(f"column headers: {self._offsets_view.len} bytes of offsets are too few for {rows} rows")
        self._offsets = <const int32_t*>self._offsets_view.buf
        if column.validity is not None:
            PyObject_GetBuffer(column.validity, &self._validity_view, PyBUF_SIMPLE)
            if self._validity_view.len < (self._start + rows + 7) // 8:
                raise MisuseError(f"column headers: {self._validity_view.len} bytes of validity are too few")
            self._validity = <const uint8_t*>self._validity_view.buf

    def __dealloc__(self):
        PyBuffer_Release(&self._validity_view)
        PyBuffer_Release(&self._offsets_view)

    cdef Halt _measure(self, int64_t row, int64_t* first, int64_t* end, size_t* size) noexcept nogil:
        """Which headers a row has, and how many bytes they take."""
        cdef int64_t index, key_size, value_size
        cdef const uint8_t* field = NULL
        row += self._start
        first[0] = end[0] = 0
        size[0] = 0
        if self._validity != NULL and not (self._validity[row >> 3] >> (row & 7)) & 1:
            return GOOD
        first[0] = self._offsets[row]
        end[0] = self._offsets[row + 1]
        if first[0] < 0 or end[0] < first[0] or end[0] > self._count:
            return BAD_COLUMN
        for index in range(first[0], end[0]):
            key_size = self._keys._get(index, &field)
            value_size = self._values._get(index, &field)
            if key_size == NULL_FIELD:
                return BAD_HEADER_KEY
            if key_size == BAD_FIELD or value_size == BAD_FIELD:
                return BAD_COLUMN
            size[0] += ottla_field_size(key_size) + ottla_field_size(value_size)
        return GOOD

    cdef uint8_t* _write(self, uint8_t* at, int64_t first, int64_t end) noexcept nogil:
        cdef int64_t index
        for index in range(first, end):
            at = _write_row(at, self._keys, index)
            at = _write_row(at, self._values, index)
        return at


cdef inline uint8_t* _write_field(
    uint8_t* at, const uint8_t* field, int64_t size, const uint8_t* end
) noexcept nogil:
    at = ottla_put_varint(at, size)
    if size > 0:
        ottla_copy(at, field, size, end)
        at += size
    return at


cdef uint8_t* _write_row(uint8_t* at, _BinaryIn column, int64_t row) noexcept nogil:
    cdef const uint8_t* field = NULL
    cdef int64_t size = column._get(row, &field)
    return _write_field(at, field, size, column._end)


@cython.no_gc
@cython.final
cdef class _Encoder:
    cdef _BinaryIn _keys, _values
    cdef _HeadersIn _headers
    cdef Py_buffer _timestamps_view, _order_view
    cdef const int64_t* _timestamps
    cdef const int32_t* _order
    cdef int64_t _default_timestamp, _rows, _column_rows, _row, _records_max
    cdef size_t _bytes_max
    cdef uint32_t _payload_crc
    cdef ottla_growable _out
    cdef ottla_batch_fields _fields

    def __dealloc__(self):
        PyBuffer_Release(&self._timestamps_view)
        PyBuffer_Release(&self._order_view)
        give_back(&self._out)

    cdef Halt _fill(self, bint summing) noexcept nogil:
        """Writes the next batch behind what is there, as many rows as fit and one at least, and moves on.

        With `summing`, the checksum of its payload is taken on the way.
        """
        cdef size_t start = self._out.size, summed = start + OTTLA_HEADER_BYTES, headers_size = 0, body, whole
        cdef int64_t count = 0, row, at_row = self._row, timestamp, since, first_header = 0, end_header = 0
        cdef int64_t key_size, value_size
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef uint8_t* at
        cdef Halt halt
        if reserve(&self._out, OTTLA_HEADER_BYTES, False):
            return NO_MEMORY
        self._out.size += OTTLA_HEADER_BYTES
        self._payload_crc = 0
        while at_row < self._rows and count < self._records_max:
            row = at_row if self._order == NULL else self._order[at_row]
            timestamp = self._timestamps[row] if self._timestamps != NULL else self._default_timestamp
            if count == 0:
                self._fields.base_timestamp = self._fields.max_timestamp = timestamp
            since = ottla_sub64(timestamp, self._fields.base_timestamp)
            key_size = self._keys._get(row, &key)
            value_size = self._values._get(row, &value)
            if key_size == BAD_FIELD or value_size == BAD_FIELD:
                return BAD_COLUMN
            if self._headers is not None:
                halt = self._headers._measure(row, &first_header, &end_header, &headers_size)
                if halt != GOOD:
                    return halt
            body = ottla_record_body_size(
                since, <int32_t>count, key_size, value_size, <int32_t>(end_header - first_header), headers_size
            )
            whole = body + ottla_varint_size(body)
            if count > 0 and self._out.size - start + whole > self._bytes_max:
                break
            if whole > <size_t>INT32_MAX - (self._out.size - start):
                return TOO_LARGE
            if reserve(&self._out, whole, False):
                return NO_MEMORY
            at = ottla_put_varint(self._out.data + self._out.size, body)
            at[0] = 0
            at = ottla_put_varint(at + 1, since)
            at = ottla_put_varint(at, count)
            at = _write_field(at, key, key_size, self._keys._end)
            at = _write_field(at, value, value_size, self._values._end)
            at = ottla_put_varint(at, end_header - first_header)
            if end_header != first_header:
                self._headers._write(at, first_header, end_header)
            self._out.size += whole
            if summing and self._out.size - summed >= CHECKSUM_BYTES:
                summed = self._sum(summed, summed + (self._out.size - summed) // CHECKSUM_BYTES * CHECKSUM_BYTES)
            self._fields.max_timestamp = max(self._fields.max_timestamp, timestamp)
            count += 1
            at_row += 1
        if summing:
            self._sum(summed, self._out.size)
        self._fields.count = <int32_t>count
        self._fields.last_offset_delta = <int32_t>(count - 1)
        self._row = at_row
        return GOOD

    cdef inline size_t _sum(self, size_t start, size_t end) noexcept nogil:
        """Takes these bytes, the next of the payload, into its checksum."""
        self._payload_crc = ottla_crc32c(self._payload_crc, self._out.data + start, end - start)
        return end

    cdef void _advance(self) noexcept nogil:
        """The next batch's place, for offset and sequence."""
        self._fields.base_offset += self._fields.count
        if self._fields.base_sequence >= 0:
            self._fields.base_sequence = <int32_t>(
                (<int64_t>self._fields.base_sequence + self._fields.count) & INT32_MAX
            )

    cdef list _plain(self):
        cdef list ends = [0]
        cdef size_t start
        cdef Halt halt = GOOD
        while self._row < self._rows:
            start = self._out.size
            with nogil:
                halt = self._fill(True)
                if halt == GOOD:
                    ottla_seal_around(
                        self._out.data + start, self._out.size - start, &self._fields, self._payload_crc
                    )
                    self._advance()
            if halt != GOOD:
                raise self._error(halt)
            ends.append(self._out.size)
        whole = memoryview(hand_over(&self._out))
        return [whole[ends[index] : ends[index + 1]] for index in range(len(ends) - 1)]

    cdef list _compressed(self, codec, level):
        cdef list batches = []
        cdef bytearray packed
        cdef Halt halt
        while self._row < self._rows:
            self._out.size = 0
            with nogil:
                halt = self._fill(False)
            if halt != GOOD:
                raise self._error(halt)
            payload = PyMemoryView_FromMemory(
                <char*>self._out.data + OTTLA_HEADER_BYTES, self._out.size - OTTLA_HEADER_BYTES, PyBUF_READ
            )
            packed = bytearray(OTTLA_HEADER_BYTES)
            packed += compress(codec, payload, level)
            if len(packed) > INT32_MAX:
                raise self._error(TOO_LARGE)
            ottla_seal(<uint8_t*>PyByteArray_AS_STRING(packed), len(packed), &self._fields)
            self._advance()
            batches.append(memoryview(packed))
        return batches

    cdef object _error(self, Halt halt):
        if halt == NO_MEMORY:
            return MemoryError(f"no room for the batches of {self._rows} rows")
        if halt == TOO_LARGE:
            return BatchTooLargeError(f"a record from row {self._row} on makes its batch larger than {INT32_MAX} bytes")
        if halt == BAD_HEADER_KEY:
            return MisuseError(f"a header in a row from {self._row} on has a null key")
        return MisuseError(f"a row from {self._row} on has offsets outside its column's data")


def encode(
    int64_t count,
    *,
    keys=None,
    values=None,
    timestamps=None,
    int64_t default_timestamp=-1,
    headers=None,
    int64_t batch_bytes_max=1 << 20,
    int64_t batch_records_max=INT32_MAX,
    codec=Codec.NONE,
    level=None,
    int timestamp_type=0,
    int64_t producer_id=-1,
    int16_t producer_epoch=-1,
    int32_t base_sequence=-1,
    bint transactional=False,
    int64_t base_offset=0,
    int32_t leader_epoch=-1,
    order=None,
):
    cdef _Encoder encoder = _Encoder()
    if count < 0 or batch_records_max < 1 or batch_bytes_max < 1:
        raise MisuseError(
            f"{count} rows in batches of {batch_records_max} records and {batch_bytes_max} bytes make no sense"
        )
    codec = Codec(codec)
    encoder._rows = encoder._column_rows = count
    if order is not None:
        _set_order(encoder, order)
    encoder._bytes_max = min(batch_bytes_max, INT32_MAX)
    encoder._records_max = min(batch_records_max, INT32_MAX)
    encoder._default_timestamp = default_timestamp
    encoder._keys = _BinaryIn(keys, count, "key")
    encoder._values = _BinaryIn(values, count, "value")
    encoder._headers = None if headers is None or count == 0 else _HeadersIn(headers, count)
    if timestamps is not None:
        PyObject_GetBuffer(timestamps, &encoder._timestamps_view, PyBUF_SIMPLE)
        if encoder._timestamps_view.len // 8 < count:
            raise MisuseError(f"column timestamp: {encoder._timestamps_view.len} bytes are too few for {count} rows")
        encoder._timestamps = <const int64_t*>encoder._timestamps_view.buf
    encoder._fields.base_offset = base_offset
    encoder._fields.leader_epoch = leader_epoch
    encoder._fields.producer_id = producer_id
    encoder._fields.producer_epoch = producer_epoch
    encoder._fields.base_sequence = base_sequence
    encoder._fields.attributes = <int16_t>(
        <int>codec
        | (OTTLA_APPEND_TIME_BIT if timestamp_type else 0)
        | (OTTLA_TRANSACTIONAL_BIT if transactional else 0)
    )
    if codec is not Codec.NONE:
        return encoder._compressed(codec, level)
    _reserve_all(encoder)
    return encoder._plain()


cdef int _set_order(_Encoder encoder, order) except -1:
    """Which rows are taken, all of which the columns must have."""
    cdef int64_t at
    PyObject_GetBuffer(order, &encoder._order_view, PyBUF_SIMPLE)
    encoder._order = <const int32_t*>encoder._order_view.buf
    encoder._rows = encoder._order_view.len // 4
    for at in range(encoder._rows):
        if not 0 <= encoder._order[at] < encoder._column_rows:
            raise MisuseError(f"row {encoder._order[at]} is to be taken, and there are {encoder._column_rows}")
    return 0


cdef int _reserve_all(_Encoder encoder) except -1:
    """Most often all the memory that will be needed, so that it is had in one piece."""
    cdef size_t total = encoder._rows * RECORD_OVERHEAD_BYTES + OTTLA_HEADER_BYTES
    cdef size_t headers = 0
    cdef _BinaryIn column
    for column in (encoder._keys, encoder._values):
        if encoder._order == NULL:
            total += _span(column, encoder._rows)
        else:
            with nogil:
                total += _taken_span(column, encoder._order, encoder._rows)
    if encoder._headers is not None:
        headers += _span(encoder._headers._keys, encoder._headers._count)
        headers += _span(encoder._headers._values, encoder._headers._count) + 4 * encoder._headers._count
        # Of some rows, about their share.
        total += <size_t>(<double>headers * encoder._rows / encoder._column_rows)
    if reserve(&encoder._out, total, False):
        raise MemoryError(f"no room for the batches of {encoder._rows} rows")
    return 0


cdef size_t _taken_span(_BinaryIn column, const int32_t* order, int64_t rows) noexcept nogil:
    """The same for rows that are taken in an order."""
    cdef size_t total = 0
    cdef int64_t at, size
    cdef const uint8_t* field = NULL
    for at in range(rows):
        size = column._get(order[at], &field)
        if size > 0:
            total += size
    return total


cdef size_t _span(_BinaryIn column, int64_t rows) noexcept:
    """How much data the rows have between them, if the offsets are good; never more than the column's data."""
    cdef int64_t first, end
    if column._narrow != NULL:
        first, end = column._narrow[column._start], column._narrow[column._start + rows]
    elif column._wide != NULL:
        first, end = column._wide[column._start], column._wide[column._start + rows]
    else:
        return 0
    return <size_t>(end - first) if 0 <= first <= end <= column._end - column._data else 0
