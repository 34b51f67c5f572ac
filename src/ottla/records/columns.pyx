# cython: boundscheck=False, wraparound=False, cdivision=True
"""The columnar kernel, reading side: batches in, packed columns out, and no Python object per record.

A stretch of plain batches is decoded in one go without the GIL; Python is asked only to decompress a batch and to say
whether a transactional batch was aborted. `packed.py` describes what comes out, `arrow.py` makes Arrow arrays of it,
`columns_encode.pyx` is the way back. Records are parsed by `record.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from ottla.model.errors import BatchTooLargeError, CorruptBatchError, InvalidRequestError, MisuseError
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import Batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.decode import record_story
from ottla.records.packed_buffer cimport give_back, hand_over, ottla_copy, ottla_growable, reserve
from ottla.records.packed import BinaryColumn, Columns, HeadersColumn
from ottla.records.payload import read_payload

from ottla.records.record_wire cimport (
    OTTLA_RECORD_BAD_HEADERS, OTTLA_RECORD_BAD_OFFSET, OTTLA_RECORD_BYTES_MIN, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD,
    OTTLA_RECORD_TRAILING, ottla_header, ottla_read_header, ottla_read_record, ottla_record, ottla_record_finding,
    ottla_utf8_size, ottla_utf8_write,
)
from ottla.records.wire cimport (
    OTTLA_APPEND_TIME_BIT, OTTLA_ATTRIBUTES_AT, OTTLA_BASE_TIMESTAMP_AT, OTTLA_CODEC_BITS, OTTLA_CONTROL_BIT,
    OTTLA_COUNT_AT, OTTLA_CUT_OFF, OTTLA_HEADER_BYTES, OTTLA_LAST_OFFSET_DELTA_AT, OTTLA_MAX_TIMESTAMP_AT, OTTLA_WHOLE,
    ottla_add64, ottla_check_batch, ottla_finding, ottla_get16, ottla_get32, ottla_get64, ottla_last_offset, ottla_look,
)

cdef enum:
    # Text made valid grows threefold at most, and no column's int32 offsets may overflow.
    TOTAL_BYTES_MAX = 0x7FFFFFFF // 3

# What a step of decoding came to.
cdef enum Halt:
    GOOD, AT_END, NEEDS_PYTHON, BAD_BATCH, BAD_RECORD, OVER_LIMIT, NO_MEMORY

ctypedef struct BinaryOut:
    ottla_growable validity, offsets, data
    int64_t rows, nulls


cdef int _reserve_rows(BinaryOut* column, size_t rows) noexcept nogil:
    """Room for more rows, without their data."""
    column.validity.size = (column.rows + 7) // 8
    column.offsets.size = 4 * column.rows
    if reserve(&column.validity, rows // 8 + 1, True) or reserve(&column.offsets, 4 * (rows + 1), False):
        return -1
    if column.rows == 0:
        (<int32_t*>column.offsets.data)[0] = 0
    return 0


cdef inline void _add(BinaryOut* column, const uint8_t* field, int32_t size, const uint8_t* end) noexcept nogil:
    """One row more; room for it is there. `end` is as far as the source may be read."""
    cdef int64_t row = column.rows
    column.validity.data[row >> 3] |= <uint8_t>((size >= 0) << (row & 7))
    if size > 0:
        ottla_copy(column.data.data + column.data.size, field, size, end)
        column.data.size += size
    else:
        column.nulls += size < 0
    column.rows = row + 1
    (<int32_t*>column.offsets.data)[row + 1] = <int32_t>column.data.size


cdef object _finish_binary(BinaryOut* column):
    if column.rows == 0 and _reserve_rows(column, 0):
        raise MemoryError("no room for an empty column")
    column.validity.size = (column.rows + 7) // 8
    column.offsets.size = 4 * (column.rows + 1)
    return BinaryColumn(
        validity=hand_over(&column.validity) if column.nulls else None,
        offsets=hand_over(&column.offsets),
        data=hand_over(&column.data),
        null_count=column.nulls,
    )


cdef void _cut(BinaryOut* column, int64_t rows, int64_t nulls) noexcept nogil:
    """Back to that many rows. Validity bits of later rows stay set: nothing is added after damage."""
    column.data.size = (<int32_t*>column.offsets.data)[rows] if column.offsets.data != NULL else 0
    column.rows = rows
    column.nulls = nulls


cdef void _free(BinaryOut* column) noexcept nogil:
    give_back(&column.validity)
    give_back(&column.offsets)
    give_back(&column.data)


@cython.final
cdef class _Decoder:
    cdef const uint8_t* _start
    cdef Py_ssize_t _at, _end
    cdef int64_t _start_offset, _end_offset, _next_offset
    cdef bint _with_headers, _check_crc
    cdef size_t _limit, _total, _size
    cdef object _source, _aborted
    cdef ottla_finding _finding
    cdef ottla_record_finding _record_finding
    cdef int32_t _record_index
    cdef ottla_growable _offsets, _timestamps, _header_ends
    cdef BinaryOut _keys, _values, _header_keys, _header_values

    def __dealloc__(self):
        give_back(&self._offsets)
        give_back(&self._timestamps)
        give_back(&self._header_ends)
        _free(&self._keys)
        _free(&self._values)
        _free(&self._header_keys)
        _free(&self._header_values)

    cdef Halt _run_plain(self) noexcept nogil:
        """Decodes batch after batch until one must be decompressed, is bad, or the end is reached."""
        cdef const uint8_t* batch
        cdef unsigned int attributes
        cdef Halt halt
        while True:
            halt = self._look()
            if halt != GOOD:
                return halt
            batch = self._start + self._at
            attributes = ottla_get16(batch + OTTLA_ATTRIBUTES_AT)
            if not (attributes & OTTLA_CONTROL_BIT) and ottla_last_offset(batch) >= self._start_offset:
                if attributes & OTTLA_CODEC_BITS:
                    return NEEDS_PYTHON
                halt = self._read(batch, batch + OTTLA_HEADER_BYTES, self._size - OTTLA_HEADER_BYTES)
                if halt != GOOD:
                    return halt
            self._pass(batch)

    cdef Halt _look(self) noexcept nogil:
        """Is there a good batch that is wanted at the place reached?"""
        cdef const uint8_t* batch = self._start + self._at
        if self._at >= self._end:
            return AT_END
        self._finding = ottla_look(batch, self._end - self._at, &self._size)
        if self._finding == OTTLA_CUT_OFF:
            return AT_END
        if self._finding == OTTLA_WHOLE:
            if <int64_t>ottla_get64(batch) >= self._end_offset:
                return AT_END
            self._finding = ottla_check_batch(batch, self._size, self._check_crc)
        return GOOD if self._finding == OTTLA_WHOLE else BAD_BATCH

    cdef void _pass(self, const uint8_t* batch) noexcept nogil:
        """The batch is done with."""
        cdef int64_t next_offset = ottla_last_offset(batch) + 1
        if next_offset > self._end_offset:
            next_offset = self._end_offset
        if next_offset > self._next_offset:
            self._next_offset = next_offset
        self._at += <Py_ssize_t>self._size

    cdef Halt _read(self, const uint8_t* batch, const uint8_t* payload, size_t size) noexcept nogil:
        """Adds a batch's records to the columns, all or none of them."""
        cdef int32_t count = <int32_t>ottla_get32(batch + OTTLA_COUNT_AT)
        cdef int64_t rows = self._keys.rows, headers = self._header_keys.rows
        cdef int64_t nulls = self._keys.nulls, value_nulls = self._values.nulls
        cdef int64_t header_nulls = self._header_values.nulls
        if size > self._limit - self._total:
            return OVER_LIMIT
        if <size_t>count > size // OTTLA_RECORD_BYTES_MIN:
            self._record_finding = OTTLA_RECORD_CUT_OFF
            self._record_index = <int32_t>(size // OTTLA_RECORD_BYTES_MIN)
            return BAD_RECORD
        if self._reserve(count, size):
            return NO_MEMORY
        cdef Halt halt = self._read_records(batch, payload, payload + size, count)
        if halt == GOOD:
            self._total += size
        else:
            _cut(&self._keys, rows, nulls)
            _cut(&self._values, rows, value_nulls)
            _cut(&self._header_keys, headers, 0)
            _cut(&self._header_values, headers, header_nulls)
        return halt

    cdef int _reserve(self, size_t count, size_t size) noexcept nogil:
        """Room for the records of a batch; for the first one, also for as many like it as may follow."""
        cdef size_t alike = 1, rows = count, whole = size
        if self._keys.rows == 0 and self._size > 0:
            alike = min(1 + (self._end - self._at) // self._size, 1 + self._limit // (size + 1))
            rows = count * alike
            whole = min(size * alike, self._limit)
        self._offsets.size = self._timestamps.size = 8 * self._keys.rows
        if _reserve_rows(&self._keys, rows) or _reserve_rows(&self._values, rows):
            return -1
        # Keys may take all of one batch's bytes, but hardly take all of every batch's.
        if reserve(&self._keys.data, size, False) or reserve(&self._values.data, whole, False):
            return -1
        return reserve(&self._offsets, 8 * rows, False) or reserve(&self._timestamps, 8 * rows, False)

    cdef Halt _read_records(
        self, const uint8_t* batch, const uint8_t* at, const uint8_t* end, int32_t count
    ) noexcept nogil:
        cdef ottla_record record
        cdef int64_t base_offset = <int64_t>ottla_get64(batch)
        cdef int64_t base_timestamp = <int64_t>ottla_get64(batch + OTTLA_BASE_TIMESTAMP_AT)
        cdef int64_t append_time = <int64_t>ottla_get64(batch + OTTLA_MAX_TIMESTAMP_AT)
        cdef bint is_append_time = (ottla_get16(batch + OTTLA_ATTRIBUTES_AT) & OTTLA_APPEND_TIME_BIT) != 0
        cdef int32_t last_delta = <int32_t>ottla_get32(batch + OTTLA_LAST_OFFSET_DELTA_AT), delta = -1, index
        cdef int64_t first_wanted = self._start_offset - base_offset, end_wanted = self._end_offset - base_offset
        cdef int64_t* offsets = <int64_t*>self._offsets.data
        cdef int64_t* timestamps = <int64_t*>self._timestamps.data
        cdef int64_t row
        cdef bint wanted
        cdef Halt halt
        for index in range(count):
            self._record_index = index
            self._record_finding = ottla_read_record(at, end, &record)
            if self._record_finding != OTTLA_RECORD_GOOD:
                return BAD_RECORD
            if record.offset_delta <= delta or record.offset_delta > last_delta:
                self._record_finding = OTTLA_RECORD_BAD_OFFSET
                return BAD_RECORD
            delta = record.offset_delta
            wanted = delta >= first_wanted and delta < end_wanted
            row = self._keys.rows
            if record.header_count or self._with_headers:
                halt = self._read_headers(&record, wanted and self._with_headers, row)
                if halt != GOOD:
                    return halt
            if wanted:
                offsets[row] = base_offset + delta
                timestamps[row] = append_time if is_append_time else ottla_add64(base_timestamp, record.timestamp_delta)
                _add(&self._keys, record.key, record.key_size, end)
                _add(&self._values, record.value, record.value_size, end)
            at = record.end
        if at != end:
            self._record_index = count
            self._record_finding = OTTLA_RECORD_TRAILING
            return BAD_RECORD
        return GOOD

    cdef Halt _read_headers(self, ottla_record* record, bint keep, int64_t row) noexcept nogil:
        """Walks a record's headers, which must fill its rest, and keeps them if asked."""
        cdef const uint8_t* at = record.headers
        cdef ottla_header header
        cdef size_t size = record.end - record.headers
        cdef size_t valid_size
        cdef uint8_t* text
        cdef int32_t index
        if keep and record.header_count and (
            _reserve_rows(&self._header_keys, record.header_count)
            or _reserve_rows(&self._header_values, record.header_count)
            or reserve(&self._header_keys.data, 3 * size, False)
            or reserve(&self._header_values.data, size, False)
        ):
            return NO_MEMORY
        for index in range(record.header_count):
            at = ottla_read_header(at, record.end, &header)
            if at == NULL:
                break
            if keep:
                valid_size = ottla_utf8_size(header.key, header.key_size)
                text = self._header_keys.data.data + self._header_keys.data.size
                ottla_utf8_write(text, header.key, header.key_size)
                self._header_keys.data.size += valid_size
                _add(&self._header_keys, NULL, 0, NULL)
                _add(&self._header_values, header.value, header.value_size, record.end)
        if at != record.end:
            self._record_finding = OTTLA_RECORD_BAD_HEADERS
            return BAD_RECORD
        if keep:
            self._header_ends.size = 4 * (row + 1)
            if reserve(&self._header_ends, 4, False):
                return NO_MEMORY
            if row == 0:
                (<int32_t*>self._header_ends.data)[0] = 0
            (<int32_t*>self._header_ends.data)[row + 1] = <int32_t>self._header_keys.rows
        return GOOD

    cdef Halt _run_one(self) except *:
        """Decodes the good batch at the place reached, which may be compressed or aborted."""
        cdef const uint8_t* batch = self._start + self._at
        cdef Py_buffer view
        cdef Halt halt
        found = Batch(self._source, self._at)
        aborted = self._aborted is not None and self._aborted.covers(found)
        if not aborted and not found.is_control and found.last_offset >= self._start_offset:
            PyObject_GetBuffer(read_payload(found, self._limit - self._total), &view, PyBUF_SIMPLE)
            with nogil:
                halt = self._read(batch, <const uint8_t*>view.buf, view.len)
            PyBuffer_Release(&view)
            if halt != GOOD:
                return halt
        self._pass(batch)
        return GOOD

    cdef object _run(self):
        """Decodes all there is; returns the error that stopped it, or None."""
        cdef Halt halt
        cdef bint one_by_one
        try:
            while True:
                one_by_one = bool(self._aborted)
                with nogil:
                    halt = self._look() if one_by_one else self._run_plain()
                if halt == GOOD or halt == NEEDS_PYTHON:
                    halt = self._run_one()
                if halt != GOOD:
                    return self._error(halt)
        except (CorruptBatchError, InvalidRequestError) as error:
            return error

    cdef object _error(self, Halt halt):
        cdef int64_t base_offset
        if halt == AT_END:
            return None
        if halt == NO_MEMORY:
            raise MemoryError("no room for the decoded columns; lower the limit")
        if halt == BAD_BATCH:
            try:
                Batch(self._source, self._at).check()
            except CorruptBatchError as error:
                return error
        base_offset = <int64_t>ottla_get64(self._start + self._at)
        if halt == OVER_LIMIT:
            return BatchTooLargeError(
                f"batch with base offset {base_offset} does not fit into the {self._limit} bytes allowed"
            )
        return CorruptBatchError(record_story(self._record_finding, base_offset, self._record_index))

    cdef object _finish(self, Py_ssize_t position, error):
        cdef int64_t rows = self._keys.rows, header_count = self._header_keys.rows
        self._offsets.size = self._timestamps.size = 8 * rows
        headers = None
        if self._with_headers:
            if rows == 0:
                if reserve(&self._header_ends, 4, True):
                    raise MemoryError("no room for an empty column")
            self._header_ends.size = 4 * (rows + 1)
            headers = HeadersColumn(
                offsets=hand_over(&self._header_ends),
                keys=_finish_binary(&self._header_keys),
                values=_finish_binary(&self._header_values),
                count=header_count,
            )
        return Columns(
            count=rows,
            offsets=hand_over(&self._offsets),
            timestamps=hand_over(&self._timestamps),
            keys=_finish_binary(&self._keys),
            values=_finish_binary(&self._values),
            headers=headers,
            next_offset=self._next_offset,
            consumed_bytes=self._at - position,
            error=error,
        )


def decode(
    buffer,
    Py_ssize_t position=0,
    *,
    int64_t start_offset=0,
    end_offset=None,
    bint headers=True,
    bint check_crc=True,
    limit=DECOMPRESSED_BYTES_MAX,
    aborted=None,
):
    cdef Py_buffer view
    cdef _Decoder decoder = _Decoder()
    decoder._source = buffer
    decoder._at = position
    decoder._start_offset = decoder._next_offset = max(start_offset, 0)
    decoder._end_offset = INT64_MAX if end_offset is None else max(end_offset, 0)
    decoder._with_headers = headers
    decoder._check_crc = check_crc
    decoder._limit = min(max(limit, 0), TOTAL_BYTES_MAX)
    if aborted is not None:
        decoder._aborted = aborted if isinstance(aborted, AbortedTransactions) else AbortedTransactions(aborted)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or position > view.len:
            raise MisuseError(f"position {position} lies outside the buffer of {view.len} bytes")
        decoder._start = <const uint8_t*>view.buf
        decoder._end = view.len
        error = decoder._run()
        if error is not None and decoder._at == position:
            raise error
        return decoder._finish(position, error)
    finally:
        PyBuffer_Release(&view)
