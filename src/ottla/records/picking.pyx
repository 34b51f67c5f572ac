# cython: boundscheck=False, wraparound=False, cdivision=True
"""Batches made of single records that were taken out of other batches, in any order, with edited headers.

A `RecordBlock` holds some records of one batch as bytes, found by their offset. `pick_batch` makes a new batch of
records in several blocks. No record becomes a Python object on the way.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ottla.model.errors import BatchTooLargeError, CorruptBatchError, MisuseError
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, compress
from ottla.records.decode import record_story
from ottla.records.layout import Codec
from ottla.records.payload import read_payload
from ottla.records.record import Record

from ottla.records.decode cimport field_of, headers_of
from ottla.records.header_edit cimport (
    Edit, HeaderNames, ottla_edit_walk, ottla_fields_end, ottla_fields_start, ottla_headers, ottla_measure_picked,
    ottla_next_record, ottla_picked, ottla_write_picked,
)
from ottla.records.record_wire cimport (
    OTTLA_RECORD_BAD_OFFSET, OTTLA_RECORD_BYTES_MIN, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD, OTTLA_RECORD_TRAILING,
    RELEASE_BYTES_MIN, ottla_batch_fields, ottla_read_field, ottla_record, ottla_record_finding, ottla_seal,
)
from ottla.records.wire cimport OTTLA_HEADER_BYTES, ottla_add64

cdef size_t PAYLOAD_BYTES_MAX = INT32_MAX - OTTLA_HEADER_BYTES


ctypedef struct Picking:
    int64_t base_offset, base_timestamp, append_time
    int32_t last_delta
    bint is_append_time
    const int64_t* wanted
    Py_ssize_t wanted_count


@cython.final
cdef class RecordBlock:
    """Some records of a batch, or all of them, as bytes of its own."""

    cdef ottla_picked* _records
    cdef uint8_t* _data
    cdef int64_t _first, _last
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size_bytes

    def __cinit__(self, batch, offsets=None, *, limit=DECOMPRESSED_BYTES_MAX):
        cdef Py_buffer view, wanted
        cdef bint has_wanted = offsets is not None
        PyObject_GetBuffer(read_payload(batch, limit), &view, PyBUF_SIMPLE)
        try:
            if not has_wanted:
                self._fill(batch, &view, NULL, 0)
                return
            PyObject_GetBuffer(offsets, &wanted, PyBUF_SIMPLE)
            try:
                self._fill(batch, &view, <const int64_t*>wanted.buf, wanted.len // <Py_ssize_t>sizeof(int64_t))
            finally:
                PyBuffer_Release(&wanted)
        finally:
            PyBuffer_Release(&view)

    cdef int _fill(self, batch, Py_buffer* view, const int64_t* wanted, Py_ssize_t wanted_count) except -1:
        """Takes the records over; with `wanted`, ascending offsets, only those."""
        cdef ottla_edit_walk walk
        cdef ottla_record_finding finding
        cdef Picking picking
        cdef int32_t count = batch.count
        cdef Py_ssize_t room = count
        cdef size_t total = 0
        picking.base_offset, picking.base_timestamp = batch.base_offset, batch.base_timestamp
        picking.append_time, picking.is_append_time = batch.max_timestamp, batch.timestamp_type == 1
        picking.last_delta = batch.last_offset_delta
        picking.wanted, picking.wanted_count = wanted, wanted_count
        if count < 0 or count > view.len // OTTLA_RECORD_BYTES_MIN:
            index = view.len // OTTLA_RECORD_BYTES_MIN
            raise CorruptBatchError(record_story(OTTLA_RECORD_CUT_OFF, picking.base_offset, index))
        if wanted != NULL and wanted_count < room:
            room = wanted_count
        self._records = <ottla_picked*>malloc((room + 1) * sizeof(ottla_picked))
        if self._records == NULL:
            raise MemoryError(f"no memory for {room} records")
        memset(&walk, 0, sizeof(walk))
        walk.at = <const uint8_t*>view.buf
        walk.end = walk.at + view.len
        walk.count = count
        if view.len < RELEASE_BYTES_MIN:
            finding = self._pick(&walk, &picking, &total)
        else:
            with nogil:
                finding = self._pick(&walk, &picking, &total)
        if finding != OTTLA_RECORD_GOOD:
            raise CorruptBatchError(record_story(finding, picking.base_offset, walk.done))
        self._data = <uint8_t*>malloc(total + 1)
        if self._data == NULL:
            raise MemoryError(f"no memory for {total} bytes of records")
        if total < RELEASE_BYTES_MIN:
            self._copy()
        else:
            with nogil:
                self._copy()
        self.size_bytes = total + room * sizeof(ottla_picked)
        self._first = self._records[0].offset if self.count else -1
        self._last = self._records[self.count - 1].offset if self.count else -1
        return 0

    cdef ottla_record_finding _pick(self, ottla_edit_walk* walk, const Picking* by, size_t* total) noexcept nogil:
        """Notes where the records are: pointers into the batch, which `_copy` moves to the copy when its size is
        known."""
        cdef ottla_record record
        cdef ottla_headers headers
        cdef ottla_record_finding finding
        cdef ottla_picked* picked
        cdef const uint8_t* start
        cdef int64_t offset
        cdef int32_t delta = -1
        cdef Py_ssize_t wanted_at = 0
        while walk.done < walk.count:
            finding = ottla_next_record(walk, &record, &headers)
            if finding != OTTLA_RECORD_GOOD:
                return finding
            if record.offset_delta <= delta or record.offset_delta > by.last_delta:
                return OTTLA_RECORD_BAD_OFFSET
            delta = record.offset_delta
            start = walk.at
            walk.at = record.end
            walk.done += 1
            offset = ottla_add64(by.base_offset, delta)
            if by.wanted != NULL:
                while wanted_at < by.wanted_count and by.wanted[wanted_at] < offset:
                    wanted_at += 1
                if wanted_at == by.wanted_count or by.wanted[wanted_at] != offset:
                    continue
            picked = self._records + self.count
            picked.offset = offset
            picked.timestamp = by.append_time
            if not by.is_append_time:
                picked.timestamp = ottla_add64(by.base_timestamp, record.timestamp_delta)
            picked.fields = ottla_fields_start(start, &record)
            picked.fields_size = <uint32_t>(ottla_fields_end(&record) - picked.fields)
            picked.headers_at = <uint32_t>(headers.at - picked.fields)
            picked.headers_size = <uint32_t>headers.size
            picked.header_count = headers.count
            total[0] += record.end - picked.fields
            self.count += 1
        return OTTLA_RECORD_GOOD if walk.at == walk.end else OTTLA_RECORD_TRAILING

    cdef void _copy(self) noexcept nogil:
        cdef ottla_picked* picked
        cdef Py_ssize_t index
        cdef size_t used = 0
        for index in range(self.count):
            picked = self._records + index
            memcpy(self._data + used, picked.fields, picked.headers_at + picked.headers_size)
            picked.fields = self._data + used
            used += picked.headers_at + picked.headers_size

    def __dealloc__(self):
        free(self._records)
        free(self._data)

    def __len__(self):
        return self.count

    def __contains__(self, int64_t offset):
        return self._find(offset) != NULL

    @property
    def first_offset(self):
        return self._first

    @property
    def last_offset(self):
        return self._last

    def key(self, int64_t offset):
        cdef const ottla_picked* picked = self._get(offset)
        cdef const uint8_t* at
        cdef int32_t size
        ottla_read_field(picked.fields, picked.fields + picked.fields_size, &size, &at)
        return field_of(at, size)

    def record(self, int64_t offset):
        cdef const ottla_picked* picked = self._get(offset)
        cdef const uint8_t* end = picked.fields + picked.fields_size
        cdef const uint8_t* at
        cdef ottla_record record
        at = ottla_read_field(picked.fields, end, &record.key_size, &record.key)
        ottla_read_field(at, end, &record.value_size, &record.value)
        record.headers = picked.fields + picked.headers_at
        record.header_count = picked.header_count
        record.end = record.headers + picked.headers_size
        return Record(
            picked.offset,
            picked.timestamp,
            field_of(record.key, record.key_size),
            field_of(record.value, record.value_size),
            headers_of(&record),
        )

    cdef const ottla_picked* _find(self, int64_t offset) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.count, middle
        if high == 0 or offset < self._first or offset > self._last:
            return NULL
        # Without gaps, which is the usual case, the record lies where its offset says.
        if self._last - self._first == high - 1:
            return self._records + (offset - self._first)
        while low < high:
            middle = (low + high) // 2
            if self._records[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return self._records + low if self._records[low].offset == offset else NULL

    cdef const ottla_picked* _get(self, int64_t offset) except NULL:
        cdef const ottla_picked* picked = self._find(offset)
        if picked == NULL:
            raise MisuseError(f"the block does not have the record of offset {offset}")
        return picked


# Picking


@cython.final
cdef class _Blocks:
    """Blocks in the order of their offsets, searched for many offsets."""

    cdef list _blocks
    cdef int64_t* _lasts
    cdef Py_ssize_t _count
    cdef RecordBlock _found

    def __cinit__(self, blocks):
        cdef int64_t before = -1
        cdef RecordBlock block
        cdef Py_ssize_t index
        self._blocks = [block for block in blocks if block.count]
        self._count = len(self._blocks)
        self._lasts = <int64_t*>malloc(max(self._count, 1) * sizeof(int64_t))
        if self._lasts == NULL:
            raise MemoryError(f"no memory to search {self._count} blocks")
        for index, block in enumerate(self._blocks):
            if block._first <= before:
                raise MisuseError(f"the blocks overlap or are not in order: offset {block._first} follows {before}")
            before = self._lasts[index] = block._last
        self._found = self._blocks[0] if self._blocks else None

    def __dealloc__(self):
        free(self._lasts)

    cdef const ottla_picked* get(self, int64_t offset) except NULL:
        cdef const ottla_picked* picked
        cdef Py_ssize_t low = 0, high = self._count, middle
        if high > 0:
            # The next record is often in the block of the one before.
            picked = self._found._find(offset)
            if picked != NULL:
                return picked
            while low < high:
                middle = (low + high) // 2
                if self._lasts[middle] < offset:
                    low = middle + 1
                else:
                    high = middle
            if low < self._count:
                self._found = <RecordBlock>self._blocks[low]
                picked = self._found._find(offset)
                if picked != NULL:
                    return picked
        raise MisuseError(f"no block has the record of offset {offset}")


def count_fitting(blocks, offsets, Py_ssize_t bytes_max, Py_ssize_t added_bytes=0):
    cdef _Blocks found = _Blocks(blocks)
    cdef Py_buffer wanted
    cdef const ottla_picked* picked
    cdef Py_ssize_t size = OTTLA_HEADER_BYTES, at = 0
    PyObject_GetBuffer(offsets, &wanted, PyBUF_SIMPLE)
    try:
        while at < wanted.len // <Py_ssize_t>sizeof(int64_t):
            picked = found.get((<const int64_t*>wanted.buf)[at])
            # Length, attributes, timestamp, offset and count of headers take 26 bytes at most.
            size += picked.fields_size + picked.headers_size + added_bytes + 26
            if size > bytes_max:
                break
            at += 1
    finally:
        PyBuffer_Release(&wanted)
    return at


def pick_batch(
    blocks,
    offsets,
    *,
    HeaderNames drop not None,
    stamps=(),
    added=None,
    codec=Codec.NONE,
    level=None,
    int64_t producer_id=-1,
    int16_t producer_epoch=-1,
    int32_t base_sequence=-1,
):
    cdef Py_buffer wanted
    cdef const ottla_picked** picked = NULL
    cdef ottla_batch_fields fields
    cdef bytearray result
    cdef Py_ssize_t count
    cdef uint8_t* target
    cdef size_t size
    codec = Codec(codec)
    PyObject_GetBuffer(offsets, &wanted, PyBUF_SIMPLE)
    try:
        count = wanted.len // <Py_ssize_t>sizeof(int64_t)
        if count < 1 or count > INT32_MAX:
            raise MisuseError(f"a batch of {count} records cannot be built")
        edit = Edit(drop, stamps, added, count)
        picked = <const ottla_picked**>malloc(count * sizeof(void*))
        if picked == NULL:
            raise MemoryError(f"no memory to build a batch of {count} records")
        _gather(_Blocks(blocks), <const int64_t*>wanted.buf, count, picked)
        memset(&fields, 0, sizeof(fields))
        size = ottla_measure_picked(picked, count, &(<Edit>edit).edit, &fields)
        if size > PAYLOAD_BYTES_MAX:
            raise BatchTooLargeError(f"{count} records of {size} bytes do not fit into a batch")
        result = PyByteArray_FromStringAndSize(NULL, OTTLA_HEADER_BYTES + size)
        target = <uint8_t*>PyByteArray_AS_STRING(result) + OTTLA_HEADER_BYTES
        if size < RELEASE_BYTES_MIN:
            ottla_write_picked(target, picked, count, fields.base_timestamp, &(<Edit>edit).edit)
        else:
            with nogil:
                ottla_write_picked(target, picked, count, fields.base_timestamp, &(<Edit>edit).edit)
    finally:
        free(<void*>picked)
        PyBuffer_Release(&wanted)
    if codec is not Codec.NONE:
        with memoryview(result) as whole:
            packed = compress(codec, whole[OTTLA_HEADER_BYTES:], level)
        if <size_t>len(packed) > PAYLOAD_BYTES_MAX:
            raise BatchTooLargeError(f"{len(packed)} compressed bytes do not fit into a batch")
        result = bytearray(OTTLA_HEADER_BYTES)
        result += packed
    fields.attributes = <int16_t><int>codec
    fields.leader_epoch = -1
    fields.producer_id = producer_id
    fields.producer_epoch = producer_epoch
    fields.base_sequence = base_sequence
    ottla_seal(<uint8_t*>PyByteArray_AS_STRING(result), len(result), &fields)
    return result


cdef int _gather(_Blocks blocks, const int64_t* offsets, Py_ssize_t count, const ottla_picked** picked) except -1:
    cdef Py_ssize_t index
    for index in range(count):
        picked[index] = blocks.get(offsets[index])
    return 0
