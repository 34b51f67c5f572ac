# cython: boundscheck=False, wraparound=False, cdivision=True
"""JoinGroup, SyncGroup and Heartbeat requests, every version, read in one compiled pass each: a rebalance of a classic
group is little else, and all its members wait for the last of them.

What the requests mean is for `ottla.broker.handlers.groups.group_members`; the responses are in `group_answers.py`.
Fields are read in `reader.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.protocol.shapes import elements_max_of

from ottla.protocol.reader cimport (
    ottla_cursor, ottla_read32, ottla_read_some, ottla_read_varint, ottla_skip_tags, ottla_span, ottla_take,
)
from ottla.protocol.request_fields cimport check_whole, cursor_over, read_text

cdef enum:
    JOIN_REBALANCE_TIMEOUT_FROM = 1
    JOIN_INSTANCE_FROM = 5
    JOIN_FLEXIBLE_FROM = 6
    JOIN_REASON_FROM = 8
    SYNC_INSTANCE_FROM = 3
    SYNC_FLEXIBLE_FROM = 4
    SYNC_PROTOCOL_FROM = 5
    HEARTBEAT_INSTANCE_FROM = 3
    HEARTBEAT_FLEXIBLE_FROM = 4
    NO_TIMEOUT = -1


# None of these is for the garbage collector: what they hold leads back to no object, and it would look at each of them.
@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class JoinGroup:
    """JoinGroup v0 to v9."""

    cdef readonly str group_id
    cdef readonly int32_t session_timeout_ms
    cdef readonly int32_t rebalance_timeout_ms
    cdef readonly str member_id
    cdef readonly str instance_id
    cdef readonly str protocol_type
    cdef readonly tuple protocols
    cdef readonly Py_ssize_t protocols_size
    cdef readonly str reason


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class SyncGroup:
    """SyncGroup v0 to v5."""

    cdef readonly str group_id
    cdef readonly int32_t generation
    cdef readonly str member_id
    cdef readonly str instance_id
    cdef readonly str protocol_type
    cdef readonly str protocol_name
    cdef readonly tuple assignments
    cdef readonly Py_ssize_t assignments_size


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class Heartbeat:
    """Heartbeat v0 to v4."""

    cdef readonly str group_id
    cdef readonly int32_t generation
    cdef readonly str member_id
    cdef readonly str instance_id


def read_join_group(int16_t version, body):
    cdef Py_buffer view
    cdef ottla_cursor source
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        source = cursor_over(&view)
        return _read_join(version, &source, elements_max_of(view.len))
    finally:
        PyBuffer_Release(&view)


def read_sync_group(int16_t version, body):
    cdef Py_buffer view
    cdef ottla_cursor source
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        source = cursor_over(&view)
        return _read_sync(version, &source, elements_max_of(view.len))
    finally:
        PyBuffer_Release(&view)


def read_heartbeat(int16_t version, body):
    cdef Py_buffer view
    cdef ottla_cursor source
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        source = cursor_over(&view)
        return _read_heartbeat(version, &source)
    finally:
        PyBuffer_Release(&view)


cdef JoinGroup _read_join(int16_t version, ottla_cursor* source, int32_t left):
    cdef JoinGroup request = JoinGroup.__new__(JoinGroup)
    cdef bint flexible = version >= JOIN_FLEXIBLE_FROM
    request.group_id = read_text(source, False, flexible)
    request.session_timeout_ms = ottla_read32(source)
    request.rebalance_timeout_ms = ottla_read32(source) if version >= JOIN_REBALANCE_TIMEOUT_FROM else NO_TIMEOUT
    request.member_id = read_text(source, False, flexible)
    if version >= JOIN_INSTANCE_FROM:
        request.instance_id = read_text(source, True, flexible)
    request.protocol_type = read_text(source, False, flexible)
    request.protocols = _read_pairs(source, flexible, left, &request.protocols_size)
    if version >= JOIN_REASON_FROM:
        request.reason = read_text(source, True, flexible)
    if flexible:
        ottla_skip_tags(source)
    check_whole(source)
    return request


cdef SyncGroup _read_sync(int16_t version, ottla_cursor* source, int32_t left):
    cdef SyncGroup request = SyncGroup.__new__(SyncGroup)
    cdef bint flexible = version >= SYNC_FLEXIBLE_FROM
    request.group_id = read_text(source, False, flexible)
    request.generation = ottla_read32(source)
    request.member_id = read_text(source, False, flexible)
    if version >= SYNC_INSTANCE_FROM:
        request.instance_id = read_text(source, True, flexible)
    if version >= SYNC_PROTOCOL_FROM:
        request.protocol_type = read_text(source, True, flexible)
        request.protocol_name = read_text(source, True, flexible)
    request.assignments = _read_pairs(source, flexible, left, &request.assignments_size)
    if flexible:
        ottla_skip_tags(source)
    check_whole(source)
    return request


cdef Heartbeat _read_heartbeat(int16_t version, ottla_cursor* source):
    cdef Heartbeat request = Heartbeat.__new__(Heartbeat)
    cdef bint flexible = version >= HEARTBEAT_FLEXIBLE_FROM
    request.group_id = read_text(source, False, flexible)
    request.generation = ottla_read32(source)
    request.member_id = read_text(source, False, flexible)
    if version >= HEARTBEAT_INSTANCE_FROM:
        request.instance_id = read_text(source, True, flexible)
    if flexible:
        ottla_skip_tags(source)
    check_whole(source)
    return request


cdef tuple _read_pairs(ottla_cursor* source, bint flexible, int32_t left, Py_ssize_t* size):
    """Protocols or assignments: a name and bytes each. `size` is that of all names, in characters, and bytes."""
    cdef int32_t count = ottla_read_some(source, flexible, &left)
    cdef list pairs = []
    cdef str name
    cdef bytes content
    size[0] = 0
    while count > 0 and source.broken == NULL:
        name = read_text(source, False, flexible)
        content = _read_bytes(source, flexible)
        if flexible:
            ottla_skip_tags(source)
        pairs.append((name, content))
        size[0] += len(name) + len(content)
        count -= 1
    return tuple(pairs)


cdef bytes _read_bytes(ottla_cursor* source, bint flexible):
    """In a broken request, empty ones."""
    cdef int64_t size = <int64_t>ottla_read_varint(source) - 1 if flexible else ottla_read32(source)
    cdef ottla_span span = ottla_take(source, size, False)
    if span.at == NULL:
        return b""
    return PyBytes_FromStringAndSize(<const char*>span.at, span.size)
