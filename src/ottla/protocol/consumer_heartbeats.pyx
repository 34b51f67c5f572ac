# cython: boundscheck=False, wraparound=False, cdivision=True
"""ConsumerGroupHeartbeat requests, every version, read in one compiled pass: while a group rebalances, its members send
little else.

What a heartbeat means is for `ottla.broker.handlers.groups.consumer_groups`; the response is in `group_answers.py`.
Fields are read in `reader.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t

from uuid import UUID

from ottla.protocol.shapes import elements_max_of

from ottla.protocol.reader cimport (
    ottla_cursor, ottla_read32, ottla_read_some, ottla_skip_tags, ottla_span, ottla_take,
)
from ottla.protocol.request_fields cimport check_whole, cursor_over, read_text

cdef enum:
    REGEX_FROM = 1
    ID_BYTES = 16
    NULL_COUNT = -1


@cython.freelist(64)
@cython.final
cdef class ConsumerHeartbeatRequest:
    """The request."""

    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly int32_t member_epoch
    cdef readonly str instance_id
    cdef readonly str rack_id
    cdef readonly int32_t rebalance_timeout_ms
    cdef readonly tuple topic_names
    cdef readonly str topic_regex
    cdef readonly str server_assignor
    cdef readonly dict owned_partitions


def read_consumer_heartbeat(int16_t version, body):
    cdef Py_buffer view
    cdef ottla_cursor source
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        source = cursor_over(&view)
        return _read(version, &source, elements_max_of(view.len))
    finally:
        PyBuffer_Release(&view)


cdef ConsumerHeartbeatRequest _read(int16_t version, ottla_cursor* source, int32_t left):
    cdef ConsumerHeartbeatRequest request = ConsumerHeartbeatRequest.__new__(ConsumerHeartbeatRequest)
    request.group_id = read_text(source, False)
    request.member_id = read_text(source, False)
    request.member_epoch = ottla_read32(source)
    request.instance_id = read_text(source, True)
    request.rack_id = read_text(source, True)
    request.rebalance_timeout_ms = ottla_read32(source)
    request.topic_names = _read_names(source, &left)
    if version >= REGEX_FROM:
        request.topic_regex = read_text(source, True)
    request.server_assignor = read_text(source, True)
    request.owned_partitions = _read_owned(source, &left)
    ottla_skip_tags(source)
    check_whole(source)
    return request


cdef tuple _read_names(ottla_cursor* source, int32_t* left):
    cdef int32_t count = _nullable_count(source, left)
    cdef list names = []
    if count == NULL_COUNT:
        return None
    while count > 0 and source.broken == NULL:
        names.append(read_text(source, False))
        count -= 1
    return tuple(names)


cdef dict _read_owned(ottla_cursor* source, int32_t* left):
    cdef int32_t partition_count, count = _nullable_count(source, left)
    cdef dict owned = {}
    cdef list partitions
    cdef ottla_span place
    if count == NULL_COUNT:
        return None
    while count > 0 and source.broken == NULL:
        place = ottla_take(source, ID_BYTES, False)
        partition_count = ottla_read_some(source, True, left)
        partitions = []
        while partition_count > 0 and source.broken == NULL:
            partitions.append(ottla_read32(source))
            partition_count -= 1
        ottla_skip_tags(source)
        if source.broken == NULL:
            topic_id = UUID(bytes=PyBytes_FromStringAndSize(<const char*>place.at, ID_BYTES))
            known = owned.get(topic_id)
            if known is None:
                owned[topic_id] = partitions
            else:
                # A client that names a topic twice means both.
                known.extend(partitions)
        count -= 1
    return {topic_id: tuple(known) for topic_id, known in owned.items()}


cdef int32_t _nullable_count(ottla_cursor* source, int32_t* left) noexcept:
    if source.at < source.end and source.at[0] == 0:
        source.at += 1
        return NULL_COUNT
    return ottla_read_some(source, True, left)
