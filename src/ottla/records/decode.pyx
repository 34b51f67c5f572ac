# cython: boundscheck=False, wraparound=False, cdivision=True
"""A batch's records as Python objects, for tools, markers and tests; `columns` is the way for data in bulk.

Searches by time look at records without an object for each of them.
"""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t

from ottla.model.errors import CorruptBatchError
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.payload import read_payload
from ottla.records.record import Record

from ottla.records.record_wire cimport (
    OTTLA_RECORD_BAD_FIELD, OTTLA_RECORD_BAD_HEADERS, OTTLA_RECORD_BAD_LENGTH, OTTLA_RECORD_BAD_OFFSET,
    OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD, OTTLA_RECORD_TRAILING, RELEASE_BYTES_MIN, ottla_read_record, ottla_record,
    ottla_record_finding,
)
from ottla.records.wire cimport ottla_add64


def decode_records(batch, limit=DECOMPRESSED_BYTES_MAX):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef ottla_record record
    cdef ottla_record_finding finding
    cdef int64_t base_offset = batch.base_offset, base_timestamp = batch.base_timestamp
    cdef int64_t append_time = batch.max_timestamp
    cdef int32_t count = batch.count, last_delta = batch.last_offset_delta, delta = -1
    cdef bint is_append_time = batch.timestamp_type == 1
    cdef list records = []
    cdef tuple headers
    PyObject_GetBuffer(read_payload(batch, limit), &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        end = at + view.len
        while len(records) < count:
            finding = ottla_read_record(at, end, &record)
            if finding != OTTLA_RECORD_GOOD:
                raise CorruptBatchError(record_story(finding, base_offset, len(records)))
            if record.offset_delta <= delta or record.offset_delta > last_delta:
                raise CorruptBatchError(record_story(OTTLA_RECORD_BAD_OFFSET, base_offset, len(records)))
            headers = headers_of(&record)
            if headers is None:
                raise CorruptBatchError(record_story(OTTLA_RECORD_BAD_HEADERS, base_offset, len(records)))
            delta = record.offset_delta
            records.append(
                Record(
                    ottla_add64(base_offset, delta),
                    append_time if is_append_time else ottla_add64(base_timestamp, record.timestamp_delta),
                    field_of(record.key, record.key_size),
                    field_of(record.value, record.value_size),
                    headers,
                )
            )
            at = record.end
        if at != end:
            raise CorruptBatchError(record_story(OTTLA_RECORD_TRAILING, base_offset, count))
        return records
    finally:
        PyBuffer_Release(&view)


ctypedef struct Search:
    int64_t base_offset, base_timestamp, timestamp, start
    int64_t found_offset, found_timestamp
    int32_t count, walked
    bint is_first, is_found


cdef ottla_record_finding _search(const uint8_t* at, const uint8_t* end, Search* search) noexcept nogil:
    """Finds the first record that is late enough, or the one with the largest timestamp."""
    cdef ottla_record record
    cdef ottla_record_finding finding
    cdef int64_t offset, timestamp
    while search.walked < search.count:
        finding = ottla_read_record(at, end, &record)
        if finding != OTTLA_RECORD_GOOD:
            return finding
        at = record.end
        search.walked += 1
        offset = ottla_add64(search.base_offset, record.offset_delta)
        timestamp = ottla_add64(search.base_timestamp, record.timestamp_delta)
        if offset < search.start or timestamp < search.timestamp:
            continue
        if not search.is_found or timestamp > search.found_timestamp:
            search.is_found = True
            search.found_offset, search.found_timestamp = offset, timestamp
            if search.is_first:
                return OTTLA_RECORD_GOOD
    return OTTLA_RECORD_GOOD if at == end else OTTLA_RECORD_TRAILING


def find_time(batch, int64_t start, timestamp=None, limit=DECOMPRESSED_BYTES_MAX):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef Search search
    cdef ottla_record_finding finding
    cdef int64_t only_time = batch.max_timestamp
    # Of an append, or of a delivery by a queue: then the records keep the timestamps that they had.
    cdef bint has_one_time = batch.timestamp_type == 1 or batch.producer_id >= QUEUE_PRODUCER_BIT
    if has_one_time and timestamp is not None and only_time < timestamp:
        return None
    search.base_offset, search.base_timestamp, search.start = batch.base_offset, batch.base_timestamp, start
    search.count, search.walked, search.is_found = batch.count, 0, False
    # Then the first record at or behind the start is the one.
    search.is_first = has_one_time or timestamp is not None
    search.timestamp = INT64_MIN if has_one_time or timestamp is None else timestamp
    PyObject_GetBuffer(read_payload(batch, limit), &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        if view.len < RELEASE_BYTES_MIN:
            finding = _search(at, at + view.len, &search)
        else:
            with nogil:
                finding = _search(at, at + view.len, &search)
    finally:
        PyBuffer_Release(&view)
    if finding != OTTLA_RECORD_GOOD:
        raise CorruptBatchError(record_story(finding, batch.base_offset, search.walked))
    if not search.is_found:
        return None
    return only_time if has_one_time else search.found_timestamp, search.found_offset


_STORIES = {
    OTTLA_RECORD_CUT_OFF: "is cut off",
    OTTLA_RECORD_BAD_LENGTH: "has a length that its fields do not fill",
    OTTLA_RECORD_BAD_FIELD: "has a number that is too long, or a field that reaches outside the record",
    OTTLA_RECORD_BAD_HEADERS: "has headers that do not fill its rest",
    OTTLA_RECORD_TRAILING: "does not exist by the batch's count, but bytes follow",
    OTTLA_RECORD_BAD_OFFSET: "has an offset outside the batch, or not above the one before",
}


def record_story(int finding, base_offset, index):
    return f"batch with base offset {base_offset}: record {index} {_STORIES[finding]}"
