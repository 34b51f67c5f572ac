# cython: boundscheck=False, wraparound=False, cdivision=True
"""Sorts the rows of a table by partition, without a Python object per row.

The first pass finds the partition of every row and counts, the second one writes the row numbers in order. The rows
are then encoded in that order (`ottla.records.columns_encode`).
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from ottla.records.murmur2 cimport _hash
from ottla.model.errors import MisuseError

cdef enum:
    PARTITIONS_MAX = 1 << 24


cdef class _Rows:
    """The buffers of keys and chosen partitions, with their lengths checked."""

    cdef Py_buffer _validity_view, _offsets_view, _data_view, _chosen_view
    cdef const uint8_t* _validity
    cdef const int32_t* _narrow
    cdef const int64_t* _wide
    cdef const int32_t* _chosen
    cdef int64_t _start

    def __cinit__(self, int64_t count, keys, chosen):
        if count == 0:
            return
        if chosen is not None:
            PyObject_GetBuffer(chosen, &self._chosen_view, PyBUF_SIMPLE)
            if self._chosen_view.len // 4 < count:
                raise MisuseError(f"column partition: {self._chosen_view.len} bytes are too few for {count} rows")
            self._chosen = <const int32_t*>self._chosen_view.buf
        if keys is not None:
            self._hold_keys(count, keys)

    cdef _hold_keys(self, int64_t count, keys):
        cdef int64_t width = 8 if keys.wide else 4
        self._start = keys.start
        PyObject_GetBuffer(keys.offsets, &self._offsets_view, PyBUF_SIMPLE)
        PyObject_GetBuffer(keys.data, &self._data_view, PyBUF_SIMPLE)
        if self._start < 0 or self._offsets_view.len // width < self._start + count + 1:
            raise MisuseError(f"column key: {self._offsets_view.len} bytes of offsets are too few for {count} rows")
        if keys.validity is not None:
            PyObject_GetBuffer(keys.validity, &self._validity_view, PyBUF_SIMPLE)
            if self._validity_view.len < (self._start + count + 7) // 8:
                raise MisuseError(f"column key: {self._validity_view.len} bytes of validity are too few")
            self._validity = <const uint8_t*>self._validity_view.buf
        if keys.wide:
            self._wide = <const int64_t*>self._offsets_view.buf
        else:
            self._narrow = <const int32_t*>self._offsets_view.buf

    def __dealloc__(self):
        PyBuffer_Release(&self._validity_view)
        PyBuffer_Release(&self._offsets_view)
        PyBuffer_Release(&self._data_view)
        PyBuffer_Release(&self._chosen_view)

    cdef int64_t _place(
        self, int64_t count, int32_t* places, int64_t* counts, const int32_t* keyless, int64_t keyless_count,
        int64_t run, int64_t partitions,
    ) noexcept nogil:
        """Finds the partition of each row; returns how many rows are valid before the first invalid one."""
        cdef int64_t row, at, first, end, place, keyless_rows = 0
        for row in range(count):
            place = -1
            if self._chosen != NULL:
                place = self._chosen[row]
                if place < -1 or place >= partitions:
                    return row
            at = row + self._start
            if place < 0 and (self._narrow != NULL or self._wide != NULL) and (
                self._validity == NULL or (self._validity[at >> 3] >> (at & 7)) & 1
            ):
                first = self._narrow[at] if self._narrow != NULL else self._wide[at]
                end = self._narrow[at + 1] if self._narrow != NULL else self._wide[at + 1]
                if first < 0 or end < first or end > self._data_view.len:
                    return row
                place = (_hash(<const uint8_t*>self._data_view.buf + first, end - first) & 0x7FFFFFFF) % partitions
            if place < 0:
                place = keyless[(keyless_rows // run) % keyless_count]
                keyless_rows += 1
            places[row] = <int32_t>place
            counts[place] += 1
        return count


def split_rows(
    int64_t count, *, int64_t partitions, keys=None, chosen=None, keyless=(0,), int64_t keyless_run=1
):
    cdef _Rows rows
    cdef int64_t row, good, place, turns_count = len(keyless), sum_before = 0
    cdef bytearray places, counts, order, turns
    cdef int32_t* places_at
    cdef int32_t* order_at
    cdef int32_t* turns_at
    cdef int64_t* counts_at
    if not 0 <= count <= INT32_MAX or not 0 < partitions <= PARTITIONS_MAX or keyless_run < 1 or not keyless:
        raise MisuseError(f"cannot split {count} rows into {partitions} partitions in runs of {keyless_run}")
    turns = bytearray(4 * turns_count)
    turns_at = <int32_t*>PyByteArray_AS_STRING(turns)
    for row, each in enumerate(keyless):
        if not 0 <= each < partitions:
            raise MisuseError(f"partition {each} does not exist; the topic has {partitions} partitions")
        turns_at[row] = each
    rows = _Rows(count, keys, chosen)
    places, order, counts = bytearray(4 * count), bytearray(4 * count), bytearray(8 * partitions)
    places_at = <int32_t*>PyByteArray_AS_STRING(places)
    order_at = <int32_t*>PyByteArray_AS_STRING(order)
    counts_at = <int64_t*>PyByteArray_AS_STRING(counts)
    with nogil:
        good = rows._place(
            count, places_at, counts_at, turns_at, turns_count, keyless_run, partitions
        )
    if good < count:
        raise _error(rows, good, partitions)
    bounds = [0]
    for place in range(partitions):
        row = counts_at[place]
        counts_at[place] = sum_before
        sum_before += row
        bounds.append(sum_before)
    with nogil:
        for row in range(count):
            place = places_at[row]
            order_at[counts_at[place]] = <int32_t>row
            counts_at[place] += 1
    return order, bounds


cdef object _error(_Rows rows, int64_t row, int64_t partitions):
    if rows._chosen != NULL and not -1 <= rows._chosen[row] < partitions:
        return MisuseError(
            f"row {row} is for partition {rows._chosen[row]}, but the topic has partitions 0 to {partitions - 1}"
        )
    return MisuseError(f"the key of row {row} has offsets outside its column's data")
