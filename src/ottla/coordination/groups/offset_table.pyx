# cython: boundscheck=False, wraparound=False, cdivision=True
"""The committed offsets of one group: an array for each topic, instead of three objects for each partition.

Pure. `offsets_state.py` says when an offset is committed; here it is only kept.
"""

cimport cython
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from ottla.coordination.groups.records import CommittedOffset, OffsetValue
from ottla.model.ids import TopicPartition

from ottla.protocol.offset_commits cimport CommitRow, CommitRows

cdef object new_tuple = tuple.__new__


cdef struct Kept:
    int64_t offset
    int64_t commit_ms
    int64_t expire_ms
    int64_t turn
    int32_t partition
    int32_t leader_epoch
    bint expires
    # Both are owned; no metadata stands for the empty one.
    PyObject* metadata
    PyObject* topic_id


@cython.no_gc
@cython.final
cdef class _Topic:
    """The offsets of one topic, by partition."""

    cdef Kept* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t room

    def __dealloc__(self):
        for at in range(self.count):
            _let_go(&self.rows[at])
        free(self.rows)

    cdef Py_ssize_t find(self, int32_t partition, Py_ssize_t near) noexcept:
        """Where a partition is, or would be. A commit usually names them in order: it is looked for at `near` first."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        if near < high and self.rows[near].partition == partition:
            return near
        if near == high and (high == 0 or self.rows[high - 1].partition < partition):
            return high
        while low < high:
            middle = (low + high) // 2
            if self.rows[middle].partition < partition:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bint has(self, Py_ssize_t at, int32_t partition) noexcept:
        return at < self.count and self.rows[at].partition == partition

    cdef Kept* place(self, Py_ssize_t at, int32_t partition) except NULL:
        """The row of a partition that `find` has found at this place; a new one if there is none."""
        cdef Kept* grown
        cdef Py_ssize_t room
        if self.has(at, partition):
            return &self.rows[at]
        if self.count == self.room:
            room = 2 * self.room + 1
            grown = <Kept*>realloc(self.rows, room * sizeof(Kept))
            if grown == NULL:
                raise MemoryError(f"no room for {room} offsets")
            self.rows = grown
            self.room = room
        memmove(&self.rows[at + 1], &self.rows[at], (self.count - at) * sizeof(Kept))
        self.rows[at].partition = partition
        self.rows[at].metadata = NULL
        self.rows[at].topic_id = NULL
        self.count += 1
        return &self.rows[at]

    cdef remove(self, Py_ssize_t at):
        _let_go(&self.rows[at])
        self.count -= 1
        memmove(&self.rows[at], &self.rows[at + 1], (self.count - at) * sizeof(Kept))


cdef void _let_go(Kept* row) noexcept:
    Py_XDECREF(row.metadata)
    Py_XDECREF(row.topic_id)


cdef PyObject* _owned(object kept) noexcept:
    if kept is None:
        return NULL
    Py_INCREF(kept)
    return <PyObject*>kept


cdef object _committed(Kept* row):
    value = new_tuple(
        OffsetValue,
        (
            row.offset,
            row.commit_ms,
            row.leader_epoch,
            "" if row.metadata == NULL else <object>row.metadata,
            row.expire_ms if row.expires else None,
            None if row.topic_id == NULL else <object>row.topic_id,
        ),
    )
    return new_tuple(CommittedOffset, (value, row.turn))


@cython.final
cdef class OffsetTable:
    """The offsets of one group."""

    cdef dict topics
    cdef Py_ssize_t count

    def __cinit__(self):
        self.topics = {}

    def __len__(self):
        return self.count

    def __eq__(self, other):
        return dict(self.items()) == dict(other.items())

    def __contains__(self, place):
        topic, partition = place
        cdef _Topic found = self.topics.get(topic)
        return found is not None and found.has(found.find(partition, 0), partition)

    def __iter__(self):
        cdef _Topic found
        cdef Py_ssize_t at
        places = []
        for topic, found in self.topics.items():
            for at in range(found.count):
                places.append(new_tuple(TopicPartition, (topic, found.rows[at].partition)))
        return iter(places)

    def items(self):
        return [(place, self.get(place)) for place in self]

    def get(self, place):
        topic, partition = place
        cdef _Topic found = self.topics.get(topic)
        cdef Py_ssize_t at
        if found is None:
            return None
        at = found.find(partition, 0)
        return _committed(&found.rows[at]) if found.has(at, partition) else None

    def __setitem__(self, place, committed):
        topic, partition = place
        value, turn = committed
        cdef Kept new
        new.offset, new.commit_ms, new.leader_epoch, metadata, expire_ms, topic_id = value
        new.turn = turn
        new.partition = partition
        new.expires = expire_ms is not None
        new.expire_ms = 0 if expire_ms is None else expire_ms
        cdef _Topic found = self._topic(topic)
        cdef Py_ssize_t before = found.count
        cdef Kept* row = found.place(found.find(new.partition, 0), new.partition)
        self.count += found.count - before
        cdef Kept old = row[0]
        row[0] = new
        row.metadata = _owned(metadata or None)
        row.topic_id = _owned(topic_id)
        _let_go(&old)

    def discard(self, place):
        topic, partition = place
        cdef _Topic found = self.topics.get(topic)
        cdef Py_ssize_t at
        if found is None:
            return
        at = found.find(partition, 0)
        if found.has(at, partition):
            found.remove(at)
            self.count -= 1
            if found.count == 0:
                del self.topics[topic]

    def put(self, str topic not None, topic_id, CommitRows rows not None, int64_t commit_ms, int64_t turn):
        cdef _Topic found = self._topic(topic)
        cdef Py_ssize_t before = found.count, near = 0, at
        cdef CommitRow* new
        cdef Kept* row
        cdef PyObject* metadata
        cdef PyObject* old_id
        cdef str text
        for at in range(rows.count):
            new = &rows.rows[at]
            text = rows.metadata_of(new) if new.metadata_size > 0 else None
            near = found.find(new.partition, near)
            row = found.place(near, new.partition)
            near += 1
            turn += 1
            metadata, row.metadata = row.metadata, _owned(text)
            if row.topic_id != <PyObject*>topic_id:
                old_id, row.topic_id = row.topic_id, _owned(topic_id)
                Py_XDECREF(old_id)
            Py_XDECREF(metadata)
            row.offset = new.offset
            row.commit_ms = commit_ms
            row.turn = turn
            row.leader_epoch = new.leader_epoch
            row.expires = False
        self.count += found.count - before

    cdef _Topic _topic(self, topic):
        cdef _Topic found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = _Topic.__new__(_Topic)
        return found
