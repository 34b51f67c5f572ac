# cython: boundscheck=False, wraparound=False, cdivision=True
"""What a leader must know of a produced batch's records before it appends them, without an object for each of them.

Takes the decompressed records. `Batch.passes` does the same in one call for uncompressed batches that are in order.
"""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.model.errors import InvalidRecordError
from ottla.records.decode import record_story

from ottla.records.record_wire cimport (
    OTTLA_RECORD_GOOD, RELEASE_BYTES_MIN, ottla_read_record, ottla_record, ottla_record_finding, ottla_survey,
    ottla_survey_records,
)
from ottla.records.wire cimport ottla_add64


def survey(payload, int32_t count, int64_t base_timestamp, int64_t oldest, int64_t newest):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef ottla_survey found
    cdef ottla_record_finding finding
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        if view.len < RELEASE_BYTES_MIN:
            finding = ottla_survey_records(at, at + view.len, count, base_timestamp, oldest, newest, &found)
        else:
            with nogil:
                finding = ottla_survey_records(at, at + view.len, count, base_timestamp, oldest, newest, &found)
    finally:
        PyBuffer_Release(&view)
    if finding != OTTLA_RECORD_GOOD:
        raise InvalidRecordError(record_story(finding, 0, found.walked))
    return found.max_timestamp, found.keyless, found.untimely


def find_faults(payload, int32_t count, int64_t base_timestamp, int64_t oldest, int64_t newest, *, bint needs_keys, int faults_max):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef ottla_record record
    cdef int32_t index
    cdef int64_t timestamp
    cdef list faults = []
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        end = at + view.len
        for index in range(count):
            if ottla_read_record(at, end, &record) != OTTLA_RECORD_GOOD:
                break
            if len(faults) >= faults_max:
                break
            at = record.end
            timestamp = ottla_add64(base_timestamp, record.timestamp_delta)
            if needs_keys and record.key_size < 0:
                faults.append((index, None))
            elif timestamp != -1 and (timestamp < oldest or timestamp > newest):
                faults.append((index, timestamp))
    finally:
        PyBuffer_Release(&view)
    return faults
