"""The fields of one record as Python objects, inline for `decode` and `record_reader`."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t

from ottla.records.record_wire cimport ottla_header, ottla_read_header, ottla_record


cdef inline bytes field_of(const uint8_t* at, int32_t size):
    """A key or a value; None for null."""
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>at, size)


cdef inline tuple headers_of(ottla_record* record):
    """The record's headers, or None if they do not fill the rest of the record exactly."""
    cdef const uint8_t* at = record.headers
    cdef ottla_header header
    cdef list headers = []
    for _ in range(record.header_count):
        at = ottla_read_header(at, record.end, &header)
        if at == NULL:
            return None
        name = field_of(header.key, header.key_size).decode("utf-8", "replace")
        headers.append((name, field_of(header.value, header.value_size)))
    return tuple(headers) if at == record.end else None
