"""The C interface to the names and edits of headers, and declares `header_edit.h`."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from ottla.records.record_wire cimport ottla_batch_fields, ottla_header, ottla_record, ottla_record_finding

cdef extern from "ottla/records/header_edit.h" nogil:
    enum:
        OTTLA_NAMES_MAX, OTTLA_NAME_BYTES_MAX, OTTLA_NUMBER_ABSENT, OTTLA_NUMBER_MALFORMED
    ctypedef struct ottla_names:
        const uint8_t* text[OTTLA_NAMES_MAX]
        int32_t size[OTTLA_NAMES_MAX]
        int count
        uint64_t sizes
    ctypedef struct ottla_found_headers:
        ottla_header headers[OTTLA_NAMES_MAX]
        uint64_t found
    ctypedef struct ottla_stamp:
        const uint8_t* name
        const uint8_t* prefix
        int32_t name_size, prefix_size
        const int64_t* numbers
    ctypedef struct ottla_extra:
        const uint8_t* at
        size_t size
        int32_t count
    ctypedef struct ottla_edit:
        const ottla_names* dropped
        const ottla_stamp* stamps
        int stamp_count
        const ottla_extra* extras
    ctypedef struct ottla_headers:
        const uint8_t* at
        size_t size
        int32_t count
    ctypedef struct ottla_edit_walk:
        const uint8_t* at
        const uint8_t* end
        int32_t count, done
    ctypedef struct ottla_picked:
        int64_t offset, timestamp
        const uint8_t* fields
        uint32_t fields_size, headers_at, headers_size
        int32_t header_count
    ottla_record_finding ottla_find_headers(const uint8_t* at, const uint8_t* end, const ottla_names* names,
                                            ottla_record* record, ottla_found_headers* found)
    int64_t ottla_read_decimal(const uint8_t* at, int32_t size)
    ottla_record_finding ottla_next_record(ottla_edit_walk* walk, ottla_record* record, ottla_headers* headers)
    const uint8_t* ottla_fields_start(const uint8_t* start, const ottla_record* record)
    const uint8_t* ottla_fields_end(const ottla_record* record)
    ottla_record_finding ottla_measure_edited(ottla_edit_walk* walk, const ottla_edit* edit, size_t* size)
    uint8_t* ottla_write_edited(uint8_t* to, const ottla_edit_walk* walk, const ottla_edit* edit)
    size_t ottla_measure_picked(const ottla_picked** picked, size_t count, const ottla_edit* edit,
                                ottla_batch_fields* fields)
    void ottla_write_picked(uint8_t* to, const ottla_picked** picked, size_t count, int64_t base_timestamp,
                            const ottla_edit* edit)


cdef class HeaderNames:
    cdef readonly tuple names
    cdef list _texts
    cdef ottla_names _names


cdef class Edit:
    """What becomes of the headers of some records, with all that it refers to."""

    cdef ottla_edit edit
    cdef ottla_stamp* _stamps
    cdef ottla_extra* _extras
    cdef Py_buffer* _views
    cdef int _view_count
    cdef list _kept
    cdef int _add_stamp(self, stamp, Py_ssize_t count) except -1
