"""The C face of the hash, for kernels that take many keys at once."""

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t _hash(const uint8_t* at, size_t size) noexcept nogil
