# cython: boundscheck=False, wraparound=False, cdivision=True
"""OffsetCommit on the broker's side, every version, in one compiled pass each way: of all messages that become objects
in a broker, this is the one that it gets most.

Covers a body to rows, and outcomes to a body. Rows stay numbers in an array, which `offset_records.pyx` writes to a log
and `offset_table.pyx` keeps; they become objects only when they are asked for. What a commit means is for `ottla.broker.handlers.groups.group_offsets`; clients
write theirs through `messages.py`. Fields are read in `reader.h` and written in `writer.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc

from uuid import UUID

from ottla.model.errors import MisuseError
from ottla.protocol.shapes import ELEMENT_BYTES, ELEMENTS_ALWAYS, ShapeError, elements_max_of

from ottla.protocol.reader cimport (
    ottla_cursor, ottla_read32, ottla_read64, ottla_read_some, ottla_read_string, ottla_skip_tags,
    ottla_span, ottla_take,
)
from ottla.protocol.writer cimport (
    OTTLA_VARINT_BYTES_MAX, PyUnicode_AsUTF8AndSize, ottla_close_writer, ottla_open_writer, ottla_reserve,
    ottla_write16, ottla_write32, ottla_write8, ottla_write_bytes, ottla_write_count, ottla_write_varint, ottla_writer,
)

# The stub says what is in it; it exists here so that it can be imported.
PartitionCommit = tuple

cdef enum:
    THROTTLE_FROM = 3
    RETENTION_UNTIL = 4
    LEADER_EPOCH_FROM = 6
    INSTANCE_FROM = 7
    FLEXIBLE_FROM = 8
    BY_ID_FROM = 10
    ID_BYTES = 16
    OUTCOME_BYTES = 7

cdef bytes no_id = bytes(ID_BYTES)
# A request of fewer bytes may have this many elements, which `elements_max_of` need not be asked for.
cdef int32_t elements_always = ELEMENTS_ALWAYS
cdef Py_ssize_t small_bytes = ELEMENTS_ALWAYS * ELEMENT_BYTES


@cython.freelist(64)
@cython.final
cdef class CommitRows:
    """Offsets of one topic."""

    def __init__(self, rows=()):
        cdef CommitRow row
        cdef list all_rows = list(rows)
        cdef list texts = [None if each[3] is None else each[3].encode() for each in all_rows]
        self.count = 0
        self.texts = b"".join([text for text in texts if text is not None])
        row.metadata_at = 0
        for at in range(len(all_rows)):
            row.partition, row.offset, row.leader_epoch, _ = all_rows[at]
            row.metadata_size = -1 if texts[at] is None else <int32_t>len(texts[at])
            self.add(row)
            row.metadata_at += max(row.metadata_size, 0)

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t at):
        if at < 0:
            at += self.count
        if not 0 <= at < self.count:
            raise IndexError(f"row {at} of {self.count}")
        cdef CommitRow* row = &self.rows[at]
        return row.partition, row.offset, row.leader_epoch, self.metadata_of(row)

    def __eq__(self, other):
        return list(self) == list(other)

    cdef int add(self, CommitRow row) except -1:
        cdef CommitRow* grown
        cdef Py_ssize_t room
        if self.count == self.room:
            room = 2 * self.room + 4
            grown = <CommitRow*>realloc(self.rows, room * sizeof(CommitRow))
            if grown == NULL:
                raise MemoryError(f"no room for {room} offsets")
            self.rows = grown
            self.room = room
        self.rows[self.count] = row
        self.count += 1
        return 0

    cdef str metadata_of(self, CommitRow* row):
        if row.metadata_size <= 0:
            return None if row.metadata_size < 0 else ""
        return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(self.texts) + row.metadata_at, row.metadata_size, NULL)


# Not for the garbage collector: what these hold leads back to no object, and it would look at each of them.
@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class TopicCommits:
    """The offsets of one topic."""

    cdef readonly str name
    cdef readonly object topic_id
    cdef readonly CommitRows partitions
    cdef readonly int32_t lowest
    cdef readonly int32_t highest


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class OffsetCommit:
    """The request."""

    cdef readonly int16_t version
    cdef readonly str group_id
    cdef readonly int32_t generation
    cdef readonly str member_id
    cdef readonly str instance_id
    cdef readonly int64_t retention_ms
    cdef readonly list topics
    cdef readonly Py_ssize_t metadata_bytes_max

    def answer(self, list outcomes not None):
        if len(outcomes) != len(self.topics):
            raise MisuseError(f"outcomes of {len(outcomes)} topics answer a commit to {len(self.topics)}")
        return _answer(self, outcomes, 0)

    def answer_all(self, int16_t error):
        return _answer(self, None, error)


def read_offset_commit(int16_t version, body):
    cdef Py_buffer view
    cdef ottla_cursor source
    cdef int32_t elements_max
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        source.at = <const uint8_t*>view.buf
        source.end = source.at + view.len
        source.broken = NULL
        elements_max = elements_always if view.len < small_bytes else elements_max_of(view.len)
        return _read(version, &source, elements_max, <const uint8_t*>view.buf)
    finally:
        PyBuffer_Release(&view)


cdef OffsetCommit _read(int16_t version, ottla_cursor* source, int32_t left, const uint8_t* body):
    cdef bint flexible = version >= FLEXIBLE_FROM
    cdef OffsetCommit commit = OffsetCommit.__new__(OffsetCommit)
    cdef int32_t count
    cdef TopicCommits topic
    cdef bytes texts
    commit.version = version
    commit.group_id = _text(source, flexible)
    commit.generation = ottla_read32(source)
    commit.member_id = _text(source, flexible)
    if version >= INSTANCE_FROM:
        commit.instance_id = _nullable_text(ottla_read_string(source, flexible, True))
    commit.retention_ms = ottla_read64(source) if version <= RETENTION_UNTIL else -1
    commit.topics = []
    count = ottla_read_some(source, flexible, &left)
    while count > 0 and source.broken == NULL:
        _read_topic(commit, source, flexible, &left, body)
        count -= 1
    if flexible:
        ottla_skip_tags(source)
    if source.broken != NULL:
        raise ShapeError((<bytes>source.broken).decode())
    if commit.metadata_bytes_max > 0:
        # The body is in a buffer that others will use.
        texts = PyBytes_FromStringAndSize(<const char*>body, source.end - body)
        for topic in commit.topics:
            topic.partitions.texts = texts
    return commit


cdef int _read_topic(
    OffsetCommit commit, ottla_cursor* source, bint flexible, int32_t* left, const uint8_t* body
) except -1:
    cdef TopicCommits topic = TopicCommits.__new__(TopicCommits)
    cdef CommitRows rows = CommitRows.__new__(CommitRows)
    cdef CommitRow row
    cdef ottla_span place, metadata
    cdef int32_t count
    if commit.version >= BY_ID_FROM:
        place = ottla_take(source, ID_BYTES, False)
        if place.at != NULL:
            topic.topic_id = UUID(bytes=PyBytes_FromStringAndSize(<const char*>place.at, ID_BYTES))
    else:
        topic.name = _text(source, flexible)
    count = ottla_read_some(source, flexible, left)
    row.leader_epoch = -1
    while count > 0 and source.broken == NULL:
        row.partition = ottla_read32(source)
        row.offset = ottla_read64(source)
        if commit.version >= LEADER_EPOCH_FROM:
            row.leader_epoch = ottla_read32(source)
        metadata = ottla_read_string(source, flexible, True)
        if flexible:
            ottla_skip_tags(source)
        row.metadata_at = 0 if metadata.at == NULL else metadata.at - body
        row.metadata_size = -1 if metadata.at == NULL else <int32_t>metadata.size
        if row.metadata_size > 0:
            # Raises now, and not when somebody asks for it.
            PyUnicode_DecodeUTF8(<const char*>metadata.at, metadata.size, NULL)
            if row.metadata_size > commit.metadata_bytes_max:
                commit.metadata_bytes_max = row.metadata_size
        if rows.count == 0 or row.partition < topic.lowest:
            topic.lowest = row.partition
        if rows.count == 0 or row.partition > topic.highest:
            topic.highest = row.partition
        rows.add(row)
        count -= 1
    if flexible:
        ottla_skip_tags(source)
    topic.partitions = rows
    if rows.count > 0:
        commit.topics.append(topic)
    return 0


cdef str _text(ottla_cursor* source, bint flexible):
    cdef str text = _nullable_text(ottla_read_string(source, flexible, False))
    return "" if text is None else text


cdef str _nullable_text(ottla_span span):
    return None if span.at == NULL else PyUnicode_DecodeUTF8(<const char*>span.at, span.size, NULL)


# The answer


cdef bytes _answer(OffsetCommit commit, list outcomes, int16_t error):
    """The response's body: an error for each row, or the same one for all."""
    cdef bint flexible = commit.version >= FLEXIBLE_FROM
    cdef TopicCommits topic
    cdef CommitRows rows
    cdef list errors = None
    cdef Py_ssize_t at, index
    cdef ottla_writer to
    ottla_open_writer(&to)
    try:
        if commit.version >= THROTTLE_FROM:
            ottla_write32(&to, 0)
        ottla_write_count(&to, flexible, <int32_t>len(commit.topics))
        for at in range(len(commit.topics)):
            topic = commit.topics[at]
            rows = topic.partitions
            if outcomes is not None:
                errors = outcomes[at]
                if len(errors) != rows.count:
                    raise MisuseError(f"{len(errors)} outcomes answer a commit of {rows.count} offsets")
            _write_place(&to, topic, commit.version, flexible, rows.count * OUTCOME_BYTES)
            ottla_write_count(&to, flexible, <int32_t>rows.count)
            for index in range(rows.count):
                ottla_write32(&to, rows.rows[index].partition)
                ottla_write16(&to, error if errors is None else errors[index])
                if flexible:
                    ottla_write8(&to, 0)
            if flexible:
                ottla_write8(&to, 0)
        if flexible:
            ottla_write8(&to, 0)
        return PyBytes_FromStringAndSize(<const char*>to.data, to.size)
    finally:
        ottla_close_writer(&to)


cdef int _write_place(ottla_writer* to, TopicCommits topic, int16_t version, bint flexible, size_t more) except -1:
    """The topic, and room for all of its outcomes and what ends them."""
    cdef const char* name = NULL
    cdef Py_ssize_t size = ID_BYTES
    cdef bytes topic_id
    if version < BY_ID_FROM:
        name = PyUnicode_AsUTF8AndSize(topic.name, &size)
    if ottla_reserve(to, size + 2 * OTTLA_VARINT_BYTES_MAX + more + 16) != 0:
        raise MemoryError("no room for an answer")
    if version >= BY_ID_FROM:
        topic_id = no_id if topic.topic_id is None else topic.topic_id.bytes
        ottla_write_bytes(to, PyBytes_AS_STRING(topic_id), PyBytes_GET_SIZE(topic_id))
    elif flexible:
        ottla_write_varint(to, <uint32_t>size + 1)
        ottla_write_bytes(to, name, size)
    else:
        ottla_write16(to, <int16_t>size)
        ottla_write_bytes(to, name, size)
    return 0
