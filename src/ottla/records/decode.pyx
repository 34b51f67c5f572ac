# cython: boundscheck=False, wraparound=False, cdivision=True
"""A batch's records as Python objects, for tools, markers and tests; `columns` is the way for data in bulk."""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.model.errors import CorruptBatchError
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.payload import read_payload
from ottla.records.record import Record

from ottla.records.record_wire cimport (
    OTTLA_RECORD_BAD_FIELD, OTTLA_RECORD_BAD_HEADERS, OTTLA_RECORD_BAD_LENGTH, OTTLA_RECORD_BAD_OFFSET,
    OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD, OTTLA_RECORD_TRAILING, ottla_read_record, ottla_record,
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
