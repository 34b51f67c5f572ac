"""Declares `writer.h`, which writes the fields of a response, for all kernels that use it."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "ottla/protocol/writer.h" nogil:
    enum:
        OTTLA_VARINT_BYTES_MAX
    ctypedef struct ottla_writer:
        uint8_t* data
        size_t size
    void ottla_open_writer(ottla_writer* to)
    void ottla_close_writer(ottla_writer* to)
    int ottla_reserve(ottla_writer* to, size_t more)
    void ottla_write8(ottla_writer* to, uint8_t value)
    void ottla_write16(ottla_writer* to, int16_t value)
    void ottla_write32(ottla_writer* to, int32_t value)
    void ottla_write64(ottla_writer* to, int64_t value)
    void ottla_write_varint(ottla_writer* to, uint32_t value)
    void ottla_write_bytes(ottla_writer* to, const void* source, size_t size)
    void ottla_write_count(ottla_writer* to, bint flexible, int32_t count)
    void ottla_store32(uint8_t* at, int32_t value)

cdef extern from "Python.h":
    # Of the bytes that a writer takes: a string's own UTF-8, without a copy.
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
