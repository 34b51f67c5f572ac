# cython: boundscheck=False, wraparound=False, cdivision=True
"""The batch view: one whole record batch inside a buffer, its header fields read in place.

Covers looking at batches, checking them, walking over many of them, and the stamps that may be written into one. Of
the records inside only `passes` reads anything: `survey`, `columns` and `decode` do that, and `builder` makes new
batches. The header's layout is in `layout.py`, its bytes are handled in `wire.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from ottla.model.errors import CorruptBatchError, MisuseError

from ottla.records.compressed_frames cimport decompressed_bytes_max
from ottla.records.record_wire cimport OTTLA_RECORD_GOOD, RELEASE_BYTES_MIN, ottla_survey, ottla_survey_records
from ottla.records.wire cimport (
    OTTLA_APPEND_TIME_BIT, OTTLA_ATTRIBUTES_AT, OTTLA_BAD_COUNT, OTTLA_BAD_CRC, OTTLA_BAD_LENGTH, OTTLA_BAD_MAGIC,
    OTTLA_BASE_SEQUENCE_AT, OTTLA_BASE_TIMESTAMP_AT, OTTLA_CODEC_BITS, OTTLA_CONTROL_BIT, OTTLA_COUNT_AT, OTTLA_CRC_AT,
    OTTLA_CUT_OFF, OTTLA_DELETE_HORIZON_BIT, OTTLA_HEADER_BYTES, OTTLA_LAST_OFFSET_DELTA_AT, OTTLA_LEADER_EPOCH_AT,
    OTTLA_LENGTH_AT, OTTLA_MAGIC_AT, OTTLA_MAX_TIMESTAMP_AT, OTTLA_PRODUCER_EPOCH_AT, OTTLA_PRODUCER_ID_AT,
    OTTLA_TRANSACTIONAL_BIT, OTTLA_WHOLE, ottla_add64, ottla_batch_crc, ottla_check_batch, ottla_crc32c,
    ottla_crc32c_by_instruction, ottla_crc32c_by_table, ottla_finding, ottla_get16, ottla_get32, ottla_get64,
    ottla_last_offset, ottla_look, ottla_overwrite, ottla_put16, ottla_put32, ottla_put64,
)

# Not for the garbage collector: clearing a view in a dead cycle would drop its buffer without releasing it, and a
# buffer leads to no cycle of its own.
@cython.no_gc
@cython.freelist(256)
@cython.final
cdef class Batch:
    """A zero-copy view of one whole batch in a buffer (bytes, bytearray, memoryview, mmap).

    It keeps the buffer alive, and a bytearray from being resized, for as long as it lives. Fields are read from the
    buffer at each access, so a stamp, through this view or around it, shows at once.
    """

    cdef Py_buffer _view
    cdef object _source
    cdef uint8_t* _at
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t size_bytes
    cdef public object unpacked
    cdef public object verdict

    def __cinit__(self, buffer, Py_ssize_t position=0):
        cdef size_t size = 0
        cdef ottla_finding finding
        PyObject_GetBuffer(buffer, &self._view, PyBUF_SIMPLE)
        if position < 0:
            raise MisuseError(f"position {position} is negative; a batch starts inside the buffer")
        self._source = buffer
        self.position = position
        if position >= self._view.len:
            raise CorruptBatchError(_story(OTTLA_CUT_OFF, NULL, 0, position))
        self._at = <uint8_t*>self._view.buf + position
        finding = ottla_look(self._at, self._view.len - position, &size)
        if finding != OTTLA_WHOLE:
            raise CorruptBatchError(_story(finding, self._at, self._view.len - position, position))
        self.size_bytes = <Py_ssize_t>size

    def __dealloc__(self):
        PyBuffer_Release(&self._view)

    def __repr__(self):
        return (
            f"<Batch offsets {self.base_offset}-{self.last_offset}, {self.count} records, {self.size_bytes} bytes"
            f" at position {self.position}>"
        )

    @property
    def base_offset(self):
        return <int64_t>ottla_get64(self._at)

    @property
    def leader_epoch(self):
        return <int32_t>ottla_get32(self._at + OTTLA_LEADER_EPOCH_AT)

    @property
    def magic(self):
        return self._at[OTTLA_MAGIC_AT]

    @property
    def crc(self):
        return ottla_get32(self._at + OTTLA_CRC_AT)

    @property
    def attributes(self):
        return <int16_t>ottla_get16(self._at + OTTLA_ATTRIBUTES_AT)

    @property
    def last_offset_delta(self):
        return <int32_t>ottla_get32(self._at + OTTLA_LAST_OFFSET_DELTA_AT)

    @property
    def last_offset(self):
        return ottla_last_offset(self._at)

    @property
    def next_offset(self):
        return ottla_add64(ottla_last_offset(self._at), 1)

    @property
    def base_timestamp(self):
        return <int64_t>ottla_get64(self._at + OTTLA_BASE_TIMESTAMP_AT)

    @property
    def max_timestamp(self):
        return <int64_t>ottla_get64(self._at + OTTLA_MAX_TIMESTAMP_AT)

    @property
    def producer_id(self):
        return <int64_t>ottla_get64(self._at + OTTLA_PRODUCER_ID_AT)

    @property
    def producer_epoch(self):
        return <int16_t>ottla_get16(self._at + OTTLA_PRODUCER_EPOCH_AT)

    @property
    def base_sequence(self):
        return <int32_t>ottla_get32(self._at + OTTLA_BASE_SEQUENCE_AT)

    @property
    def last_sequence(self):
        cdef int64_t base = <int32_t>ottla_get32(self._at + OTTLA_BASE_SEQUENCE_AT)
        cdef int64_t delta = <int32_t>ottla_get32(self._at + OTTLA_LAST_OFFSET_DELTA_AT)
        if base < 0:
            return -1
        return (base + delta) & 0x7FFFFFFF

    @property
    def count(self):
        return <int32_t>ottla_get32(self._at + OTTLA_COUNT_AT)

    cdef inline bint _has(self, int bit) noexcept:
        return (ottla_get16(self._at + OTTLA_ATTRIBUTES_AT) & bit) != 0

    @property
    def codec(self):
        return ottla_get16(self._at + OTTLA_ATTRIBUTES_AT) & OTTLA_CODEC_BITS

    @property
    def timestamp_type(self):
        return 1 if self._has(OTTLA_APPEND_TIME_BIT) else 0

    @property
    def is_transactional(self):
        return self._has(OTTLA_TRANSACTIONAL_BIT)

    @property
    def is_control(self):
        return self._has(OTTLA_CONTROL_BIT)

    @property
    def has_producer_id(self):
        return <int64_t>ottla_get64(self._at + OTTLA_PRODUCER_ID_AT) >= 0

    @property
    def has_delete_horizon(self):
        return self._has(OTTLA_DELETE_HORIZON_BIT)

    @property
    def delete_horizon(self):
        if self._has(OTTLA_DELETE_HORIZON_BIT):
            return <int64_t>ottla_get64(self._at + OTTLA_BASE_TIMESTAMP_AT)
        return -1

    @property
    def buffer(self):
        # Of nearly every batch that a broker writes: it is all that is in its buffer.
        if self.size_bytes == self._view.len and type(self._source) is bytearray:
            return PyMemoryView_FromObject(self._source)
        return _bytes_of(self._source)[self.position : self.position + self.size_bytes]

    @property
    def payload(self):
        return _bytes_of(self._source)[self.position + OTTLA_HEADER_BYTES : self.position + self.size_bytes]

    @property
    def decompressed_bytes_max(self):
        return decompressed_bytes_max(
            ottla_get16(self._at + OTTLA_ATTRIBUTES_AT) & OTTLA_CODEC_BITS,
            self._at + OTTLA_HEADER_BYTES,
            self._at + self.size_bytes,
        )

    def copied(self):
        cdef Batch copy = Batch(bytearray(self.buffer))
        copy.verdict = self.verdict
        return copy

    def crc_valid(self):
        cdef uint32_t actual
        if self.size_bytes < RELEASE_BYTES_MIN:
            actual = ottla_batch_crc(self._at, self.size_bytes)
        else:
            with nogil:
                actual = ottla_batch_crc(self._at, self.size_bytes)
        return actual == ottla_get32(self._at + OTTLA_CRC_AT)

    def check(self):
        cdef ottla_finding finding
        if self.size_bytes < RELEASE_BYTES_MIN:
            finding = ottla_check_batch(self._at, self.size_bytes, True)
        else:
            with nogil:
                finding = ottla_check_batch(self._at, self.size_bytes, True)
        if finding != OTTLA_WHOLE:
            raise CorruptBatchError(_story(finding, self._at, self.size_bytes, self.position))

    def passes(self, Py_ssize_t bytes_max, int64_t oldest, int64_t newest):
        cdef unsigned int attributes = ottla_get16(self._at + OTTLA_ATTRIBUTES_AT)
        cdef int64_t count = <int32_t>ottla_get32(self._at + OTTLA_COUNT_AT)
        cdef int64_t delta = <int32_t>ottla_get32(self._at + OTTLA_LAST_OFFSET_DELTA_AT)
        cdef bint passed
        if self.size_bytes > bytes_max or count <= 0 or count != delta + 1:
            return False
        if attributes & (OTTLA_CONTROL_BIT | OTTLA_APPEND_TIME_BIT | OTTLA_CODEC_BITS):
            return False
        if self.size_bytes < RELEASE_BYTES_MIN:
            passed = self._passes(oldest, newest)
        else:
            with nogil:
                passed = self._passes(oldest, newest)
        return passed

    cdef bint _passes(self, int64_t oldest, int64_t newest) noexcept nogil:
        """Whether checksum, records and the header's largest timestamp are right."""
        cdef ottla_survey survey
        if ottla_check_batch(self._at, self.size_bytes, True) != OTTLA_WHOLE:
            return False
        if ottla_survey_records(
            self._at + OTTLA_HEADER_BYTES,
            self._at + self.size_bytes,
            <int32_t>ottla_get32(self._at + OTTLA_COUNT_AT),
            <int64_t>ottla_get64(self._at + OTTLA_BASE_TIMESTAMP_AT),
            oldest,
            newest,
            &survey,
        ) != OTTLA_RECORD_GOOD:
            return False
        return survey.untimely == 0 and survey.max_timestamp == <int64_t>ottla_get64(self._at + OTTLA_MAX_TIMESTAMP_AT)

    def stamp(self, int64_t base_offset, int32_t leader_epoch):
        self._need_writable()
        ottla_put64(self._at, base_offset)
        ottla_put32(self._at + OTTLA_LEADER_EPOCH_AT, leader_epoch)

    def stamp_append_time(self, int64_t timestamp):
        self._need_writable()
        cdef unsigned int attributes = ottla_get16(self._at + OTTLA_ATTRIBUTES_AT)
        ottla_put16(self._at + OTTLA_ATTRIBUTES_AT, attributes | OTTLA_APPEND_TIME_BIT)
        ottla_put64(self._at + OTTLA_MAX_TIMESTAMP_AT, timestamp)
        ottla_put32(self._at + OTTLA_CRC_AT, ottla_batch_crc(self._at, self.size_bytes))

    def stamp_create_time(self, int64_t max_timestamp):
        cdef uint8_t numbers[8]
        self._need_writable()
        ottla_put16(numbers, ottla_get16(self._at + OTTLA_ATTRIBUTES_AT) & ~OTTLA_APPEND_TIME_BIT)
        ottla_overwrite(self._at, self.size_bytes, OTTLA_ATTRIBUTES_AT, numbers, 2)
        ottla_put64(numbers, max_timestamp)
        ottla_overwrite(self._at, self.size_bytes, OTTLA_MAX_TIMESTAMP_AT, numbers, sizeof(numbers))

    def stamp_producer(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
        cdef uint8_t numbers[14]
        self._need_writable()
        ottla_put64(numbers, producer_id)
        ottla_put16(numbers + OTTLA_PRODUCER_EPOCH_AT - OTTLA_PRODUCER_ID_AT, producer_epoch)
        ottla_put32(numbers + OTTLA_BASE_SEQUENCE_AT - OTTLA_PRODUCER_ID_AT, base_sequence)
        ottla_overwrite(self._at, self.size_bytes, OTTLA_PRODUCER_ID_AT, numbers, sizeof(numbers))

    cdef _need_writable(self):
        if self._view.readonly:
            raise MisuseError(
                f"the batch at position {self.position} lies in a read-only buffer and cannot be stamped;"
                " pass a bytearray or a writable memoryview"
            )


cdef object _bytes_of(source):
    """A memoryview of single bytes, whatever items the source's own view has."""
    view = PyMemoryView_FromObject(source)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


cdef str _story(ottla_finding finding, const uint8_t* at, size_t room, Py_ssize_t position):
    """What is wrong with the batch at a position, as a sentence."""
    if finding == OTTLA_CUT_OFF:
        if room < OTTLA_HEADER_BYTES:
            return (
                f"batch at position {position} is cut off: {room} bytes left,"
                f" its header alone takes {OTTLA_HEADER_BYTES}"
            )
        return (
            f"batch with base offset {<int64_t>ottla_get64(at)} at position {position} is cut off: it says"
            f" {<int64_t>ottla_get32(at + OTTLA_LENGTH_AT) + 12} bytes, {room} are left"
        )
    cdef str where = f"batch with base offset {<int64_t>ottla_get64(at)} at position {position}"
    if finding == OTTLA_BAD_LENGTH:
        return f"{where} has length {<int32_t>ottla_get32(at + OTTLA_LENGTH_AT)}, a header alone needs 49"
    if finding == OTTLA_BAD_MAGIC:
        return f"{where} has magic {at[OTTLA_MAGIC_AT]}, only 2 is known"
    if finding == OTTLA_BAD_CRC:
        return (
            f"{where} fails its checksum: the header says {ottla_get32(at + OTTLA_CRC_AT):#010x},"
            f" its bytes give {ottla_batch_crc(at, room):#010x}"
        )
    cdef int32_t delta = <int32_t>ottla_get32(at + OTTLA_LAST_OFFSET_DELTA_AT)
    if finding == OTTLA_BAD_COUNT:
        return f"{where} counts {<int32_t>ottla_get32(at + OTTLA_COUNT_AT)} records, its last offset delta is {delta}"
    return f"{where} has last offset delta {delta}: no such offsets exist"


ctypedef struct Walk:
    Py_ssize_t at, end, found, room
    Py_ssize_t* places
    size_t size
    ottla_finding finding


cdef int _walk(const uint8_t* start, Walk* walk, bint check_crc) noexcept nogil:
    """Notes the places of good batches until something else comes. 0, or -1 without memory."""
    cdef Py_ssize_t* grown
    while walk.at < walk.end:
        walk.finding = ottla_look(start + walk.at, walk.end - walk.at, &walk.size)
        if walk.finding == OTTLA_WHOLE:
            walk.finding = ottla_check_batch(start + walk.at, walk.size, check_crc)
        if walk.finding != OTTLA_WHOLE:
            return 0
        if walk.found == walk.room:
            walk.room = 2 * walk.room + 64
            grown = <Py_ssize_t*>realloc(walk.places, walk.room * sizeof(Py_ssize_t))
            if grown == NULL:
                return -1
            walk.places = grown
        walk.places[walk.found] = walk.at
        walk.found += 1
        walk.at += <Py_ssize_t>walk.size
    return 0


def scan(buffer, Py_ssize_t position=0, *, bint check_crc=True):
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef Walk walk
    cdef Py_ssize_t index
    cdef int failed
    cdef list batches = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    memset(&walk, 0, sizeof(Walk))
    try:
        start = <const uint8_t*>view.buf
        walk.at = position
        walk.end = view.len
        if position < 0 or position > view.len:
            raise MisuseError(f"position {position} lies outside the buffer of {view.len} bytes")
        if view.len - position < RELEASE_BYTES_MIN:
            failed = _walk(start, &walk, check_crc)
        else:
            with nogil:
                failed = _walk(start, &walk, check_crc)
        if failed:
            raise MemoryError(f"no room for the places of {walk.found} batches")
        for index in range(walk.found):
            batches.append(Batch(buffer, walk.places[index]))
        if walk.at == walk.end or walk.finding == OTTLA_CUT_OFF:
            return batches, walk.at, None
        # The checksum in the message needs the batch's own size, which a bad length does not give.
        index = <Py_ssize_t>walk.size if walk.finding >= OTTLA_BAD_CRC else walk.end - walk.at
        return batches, walk.at, _story(walk.finding, start + walk.at, index, walk.at)
    finally:
        free(walk.places)
        PyBuffer_Release(&view)


def spanned(batches):
    cdef Batch first = batches[0], batch
    cdef Py_ssize_t end = first.position
    for batch in batches:
        if batch._source is not first._source or batch.position != end:
            return memoryview(b"".join([each.buffer for each in batches]))
        end += batch.size_bytes
    return _bytes_of(first._source)[first.position : end]


def find_batch(buffer, int64_t offset, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef Py_ssize_t end, at = position
    cdef size_t size = 0
    cdef ottla_finding finding = OTTLA_CUT_OFF
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        end = view.len
        if position < 0 or position > end:
            raise MisuseError(f"position {position} lies outside the buffer of {end} bytes")
        while at < end:
            finding = ottla_look(start + at, end - at, &size)
            if finding != OTTLA_WHOLE:
                break
            if ottla_last_offset(start + at) >= offset:
                return Batch(buffer, at)
            at += <Py_ssize_t>size
        if at == end or finding == OTTLA_CUT_OFF:
            return None
        raise CorruptBatchError(_story(finding, start + at, end - at, at))
    finally:
        PyBuffer_Release(&view)


def whole_bytes(buffer, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef Py_ssize_t at = position
    cdef size_t size = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or position > view.len:
            raise MisuseError(f"position {position} lies outside the buffer of {view.len} bytes")
        while at < view.len and ottla_look(<const uint8_t*>view.buf + at, view.len - at, &size) == OTTLA_WHOLE:
            at += <Py_ssize_t>size
        return at - position
    finally:
        PyBuffer_Release(&view)


def crc32c(buffer, uint32_t crc=0):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    if view.len < RELEASE_BYTES_MIN:
        crc = ottla_crc32c(crc, <const uint8_t*>view.buf, view.len)
    else:
        with nogil:
            crc = ottla_crc32c(crc, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_by_table(buffer, uint32_t crc=0):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    crc = ottla_crc32c_by_table(crc, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_by_instruction(buffer, uint32_t crc=0):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    crc = ottla_crc32c_by_instruction(crc, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc
