# cython: boundscheck=False, wraparound=False, cdivision=True
"""A partition's fetched batches as records of a consumer, some at a time, made without a line of Python per record.

Covers reading on where the last call ended, within a batch or between two, and leaving out markers and what was
aborted. Which batches those are is the consumer's. `decode` reads a whole batch, `columns` many of them at once.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.model.errors import CorruptBatchError, MisuseError
from ottla.records.aborted import AbortedTransactions
from ottla.records.decode import record_story
from ottla.records.payload import read_payload

from ottla.records.decode cimport field_of, headers_of
from ottla.records.record_wire cimport (
    OTTLA_RECORD_BAD_HEADERS, OTTLA_RECORD_BAD_OFFSET, OTTLA_RECORD_GOOD, OTTLA_RECORD_TRAILING, ottla_read_record,
    ottla_record, ottla_record_finding,
)
from ottla.records.wire cimport ottla_add64

cdef extern from "Python.h":
    ctypedef struct TupleType "PyTypeObject":
        object (*tp_alloc)(TupleType* kind, Py_ssize_t size)

cdef enum:
    # topic, partition, leader epoch, offset, timestamp, its type, key, value, headers, size of key, size of value
    FIELDS = 11

cdef tuple NO_HEADERS = ()


cdef inline void _put(object record, Py_ssize_t at, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(record, at, value)


# Not for the garbage collector: clearing a payload that is still being read would fail. A reader leads to no cycle.
@cython.no_gc
@cython.final
cdef class RecordReader:
    cdef object _topic, _partition, _kind, _aborted, _payload, _leader_epoch, _timestamp_type
    cdef list _batches
    cdef Py_ssize_t _batch_index
    cdef bint _check_crcs, _is_open, _is_append_time, _is_reading, _key_sees_record, _value_sees_record
    cdef Py_buffer _view
    cdef const uint8_t* _at
    cdef const uint8_t* _end
    cdef int64_t _base_offset, _base_timestamp, _append_time, _batch_next_offset
    cdef int32_t _count, _index, _last_delta, _delta
    cdef readonly int64_t next_offset
    cdef readonly int32_t leader_epoch

    def __init__(self, kind, topic, partition, batches, start, aborted=None, *, check_crcs=True):
        if not issubclass(kind, tuple):
            raise MisuseError(f"{kind} is not a tuple class")
        self._kind = kind
        self._topic = topic
        self._partition = partition
        self._batches = list(batches)
        self._aborted = None if aborted is None else AbortedTransactions(aborted)
        self._check_crcs = check_crcs
        self.next_offset = start
        self.leader_epoch = -1

    def __dealloc__(self):
        if self._is_open:
            PyBuffer_Release(&self._view)

    @property
    def is_done(self):
        return not self._is_open and self._batch_index >= len(self._batches)

    def read(self, Py_ssize_t count_max, key_deserializer=None, value_deserializer=None):
        cdef list records = []
        if self._is_reading:
            raise MisuseError("a deserializer, or another thread, reads from a consumer that is being read from")
        self._is_reading = True
        self._key_sees_record = hasattr(key_deserializer, "deserialize_record")
        if self._key_sees_record:
            key_deserializer = key_deserializer.deserialize_record
        self._value_sees_record = hasattr(value_deserializer, "deserialize_record")
        if self._value_sees_record:
            value_deserializer = value_deserializer.deserialize_record
        try:
            while len(records) < count_max and (self._is_open or self._open_next()):
                self._read_batch(records, count_max, key_deserializer, value_deserializer)
                if self._index == self._count:
                    self._close()
        except Exception:
            # What is whole comes first; the next call meets the same trouble, and raises it.
            if not records:
                raise
        finally:
            self._is_reading = False
        return records

    cdef bint _open_next(self) except -1:
        """Goes on to the next batch that has records to give; False if there is none."""
        while self._batch_index < len(self._batches):
            batch = self._batches[self._batch_index]
            if self._check_crcs:
                batch.check()
            if batch.is_control or (self._aborted is not None and self._aborted.covers(batch)):
                # A marker is told to the aborted transactions as well: it may end one.
                if batch.is_control and self._aborted is not None:
                    self._aborted.covers(batch)
                self._batch_index += 1
                self.next_offset = max(self.next_offset, <int64_t>batch.next_offset)
                self.leader_epoch = batch.leader_epoch
                continue
            payload = read_payload(batch)
            PyObject_GetBuffer(payload, &self._view, PyBUF_SIMPLE)
            self._is_open = True
            self._payload = payload
            self._at = <const uint8_t*>self._view.buf
            self._end = self._at + self._view.len
            self._base_offset = batch.base_offset
            self._base_timestamp = batch.base_timestamp
            self._append_time = batch.max_timestamp
            self._is_append_time = batch.timestamp_type == 1
            self._timestamp_type = batch.timestamp_type
            self._leader_epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
            self.leader_epoch = batch.leader_epoch
            self._batch_next_offset = batch.next_offset
            self._count = batch.count
            self._last_delta = batch.last_offset_delta
            self._index = 0
            self._delta = -1
            return True
        return False

    cdef int _close(self) except -1:
        """The batch is read; nothing may follow its last record."""
        if self._at != self._end:
            raise CorruptBatchError(record_story(OTTLA_RECORD_TRAILING, self._base_offset, self._count))
        PyBuffer_Release(&self._view)
        self._is_open = False
        self._payload = None
        self._batch_index += 1
        self.next_offset = max(self.next_offset, self._batch_next_offset)
        return 0

    cdef int _read_batch(self, list records, Py_ssize_t count_max, key_deserializer, value_deserializer) except -1:
        """Records of the open batch, until it ends or enough are there."""
        cdef ottla_record record
        cdef ottla_record_finding finding
        cdef int64_t offset, timestamp
        cdef TupleType* kind = <TupleType*>self._kind
        cdef object made, key, value
        cdef tuple headers
        while self._index < self._count and len(records) < count_max:
            finding = ottla_read_record(self._at, self._end, &record)
            if finding == OTTLA_RECORD_GOOD and not self._delta < record.offset_delta <= self._last_delta:
                finding = OTTLA_RECORD_BAD_OFFSET
            if finding != OTTLA_RECORD_GOOD:
                raise CorruptBatchError(record_story(finding, self._base_offset, self._index))
            offset = ottla_add64(self._base_offset, record.offset_delta)
            if offset >= self.next_offset:
                headers = NO_HEADERS if record.header_count == 0 else headers_of(&record)
                if headers is None:
                    raise CorruptBatchError(record_story(OTTLA_RECORD_BAD_HEADERS, self._base_offset, self._index))
                key = field_of(record.key, record.key_size)
                if key_deserializer is not None and key is not None:
                    if self._key_sees_record:
                        key = key_deserializer(self._topic, headers, key, True)
                    else:
                        key = key_deserializer(key)
                value = field_of(record.value, record.value_size)
                if value_deserializer is not None and value is not None:
                    if self._value_sees_record:
                        value = value_deserializer(self._topic, headers, value, False)
                    else:
                        value = value_deserializer(value)
                timestamp = self._append_time
                if not self._is_append_time:
                    timestamp = ottla_add64(self._base_timestamp, record.timestamp_delta)
                made = kind.tp_alloc(kind, FIELDS)
                _put(made, 0, self._topic)
                _put(made, 1, self._partition)
                _put(made, 2, self._leader_epoch)
                _put(made, 3, offset)
                _put(made, 4, timestamp)
                _put(made, 5, self._timestamp_type)
                _put(made, 6, key)
                _put(made, 7, value)
                _put(made, 8, headers)
                _put(made, 9, record.key_size)
                _put(made, 10, record.value_size)
                records.append(made)
                self.next_offset = offset + 1
            self._at = record.end
            self._delta = record.offset_delta
            self._index += 1
        return 0
