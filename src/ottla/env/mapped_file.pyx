# cython: language_level=3
"""A file as memory, without a file descriptor held open.

Covers opening, resizing, mapping, reserving room, syncing and unmapping one file. Python's own mmap keeps a duplicate of
the descriptor for as long as the mapping lives, which two indexes for each of ten thousand partitions cannot afford.
Does not cover what a mapping cannot see: whoever cuts the file shorter while it is mapped makes the next touch of the
lost pages a SIGBUS, so the storage layer unmaps before it truncates. `real_disk.py` hands these out.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EFAULT, EINTR, EINVAL, ENOENT, ENOSPC, ENOTDIR, ESTALE, errno
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDONLY, O_RDWR, open as c_open, posix_fallocate
from posix.mman cimport (
    MAP_FAILED,
    MAP_SHARED,
    MS_SYNC,
    PROT_READ,
    PROT_WRITE,
    madvise,
    mmap,
    msync,
    munmap,
)
from posix.stat cimport fstat, struct_stat
from posix.types cimport off_t
from posix.unistd cimport close as c_close, ftruncate

import os

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
    """
    const int MADV_POPULATE_WRITE

# Room on disk is taken in steps: small enough that ten thousand quiet indexes stay small, large enough that a busy one
# asks once in two thousand entries.
cdef Py_ssize_t RESERVE_STEP_BYTES = 16 * 1024

# Where the view of an empty file points; nothing reads it.
cdef char EMPTY[1]


cdef object os_error(int code, str path):
    return OSError(code, os.strerror(code), path)


@cython.final
cdef class MappedFile:
    """A shared mapping of a whole file, as the `Mapping` port asks. Slices of `view` keep it from being closed."""

    cdef char* _start
    cdef Py_ssize_t _size
    cdef Py_ssize_t _reserved
    cdef Py_ssize_t _exports
    cdef unsigned long long _device
    cdef unsigned long long _inode
    cdef bint _writable
    cdef bint _closed
    cdef readonly str path

    def __cinit__(self, str path not None, size=None, *, bint writable=False):
        cdef bytes raw = os.fsencode(path)
        cdef off_t wanted = -1
        cdef int descriptor
        if b"\0" in raw:
            raise ValueError(f"a path with a zero byte cannot be opened: {path!r}")
        if size is not None:
            if not writable:
                raise ValueError(f"mapping {path} with a size would resize it, which needs writable=True")
            if size < 0:
                raise ValueError(f"cannot map {path} with a negative size, {size}")
            wanted = size
        self._start = NULL
        self._closed = True
        self._writable = writable
        self.path = path
        descriptor = self._open(raw, wanted >= 0)
        try:
            self._map(descriptor, wanted)
        finally:
            c_close(descriptor)
        self._closed = False

    cdef int _open(self, bytes raw, bint create) except -1:
        cdef const char* name = raw
        cdef int flags = (O_RDWR if self._writable else O_RDONLY) | O_CLOEXEC | (O_CREAT if create else 0)
        cdef int descriptor
        cdef int code
        while True:
            with nogil:
                descriptor = c_open(name, flags, 0o644)
                code = errno
            if descriptor >= 0:
                return descriptor
            if code != EINTR:
                raise os_error(code, self.path)

    cdef int _map(self, int descriptor, off_t wanted) except -1:
        cdef struct_stat status
        cdef void* start
        if fstat(descriptor, &status) != 0:
            raise os_error(errno, self.path)
        self._device = status.st_dev
        self._inode = status.st_ino
        if wanted < 0:
            wanted = status.st_size
        elif wanted != status.st_size and ftruncate(descriptor, wanted) != 0:
            raise os_error(errno, self.path)
        self._size = wanted
        if wanted == 0:
            return 0
        start = mmap(NULL, wanted, PROT_READ | (PROT_WRITE if self._writable else 0), MAP_SHARED, descriptor, 0)
        if start == MAP_FAILED:
            raise os_error(errno, self.path)
        self._start = <char*>start
        return 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        self._check_open()
        PyBuffer_FillInfo(buffer, self, self._start if self._start != NULL else EMPTY, self._size, not self._writable, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._exports -= 1

    def __dealloc__(self):
        # Every export holds a reference to this object, so there are none left.
        if self._start != NULL:
            munmap(self._start, self._size)
            self._start = NULL

    def __len__(self):
        return self._size

    @property
    def view(self):
        """The whole mapping as bytes; writable if that was asked for."""
        return memoryview(self)

    def reserve(self, size):
        """Makes sure that the first `size` bytes have room on disk, or raises OSError: a store into a page that has
        none, on a full disk, would kill the process with SIGBUS."""
        cdef Py_ssize_t wanted
        self._check_open()
        if not self._writable:
            raise ValueError(f"{self.path} is mapped read-only, so there is nothing to reserve")
        if not 0 <= size <= self._size:
            raise ValueError(f"cannot reserve {size} bytes of {self.path}, which is mapped with {self._size}")
        if size <= self._reserved:
            return
        wanted = min(self._size, (<Py_ssize_t>size + RESERVE_STEP_BYTES - 1) // RESERVE_STEP_BYTES * RESERVE_STEP_BYTES)
        self._exports += 1
        try:
            self._allocate(wanted)
        finally:
            self._exports -= 1
        self._reserved = wanted

    cdef int _allocate(self, Py_ssize_t wanted) except -1:
        """By the path if it still leads to this file, else, after a rename, through the mapping itself."""
        cdef struct_stat status
        cdef off_t position = self._reserved
        cdef int descriptor
        cdef int code
        try:
            descriptor = self._open(os.fsencode(self.path), False)
        except OSError as error:
            if error.errno != ENOENT and error.errno != ENOTDIR:
                raise
            return self._populate(wanted)
        try:
            if fstat(descriptor, &status) != 0:
                raise os_error(errno, self.path)
            if <unsigned long long>status.st_dev != self._device or <unsigned long long>status.st_ino != self._inode:
                return self._populate(wanted)
            code = EINTR
            while code == EINTR:
                with nogil:
                    code = posix_fallocate(descriptor, position, wanted - position)
            if code != 0:
                raise os_error(code, self.path)
        finally:
            c_close(descriptor)
        return 0

    cdef int _populate(self, Py_ssize_t wanted) except -1:
        """Touches each page for writing inside the kernel, which reports a full disk instead of a signal."""
        cdef Py_ssize_t position = self._reserved
        cdef int code = EINTR
        while code == EINTR:
            with nogil:
                code = errno if madvise(self._start + position, wanted - position, MADV_POPULATE_WRITE) != 0 else 0
        if code == EFAULT:
            code = ENOSPC
        elif code == EINVAL:
            code = ESTALE
        if code != 0:
            raise os_error(code, self.path)
        return 0

    def sync(self):
        """Returns once what was written through the mapping would survive a power cut; other threads run meanwhile."""
        cdef int failed
        cdef int code
        self._check_open()
        if self._start == NULL:
            return
        # Counts as an export, so that a close in another thread is refused rather than pulling the pages away.
        self._exports += 1
        try:
            with nogil:
                failed = msync(self._start, self._size, MS_SYNC)
                code = errno
            if failed:
                raise os_error(code, self.path)
        finally:
            self._exports -= 1

    def close(self):
        """Unmaps; raises BufferError while slices of `view` are alive. Closing twice is harmless."""
        if self._closed:
            return
        if self._exports > 0:
            raise BufferError(f"{self.path} cannot be unmapped: {self._exports} views of it are in use; release them first")
        self._closed = True
        if self._start != NULL:
            munmap(self._start, self._size)
            self._start = NULL

    cdef int _check_open(self) except -1:
        if self._closed:
            raise ValueError(f"the mapping of {self.path} is closed")
        return 0
