# cython: boundscheck=False, wraparound=False, cdivision=True
"""Committed offsets to records and back, many in one pass, in the version that current commits use.

The records of a commit stay rows until something asks for one of them: their batch is written straight from the rows.

`records.py` defines the records, and reads and writes all versions. This module writes the same bytes, and reads only
what it writes itself; for anything else it returns None, and the caller uses `records.py`.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT16_MAX, INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from uuid import UUID

from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.groups.records import CommittedOffset, OffsetValue
from ottla.model.errors import BatchTooLargeError, MisuseError
from ottla.model.ids import TopicPartition

from ottla.protocol.offset_commits cimport CommitRow, CommitRows
from ottla.protocol.reader cimport (
    ottla_cursor, ottla_read16, ottla_read32, ottla_read64, ottla_read_string, ottla_read_varint, ottla_span,
    ottla_take,
)
from ottla.protocol.writer cimport (
    PyUnicode_AsUTF8AndSize, ottla_close_writer, ottla_open_writer, ottla_reserve, ottla_store32, ottla_write16,
    ottla_write32, ottla_write64, ottla_write_bytes, ottla_write_varint, ottla_writer,
)
from ottla.records.record_wire cimport ottla_batch_fields, ottla_record_body_size, ottla_seal
from ottla.records.wire cimport OTTLA_HEADER_BYTES, ottla_put_varint, ottla_varint_size

cdef enum:
    KEY_KIND = 1
    VALUE_VERSION = 4
    ID_BYTES = 16
    # The numbers of a value: version, offset, leader epoch and commit time.
    FIXED_BYTES = 22

cdef object new_tuple = tuple.__new__
cdef bytes no_id = bytes(ID_BYTES)
# One tagged field, the first one, of this size.
cdef bytes id_tag = bytes((1, 0, ID_BYTES))


# To records


@cython.no_gc
@cython.final
cdef class TopicRecords:
    """The records of one topic."""

    cdef readonly str topic
    cdef readonly object topic_id
    cdef readonly CommitRows rows
    # The key up to the partition.
    cdef bytes key
    # The value behind the commit time.
    cdef bytes tail

    cdef size_t key_size(self) noexcept:
        return PyBytes_GET_SIZE(self.key) + sizeof(int32_t)

    cdef size_t value_size(self, CommitRow* row) noexcept:
        cdef size_t size = _metadata_size(row)
        return FIXED_BYTES + _count_size(size + 1) + size + PyBytes_GET_SIZE(self.tail)

    cdef uint8_t* write_key(self, uint8_t* at, CommitRow* row) noexcept:
        memcpy(at, PyBytes_AS_STRING(self.key), PyBytes_GET_SIZE(self.key))
        at += PyBytes_GET_SIZE(self.key)
        ottla_store32(at, row.partition)
        return at + sizeof(int32_t)

    cdef uint8_t* write_value(self, uint8_t* at, CommitRow* row, int64_t commit_ms) noexcept:
        cdef size_t size = _metadata_size(row)
        cdef ottla_writer to
        # The writer does not grow: the caller has made room for `value_size` bytes.
        to.data = at
        to.size = 0
        ottla_write16(&to, VALUE_VERSION)
        ottla_write64(&to, row.offset)
        ottla_write32(&to, row.leader_epoch)
        ottla_write_varint(&to, <uint32_t>size + 1)
        if size > 0:
            ottla_write_bytes(&to, PyBytes_AS_STRING(self.rows.texts) + row.metadata_at, size)
        ottla_write64(&to, commit_ms)
        ottla_write_bytes(&to, PyBytes_AS_STRING(self.tail), PyBytes_GET_SIZE(self.tail))
        return at + to.size

    cdef object record(self, CommitRow* row, int64_t commit_ms):
        cdef bytes key = PyBytes_FromStringAndSize(NULL, self.key_size())
        cdef bytes value = PyBytes_FromStringAndSize(NULL, self.value_size(row))
        self.write_key(<uint8_t*>PyBytes_AS_STRING(key), row)
        self.write_value(<uint8_t*>PyBytes_AS_STRING(value), row, commit_ms)
        return new_tuple(CoordinatorRecord, (key, value))


cdef size_t _metadata_size(CommitRow* row) noexcept:
    """Null is written as the empty text."""
    return 0 if row.metadata_size < 0 else <size_t>row.metadata_size


cdef size_t _count_size(size_t count) noexcept:
    """The bytes of an unsigned varint of a text's length."""
    return 1 if count < 1 << 7 else 2 if count < 1 << 14 else 3


@cython.final
cdef class OffsetRecords:
    """The records of one commit."""

    cdef readonly str group_id
    cdef readonly list topics
    cdef readonly int64_t commit_ms
    cdef Py_ssize_t count

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(self._records())

    cdef list _records(self):
        cdef TopicRecords topic
        cdef Py_ssize_t at
        cdef list records = []
        for topic in self.topics:
            for at in range(topic.rows.count):
                records.append(topic.record(&topic.rows.rows[at], self.commit_ms))
        return records

    def batch(self, int64_t timestamp):
        cdef TopicRecords topic
        cdef CommitRow* row
        cdef size_t size = OTTLA_HEADER_BYTES, body, key_size, value_size
        cdef int32_t delta = 0
        cdef Py_ssize_t index
        cdef ottla_batch_fields fields
        for topic in self.topics:
            key_size = topic.key_size()
            for index in range(topic.rows.count):
                body = _body_size(delta, key_size, topic.value_size(&topic.rows.rows[index]))
                size += ottla_varint_size(body) + body
                delta += 1
        if size > INT32_MAX:
            raise BatchTooLargeError(f"the records of a commit take {size} bytes, which do not fit into a batch")
        cdef bytearray batch = PyByteArray_FromStringAndSize(NULL, size)
        cdef uint8_t* start = <uint8_t*>PyByteArray_AS_STRING(batch)
        cdef uint8_t* at = start + OTTLA_HEADER_BYTES
        delta = 0
        for topic in self.topics:
            key_size = topic.key_size()
            for index in range(topic.rows.count):
                row = &topic.rows.rows[index]
                value_size = topic.value_size(row)
                at = ottla_put_varint(at, _body_size(delta, key_size, value_size))
                at[0] = 0
                at = ottla_put_varint(at + 1, 0)
                at = ottla_put_varint(at, delta)
                at = topic.write_key(ottla_put_varint(at, key_size), row)
                at = topic.write_value(ottla_put_varint(at, value_size), row, self.commit_ms)
                at = ottla_put_varint(at, 0)
                delta += 1
        memset(&fields, 0, sizeof(fields))
        fields.base_timestamp = fields.max_timestamp = timestamp
        fields.producer_id = -1
        fields.producer_epoch = -1
        fields.base_sequence = -1
        fields.leader_epoch = -1
        fields.last_offset_delta = delta - 1
        fields.count = delta
        ottla_seal(start, size, &fields)
        return batch


cdef size_t _body_size(int32_t delta, size_t key_size, size_t value_size) noexcept:
    return ottla_record_body_size(0, delta, key_size, value_size, 0, 0)


def offset_records(str group_id not None, topics, int64_t commit_ms):
    cdef OffsetRecords made = OffsetRecords.__new__(OffsetRecords)
    made.group_id = group_id
    made.commit_ms = commit_ms
    made.topics = []
    for topic, topic_id, rows in topics:
        made.topics.append(_topic_records(group_id, topic, topic_id, rows))
        made.count += len(rows)
    return made


cdef TopicRecords _topic_records(str group_id, str topic, topic_id, rows):
    cdef TopicRecords made = TopicRecords.__new__(TopicRecords)
    cdef ottla_writer to
    made.topic = topic
    made.topic_id = topic_id
    made.rows = rows if type(rows) is CommitRows else CommitRows(rows)
    made.tail = b"\0" if topic_id is None else id_tag + topic_id.bytes
    ottla_open_writer(&to)
    try:
        ottla_write16(&to, KEY_KIND)
        _write_text(&to, group_id)
        _write_text(&to, topic)
        made.key = PyBytes_FromStringAndSize(<const char*>to.data, to.size)
    finally:
        ottla_close_writer(&to)
    for at in range(made.rows.count):
        _check_size(made.rows.rows[at].metadata_size)
    return made


cdef int _write_text(ottla_writer* to, str text) except -1:
    cdef Py_ssize_t size
    cdef const char* content = PyUnicode_AsUTF8AndSize(text, &size)
    _check_size(size)
    if ottla_reserve(to, size + sizeof(int16_t)) != 0:
        raise MemoryError("no room for a record")
    ottla_write16(to, <int16_t>size)
    ottla_write_bytes(to, content, size)
    return 0


cdef int _check_size(Py_ssize_t size) except -1:
    if size > INT16_MAX:
        raise MisuseError(f"a text of {size} bytes does not fit into a record")
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
