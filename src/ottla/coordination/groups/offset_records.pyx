# cython: boundscheck=False, wraparound=False, cdivision=True
"""Committed offsets to records and back, many in one pass, in the version that current commits use.

`records.py` defines the records, and reads and writes all versions. This module writes the same bytes, and reads only
what it writes itself; for anything else it returns None, and the caller uses `records.py`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT16_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memset

from uuid import UUID

from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.groups.records import OffsetValue
from ottla.coordination.groups.offsets_state import CommittedOffset
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

from ottla.protocol.reader cimport (
    ottla_cursor, ottla_read16, ottla_read32, ottla_read64, ottla_read_string, ottla_read_varint, ottla_span,
    ottla_take,
)
from ottla.protocol.writer cimport (
    OTTLA_VARINT_BYTES_MAX, PyUnicode_AsUTF8AndSize, ottla_close_writer, ottla_open_writer, ottla_reserve,
    ottla_write16, ottla_write32, ottla_write64, ottla_write8, ottla_write_bytes, ottla_write_varint, ottla_writer,
)

cdef enum:
    KEY_KIND = 1
    VALUE_VERSION = 4
    ID_BYTES = 16
    # A value without its metadata and topic id: the numbers, a length, and the counts of the tagged fields.
    VALUE_BYTES = 40

cdef object new_tuple = tuple.__new__
cdef bytes no_id = bytes(ID_BYTES)


# To records


def offset_records(str group_id not None, topics, int64_t commit_ms):
    cdef list records = []
    cdef ottla_writer to
    ottla_open_writer(&to)
    try:
        for topic, topic_id, rows in topics:
            _write_topic(&to, records, group_id, topic, topic_id, rows, commit_ms)
        return tuple(records)
    finally:
        ottla_close_writer(&to)


cdef int _write_topic(
    ottla_writer* to, list records, str group_id, str topic, topic_id, list rows, int64_t commit_ms
) except -1:
    cdef bytes id_bytes = None if topic_id is None else topic_id.bytes
    cdef bytes key, value
    cdef size_t prefix
    cdef int32_t partition, leader_epoch
    cdef int64_t offset
    to.size = 0
    if ottla_reserve(to, 2) != 0:
        raise MemoryError("no room for a record")
    ottla_write16(to, KEY_KIND)
    _write_text(to, group_id, False)
    _write_text(to, topic, False)
    if ottla_reserve(to, 4) != 0:
        raise MemoryError("no room for a record")
    prefix = to.size
    for row in rows:
        partition, offset, leader_epoch, metadata = <tuple?>row
        to.size = prefix
        ottla_write32(to, partition)
        key = PyBytes_FromStringAndSize(<const char*>to.data, to.size)
        value = _value(to, prefix + 4, offset, leader_epoch, "" if metadata is None else metadata, commit_ms, id_bytes)
        records.append(new_tuple(CoordinatorRecord, (key, value)))
        if ottla_reserve(to, 4) != 0:
            raise MemoryError("no room for a record")
    return 0


cdef bytes _value(
    ottla_writer* to, size_t start, int64_t offset, int32_t leader_epoch, str metadata, int64_t commit_ms, bytes id_bytes
):
    """Written behind the key, which stays in the buffer for the next one."""
    to.size = start
    if ottla_reserve(to, VALUE_BYTES + ID_BYTES) != 0:
        raise MemoryError("no room for a record")
    ottla_write16(to, VALUE_VERSION)
    ottla_write64(to, offset)
    ottla_write32(to, leader_epoch)
    _write_text(to, metadata, True)
    if ottla_reserve(to, VALUE_BYTES + ID_BYTES) != 0:
        raise MemoryError("no room for a record")
    ottla_write64(to, commit_ms)
    ottla_write8(to, 0 if id_bytes is None else 1)
    if id_bytes is not None:
        ottla_write8(to, 0)
        ottla_write8(to, ID_BYTES)
        ottla_write_bytes(to, PyBytes_AS_STRING(id_bytes), ID_BYTES)
    return PyBytes_FromStringAndSize(<const char*>to.data + start, to.size - start)


cdef int _write_text(ottla_writer* to, str text, bint flexible) except -1:
    cdef Py_ssize_t size
    cdef const char* content = PyUnicode_AsUTF8AndSize(text, &size)
    if size > INT16_MAX:
        raise MisuseError(f"a text of {size} bytes does not fit into a record")
    if ottla_reserve(to, size + OTTLA_VARINT_BYTES_MAX) != 0:
        raise MemoryError("no room for a record")
    if flexible:
        ottla_write_varint(to, <uint32_t>size + 1)
    else:
        ottla_write16(to, <int16_t>size)
    ottla_write_bytes(to, content, size)
    return 0


# From records


cdef struct Found:
    ottla_span group
    ottla_span topic
    int32_t partition
    int32_t leader_epoch
    int64_t offset
    int64_t commit_ms
    ottla_span metadata
    ottla_span topic_id


def read_offset_records(records, int64_t turn):
    try:
        return _read(records, turn)
    except UnicodeDecodeError:
        return None


cdef tuple _read(records, int64_t turn):
    cdef Found found, before
    cdef str group_id = None, topic = None
    cdef object topic_id = None, value
    cdef list pairs = []
    cdef bint is_first = True
    memset(&before, 0, sizeof(Found))
    for key, content in records:
        if not PyBytes_CheckExact(key) or not PyBytes_CheckExact(content) or not _find(key, content, &found):
            return None
        if is_first:
            group_id = _text(found.group)
        elif not _is_same(found.group, before.group):
            return None
        if is_first or not _is_same(found.topic, before.topic):
            topic = _text(found.topic)
        if is_first or not _is_same(found.topic_id, before.topic_id):
            topic_id = None if found.topic_id.at == NULL else _uuid(found.topic_id)
        turn += 1
        value = new_tuple(
            OffsetValue,
            (found.offset, found.commit_ms, found.leader_epoch, _text(found.metadata), None, topic_id),
        )
        pairs.append(
            (
                new_tuple(TopicPartition, (topic, found.partition)),
                new_tuple(CommittedOffset, (value, turn)),
            )
        )
        # Spans point into keys and values that the records hold.
        before = found
        is_first = False
    return None if is_first else (group_id, pairs)


cdef bint _find(bytes key, bytes value, Found* found) noexcept:
    """Whether this is a committed offset in the usual form; nothing may be left behind it."""
    cdef ottla_cursor source
    cdef uint32_t tags
    memset(found, 0, sizeof(Found))
    _open(&source, key)
    if ottla_read16(&source) != KEY_KIND:
        return False
    found.group = ottla_read_string(&source, False, False)
    found.topic = ottla_read_string(&source, False, False)
    found.partition = ottla_read32(&source)
    if source.broken != NULL or source.at != source.end:
        return False
    _open(&source, value)
    if ottla_read16(&source) != VALUE_VERSION:
        return False
    found.offset = ottla_read64(&source)
    found.leader_epoch = ottla_read32(&source)
    found.metadata = ottla_read_string(&source, True, False)
    found.commit_ms = ottla_read64(&source)
    tags = ottla_read_varint(&source)
    if tags > 1:
        return False
    if tags == 1:
        if ottla_read_varint(&source) != 0 or ottla_read_varint(&source) != ID_BYTES:
            return False
        found.topic_id = ottla_take(&source, ID_BYTES, False)
        if found.topic_id.at != NULL and memcmp(found.topic_id.at, PyBytes_AS_STRING(no_id), ID_BYTES) == 0:
            return False
    return source.broken == NULL and source.at == source.end


cdef void _open(ottla_cursor* source, bytes content) noexcept:
    source.at = <const uint8_t*>PyBytes_AS_STRING(content)
    source.end = source.at + PyBytes_GET_SIZE(content)
    source.broken = NULL


cdef bint _is_same(ottla_span left, ottla_span right) noexcept:
    if left.size != right.size or (left.at == NULL) != (right.at == NULL):
        return False
    return left.at == NULL or memcmp(left.at, right.at, left.size) == 0


cdef str _text(ottla_span span):
    return PyUnicode_DecodeUTF8(<const char*>span.at, span.size, NULL)


cdef object _uuid(ottla_span span):
    return UUID(bytes=PyBytes_FromStringAndSize(<const char*>span.at, ID_BYTES))
