"""The offsets of one topic in a commit, as an array, for the kernels that write and keep them."""

cimport cython
from libc.stdint cimport int32_t, int64_t


cdef struct CommitRow:
    int64_t offset
    int32_t partition
    int32_t leader_epoch
    # Where its metadata begins in the texts.
    Py_ssize_t metadata_at
    # -1 for null.
    int32_t metadata_size


@cython.final
cdef class CommitRows:
    cdef CommitRow* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    # Has the metadata of all rows.
    cdef bytes texts

    cdef int add(self, CommitRow row) except -1
    cdef str metadata_of(self, CommitRow* row)
