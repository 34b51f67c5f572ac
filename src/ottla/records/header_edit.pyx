# cython: boundscheck=False, wraparound=False, cdivision=True
"""Headers of a batch's records: finding some by name, and the batch with other headers.

Covers what must look at single records. Which headers are looked for, and what they mean, is decided in `queues`.
`picking` makes batches of single records with their headers edited in the same way. The walks over records are in
`header_edit.h`.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from array import array

from ottla.model.errors import BatchTooLargeError, CorruptBatchError, MisuseError
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, compress
from ottla.records.decode import record_story
from ottla.records.layout import Codec
from ottla.records.payload import read_payload

from ottla.records.record_wire cimport (
    OTTLA_RECORD_BYTES_MIN, OTTLA_RECORD_CUT_OFF, OTTLA_RECORD_GOOD, OTTLA_RECORD_TRAILING, RELEASE_BYTES_MIN,
    ottla_field_size, ottla_record, ottla_record_finding, ottla_write_field,
)
from ottla.records.wire cimport (
    OTTLA_CRC_AT, OTTLA_HEADER_BYTES, OTTLA_LENGTH_AT, ottla_batch_crc, ottla_put32,
)

ABSENT = OTTLA_NUMBER_ABSENT
MALFORMED = OTTLA_NUMBER_MALFORMED

cdef enum:
    LENGTH_PREFIX_BYTES = 12


@cython.final
cdef class HeaderNames:
    """Names of headers, prepared for the kernels."""

    def __cinit__(self, *names):
        cdef bytes text
        cdef int index
        if len(names) > OTTLA_NAMES_MAX:
            raise MisuseError(f"{len(names)} header names are too many, at most {OTTLA_NAMES_MAX}")
        self.names = names
        self._texts = []
        for index, name in enumerate(names):
            text = name.encode()
            if len(text) > OTTLA_NAME_BYTES_MAX:
                raise MisuseError(f"header name {name!r} is longer than {OTTLA_NAME_BYTES_MAX} bytes")
            self._texts.append(text)
            self._names.text[index] = <const uint8_t*>PyBytes_AS_STRING(text)
            self._names.size[index] = <int32_t>len(text)
            self._names.sizes |= <unsigned long long>1 << len(text)
        self._names.count = <int>len(names)

    def __repr__(self):
        return f"HeaderNames{self.names!r}"


# Finding


cdef int _open(payload, int32_t count, Py_buffer* view, ottla_edit_walk* walk) except -1:
    """Starts a walk over a batch's decompressed records; the caller releases the buffer."""
    PyObject_GetBuffer(payload, view, PyBUF_SIMPLE)
    memset(walk, 0, sizeof(ottla_edit_walk))
    walk.at = <const uint8_t*>view.buf
    walk.end = walk.at + view.len
    walk.count = count
    if count < 0 or count > view.len // OTTLA_RECORD_BYTES_MIN:
        index = view.len // OTTLA_RECORD_BYTES_MIN
        PyBuffer_Release(view)
        raise CorruptBatchError(record_story(OTTLA_RECORD_CUT_OFF, 0, index))
    return 0


def find_headers(payload, int32_t count, HeaderNames names not None):
    cdef Py_buffer view
    cdef ottla_edit_walk walk
    cdef ottla_record record
    cdef ottla_found_headers found
    cdef ottla_record_finding finding
    cdef list records = []
    _open(payload, count, &view, &walk)
    try:
        while walk.done < count:
            finding = ottla_find_headers(walk.at, walk.end, &names._names, &record, &found)
            if finding != OTTLA_RECORD_GOOD:
                raise CorruptBatchError(record_story(finding, 0, walk.done))
            if found.found:
                records.append((walk.done, _values(names._names.count, &found)))
            walk.at = record.end
            walk.done += 1
        if walk.at != walk.end:
            raise CorruptBatchError(record_story(OTTLA_RECORD_TRAILING, 0, walk.done))
    finally:
        PyBuffer_Release(&view)
    return records


cdef tuple _values(int count, const ottla_found_headers* found):
    cdef list values = [None] * count
    cdef int index
    for index in range(count):
        if found.found >> index & 1:
            values[index] = PyBytes_FromStringAndSize(
                <const char*>found.headers[index].value, max(found.headers[index].value_size, 0)
            )
    return tuple(values)


def find_numbers(payload, int32_t count, HeaderNames names not None):
    cdef Py_buffer view
    cdef Py_buffer targets[OTTLA_NAMES_MAX]
    cdef int64_t* numbers[OTTLA_NAMES_MAX]
    cdef ottla_edit_walk walk
    cdef ottla_record_finding finding
    cdef int opened = 0
    _open(payload, count, &view, &walk)
    try:
        arrays = tuple([array("q", bytes(8 * count)) for _ in names.names])
        for column in arrays:
            PyObject_GetBuffer(column, &targets[opened], PyBUF_SIMPLE)
            numbers[opened] = <int64_t*>targets[opened].buf
            opened += 1
        if view.len < RELEASE_BYTES_MIN:
            finding = _find_numbers(&walk, &names._names, numbers)
        else:
            with nogil:
                finding = _find_numbers(&walk, &names._names, numbers)
        if finding != OTTLA_RECORD_GOOD:
            raise CorruptBatchError(record_story(finding, 0, walk.done))
    finally:
        while opened > 0:
            opened -= 1
            PyBuffer_Release(&targets[opened])
        PyBuffer_Release(&view)
    return arrays


cdef ottla_record_finding _find_numbers(
    ottla_edit_walk* walk, const ottla_names* names, int64_t** numbers
) noexcept nogil:
    cdef ottla_record record
    cdef ottla_found_headers found
    cdef ottla_record_finding finding
    cdef int index
    while walk.done < walk.count:
        finding = ottla_find_headers(walk.at, walk.end, names, &record, &found)
        if finding != OTTLA_RECORD_GOOD:
            return finding
        for index in range(names.count):
            if found.found >> index & 1:
                numbers[index][walk.done] = ottla_read_decimal(
                    found.headers[index].value, found.headers[index].value_size
                )
            else:
                numbers[index][walk.done] = OTTLA_NUMBER_ABSENT
        walk.at = record.end
        walk.done += 1
    return OTTLA_RECORD_GOOD if walk.at == walk.end else OTTLA_RECORD_TRAILING


# Editing


@cython.final
cdef class Edit:
    """What becomes of the headers of `count` records."""

    def __cinit__(self, HeaderNames dropped not None, stamps, added, Py_ssize_t count):
        cdef bytes packed
        cdef Py_ssize_t index
        self._kept = [dropped]
        self.edit.dropped = &dropped._names
        stamps = tuple(stamps)
        if stamps:
            self._stamps = <ottla_stamp*>calloc(len(stamps), sizeof(ottla_stamp))
            self._views = <Py_buffer*>calloc(len(stamps), sizeof(Py_buffer))
            if self._stamps == NULL or self._views == NULL:
                raise MemoryError("no memory for the stamps of headers")
            for stamp in stamps:
                self._add_stamp(stamp, count)
        if added:
            self._extras = <ottla_extra*>calloc(count, sizeof(ottla_extra))
            if self._extras == NULL:
                raise MemoryError(f"no memory for the headers of {count} records")
            for number, headers in added.items():
                index = number
                if index < 0 or index >= count:
                    raise MisuseError(f"headers are added to record {number}, but there are {count} records")
                packed = _packed(headers)
                self._kept.append(packed)
                self._extras[index].at = <const uint8_t*>PyBytes_AS_STRING(packed)
                self._extras[index].size = PyBytes_GET_SIZE(packed)
                self._extras[index].count = <int32_t>len(headers)
        self.edit.stamps = self._stamps
        self.edit.extras = self._extras

    cdef int _add_stamp(self, stamp, Py_ssize_t count) except -1:
        cdef ottla_stamp* to = self._stamps + self._view_count
        cdef Py_buffer* view = self._views + self._view_count
        name, numbers, prefix = stamp
        cdef bytes text = name.encode()
        cdef bytes before = prefix
        PyObject_GetBuffer(numbers, view, PyBUF_SIMPLE)
        self._view_count += 1
        if view.len != count * <Py_ssize_t>sizeof(int64_t):
            raise MisuseError(f"stamp {name!r} has {view.len} bytes of numbers for {count} records, 8 for each")
        self._kept += (text, before)
        to.name = <const uint8_t*>PyBytes_AS_STRING(text)
        to.name_size = <int32_t>len(text)
        to.prefix = <const uint8_t*>PyBytes_AS_STRING(before)
        to.prefix_size = <int32_t>len(before)
        to.numbers = <const int64_t*>view.buf
        self.edit.stamp_count += 1
        return 0

    def __dealloc__(self):
        while self._view_count > 0:
            self._view_count -= 1
            PyBuffer_Release(&self._views[self._view_count])
        free(self._views)
        free(self._stamps)
        free(self._extras)


cdef bytes _packed(headers):
    """Headers in their wire form, without their count."""
    cdef size_t size = 0
    cdef bytes part, result
    cdef uint8_t* at
    cdef list parts = []
    for name, value in headers:
        part = name.encode()
        parts.append(part)
        size += ottla_field_size(len(part))
        part = None if value is None else bytes(value)
        parts.append(part)
        size += ottla_field_size(-1 if part is None else len(part))
    result = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t*>PyBytes_AS_STRING(result)
    for part in parts:
        if part is None:
            at = ottla_write_field(at, NULL, -1)
        else:
            at = ottla_write_field(at, <const uint8_t*>PyBytes_AS_STRING(part), len(part))
    return result


def replace_headers(
    batch, *, HeaderNames drop not None, stamps=(), added=None, payload=None, level=None, limit=DECOMPRESSED_BYTES_MAX
):
    cdef Py_buffer view
    cdef ottla_edit_walk walk, start
    cdef ottla_record_finding finding
    cdef size_t size = 0
    cdef int32_t count = batch.count
    cdef uint8_t* target
    cdef bytearray result
    if payload is None:
        payload = read_payload(batch, limit)
    _open(payload, count, &view, &walk)
    start = walk
    try:
        edit = Edit(drop, stamps, added, count)
        if view.len < RELEASE_BYTES_MIN:
            finding = ottla_measure_edited(&walk, &(<Edit>edit).edit, &size)
        else:
            with nogil:
                finding = ottla_measure_edited(&walk, &(<Edit>edit).edit, &size)
        if finding != OTTLA_RECORD_GOOD:
            raise CorruptBatchError(record_story(finding, batch.base_offset, walk.done))
        if size > <size_t>limit or size > <size_t>(INT32_MAX - OTTLA_HEADER_BYTES):
            raise BatchTooLargeError(f"a batch with {size} bytes of records and headers exceeds {limit} bytes")
        result = PyByteArray_FromStringAndSize(NULL, OTTLA_HEADER_BYTES + size)
        target = <uint8_t*>PyByteArray_AS_STRING(result) + OTTLA_HEADER_BYTES
        if size < RELEASE_BYTES_MIN:
            ottla_write_edited(target, &start, &(<Edit>edit).edit)
        else:
            with nogil:
                ottla_write_edited(target, &start, &(<Edit>edit).edit)
    finally:
        PyBuffer_Release(&view)
    return _sealed(batch, result, level)


cdef bytearray _sealed(batch, bytearray result, level):
    """Compresses the records as the batch's were, and puts the batch's header before them."""
    cdef uint8_t* at
    codec = batch.codec
    if codec != 0 and len(result) > OTTLA_HEADER_BYTES:
        with memoryview(result) as whole:
            packed = compress(Codec(codec), whole[OTTLA_HEADER_BYTES:], level)
        if <size_t>len(packed) > <size_t>(INT32_MAX - OTTLA_HEADER_BYTES):
            raise BatchTooLargeError(f"{len(packed)} compressed bytes do not fit into a batch")
        result = bytearray(OTTLA_HEADER_BYTES)
        result += packed
    result[:OTTLA_HEADER_BYTES] = batch.buffer[:OTTLA_HEADER_BYTES]
    at = <uint8_t*>PyByteArray_AS_STRING(result)
    ottla_put32(at + OTTLA_LENGTH_AT, <int32_t>(len(result) - LENGTH_PREFIX_BYTES))
    ottla_put32(at + OTTLA_CRC_AT, ottla_batch_crc(at, len(result)))
    return result
