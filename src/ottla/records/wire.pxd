"""Declares `wire.h`, which handles the numbers and headers of batches, for all kernels that use it."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "ottla/records/wire.h" nogil:
    ctypedef enum ottla_finding:
        OTTLA_WHOLE, OTTLA_CUT_OFF, OTTLA_BAD_LENGTH, OTTLA_BAD_MAGIC, OTTLA_BAD_CRC, OTTLA_BAD_COUNT, OTTLA_BAD_OFFSETS
    enum:
        OTTLA_LENGTH_AT, OTTLA_LEADER_EPOCH_AT, OTTLA_MAGIC_AT, OTTLA_CRC_AT, OTTLA_ATTRIBUTES_AT
        OTTLA_LAST_OFFSET_DELTA_AT, OTTLA_BASE_TIMESTAMP_AT, OTTLA_MAX_TIMESTAMP_AT, OTTLA_PRODUCER_ID_AT
        OTTLA_PRODUCER_EPOCH_AT, OTTLA_BASE_SEQUENCE_AT, OTTLA_COUNT_AT, OTTLA_HEADER_BYTES
        OTTLA_CODEC_BITS, OTTLA_APPEND_TIME_BIT, OTTLA_TRANSACTIONAL_BIT, OTTLA_CONTROL_BIT, OTTLA_DELETE_HORIZON_BIT
    unsigned int ottla_get16(const uint8_t* at)
    uint32_t ottla_get32(const uint8_t* at)
    uint64_t ottla_get64(const uint8_t* at)
    void ottla_put16(uint8_t* at, unsigned int value)
    void ottla_put32(uint8_t* at, uint32_t value)
    void ottla_put64(uint8_t* at, uint64_t value)
    int64_t ottla_add64(int64_t left, int64_t right)
    int64_t ottla_sub64(int64_t left, int64_t right)
    size_t ottla_varint_size(int64_t value)
    uint8_t* ottla_put_varint(uint8_t* at, int64_t value)
    ottla_finding ottla_look(const uint8_t* at, size_t room, size_t* size)
    int64_t ottla_last_offset(const uint8_t* batch)
    uint32_t ottla_batch_crc(const uint8_t* batch, size_t size)
    void ottla_overwrite(uint8_t* batch, size_t size, size_t at, const uint8_t* bytes, size_t count)
    ottla_finding ottla_check_batch(const uint8_t* batch, size_t size, int crc)
    uint32_t ottla_crc32c(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t ottla_crc32c_by_table(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t ottla_crc32c_by_instruction(uint32_t crc, const uint8_t* data, size_t size)
