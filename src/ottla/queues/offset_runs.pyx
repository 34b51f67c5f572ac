# cython: boundscheck=False, wraparound=False, cdivision=True
"""Offsets as runs: pairs of a first offset and a count, as progress records hold them. Pure."""

from cpython.array cimport array, clone
from libc.stdint cimport int64_t

cdef array _TEMPLATE = array("q")


def runs_of(offsets not None):
    cdef const int64_t[::1] given = offsets if isinstance(offsets, array) else array("q", offsets)
    cdef list runs = []
    cdef Py_ssize_t at = 0, start
    cdef int64_t first
    while at < given.shape[0]:
        first = given[at]
        start = at
        at += 1
        while at < given.shape[0] and given[at] == first + (at - start):
            at += 1
        runs.append(first)
        runs.append(at - start)
    return tuple(runs)


def offsets_of(tuple runs not None):
    cdef Py_ssize_t at, step, position = 0, total = 0, count
    cdef int64_t first
    cdef array found
    cdef int64_t[::1] into
    for at in range(1, len(runs), 2):
        total += <Py_ssize_t>runs[at]
    found = clone(_TEMPLATE, total, False)
    if total == 0:
        return found
    into = found
    for at in range(0, len(runs) - 1, 2):
        first = runs[at]
        count = runs[at + 1]
        for step in range(count):
            into[position] = first + step
            position += 1
    return found
