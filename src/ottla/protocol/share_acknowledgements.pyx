# cython: boundscheck=False, wraparound=False, cdivision=True
"""ShareAcknowledge requests, every version, read in one compiled pass: a member may send one for each record.

What an acknowledgement means is for `ottla.broker.handlers.groups.share_fetch`; the response is in `share_answers.py`.
Fields are read in `reader.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, int8_t

from uuid import UUID

from ottla.protocol.shapes import elements_max_of

from ottla.protocol.reader cimport (
    ottla_cursor, ottla_fail, ottla_read32, ottla_read64, ottla_read8, ottla_read_some, ottla_skip_tags,
    ottla_span, ottla_take,
)
from ottla.protocol.request_fields cimport check_whole, cursor_over, read_text

cdef enum:
    RENEWAL_FROM = 2
    ID_BYTES = 16


# Not for the garbage collector: the tuple has only numbers.
@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class AcknowledgedBatch:
    """A range of offsets."""

    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly tuple acknowledge_types


@cython.freelist(64)
@cython.final
cdef class ShareAcknowledgement:
    """The request."""

    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly int32_t share_session_epoch
    cdef readonly bint is_renew_ack
    cdef readonly dict partitions


def read_share_acknowledgement(int16_t version, body):
    cdef Py_buffer view
    cdef ottla_cursor source
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        source = cursor_over(&view)
        return _read(version, &source, elements_max_of(view.len))
    finally:
        PyBuffer_Release(&view)


cdef ShareAcknowledgement _read(int16_t version, ottla_cursor* source, int32_t left):
    cdef ShareAcknowledgement request = ShareAcknowledgement.__new__(ShareAcknowledgement)
    cdef int32_t count
    request.group_id = read_text(source, True)
    request.member_id = read_text(source, True)
    request.share_session_epoch = ottla_read32(source)
    request.is_renew_ack = version >= RENEWAL_FROM and _flag(source)
    request.partitions = {}
    count = ottla_read_some(source, True, &left)
    while count > 0 and source.broken == NULL:
        _read_topic(request.partitions, source, &left)
        count -= 1
    ottla_skip_tags(source)
    check_whole(source)
    return request


cdef int _read_topic(dict partitions, ottla_cursor* source, int32_t* left) except -1:
    cdef ottla_span place = ottla_take(source, ID_BYTES, False)
    cdef int32_t partition, count = ottla_read_some(source, True, left)
    cdef list batches
    if source.broken != NULL:
        return 0
    topic_id = UUID(bytes=PyBytes_FromStringAndSize(<const char*>place.at, ID_BYTES))
    while count > 0 and source.broken == NULL:
        partition = ottla_read32(source)
        batches = _read_batches(source, left)
        ottla_skip_tags(source)
        if batches:
            partitions[topic_id, partition] = batches
        count -= 1
    ottla_skip_tags(source)
    return 0


cdef list _read_batches(ottla_cursor* source, int32_t* left):
    cdef int32_t type_count, count = ottla_read_some(source, True, left)
    cdef AcknowledgedBatch batch
    cdef list types, batches = []
    while count > 0 and source.broken == NULL:
        batch = AcknowledgedBatch.__new__(AcknowledgedBatch)
        batch.first_offset = ottla_read64(source)
        batch.last_offset = ottla_read64(source)
        type_count = ottla_read_some(source, True, left)
        types = []
        while type_count > 0 and source.broken == NULL:
            types.append(ottla_read8(source))
            type_count -= 1
        batch.acknowledge_types = tuple(types)
        ottla_skip_tags(source)
        batches.append(batch)
        count -= 1
    return batches


cdef bint _flag(ottla_cursor* source) noexcept:
    cdef int8_t value = ottla_read8(source)
    if value != 0 and value != 1:
        ottla_fail(source, b"a boolean is neither 0 nor 1")
    return value == 1
