/* Numbers as the record format writes them (big-endian, zig-zag varints) and the walk over batch headers.
 *
 * Everything here is bounds-checked by its caller or takes the end of the buffer; nothing allocates or needs the GIL.
 * Records inside a batch are in record.h.
 */
#ifndef OTTLA_WIRE_H
#define OTTLA_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc32c.h"

static inline uint16_t ottla_get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint32_t ottla_get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    return value;
}

static inline uint64_t ottla_get64(const uint8_t *at) {
    return (uint64_t)ottla_get32(at) << 32 | ottla_get32(at + 4);
}

static inline void ottla_put16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void ottla_put32(uint8_t *at, uint32_t value) {
    ottla_put16(at, (uint16_t)(value >> 16));
    ottla_put16(at + 2, (uint16_t)value);
}

static inline void ottla_put64(uint8_t *at, uint64_t value) {
    ottla_put32(at, (uint32_t)(value >> 32));
    ottla_put32(at + 4, (uint32_t)value);
}

/* Sums that wrap instead of being undefined: stored offsets and timestamps can hold anything. */
static inline int64_t ottla_add64(int64_t left, int64_t right) { return (int64_t)((uint64_t)left + (uint64_t)right); }
static inline int64_t ottla_sub64(int64_t left, int64_t right) { return (int64_t)((uint64_t)left - (uint64_t)right); }

/* Varints: seven bits per byte, lowest first, at most 5 bytes for 32 bits and 10 for 64. A reader returns the position
 * after the number, or NULL when it is cut off or has bits beyond its width. */
static const uint8_t *ottla_varint_slow(const uint8_t *at, const uint8_t *end, int width, uint64_t *raw) {
    uint64_t value = 0;
    for (int shift = 0; at < end && shift < width; shift += 7) {
        uint64_t byte = *at++;
        if (shift + 7 > width && (byte & 0x7f) >> (width - shift)) return NULL;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            *raw = value;
            return at;
        }
    }
    return NULL;
}

static inline const uint8_t *ottla_unsigned_varint(const uint8_t *at, const uint8_t *end, int width, uint64_t *raw) {
    if (at < end && at[0] < 0x80) {
        *raw = at[0];
        return at + 1;
    }
    if (end - at >= 2 && at[1] < 0x80) {
        *raw = (uint64_t)(at[0] & 0x7f) | (uint64_t)at[1] << 7;
        return at + 2;
    }
    return ottla_varint_slow(at, end, width, raw);
}

static inline const uint8_t *ottla_varint(const uint8_t *at, const uint8_t *end, int32_t *value) {
    uint64_t raw = 0;
    at = ottla_unsigned_varint(at, end, 32, &raw);
    *value = (int32_t)((uint32_t)(raw >> 1) ^ (0u - (uint32_t)(raw & 1)));
    return at;
}

static inline const uint8_t *ottla_varlong(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    at = ottla_unsigned_varint(at, end, 64, &raw);
    *value = (int64_t)((raw >> 1) ^ (0u - (raw & 1)));
    return at;
}

static inline uint64_t ottla_zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static inline size_t ottla_varint_size(int64_t value) {
    return (size_t)(70 - __builtin_clzll(ottla_zigzag(value) | 1)) / 7;
}

/* Writes at most ten bytes, for 32-bit values at most five; returns the position after them. */
static inline uint8_t *ottla_put_varint(uint8_t *at, int64_t value) {
    uint64_t raw = ottla_zigzag(value);
    while (raw >= 0x80) {
        *at++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *at++ = (uint8_t)raw;
    return at;
}

/* The batch header; layout.py explains the fields. */
enum {
    OTTLA_LENGTH_AT = 8,
    OTTLA_LEADER_EPOCH_AT = 12,
    OTTLA_MAGIC_AT = 16,
    OTTLA_CRC_AT = 17,
    OTTLA_ATTRIBUTES_AT = 21,
    OTTLA_LAST_OFFSET_DELTA_AT = 23,
    OTTLA_BASE_TIMESTAMP_AT = 27,
    OTTLA_MAX_TIMESTAMP_AT = 35,
    OTTLA_PRODUCER_ID_AT = 43,
    OTTLA_PRODUCER_EPOCH_AT = 51,
    OTTLA_BASE_SEQUENCE_AT = 53,
    OTTLA_COUNT_AT = 57,
    OTTLA_HEADER_BYTES = 61,
    OTTLA_PREFIX_BYTES = 12,
};

enum {
    OTTLA_CODEC_BITS = 0x07,
    OTTLA_APPEND_TIME_BIT = 0x08,
    OTTLA_TRANSACTIONAL_BIT = 0x10,
    OTTLA_CONTROL_BIT = 0x20,
    OTTLA_DELETE_HORIZON_BIT = 0x40,
};

/* What a look at a batch can find. The first two are not damage. */
typedef enum {
    OTTLA_WHOLE = 0,
    OTTLA_CUT_OFF,
    OTTLA_BAD_LENGTH,
    OTTLA_BAD_MAGIC,
    OTTLA_BAD_CRC,
    OTTLA_BAD_COUNT,
    OTTLA_BAD_OFFSETS,
} ottla_finding;

/* Is there a whole batch at the start of these bytes? Damage that shows in a cut-off header is reported as damage. */
static inline ottla_finding ottla_look(const uint8_t *at, size_t room, size_t *size) {
    if (room < OTTLA_PREFIX_BYTES) return OTTLA_CUT_OFF;
    int32_t length = (int32_t)ottla_get32(at + OTTLA_LENGTH_AT);
    if (length < OTTLA_HEADER_BYTES - OTTLA_PREFIX_BYTES) return OTTLA_BAD_LENGTH;
    if (room <= OTTLA_MAGIC_AT) return OTTLA_CUT_OFF;
    if (at[OTTLA_MAGIC_AT] != 2) return OTTLA_BAD_MAGIC;
    *size = (size_t)length + OTTLA_PREFIX_BYTES;
    return *size <= room ? OTTLA_WHOLE : OTTLA_CUT_OFF;
}

static inline int64_t ottla_last_offset(const uint8_t *batch) {
    return ottla_add64((int64_t)ottla_get64(batch), (int32_t)ottla_get32(batch + OTTLA_LAST_OFFSET_DELTA_AT));
}

static inline uint32_t ottla_batch_crc(const uint8_t *batch, size_t size) {
    return ottla_crc32c(0, batch + OTTLA_ATTRIBUTES_AT, size - OTTLA_ATTRIBUTES_AT);
}

/* Writes over a few bytes that the CRC covers and brings it up to date, without looking at the rest: a CRC is linear,
 * so it changes as that of the difference followed by zeros. One that was wrong stays wrong. */
static inline void ottla_overwrite(uint8_t *batch, size_t size, size_t at, const uint8_t *bytes, size_t count) {
    uint32_t change = 0;
    for (size_t index = 0; index < count; index++) {
        uint8_t difference = batch[at + index] ^ bytes[index];
        change = ottla_crc_slices[0][(change ^ difference) & 0xff] ^ (change >> 8);
        batch[at + index] = bytes[index];
    }
    change = ottla_crc_after(change, size - at - count);
    ottla_put32(batch + OTTLA_CRC_AT, ottla_get32(batch + OTTLA_CRC_AT) ^ change);
}

/* A whole batch's fields against each other, and its CRC if asked. Compaction leaves gaps, so there may be fewer
 * records than offsets, even none; never more. */
static inline ottla_finding ottla_check_batch(const uint8_t *batch, size_t size, int crc) {
    if (crc && ottla_batch_crc(batch, size) != ottla_get32(batch + OTTLA_CRC_AT)) return OTTLA_BAD_CRC;
    int64_t base = (int64_t)ottla_get64(batch);
    int32_t delta = (int32_t)ottla_get32(batch + OTTLA_LAST_OFFSET_DELTA_AT);
    int32_t count = (int32_t)ottla_get32(batch + OTTLA_COUNT_AT);
    if (base < 0 || delta < 0 || base > INT64_MAX - 1 - delta) return OTTLA_BAD_OFFSETS;
    if (count < 0 || (int64_t)count > (int64_t)delta + 1) return OTTLA_BAD_COUNT;
    return OTTLA_WHOLE;
}

#endif
