# cython: boundscheck=False, wraparound=False, cdivision=True
"""The compaction kernel: the map from key to last offset, and batches without the records that it supersedes.

Covers what must look at single records, without the GIL and without a Python object for any of them. Which batches are
asked about, and what becomes of markers, aborted transactions and segments, is decided in `storage`. The walks over
records are in `compaction.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from ottla.model.errors import CorruptBatchError, MisuseError
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.records.compression import compress, decompress
from ottla.records.decode import record_story
from ottla.records.layout import Codec

from ottla.records.record_wire cimport (
    OTTLA_RECORD_BYTES_MIN, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD, ottla_batch_fields, ottla_record_finding,
    ottla_seal,
)
from ottla.records.wire cimport OTTLA_CODEC_BITS, OTTLA_DELETE_HORIZON_BIT, OTTLA_HEADER_BYTES, ottla_add64, ottla_sub64

cdef extern from "ottla/records/compaction.h" nogil:
    ctypedef enum ottla_map_finding:
        OTTLA_MAP_GOOD, OTTLA_MAP_FULL, OTTLA_MAP_NO_MEMORY
    enum:
        OTTLA_GROWTH, OTTLA_SHIFT_GROWTH_BYTES
    ctypedef struct ottla_digest:
        uint64_t low, high
    ctypedef struct ottla_slot:
        int64_t mark
    ctypedef struct ottla_offset_map:
        ottla_slot* slots
        size_t slot_count, slot_max, used, used_max
        uint64_t secret[2]
    ctypedef struct ottla_walk:
        const uint8_t* at
        const uint8_t* end
        int64_t base_offset
        int32_t count, last_delta, done, delta
    ctypedef struct ottla_rules:
        const ottla_offset_map* map
        int64_t end_offset
        int tombstones_go
    ctypedef struct ottla_selection:
        uint8_t* keeps
        int32_t kept
        int tombstones
        int64_t delta_max
        size_t bytes
    uint64_t ottla_load_le(const uint8_t* at, size_t size)
    ottla_digest ottla_digest_of(const uint64_t* secret, const uint8_t* at, size_t size)
    ottla_slot* ottla_find_slot(const ottla_offset_map* map, ottla_digest digest)
    ottla_record_finding ottla_map_records(ottla_offset_map* map, ottla_walk* walk, int64_t start_offset,
                                           int64_t* reached, ottla_map_finding* outcome)
    ottla_record_finding ottla_select_records(const ottla_rules* rules, ottla_walk* walk, ottla_selection* selection)
    uint8_t* ottla_copy_selected(uint8_t* to, const uint8_t* at, const uint8_t* end, const uint8_t* keeps)
    uint8_t* ottla_shift_selected(uint8_t* to, const uint8_t* at, const uint8_t* end, const uint8_t* keeps, int64_t shift)

cdef enum:
    SLOTS_MIN = 16
    SLOTS_AT_FIRST = 4096
    # Sixteen bytes of digest, eight of offset.
    SLOT_BYTES = 24


@cython.final
cdef class OffsetMap:
    """The last offset of each key."""

    cdef ottla_offset_map _map

    def __cinit__(self, Py_ssize_t memory_bytes, bytes hash_key, double load_factor=0.9):
        if len(hash_key) != 16:
            raise MisuseError(f"a hash key has 16 bytes, not {len(hash_key)}")
        if not 0 < load_factor <= 1:
            raise MisuseError(f"load factor {load_factor} is not above 0 and at most 1")
        # While the last growth lasts there are two tables, the old a quarter of the new one.
        cdef Py_ssize_t slots = memory_bytes // SLOT_BYTES * OTTLA_GROWTH // (OTTLA_GROWTH + 1)
        if slots < SLOTS_MIN:
            raise MisuseError(f"{memory_bytes} bytes are too few for an offset map; give it a kilobyte at least")
        cdef Py_ssize_t at_first = slots
        while at_first > SLOTS_AT_FIRST:
            at_first = (at_first + OTTLA_GROWTH - 1) // OTTLA_GROWTH
        self._map.slots = <ottla_slot*>calloc(at_first, sizeof(ottla_slot))
        if self._map.slots == NULL:
            raise MemoryError(f"no memory for an offset map of {at_first} slots")
        self._map.slot_count = at_first
        self._map.slot_max = slots
        self._map.used_max = max(1, min(slots - 1, <Py_ssize_t>(slots * load_factor)))
        self._map.secret[0] = ottla_load_le(<const uint8_t*>PyBytes_AS_STRING(hash_key), 8)
        self._map.secret[1] = ottla_load_le(<const uint8_t*>PyBytes_AS_STRING(hash_key) + 8, 8)

    def __dealloc__(self):
        free(self._map.slots)

    def __len__(self):
        return self._map.used

    @property
    def capacity(self):
        return self._map.used_max

    def add(self, batch, int64_t start_offset):
        cdef ottla_walk walk
        cdef ottla_record_finding finding
        cdef ottla_map_finding outcome = OTTLA_MAP_GOOD
        cdef int64_t reached = batch.next_offset
        cdef Py_buffer view
        if not _begin(batch, &walk, &view):
            return reached
        try:
            with nogil:
                finding = ottla_map_records(&self._map, &walk, start_offset, &reached, &outcome)
        finally:
            PyBuffer_Release(&view)
        if finding != OTTLA_RECORD_GOOD:
            raise CorruptBatchError(record_story(finding, walk.base_offset, walk.done))
        if outcome == OTTLA_MAP_NO_MEMORY:
            raise MemoryError("no memory for a larger offset map; give the cleaner a smaller one")
        return reached

    def get(self, bytes key):
        cdef ottla_digest digest = ottla_digest_of(
            self._map.secret, <const uint8_t*>PyBytes_AS_STRING(key), len(key)
        )
        return ottla_find_slot(&self._map, digest).mark - 1


def key_digest(bytes key, bytes hash_key):
    if len(hash_key) != 16:
        raise MisuseError(f"a hash key has 16 bytes, not {len(hash_key)}")
    cdef uint64_t[2] secret
    secret[0] = ottla_load_le(<const uint8_t*>PyBytes_AS_STRING(hash_key), 8)
    secret[1] = ottla_load_le(<const uint8_t*>PyBytes_AS_STRING(hash_key) + 8, 8)
    cdef ottla_digest digest = ottla_digest_of(secret, <const uint8_t*>PyBytes_AS_STRING(key), len(key))
    return digest.low.to_bytes(8, "little") + digest.high.to_bytes(8, "little")


cdef bint _begin(batch, ottla_walk* walk, Py_buffer* view) except -1:
    """Decompresses a batch's records and starts a walk over them; False, and no buffer to release, if it has none."""
    memset(walk, 0, sizeof(ottla_walk))
    walk.base_offset = batch.base_offset
    walk.count = batch.count
    walk.last_delta = batch.last_offset_delta
    walk.delta = -1
    if walk.count == 0 and batch.size_bytes == OTTLA_HEADER_BYTES:
        return False
    payload = decompress(batch.codec, batch.payload)
    PyObject_GetBuffer(payload, view, PyBUF_SIMPLE)
    if walk.count < 0 or walk.count > view.len // OTTLA_RECORD_BYTES_MIN:
        count = view.len // OTTLA_RECORD_BYTES_MIN
        PyBuffer_Release(view)
        raise CorruptBatchError(record_story(OTTLA_RECORD_CUT_OFF, walk.base_offset, count))
    walk.at = <const uint8_t*>view.buf
    walk.end = walk.at + view.len
    return True


cdef bytes _rebuilt(batch, const ottla_walk* walk, const ottla_selection* selection, horizon, level):
    """The batch with the selected records only; with a horizon, that becomes the base timestamp."""
    cdef ottla_batch_fields fields
    cdef int64_t shift = 0
    cdef uint8_t* payload
    cdef size_t room = selection.bytes
    cdef Py_ssize_t size = 0
    _copy_fields(batch, &fields)
    fields.count = selection.kept
    if not batch.timestamp_type and fields.producer_id < QUEUE_PRODUCER_BIT:  # Deliveries count from their append.
        fields.max_timestamp = ottla_add64(fields.base_timestamp, selection.delta_max)
    if horizon is not None:
        shift = ottla_sub64(fields.base_timestamp, horizon)
        fields.base_timestamp = horizon
        fields.attributes |= OTTLA_DELETE_HORIZON_BIT
        room += <size_t>selection.kept * OTTLA_SHIFT_GROWTH_BYTES
    cdef bytes result = PyBytes_FromStringAndSize(NULL, OTTLA_HEADER_BYTES + room)
    payload = <uint8_t*>PyBytes_AS_STRING(result) + OTTLA_HEADER_BYTES
    with nogil:
        if shift:
            size = ottla_shift_selected(payload, walk.at, walk.end, selection.keeps, shift) - payload
        else:
            size = ottla_copy_selected(payload, walk.at, walk.end, selection.keeps) - payload
    codec = batch.codec
    if codec != 0:
        result = bytes(OTTLA_HEADER_BYTES) + compress(
            Codec(codec), memoryview(result)[OTTLA_HEADER_BYTES : OTTLA_HEADER_BYTES + size], level
        )
    elif <size_t>size < room:
        result = result[: OTTLA_HEADER_BYTES + size]
    ottla_seal(<uint8_t*>PyBytes_AS_STRING(result), len(result), &fields)
    return result


cdef int _copy_fields(batch, ottla_batch_fields* fields) except -1:
    fields.base_offset = batch.base_offset
    fields.base_timestamp = batch.base_timestamp
    fields.max_timestamp = batch.max_timestamp
    fields.producer_id = batch.producer_id
    fields.leader_epoch = batch.leader_epoch
    fields.last_offset_delta = batch.last_offset_delta
    fields.base_sequence = batch.base_sequence
    fields.count = batch.count
    fields.attributes = batch.attributes
    fields.producer_epoch = batch.producer_epoch
    return 0


def compact_batch(batch, OffsetMap offset_map not None, *, int64_t end_offset, int64_t now, int64_t horizon, level=None):
    cdef ottla_rules rules
    rules.map = &offset_map._map
    rules.end_offset = end_offset
    rules.tombstones_go = batch.has_delete_horizon and now >= batch.delete_horizon
    may_stamp = not batch.has_delete_horizon and batch.last_offset < end_offset
    return _selected(batch, &rules, horizon if may_stamp else None, False, level)


def stamp_horizon(batch, int64_t horizon, level=None):
    cdef ottla_rules rules
    # Every record lies at or behind offset zero, where nothing is asked of the map: all stay.
    rules.map = NULL
    rules.end_offset = 0
    rules.tombstones_go = False
    kept, stamped = _selected(batch, &rules, horizon, True, level)
    if stamped is None:
        raise MisuseError(f"batch with base offset {batch.base_offset} has no records that could be deleted")
    return stamped


cdef tuple _selected(batch, const ottla_rules* rules, horizon, bint always_stamp, level):
    """How many records stay by the rules, and the batch rebuilt; None for that if it stays as it is, or empty.

    The horizon, unless None, is stamped if a tombstone stays, or always.
    """
    cdef ottla_walk walk, start
    cdef ottla_selection selection
    cdef ottla_record_finding finding
    cdef Py_buffer view
    if not _begin(batch, &walk, &view):
        return 0, None
    start = walk
    memset(&selection, 0, sizeof(selection))
    try:
        selection.keeps = <uint8_t*>malloc(walk.count + 1)
        if selection.keeps == NULL:
            raise MemoryError(f"no memory to look at {walk.count} records")
        with nogil:
            finding = ottla_select_records(rules, &walk, &selection)
        if finding != OTTLA_RECORD_GOOD:
            raise CorruptBatchError(record_story(finding, walk.base_offset, walk.done))
        stamp = horizon if selection.tombstones or always_stamp else None
        if selection.kept == 0 or (selection.kept == walk.count and stamp is None):
            return selection.kept, None
        return selection.kept, _rebuilt(batch, &start, &selection, stamp, level)
    finally:
        free(selection.keeps)
        PyBuffer_Release(&view)


def empty_batch(batch):
    cdef ottla_batch_fields fields
    cdef bytes result = bytes(OTTLA_HEADER_BYTES)
    _copy_fields(batch, &fields)
    fields.base_timestamp = -1
    fields.count = 0
    fields.attributes &= ~(OTTLA_CODEC_BITS | OTTLA_DELETE_HORIZON_BIT)
    ottla_seal(<uint8_t*>PyBytes_AS_STRING(result), OTTLA_HEADER_BYTES, &fields)
    return result
