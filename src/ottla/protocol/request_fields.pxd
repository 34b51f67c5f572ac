"""What kernels share that read a whole request into an object: the way in, texts, and the way out."""

from cpython.buffer cimport Py_buffer
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t

from ottla.protocol.reader cimport ottla_cursor, ottla_read_string, ottla_span


cdef inline ottla_cursor cursor_over(const Py_buffer* body) noexcept:
    """At the first byte of a request's body."""
    cdef ottla_cursor source
    source.at = <const uint8_t*>body.buf
    source.end = source.at + body.len
    source.broken = NULL
    return source


cdef inline str read_text(ottla_cursor* source, bint nullable, bint flexible=True):
    """A string. In a broken request, None or an empty one."""
    cdef ottla_span span = ottla_read_string(source, flexible, nullable)
    if span.at == NULL:
        return None if nullable else ""
    return PyUnicode_DecodeUTF8(<const char*>span.at, span.size, NULL)


cdef inline int check_whole(const ottla_cursor* source) except -1:
    """Raises `ShapeError` if a field could not be read."""
    if source.broken != NULL:
        from ottla.protocol.shapes import ShapeError

        raise ShapeError((<bytes>source.broken).decode())
    return 0
