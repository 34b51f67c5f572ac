/* Reading the fields of a request, every access bounded.
 *
 * A cursor walks over one frame. The first field that cannot be read leaves its reason in `broken` and moves the cursor
 * to the end, so that every later read fails too and returns zero: a caller reads several fields and asks once. Nothing
 * here allocates or needs the GIL. writer.h is the other direction.
 */
#ifndef OTTLA_PROTOCOL_READER_H
#define OTTLA_PROTOCOL_READER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    const char *broken;
} ottla_cursor;

/* Bytes of the frame; `at` is NULL for null. */
typedef struct {
    const uint8_t *at;
    ptrdiff_t size;
} ottla_span;

static inline ptrdiff_t ottla_left(const ottla_cursor *from) { return from->end - from->at; }

/* The first reason stays: what follows it is noise. */
static inline void ottla_fail(ottla_cursor *from, const char *reason) {
    if (from->broken == NULL) from->broken = reason;
    from->at = from->end;
}

static inline int ottla_has(ottla_cursor *from, ptrdiff_t size) {
    if (ottla_left(from) >= size) return 1;
    ottla_fail(from, "a field reaches beyond the end of the request");
    return 0;
}

static inline int8_t ottla_read8(ottla_cursor *from) {
    if (!ottla_has(from, 1)) return 0;
    return (int8_t)*from->at++;
}

static inline int16_t ottla_read16(ottla_cursor *from) {
    if (!ottla_has(from, 2)) return 0;
    uint16_t value;
    memcpy(&value, from->at, 2);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap16(value);
#endif
    from->at += 2;
    return (int16_t)value;
}

static inline int32_t ottla_read32(ottla_cursor *from) {
    if (!ottla_has(from, 4)) return 0;
    uint32_t value;
    memcpy(&value, from->at, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    from->at += 4;
    return (int32_t)value;
}

static inline int64_t ottla_read64(ottla_cursor *from) {
    if (!ottla_has(from, 8)) return 0;
    uint64_t value;
    memcpy(&value, from->at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    from->at += 8;
    return (int64_t)value;
}

/* Seven bits per byte, lowest first, at most five bytes and 32 bits. */
static inline uint32_t ottla_read_varint(ottla_cursor *from) {
    if (from->at < from->end && *from->at < 0x80) return *from->at++;
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (!ottla_has(from, 1)) return 0;
        uint64_t byte = *from->at++;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (value <= UINT32_MAX) return (uint32_t)value;
            break;
        }
    }
    ottla_fail(from, "a varint has more than 32 bits");
    return 0;
}

enum {
    /* As in every Kafka implementation, in the compact encoding too. */
    OTTLA_STRING_BYTES_MAX = 0x7fff,
    /* Far more than a broker can lead. Without it, a large frame of small elements would take thirty times its size. */
    OTTLA_PARTS_MAX = 1 << 20,
};

/* How many elements an array has, which may not be null. Each takes a byte at least, so a count beyond the bytes that
 * are left is a lie; believing it would allocate for nothing. `taken` were read from sister arrays before. */
static inline int32_t ottla_read_count(ottla_cursor *from, int flexible, ptrdiff_t taken) {
    int64_t count = flexible ? (int64_t)ottla_read_varint(from) - 1 : ottla_read32(from);
    if (from->broken != NULL) return 0;
    if (count < 0) {
        ottla_fail(from, count == -1 ? "a non-nullable array is null" : "an array has a negative count");
        return 0;
    }
    if (count > ottla_left(from)) {
        ottla_fail(from, "an array counts more elements than bytes are left");
        return 0;
    }
    if (count > OTTLA_PARTS_MAX - taken) {
        ottla_fail(from, "the request names more than 1048576 partitions");
        return 0;
    }
    return (int32_t)count;
}

/* The same for a request that becomes objects: of the elements that it may have in all its arrays, `left` are left. */
static inline int32_t ottla_read_some(ottla_cursor *from, int flexible, int32_t *left) {
    int32_t count = ottla_read_count(from, flexible, 0);
    if (count > *left) {
        ottla_fail(from, "its arrays have more elements than are accepted in one request");
        return 0;
    }
    *left -= count;
    return count;
}

/* The span of a length that was read; -1 means null. */
static inline ottla_span ottla_take(ottla_cursor *from, int64_t size, int nullable) {
    ottla_span span = {NULL, 0};
    if (from->broken != NULL) return span;
    if (size < 0) {
        if (size < -1) ottla_fail(from, "a length is negative");
        else if (!nullable) ottla_fail(from, "a non-nullable field is null");
        return span;
    }
    if (size > ottla_left(from)) {
        ottla_fail(from, "a length reaches beyond the end of the request");
        return span;
    }
    span.at = from->at;
    span.size = (ptrdiff_t)size;
    from->at += size;
    return span;
}

static inline ottla_span ottla_read_string(ottla_cursor *from, int flexible, int nullable) {
    int64_t size = flexible ? (int64_t)ottla_read_varint(from) - 1 : ottla_read16(from);
    if (size > OTTLA_STRING_BYTES_MAX) ottla_fail(from, "a string has more than 32767 bytes");
    return ottla_take(from, size, nullable);
}

static inline ottla_span ottla_read_records(ottla_cursor *from, int flexible) {
    int64_t size = flexible ? (int64_t)ottla_read_varint(from) - 1 : ottla_read32(from);
    return ottla_take(from, size, 1);
}

/* A tagged field's number, and its content as a cursor of its own; the outer cursor goes on behind it. */
static inline uint32_t ottla_read_tag(ottla_cursor *from, ottla_cursor *content) {
    uint32_t tag = ottla_read_varint(from);
    ottla_span span = ottla_take(from, ottla_read_varint(from), 0);
    content->at = span.at;
    content->end = span.at == NULL ? NULL : span.at + span.size;
    content->broken = from->broken;
    return tag;
}

/* Tagged fields that mean nothing here, by their sizes. */
static inline void ottla_skip_tags(ottla_cursor *from) {
    ottla_cursor content;
    for (uint32_t left = ottla_read_varint(from); left > 0 && from->broken == NULL; left--) ottla_read_tag(from, &content);
}

#endif
