"""What compressed bytes may decompress to, read from the headers of their blocks: nothing is decompressed for it.

The result is never too small, and often too large.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t


cdef enum:
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    LZ4_MAGIC = 0x184D2204
    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_BLOCK_MAX = 128 * 1024


cdef inline uint32_t _little(const uint8_t* at, int size) noexcept nogil:
    cdef uint32_t value = 0
    while size > 0:
        size -= 1
        value = value << 8 | at[size]
    return value


cdef inline int64_t _lz4_frame(const uint8_t** position, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* at = position[0]
    cdef uint32_t size
    cdef int64_t most = 0, block_max
    cdef int flags, code
    if end - at < 7 or _little(at, 4) != <uint32_t>LZ4_MAGIC:
        return -1
    flags = at[4]
    code = at[5] >> 4 & 7
    if code < 4:
        return -1
    block_max = <int64_t>1 << (2 * code + 8)
    at += 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    while end - at >= 4:
        size = _little(at, 4)
        at += 4
        if size == 0:
            at += 4 if flags & 4 else 0
            if at > end:
                return -1
            position[0] = at
            return most
        most += block_max
        size &= 0x7FFFFFFF
        if size > end - at:
            return -1
        at += size + (4 if flags & 16 else 0)
    return -1


cdef inline int64_t _zstd_frame(const uint8_t** position, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* at = position[0]
    cdef uint32_t header, size
    cdef int64_t most = 0
    cdef int flags, kind, field, dictionary
    if end - at < 6 or _little(at, 4) != <uint32_t>ZSTD_MAGIC:
        return -1
    flags = at[4]
    field = 1 << (flags >> 6)
    if field == 1 and not flags & 32:
        field = 0
    dictionary = 1 << (flags & 3) >> 1
    at += 5 + (0 if flags & 32 else 1) + dictionary + field
    while end - at >= 3:
        header = _little(at, 3)
        at += 3
        kind = header >> 1 & 3
        size = header >> 3
        if kind == 3:
            return -1
        most += ZSTD_BLOCK_MAX if kind == 2 else size
        if kind == 1:
            size = 1
        if size > end - at:
            return -1
        at += size
        if header & 1:
            at += 4 if flags & 4 else 0
            if at > end:
                return -1
            position[0] = at
            return most
    return -1


cdef inline int64_t decompressed_bytes_max(int codec, const uint8_t* at, const uint8_t* end) noexcept nogil:
    """What the bytes may decompress to, by the headers of their blocks; INT64_MAX if those cannot be read."""
    cdef int64_t size = end - at, most = 0, found
    if codec == GZIP:
        return 1032 * size
    if codec == SNAPPY:
        return 22 * size
    if codec != LZ4 and codec != ZSTD:
        return size
    while at < end:
        found = _lz4_frame(&at, end) if codec == LZ4 else _zstd_frame(&at, end)
        if found < 0:
            return INT64_MAX
        most += found
    return most
