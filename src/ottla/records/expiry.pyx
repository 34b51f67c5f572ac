# cython: boundscheck=False, wraparound=False, cdivision=True
"""The expiry kernel: when the records of a batch expire, and the batch without those that have.

Only topics with a TTL are looked into. Which batches are asked about is decided in `queues`. The walk over records is in
`expiry.h`.
"""

from array import array

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ottla.model.errors import CorruptBatchError
from ottla.model.queue_names import DUE_MS, TTL_MS
from ottla.records.compression import compress
from ottla.records.decode import record_story
from ottla.records.layout import Codec
from ottla.records.payload import read_payload

from ottla.records.record_wire cimport (
    OTTLA_RECORD_BYTES_MIN, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD, ottla_batch_fields, ottla_record_finding,
    ottla_seal,
)
from ottla.records.wire cimport OTTLA_HEADER_BYTES, ottla_add64

cdef extern from "ottla/records/expiry.h" nogil:
    const int64_t OTTLA_NEVER
    ctypedef struct ottla_header_name:
        const char* name
        int32_t size
    ctypedef struct ottla_expiry_rule:
        ottla_header_name ttl, due
        int64_t ttl_ms, base_timestamp, append_time
    ctypedef struct ottla_expiry_walk:
        const uint8_t* at
        const uint8_t* end
        int32_t count, last_delta, done, delta
    ctypedef struct ottla_selection:
        uint8_t* keeps
        int32_t kept
        int64_t delta_max
        size_t bytes
    ottla_record_finding ottla_walk_expiries(const ottla_expiry_rule* rule, ottla_expiry_walk* walk, int64_t* expiries,
                                             int32_t* deltas, int64_t* bounds)
    ottla_record_finding ottla_select_unexpired(const ottla_expiry_rule* rule, ottla_expiry_walk* walk, int64_t now,
                                                ottla_selection* selection, int32_t* last_kept)
    uint8_t* ottla_copy_selected(uint8_t* to, const uint8_t* at, const uint8_t* end, const uint8_t* keeps)

NEVER = OTTLA_NEVER
NO_TTL = -1

cdef bytes _ttl_name = TTL_MS.encode()
cdef bytes _due_name = DUE_MS.encode()


cdef bint _begin(
    batch, int64_t ttl_ms, ottla_expiry_rule* rule, ottla_expiry_walk* walk, Py_buffer* view
) except -1:
    """Starts a walk over the batch's records; False, and no buffer to release, if none of them can expire."""
    if batch.is_control or (batch.count == 0 and batch.size_bytes == OTTLA_HEADER_BYTES):
        return False
    rule.ttl.name, rule.ttl.size = PyBytes_AS_STRING(_ttl_name), <int32_t>len(_ttl_name)
    rule.due.name, rule.due.size = PyBytes_AS_STRING(_due_name), <int32_t>len(_due_name)
    rule.ttl_ms = ttl_ms
    rule.base_timestamp = batch.base_timestamp
    rule.append_time = batch.max_timestamp if batch.timestamp_type else -1
    memset(walk, 0, sizeof(ottla_expiry_walk))
    walk.count = batch.count
    walk.last_delta = batch.last_offset_delta
    walk.delta = -1
    PyObject_GetBuffer(read_payload(batch), view, PyBUF_SIMPLE)
    if walk.count < 0 or walk.count > view.len // OTTLA_RECORD_BYTES_MIN:
        count = view.len // OTTLA_RECORD_BYTES_MIN
        PyBuffer_Release(view)
        raise CorruptBatchError(record_story(OTTLA_RECORD_CUT_OFF, batch.base_offset, count))
    walk.at = <const uint8_t*>view.buf
    walk.end = walk.at + view.len
    return True


def expiry_bounds(batch, int64_t ttl_ms):
    cdef ottla_expiry_rule rule
    cdef ottla_expiry_walk walk
    cdef ottla_record_finding finding
    cdef Py_buffer view
    cdef int64_t[2] bounds
    if not _begin(batch, ttl_ms, &rule, &walk, &view):
        return NEVER, NEVER
    try:
        with nogil:
            finding = ottla_walk_expiries(&rule, &walk, NULL, NULL, bounds)
    finally:
        PyBuffer_Release(&view)
    if finding != OTTLA_RECORD_GOOD:
        raise CorruptBatchError(record_story(finding, batch.base_offset, walk.done))
    return bounds[0], bounds[1]


def expiries(batch, int64_t ttl_ms):
    cdef ottla_expiry_rule rule
    cdef ottla_expiry_walk walk
    cdef ottla_record_finding finding
    cdef Py_buffer view
    cdef int64_t[2] bounds
    cdef int64_t* whens = NULL
    cdef int32_t* deltas = NULL
    cdef int64_t base_offset = batch.base_offset
    cdef Py_ssize_t index, filled = 0
    cdef int64_t[::1] pairs
    if not _begin(batch, ttl_ms, &rule, &walk, &view):
        return array("q")
    try:
        whens = <int64_t*>malloc((walk.count + 1) * sizeof(int64_t))
        deltas = <int32_t*>malloc((walk.count + 1) * sizeof(int32_t))
        if whens == NULL or deltas == NULL:
            raise MemoryError(f"no memory to look at {walk.count} records")
        with nogil:
            finding = ottla_walk_expiries(&rule, &walk, whens, deltas, bounds)
        if finding != OTTLA_RECORD_GOOD:
            raise CorruptBatchError(record_story(finding, base_offset, walk.done))
        if bounds[0] == OTTLA_NEVER:
            return array("q")
        result = array("q", bytes(16 * walk.count))
        pairs = result
        for index in range(walk.count):
            if whens[index] != OTTLA_NEVER:
                pairs[2 * filled] = whens[index]
                pairs[2 * filled + 1] = ottla_add64(base_offset, deltas[index])
                filled += 1
        pairs = None
        return result if filled == walk.count else result[: 2 * filled]
    finally:
        free(whens)
        free(deltas)
        PyBuffer_Release(&view)


def drop_expired(batch, int64_t ttl_ms, int64_t now, level=None):
    cdef ottla_expiry_rule rule
    cdef ottla_expiry_walk walk, start
    cdef ottla_record_finding finding
    cdef ottla_selection selection
    cdef ottla_batch_fields fields
    cdef Py_buffer view
    cdef int32_t last_kept = 0
    cdef bytes result
    cdef uint8_t* payload
    if not _begin(batch, ttl_ms, &rule, &walk, &view):
        return batch.count, None
    start = walk
    memset(&selection, 0, sizeof(selection))
    try:
        selection.keeps = <uint8_t*>malloc(walk.count + 1)
        if selection.keeps == NULL:
            raise MemoryError(f"no memory to look at {walk.count} records")
        with nogil:
            finding = ottla_select_unexpired(&rule, &walk, now, &selection, &last_kept)
        if finding != OTTLA_RECORD_GOOD:
            raise CorruptBatchError(record_story(finding, batch.base_offset, walk.done))
        if selection.kept == 0 or selection.kept == walk.count:
            return selection.kept, None
        result = PyBytes_FromStringAndSize(NULL, OTTLA_HEADER_BYTES + selection.bytes)
        payload = <uint8_t*>PyBytes_AS_STRING(result) + OTTLA_HEADER_BYTES
        with nogil:
            ottla_copy_selected(payload, start.at, start.end, selection.keeps)
    finally:
        free(selection.keeps)
        PyBuffer_Release(&view)
    if batch.codec != 0:
        result = bytes(OTTLA_HEADER_BYTES) + compress(Codec(batch.codec), memoryview(result)[OTTLA_HEADER_BYTES:], level)
    fields.base_offset = batch.base_offset
    fields.base_timestamp = batch.base_timestamp
    fields.max_timestamp = batch.max_timestamp
    fields.producer_id = batch.producer_id
    fields.leader_epoch = batch.leader_epoch
    fields.last_offset_delta = last_kept
    fields.base_sequence = batch.base_sequence
    fields.count = selection.kept
    fields.attributes = batch.attributes
    fields.producer_epoch = batch.producer_epoch
    if not batch.timestamp_type:
        fields.max_timestamp = ottla_add64(fields.base_timestamp, selection.delta_max)
    ottla_seal(<uint8_t*>PyBytes_AS_STRING(result), len(result), &fields)
    return selection.kept, result
