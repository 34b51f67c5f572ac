# cython: language_level=3
"""A file as memory, for reading, without a file descriptor held open.

Maps and unmaps one file. Python's own mmap keeps a duplicate of the descriptor for as long as the mapping exists, which
is too much for two indexes for each of ten thousand partitions. If a file is truncated while it is mapped, reading the
lost pages raises SIGBUS, so that the storage layer unmaps a file before it resizes it. Used by `real_disk.py`.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINTR, EISDIR, errno
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open as c_open
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap
from posix.stat cimport S_ISDIR, fstat, struct_stat
from posix.unistd cimport close as c_close

import os

# Where the view of an empty file points; nothing reads it.
cdef char EMPTY[1]


cdef object os_error(int code, str path):
    return OSError(code, os.strerror(code), path)


@cython.final
cdef class MappedFile:
    """The `Mapping` port for a whole file. It cannot be closed while slices of `view` are alive."""

    cdef char* _start
    cdef Py_ssize_t _size
    cdef Py_ssize_t _exports
    cdef bint _closed
    cdef readonly str path

    def __cinit__(self, str path not None):
        cdef bytes raw = os.fsencode(path)
        cdef int descriptor
        if b"\0" in raw:
            raise ValueError(f"a path with a zero byte cannot be opened: {path!r}")
        self.path = path
        descriptor = self._open(raw)
        try:
            self._map(descriptor)
        finally:
            c_close(descriptor)

    cdef int _open(self, bytes raw) except -1:
        cdef const char* name = raw
        cdef int descriptor
        cdef int code
        while True:
            with nogil:
                descriptor = c_open(name, O_RDONLY | O_CLOEXEC)
                code = errno
            if descriptor >= 0:
                return descriptor
            if code != EINTR:
                raise os_error(code, self.path)

    cdef int _map(self, int descriptor) except -1:
        cdef struct_stat status
        cdef void* start
        if fstat(descriptor, &status) != 0:
            raise os_error(errno, self.path)
        # A folder can be opened for reading, and one of size 0 would look like an empty file.
        if S_ISDIR(status.st_mode):
            raise os_error(EISDIR, self.path)
        if status.st_size == 0:
            return 0
        start = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, descriptor, 0)
        if start == MAP_FAILED:
            raise os_error(errno, self.path)
        self._start = <char*>start
        self._size = status.st_size
        return 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self._closed:
            raise ValueError(f"the mapping of {self.path} is closed")
        PyBuffer_FillInfo(buffer, self, self._start if self._start != NULL else EMPTY, self._size, True, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._exports -= 1

    def __dealloc__(self):
        # Every export holds a reference to this object, so there are none left.
        self._unmap()

    @property
    def view(self):
        """The whole file as bytes, as long as it was when it was mapped."""
        return memoryview(self)

    def close(self):
        """Unmaps the file. Raises BufferError while slices of `view` are alive. May be called twice."""
        if self._exports > 0:
            raise BufferError(
                f"{self.path} cannot be unmapped: {self._exports} views of it are in use; release them first"
            )
        self._closed = True
        self._unmap()

    cdef void _unmap(self) noexcept:
        if self._start != NULL:
            munmap(self._start, self._size)
            self._start = NULL
