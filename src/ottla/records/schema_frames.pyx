# cython: boundscheck=False, wraparound=False, cdivision=True
"""Which schema the keys or values of a batch's records claim to have: the ids before them or in a header."""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memset

from ottla.model.errors import CorruptBatchError
from ottla.records.decode import record_story

from ottla.records.header_edit cimport HeaderNames, ottla_find_headers, ottla_found_headers
from ottla.records.record_wire cimport (
    OTTLA_RECORD_BYTES_MIN, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD, OTTLA_RECORD_TRAILING, ottla_record,
    ottla_record_finding,
)

cdef enum:
    ID_BYTES = 5
    GUID_BYTES = 17
    SHOWN_BYTES = 4
    KNOWN_FRAMES = 1024


cdef int32_t _frame_size(const uint8_t* at, int32_t size) noexcept nogil:
    """The bytes of a valid id at the beginning, or the few that an error shows."""
    if size >= ID_BYTES and at[0] == 0:
        return ID_BYTES
    if size >= GUID_BYTES and at[0] == 1:
        return GUID_BYTES
    return size if size < SHOWN_BYTES else SHOWN_BYTES


cdef struct known_frame:
    const uint8_t* at
    int32_t size
    bint is_wanted


cdef inline known_frame* _place(known_frame* known, const uint8_t* at, int32_t size) noexcept nogil:
    """Where a frame is remembered, so that a repeated one needs no object."""
    cdef uint32_t hashed = <uint32_t>size
    cdef int32_t index
    for index in range(size):
        hashed = (hashed ^ at[index]) * <uint32_t>16777619
    return &known[(hashed ^ (hashed >> 16)) % KNOWN_FRAMES]


def schema_frames(payload, int32_t count, HeaderNames header not None, bint of_keys, Py_ssize_t frames_max):
    cdef dict found = {}
    _walk(payload, count, header, of_keys, frames_max, found, None, None)
    return found


def records_with_frames(
    payload, int32_t count, HeaderNames header not None, bint of_keys, frozenset frames not None, Py_ssize_t records_max
):
    cdef list found = []
    _walk(payload, count, header, of_keys, records_max, None, frames, found)
    return found


cdef int _walk(
    payload, int32_t count, HeaderNames header, bint of_keys, Py_ssize_t found_max,
    dict frames, frozenset wanted, list records,
) except -1:
    """Fills `frames` with the index of the first record of each frame, or `records` with the records whose frame is
    wanted; ends when `found_max` are found."""
    cdef Py_buffer view
    cdef ottla_record record
    cdef ottla_found_headers headers
    cdef ottla_record_finding finding
    cdef known_frame[KNOWN_FRAMES] known
    cdef known_frame* place
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const uint8_t* frame
    cdef int32_t size, index = 0
    cdef bint is_null_known = wanted is not None
    memset(known, 0, sizeof(known))
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        end = at + view.len
        if count < 0 or count > view.len // OTTLA_RECORD_BYTES_MIN:
            raise CorruptBatchError(record_story(OTTLA_RECORD_CUT_OFF, 0, view.len // OTTLA_RECORD_BYTES_MIN))
        while index < count:
            finding = ottla_find_headers(at, end, &header._names, &record, &headers)
            if finding != OTTLA_RECORD_GOOD:
                raise CorruptBatchError(record_story(finding, 0, index))
            frame, size = (record.key, record.key_size) if of_keys else (record.value, record.value_size)
            if size < 0:
                if not is_null_known:
                    is_null_known = True
                    frames[None] = index
            else:
                if headers.found & 1 and headers.headers[0].value_size >= 0:
                    frame, size = headers.headers[0].value, headers.headers[0].value_size
                size = _frame_size(frame, size)
                place = _place(known, frame, size)
                if place.at == NULL or place.size != size or memcmp(place.at, frame, size):
                    place.at, place.size = frame, size
                    bytes_of_frame = PyBytes_FromStringAndSize(<const char*>frame, size)
                    if wanted is None:
                        frames.setdefault(bytes_of_frame, index)
                    else:
                        place.is_wanted = bytes_of_frame in wanted
                if wanted is not None and place.is_wanted:
                    records.append((index, PyBytes_FromStringAndSize(<const char*>frame, size)))
            at = record.end
            index += 1
            if (len(frames) if wanted is None else len(records)) >= found_max:
                return 0
        if at != end:
            raise CorruptBatchError(record_story(OTTLA_RECORD_TRAILING, 0, index))
    finally:
        PyBuffer_Release(&view)
    return 0
