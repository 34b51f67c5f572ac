# cython: boundscheck=False, wraparound=False, cdivision=True
"""A batch's records as Python objects, for tools, markers and tests; `columns` is the way for data in bulk."""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.model.errors import CorruptBatchError
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.payload import read_payload
from ottla.records.record import Record

cdef extern from "record.h" nogil:
    ctypedef enum ottla_record_finding:
        OTTLA_RECORD_GOOD, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_BAD_LENGTH, OTTLA_RECORD_BAD_FIELD
        OTTLA_RECORD_BAD_HEADERS, OTTLA_RECORD_TRAILING, OTTLA_RECORD_BAD_OFFSET
    ctypedef struct ottla_record:
        int64_t timestamp_delta
        int32_t offset_delta, key_size, value_size, header_count
        const uint8_t* key
        const uint8_t* value
        const uint8_t* headers
        const uint8_t* end
    ctypedef struct ottla_header:
        int32_t key_size, value_size
        const uint8_t* key
        const uint8_t* value
    int64_t ottla_add64(int64_t left, int64_t right)
    ottla_record_finding ottla_read_record(const uint8_t* at, const uint8_t* end, ottla_record* record)
    const uint8_t* ottla_read_header(const uint8_t* at, const uint8_t* end, ottla_header* header)


cdef bytes _field(const uint8_t* at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>at, size)


cdef tuple _headers(ottla_record* record):
    """The record's headers, or None if they do not fill its rest exactly."""
    cdef const uint8_t* at = record.headers
    cdef ottla_header header
    cdef list headers = []
    for _ in range(record.header_count):
        at = ottla_read_header(at, record.end, &header)
        if at == NULL:
            return None
        name = _field(header.key, header.key_size).decode("utf-8", "replace")
        headers.append((name, _field(header.value, header.value_size)))
    return tuple(headers) if at == record.end else None


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
            headers = _headers(&record)
            if headers is None:
                raise CorruptBatchError(record_story(OTTLA_RECORD_BAD_HEADERS, base_offset, len(records)))
            delta = record.offset_delta
            records.append(
                Record(
                    ottla_add64(base_offset, delta),
                    append_time if is_append_time else ottla_add64(base_timestamp, record.timestamp_delta),
                    _field(record.key, record.key_size),
                    _field(record.value, record.value_size),
                    headers,
                )
            )
            at = record.end
        if at != end:
            raise CorruptBatchError(record_story(OTTLA_RECORD_TRAILING, base_offset, count))
        return records
    finally:
        PyBuffer_Release(&view)


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
