# cython: boundscheck=False, wraparound=False, cdivision=True
"""The batch builder: records appended one by one become a whole batch.

For producers that hand over single records, for markers and for tests; tables go through `columns_encode`. The records
are kept in their wire form from the start, so what a batch will take is known after each append, and building copies
once.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from ottla.model.errors import BatchTooLargeError, MisuseError
from ottla.records.compression import compress
from ottla.records.layout import Codec

from ottla.records.record_wire cimport (
    ottla_batch_fields, ottla_field_size, ottla_record_body_size, ottla_seal, ottla_write_field, ottla_write_record,
)
from ottla.records.wire cimport (
    OTTLA_APPEND_TIME_BIT, OTTLA_CONTROL_BIT, OTTLA_HEADER_BYTES, OTTLA_TRANSACTIONAL_BIT, ottla_sub64,
    ottla_varint_size,
)

cdef size_t BATCH_BYTES_MAX = INT32_MAX


@cython.final
cdef class BatchBuilder:
    """Collects records for one batch. `build` leaves the builder as it is; make a new one for the next batch."""

    cdef uint8_t* _data
    cdef size_t _size
    cdef size_t _room
    cdef ottla_batch_fields _fields
    cdef int64_t _next_delta
    cdef object _codec
    cdef object _level

    def __cinit__(
        self,
        *,
        codec=Codec.NONE,
        level=None,
        int timestamp_type=0,
        int64_t producer_id=-1,
        int16_t producer_epoch=-1,
        int32_t base_sequence=-1,
        bint transactional=False,
        bint control=False,
        int64_t base_offset=0,
        int32_t leader_epoch=-1,
    ):
        self._codec = Codec(codec)
        self._level = level
        self._size = OTTLA_HEADER_BYTES
        self._fields.base_offset = base_offset
        self._fields.leader_epoch = leader_epoch
        self._fields.base_timestamp = self._fields.max_timestamp = -1
        self._fields.producer_id = producer_id
        self._fields.producer_epoch = producer_epoch
        self._fields.base_sequence = base_sequence
        self._fields.last_offset_delta = -1
        self._fields.attributes = <int16_t>(
            <int>self._codec
            | (OTTLA_APPEND_TIME_BIT if timestamp_type else 0)
            | (OTTLA_TRANSACTIONAL_BIT if transactional else 0)
            | (OTTLA_CONTROL_BIT if control else 0)
        )

    def __dealloc__(self):
        free(self._data)

    @property
    def count(self):
        return self._fields.count

    @property
    def size_bytes(self):
        return self._size

    def append(self, int64_t timestamp, key, value, headers=(), *, offset_delta=None):
        cdef int64_t delta = self._next_delta if offset_delta is None else offset_delta
        if delta < self._next_delta or delta > INT32_MAX:
            raise MisuseError(
                f"offset delta {delta} after record {self._fields.count}: deltas grow, the next may be"
                f" {self._next_delta} to {INT32_MAX}"
            )
        cdef _Bytes key_bytes = _Bytes(key)
        cdef _Bytes value_bytes = _Bytes(value)
        cdef list packed = _pack_headers(headers) if headers else None
        cdef int32_t header_count = <int32_t>len(packed) // 2 if packed is not None else 0
        cdef size_t headers_size = 0
        cdef _Bytes part
        if packed is not None:
            for part in packed:
                headers_size += ottla_field_size(part.size)
        cdef int64_t since = 0 if self._fields.count == 0 else ottla_sub64(timestamp, self._fields.base_timestamp)
        cdef size_t body = ottla_record_body_size(
            since, <int32_t>delta, key_bytes.size, value_bytes.size, header_count, headers_size
        )
        cdef size_t whole = body + ottla_varint_size(body)
        if whole > BATCH_BYTES_MAX - self._size:
            raise BatchTooLargeError(f"a record of {whole} bytes does not fit: a batch ends at {BATCH_BYTES_MAX} bytes")
        self._reserve(self._size + whole)
        cdef uint8_t* at = ottla_write_record(
            self._data + self._size, body, since, <int32_t>delta, key_bytes.at, key_bytes.size, value_bytes.at,
            value_bytes.size, header_count,
        )
        if packed is not None:
            for part in packed:
                at = ottla_write_field(at, part.at, part.size)
        self._size += whole
        if self._fields.count == 0:
            self._fields.base_timestamp = self._fields.max_timestamp = timestamp
        elif timestamp > self._fields.max_timestamp:
            self._fields.max_timestamp = timestamp
        self._fields.count += 1
        self._fields.last_offset_delta = <int32_t>delta
        self._next_delta = delta + 1
        return self._size

    def build(self, *, producer_id=None, producer_epoch=None, base_sequence=None, last_offset_delta=None):
        cdef ottla_batch_fields fields = self._fields
        if producer_id is not None:
            fields.producer_id = producer_id
        if producer_epoch is not None:
            fields.producer_epoch = producer_epoch
        if base_sequence is not None:
            fields.base_sequence = base_sequence
        if last_offset_delta is not None:
            fields.last_offset_delta = last_offset_delta
            if fields.last_offset_delta < self._fields.last_offset_delta:
                raise MisuseError(
                    f"last offset delta {last_offset_delta} lies before the last record's,"
                    f" {self._fields.last_offset_delta}"
                )
        if fields.last_offset_delta < 0:
            raise MisuseError("the batch is empty; append a record, or give the last offset delta of what was there")
        self._reserve(self._size)
        cdef size_t payload_size = self._size - OTTLA_HEADER_BYTES
        cdef char* payload = <char*>self._data + OTTLA_HEADER_BYTES
        cdef bytes packed
        if self._codec is not Codec.NONE:
            packed = compress(self._codec, PyMemoryView_FromMemory(payload, payload_size, PyBUF_READ), self._level)
            payload = PyBytes_AS_STRING(packed)
            payload_size = PyBytes_GET_SIZE(packed)
            if payload_size > BATCH_BYTES_MAX - OTTLA_HEADER_BYTES:
                raise BatchTooLargeError(f"{payload_size} compressed bytes do not fit into a batch")
        cdef bytes batch = PyBytes_FromStringAndSize(NULL, OTTLA_HEADER_BYTES + payload_size)
        cdef uint8_t* target = <uint8_t*>PyBytes_AS_STRING(batch)
        memcpy(target + OTTLA_HEADER_BYTES, payload, payload_size)
        ottla_seal(target, OTTLA_HEADER_BYTES + payload_size, &fields)
        return batch

    cdef int _reserve(self, size_t size) except -1:
        cdef uint8_t* grown
        cdef size_t room = self._room
        if size <= room:
            return 0
        room = max(size, 2 * room, <size_t>1024)
        grown = <uint8_t*>realloc(self._data, room)
        if grown == NULL:
            raise MemoryError(f"no room for a batch of {size} bytes")
        self._data = grown
        self._room = room
        return 0


# Not for the garbage collector, which would drop the buffer without releasing it.
@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class _Bytes:
    """A field's bytes and size, -1 for null, held as long as this lives."""

    cdef Py_buffer _view
    cdef object _owner
    cdef const uint8_t* at
    cdef int64_t size

    def __cinit__(self, field):
        if field is None:
            self.size = -1
        elif PyBytes_CheckExact(field):
            self._owner = field
            self.at = <const uint8_t*>PyBytes_AS_STRING(field)
            self.size = PyBytes_GET_SIZE(field)
        else:
            PyObject_GetBuffer(field, &self._view, PyBUF_SIMPLE)
            self.at = <const uint8_t*>self._view.buf
            self.size = self._view.len

    def __dealloc__(self):
        PyBuffer_Release(&self._view)


cdef list _pack_headers(headers):
    cdef list packed = []
    for name, value in headers:
        if not isinstance(name, str):
            raise MisuseError(f"a header's key is text, not {type(name).__name__}")
        packed.append(_Bytes((<str>name).encode()))
        packed.append(_Bytes(value))
    return packed


def build_batch(records, *, base_offset=None, last_offset_delta=None, **options):
    cdef BatchBuilder builder = None
    cdef int64_t start = 0
    if base_offset is not None:
        start = base_offset
        builder = BatchBuilder(base_offset=start, **options)
    for record in records:
        if builder is None:
            start = record.offset
            builder = BatchBuilder(base_offset=start, **options)
        builder.append(record.timestamp, record.key, record.value, record.headers, offset_delta=record.offset - start)
    if builder is None:
        builder = BatchBuilder(**options)
    return builder.build(last_offset_delta=last_offset_delta)
