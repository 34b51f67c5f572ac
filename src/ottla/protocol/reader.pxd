"""Declares `reader.h`, which reads the fields of a request, for all kernels that use it."""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "ottla/protocol/reader.h" nogil:
    enum:
        OTTLA_STRING_BYTES_MAX
    ctypedef struct ottla_cursor:
        const uint8_t* at
        const uint8_t* end
        const char* broken
    ctypedef struct ottla_span:
        const uint8_t* at
        ptrdiff_t size
    void ottla_fail(ottla_cursor* source, const char* reason)
    int8_t ottla_read8(ottla_cursor* source)
    int16_t ottla_read16(ottla_cursor* source)
    int32_t ottla_read32(ottla_cursor* source)
    int64_t ottla_read64(ottla_cursor* source)
    uint32_t ottla_read_varint(ottla_cursor* source)
    int32_t ottla_read_count(ottla_cursor* source, bint flexible, ptrdiff_t taken)
    int32_t ottla_read_some(ottla_cursor* source, bint flexible, int32_t* left)
    ottla_span ottla_take(ottla_cursor* source, int64_t size, bint nullable)
    ottla_span ottla_read_string(ottla_cursor* source, bint flexible, bint nullable)
    ottla_span ottla_read_records(ottla_cursor* source, bint flexible)
    uint32_t ottla_read_tag(ottla_cursor* source, ottla_cursor* content)
    void ottla_skip_tags(ottla_cursor* source)
